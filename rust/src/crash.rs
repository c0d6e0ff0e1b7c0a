//! A thread that clients wait for and that panics ends the process. Without a network thread the broker
//! would look alive and be deaf, without a flusher acks=all would wait for ever, with the logs as the
//! panic left them; and nobody would start it anew. Housekeeping is not among them: a record that its
//! cleaner could not stand would end each start again.
//!
//! Nothing is flushed or closed: the next start finds what a kill leaves, and recovers.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a thread; if that panics, the process ends.
pub fn or_end_process(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        end_process(&format!("the thread {name} panicked, as told above"));
    }
}

/// Ends the process by SIGABRT, with a sentence on stderr, where the broker's log goes. Python, which
/// writes that otherwise, may be busy or waiting for the caller.
pub fn end_process(reason: &str) -> ! {
    let sentence = format!("the broker ends as if it had been killed: {reason}\n");
    // Log or no log, it ends.
    let _ = std::io::stderr().write_all(sentence.as_bytes());
    std::process::abort()
}
