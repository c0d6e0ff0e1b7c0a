//! Group commit: a small pool of threads that flush logs on request.
//!
//! ```text
//! append → request(log) ─► queue ─► thread: log.flush() ─► observer wakes who waits for the offset
//! ```
//! A log stands in the queue at most once. Requests that come while its flush is under way make it
//! stand there again, so whatever was appended before a request is on disk after the flush that
//! follows it, and any number of appends share one `fdatasync`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use super::log::Log;

pub struct Flusher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    logs: VecDeque<Arc<Log>>,
    is_stopping: bool,
}

impl Flusher {
    /// Starts the pool: one slow file holds one thread. A directory has its own, so that a slow disk
    /// stalls nobody else's partitions.
    pub fn start(name: &str, thread_count: usize) -> std::io::Result<Flusher> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
        });
        let threads = (0..thread_count.max(1))
            .map(|number| {
                let shared = shared.clone();
                thread::Builder::new()
                    .name(format!("flush-{name}-{number}"))
                    .spawn(move || run(&shared))
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Flusher { shared, threads })
    }

    /// Asks for a flush of everything that has been appended to `log`. Returns at once; the log's
    /// observer is told when its flushed offset has moved, or that its directory has failed.
    pub fn request(&self, log: &Arc<Log>) {
        if log.flush_is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.queue.lock().logs.push_back(log.clone());
        self.shared.wake.notify_one();
    }

    /// Flushes what is queued and ends the threads.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.queue.lock().is_stopping = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of the thread has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(shared: &Shared) {
    loop {
        let mut queue = shared.queue.lock();
        let log = loop {
            if let Some(log) = queue.logs.pop_front() {
                break log;
            }
            if queue.is_stopping {
                return;
            }
            shared.wake.wait(&mut queue);
        };
        drop(queue);
        log.flush_is_queued.store(false, Ordering::Release);
        // A failure has taken the directory offline, and the observer is told of that.
        let _ = log.flush();
    }
}
