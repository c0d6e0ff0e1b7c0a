//! A thread that clients wait for and that panics ends the process. Without a network thread the
//! broker would look alive and be deaf, without a flusher acks=all would wait for ever, with the
//! logs as the panic left them; and nobody would start it anew.
//!
//! Housekeeping is not among them: a record that its cleaner could not stand would end each start
//! again. There a panic is an error of the log that it came from, and all others are looked after.
//!
//! Nothing is flushed or closed at such an end: the next start finds what a
//! kill leaves, and recovers.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{Error, Result};

/// Runs the body of a thread; if that panics, the process ends.
pub fn or_end_process(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        end_process(&format!("the thread {name} panicked, as told above"));
    }
}

/// Runs what is done for `path`, by a thread that looks after others as well; a panic is an error
/// of that path. Locks are given back, and what they guard is as the panic left it.
pub fn or_error<T>(path: &Path, body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(Error::Panicked {
            path: path.to_path_buf(),
            reason: text.unwrap_or("without a word").to_owned(),
        })
    })
}

/// Ends the process by SIGABRT, with a sentence on stderr, where the broker's log goes. Python,
/// which writes that otherwise, may be busy or waiting for the caller.
pub fn end_process(reason: &str) -> ! {
    let sentence = format!("the broker ends as if it had been killed: {reason}\n");
    // Log or no log, it ends.
    let _ = std::io::stderr().write_all(sentence.as_bytes());
    std::process::abort()
}
