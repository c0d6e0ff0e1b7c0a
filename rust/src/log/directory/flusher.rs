//! Group commit: a small pool of threads that flush logs on request.
//!
//! ```text
//! append → request(log) ─► queue ─► thread: log.flush() ─► observer wakes who waits for the offset
//! ```
//! A log stands in the queue at most once. Requests that come while its flush is under way make it
//! stand there again, so whatever was appended before a request is on disk after the flush that
//! follows it, and any number of appends share one `fdatasync`.
//!
//! A `fdatasync` of a file that has grown commits the file system's journal, one after the other.
//! From some ten waiting logs on, one thread takes them all and makes the file system durable by
//! one `syncfs`, which commits once (benches/TRIED.md: at 16 files a quarter of the time of four
//! threads, at 256 a sixth). It also writes what others have dirtied there: if that made it slower
//! than the files one by one, it is left alone for a while.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::crash::or_end_process;
use crate::error::Error;
use crate::limits::{
    FAST_FLUSH_MAX, FLUSH_RETRY, SYNC_FILE_SYSTEM_LOGS_MIN, SYNC_FILE_SYSTEM_REST,
};
use crate::log::flush::SharedFlush;
use crate::log::log::Log;
use crate::log::storage::StorageFileSystem;

pub struct Flusher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// `None`: files are synced one by one.
    file_system: Option<Box<dyn StorageFileSystem>>,
    thread_count: usize,
    /// Held from a sync of the file system until all that came of it is known: a failed write is
    /// told once, to one of those who sync at the same time.
    syncing: Mutex<()>,
}

#[derive(Default)]
struct Queue {
    logs: VecDeque<Arc<Log>>,
    /// Logs whose flush found no descriptor for a file, and when each is retried, in order.
    later: VecDeque<(Instant, Arc<Log>)>,
    is_stopping: bool,
    /// The time that flushing one log takes, on a moving average.
    flush_time: Duration,
    totals: FlushTotals,
    /// Until then the file system is not synced as a whole.
    rest_until: Option<Instant>,
}

/// The flushes since the start and the time they took.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlushTotals {
    /// A sync of the whole file system is one.
    pub count: u64,
    pub time: Duration,
}

impl FlushTotals {
    fn note(&mut self, took: Duration) {
        self.count += 1;
        self.time += took;
    }
}

impl Flusher {
    /// Starts the pool: one slow file holds one thread. A directory has its own, so that a slow
    /// disk stalls nobody else's partitions. `file_system` is the one that holds the directory.
    pub fn start(
        name: &str,
        thread_count: usize,
        file_system: Option<Box<dyn StorageFileSystem>>,
    ) -> std::io::Result<Flusher> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            file_system,
            thread_count: thread_count.max(1),
            syncing: Mutex::new(()),
        });
        let threads = (0..thread_count.max(1))
            .map(|number| {
                let shared = shared.clone();
                thread::Builder::new()
                    .name(format!("flush-{name}-{number}"))
                    .spawn(move || or_end_process(|| run(&shared)))
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

    /// Flushes `log` on the caller's thread.
    pub fn flush_here(&self, log: &Arc<Log>) {
        self.shared.flush_one(log);
    }

    /// Flushes logs on the caller's thread, together if they are many.
    pub fn flush_all_here(&self, logs: &[Arc<Log>]) {
        let is_worth_it = logs.len() >= SYNC_FILE_SYSTEM_LOGS_MIN;
        match &self.shared.file_system {
            Some(file_system) if is_worth_it && self.shared.may_sync_file_system() => {
                self.shared.flush_many(logs, &**file_system);
            }
            _ => logs.iter().for_each(|log| self.shared.flush_one(log)),
        }
    }

    /// True if the time that flushes have lately taken is known and short.
    pub fn is_fast(&self) -> bool {
        let flush_time = self.shared.queue.lock().flush_time;
        !flush_time.is_zero() && flush_time <= FAST_FLUSH_MAX
    }

    pub fn totals(&self) -> FlushTotals {
        self.shared.queue.lock().totals
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
    while let Some(due) = shared.next_due() {
        match due {
            Due::One(log) => {
                take_off(&log);
                shared.flush_one(&log);
            }
            Due::Many(logs, file_system) => {
                logs.iter().for_each(take_off);
                shared.flush_many(&logs, file_system);
            }
        }
    }
}

/// From here on a request queues the log again. A swap, not a store: with it this thread sees what
/// was appended before the last request that found the log queued.
fn take_off(log: &Arc<Log>) {
    log.flush_is_queued.swap(false, Ordering::AcqRel);
}

/// Logs whose turn it is.
enum Due<'s> {
    One(Arc<Log>),
    Many(Vec<Arc<Log>>, &'s dyn StorageFileSystem),
}

impl Shared {
    /// Waits for a request; `None` once the pool is stopping and the queue empty.
    fn next_due(&self) -> Option<Due<'_>> {
        let mut queue = self.queue.lock();
        loop {
            while let Some((at, _)) = queue.later.front()
                && *at <= Instant::now()
            {
                let waited = queue.later.pop_front();
                queue.logs.extend(waited.map(|(_, log)| log));
            }
            if queue.logs.len() >= SYNC_FILE_SYSTEM_LOGS_MIN
                && let Some(file_system) = &self.file_system
                && queue.rest_until.is_none_or(|until| until <= Instant::now())
            {
                return Some(Due::Many(queue.logs.drain(..).collect(), &**file_system));
            }
            if let Some(log) = queue.logs.pop_front() {
                return Some(Due::One(log));
            }
            if queue.is_stopping {
                return None;
            }
            match queue.later.front() {
                Some((at, _)) => {
                    let at = *at;
                    self.wake.wait_until(&mut queue, at);
                }
                None => self.wake.wait(&mut queue),
            }
        }
    }

    fn flush_one(&self, log: &Arc<Log>) {
        let started = Instant::now();
        match log.flush() {
            Err(error) if error.lacks_descriptors() => {
                if !log.flush_is_queued.swap(true, Ordering::AcqRel) {
                    let again = Instant::now() + FLUSH_RETRY;
                    self.queue.lock().later.push_back((again, log.clone()));
                    self.wake.notify_one();
                }
            }
            // A failure has taken the directory offline, and the observer is told of that.
            Ok(()) | Err(_) => self.note_flush(started.elapsed()),
        }
    }

    fn flush_many(&self, logs: &[Arc<Log>], file_system: &dyn StorageFileSystem) {
        let _syncing = self.syncing.lock();
        let started = Instant::now();
        flush_together(logs, file_system);
        self.note_shared_flush(logs.len() as u32, started.elapsed());
    }

    /// A sync of the whole file system has not lately been slower than the files one by one.
    fn may_sync_file_system(&self) -> bool {
        let rest_until = self.queue.lock().rest_until;
        rest_until.is_none_or(|until| until <= Instant::now())
    }

    fn note_flush(&self, took: Duration) {
        let mut queue = self.queue.lock();
        queue.totals.note(took);
        queue.flush_time = (queue.flush_time * 7 + took) / 8;
    }

    fn note_shared_flush(&self, count: u32, took: Duration) {
        let mut queue = self.queue.lock();
        queue.totals.note(took);
        let one_by_one = queue.flush_time * count / self.thread_count as u32;
        if took > one_by_one && !one_by_one.is_zero() {
            queue.rest_until = Some(Instant::now() + took * SYNC_FILE_SYSTEM_REST);
        }
    }
}

/// Flushes logs of one file system by one sync of it. A failure takes their directory offline, and
/// their observers are told, as of a flush of one.
pub fn flush_together(logs: &[Arc<Log>], file_system: &dyn StorageFileSystem) {
    let begun: Vec<(&Arc<Log>, SharedFlush)> = logs
        .iter()
        .filter_map(|log| match log.begin_shared_flush() {
            Ok(Some(shared)) => Some((log, shared)),
            Ok(None) | Err(_) => {
                log.notify(); // as after a flush that found nothing to do, or the directory offline
                None
            }
        })
        .collect();
    if begun.is_empty() {
        return;
    }
    let synced = file_system.sync();
    for (log, shared) in begun {
        match &synced {
            Ok(()) => {
                // The directory may have failed meanwhile: the observer is told of that too.
                let _ = log.finish_shared_flush(shared);
            }
            Err(error) => {
                let copy = std::io::Error::new(error.kind(), error.to_string());
                log.fail_shared_flush(&shared, &Error::io("syncfs", &log.directory())(copy));
            }
        }
    }
}
