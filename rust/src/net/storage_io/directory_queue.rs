//! Whether storage calls of a log directory may run on network threads, and its own thread for when
//! they may not.
//!
//! ```text
//! open     calls run where they come up: no thread is woken, no buffer changes hands
//! closed   a call did not return in time (`handoff.rs` saw it): the next ones queue here
//! open     the call has returned and the queue is empty; for reads, the directory's thread got its
//!          last one done in time, so that the next ones need not queue behind those still there
//! ```
//!
//! A directory has a queue for writing and one for reading, since a frozen file system still gives
//! what is in the page cache, and further ones for calls that neither may wait for. Writes run in the
//! order in which they came, the one that closed the queue first. Reads depend on no other: of a
//! connection there is one at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::crash::or_end_process;
use crate::limits::{DIRECTORY_SILENCE_MS, STORAGE_TICK_MS};
use crate::log::directory::LogDirectory;
use crate::net::mailbox::Message;
use crate::net::shared::Shared;
use crate::net::storage_call::StorageCall;

/// A call, and the network thread that gets what becomes of it.
struct Job {
    work: StorageCall,
    thread: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Calls that did not return in time and have not returned since.
    stalled: usize,
    is_running: bool,
    has_worker: bool,
    is_ending: bool,
    /// When the queue was closed, or a call has returned since.
    moved: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No call may overtake one that queues.
    Ordered,
    /// Each for itself.
    Unordered,
    /// As well, and a call may wait for its socket to have room.
    Patient,
}

pub struct DirectoryQueue {
    name: String,
    /// The number of its log directory.
    pub directory: usize,
    kind: Kind,
    is_closed: AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
    opened: Condvar,
}

impl DirectoryQueue {
    fn new(name: char, directory: usize, kind: Kind) -> Arc<DirectoryQueue> {
        Arc::new(DirectoryQueue {
            name: format!("{name}{directory}"),
            directory,
            kind,
            is_closed: AtomicBool::new(false),
            state: Mutex::default(),
            wake: Condvar::new(),
            opened: Condvar::new(),
        })
    }

    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// A call on a network thread does not return.
    pub fn stall(&self) {
        let mut state = self.state.lock();
        state.stalled += 1;
        self.close(&mut state);
    }

    fn close(&self, state: &mut State) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            state.moved = Some(Instant::now());
        }
    }

    /// It has been closed for so long, and no call has returned meanwhile.
    pub fn is_silent(&self, least: Duration) -> bool {
        let is_old = |moved: Instant| moved.elapsed() >= least;
        !self.is_open() && self.state.lock().moved.is_some_and(is_old)
    }

    /// It has returned, and its result is on its way.
    pub fn recover(&self) {
        let mut state = self.state.lock();
        state.stalled -= 1;
        state.moved = Some(Instant::now());
        self.open_if_idle(&state);
        self.wake.notify_one();
    }

    fn open_if_idle(&self, state: &State) {
        if state.stalled == 0 && state.jobs.is_empty() && !state.is_running {
            self.is_closed.store(false, Ordering::Release);
            self.opened.notify_all();
        }
    }

    /// Returns once all that was put here is done, or at the deadline.
    fn wait_until_open(&self, deadline: Instant) {
        let mut state = self.state.lock();
        while !self.is_open() && !self.opened.wait_until(&mut state, deadline).timed_out() {}
    }

    /// As well, however long that takes.
    fn wait(&self) {
        let mut state = self.state.lock();
        while !self.is_open() {
            self.opened.wait(&mut state);
        }
    }

    /// The directory's thread is through with a call, which took so long.
    fn ran(&self, state: &mut State, took: Duration) {
        state.is_running = false;
        state.moved = Some(Instant::now());
        let is_prompt = took < Duration::from_millis(STORAGE_TICK_MS);
        if self.kind != Kind::Ordered && is_prompt && state.stalled == 0 {
            self.is_closed.store(false, Ordering::Release);
        }
    }

    /// Has the directory's own thread do it; `thread` gets the result as a message. Without a thread to
    /// be had, it waits for one, or is given back where it waits for no other call.
    pub fn put(
        self: &Arc<DirectoryQueue>,
        work: StorageCall,
        thread: usize,
        shared: &Arc<Shared>,
    ) -> Option<StorageCall> {
        let mut state = self.state.lock();
        if !self.start_thread(&mut state, shared) {
            if state.stalled == 0 && state.jobs.is_empty() {
                return Some(work);
            }
            shared.queues.lacks_thread.store(true, Ordering::SeqCst);
            shared.watch.wake();
        }
        self.close(&mut state);
        state.jobs.push_back(Job { work, thread });
        self.wake.notify_one();
        None
    }

    /// Takes out what waits here for a connection of a network thread.
    fn forget(&self, thread: usize, connection: u64, forgotten: &mut Vec<StorageCall>) {
        if self.is_open() {
            return;
        }
        let mut state = self.state.lock();
        let is_meant = |job: &Job| job.thread == thread && job.work.is_for(connection);
        let count = state.jobs.len();
        for _ in 0..count {
            match state.jobs.pop_front() {
                Some(job) if is_meant(&job) => forgotten.push(job.work),
                Some(job) => state.jobs.push_back(job),
                None => {}
            }
        }
        self.open_if_idle(&state);
    }

    /// Starts the directory's own thread, if there is none yet. False: none can be had.
    fn start_thread(self: &Arc<DirectoryQueue>, state: &mut State, shared: &Arc<Shared>) -> bool {
        if !state.has_worker {
            let (queue, shared) = (self.clone(), Arc::downgrade(shared));
            let builder = std::thread::Builder::new().name(format!("storage-{}", self.name));
            state.has_worker = builder
                .spawn(move || or_end_process(|| queue.run(&shared)))
                .is_ok();
        }
        state.has_worker
    }

    fn run(&self, shared: &Weak<Shared>) {
        let mut state = self.state.lock();
        loop {
            while state.stalled > 0 || state.jobs.is_empty() {
                self.open_if_idle(&state);
                if state.is_ending && state.jobs.is_empty() {
                    state.has_worker = false;
                    return;
                }
                self.wake.wait(&mut state);
            }
            let (Some(job), Some(shared)) = (state.jobs.pop_front(), shared.upgrade()) else {
                state.has_worker = false;
                return;
            };
            state.is_running = true;
            drop(state);
            let begun = Instant::now();
            let is_patient = self.kind == Kind::Patient;
            let done = job.work.run(&shared, Some(self.directory), is_patient);
            let took = begun.elapsed();
            // Before the result is out: what follows from it finds the queue as it is now.
            self.ran(&mut self.state.lock(), took);
            shared.post(job.thread, Message::CallResult(done));
            drop(shared);
            state = self.state.lock();
        }
    }

    fn end(&self) {
        self.state.lock().is_ending = true;
        self.wake.notify_all();
    }
}

/// The queues of one log directory.
pub struct QueuesOfDirectory {
    directory: Arc<LogDirectory>,
    pub writes: Arc<DirectoryQueue>,
    pub reads: Arc<DirectoryQueue>,
    /// For look-ups by time, which always run on its thread.
    pub searches: Arc<DirectoryQueue>,
    /// For what Python asks of logs, appends of its coordinators above all.
    pub calls: Arc<DirectoryQueue>,
    /// For logs that are made and deleted: many take seconds, which the appends need not wait.
    pub changes: Arc<DirectoryQueue>,
    /// For long answers out of files, one at a time: the network thread looks after the others
    /// meanwhile. It is closed while it sends one.
    pub long_answers: Arc<DirectoryQueue>,
}

/// The queues of all log directories.
pub struct StorageQueues {
    directories: Vec<QueuesOfDirectory>,
    /// For records of the metadata, whose directory may be none of the log directories.
    pub metadata: Arc<DirectoryQueue>,
    /// For large requests, which no network thread reads: it has a thread and no directory.
    pub large: Arc<DirectoryQueue>,
    /// A queue has no thread for what is in its queue, since none could be started.
    lacks_thread: AtomicBool,
}

impl StorageQueues {
    pub fn new(directories: &[Arc<LogDirectory>]) -> StorageQueues {
        let queues = directories
            .iter()
            .enumerate()
            .map(|(number, directory)| QueuesOfDirectory {
                directory: directory.clone(),
                writes: DirectoryQueue::new('w', number, Kind::Ordered),
                reads: DirectoryQueue::new('r', number, Kind::Unordered),
                searches: DirectoryQueue::new('s', number, Kind::Unordered),
                calls: DirectoryQueue::new('c', number, Kind::Ordered),
                changes: DirectoryQueue::new('m', number, Kind::Ordered),
                long_answers: DirectoryQueue::new('l', number, Kind::Patient),
            });
        StorageQueues {
            directories: queues.collect(),
            metadata: DirectoryQueue::new('k', 0, Kind::Ordered),
            large: DirectoryQueue::new('q', 0, Kind::Unordered),
            lacks_thread: AtomicBool::new(false),
        }
    }

    /// The number of a directory; that of the first one if it is a stranger.
    pub fn number_of(&self, directory: &Arc<LogDirectory>) -> usize {
        let same = |queues: &QueuesOfDirectory| Arc::ptr_eq(&queues.directory, directory);
        self.directories.iter().position(same).unwrap_or(0)
    }

    /// Whether a directory has this number; a stranger has that of the first one.
    pub fn is_number_of(&self, number: usize, directory: &Arc<LogDirectory>) -> bool {
        self.directories.len() == 1 || self.number_of(directory) == number
    }

    pub fn get(&self, number: usize) -> Option<&QueuesOfDirectory> {
        self.directories.get(number)
    }

    /// Whether writes of a directory have not returned for so long that nothing new is to lie there.
    pub fn is_silent(&self, directory: &Arc<LogDirectory>) -> bool {
        let least = Duration::from_millis(DIRECTORY_SILENCE_MS);
        let queues = self.get(self.number_of(directory));
        queues.is_some_and(|queues| {
            let writing = [&queues.writes, &queues.calls, &queues.changes];
            writing.iter().any(|queue| queue.is_silent(least))
        })
    }

    /// The queue for reading in a directory, which is not asked for where there is only one.
    pub fn reads_of<'a>(
        &self,
        directory: impl FnOnce() -> Option<&'a Arc<LogDirectory>>,
    ) -> Option<&Arc<DirectoryQueue>> {
        let number = match self.directories.len() {
            1 => 0,
            _ => self.number_of(directory()?),
        };
        self.directories.get(number).map(|queues| &queues.reads)
    }

    /// Threads could not be started, and `start_threads` is to try again.
    pub fn lack_threads(&self) -> bool {
        self.lacks_thread.load(Ordering::SeqCst)
    }

    /// Starts the threads that could not be started. False: still not all.
    pub fn start_threads(&self, shared: &Arc<Shared>) -> bool {
        if !self.lacks_thread.swap(false, Ordering::SeqCst) {
            return true;
        }
        let has_thread = |queue: &Arc<DirectoryQueue>| {
            let mut state = queue.state.lock();
            state.jobs.is_empty() || queue.start_thread(&mut state, shared)
        };
        let of_directories = self.directories.iter().all(|queues| {
            has_thread(&queues.writes)
                && has_thread(&queues.reads)
                && has_thread(&queues.searches)
                && has_thread(&queues.calls)
                && has_thread(&queues.changes)
                && has_thread(&queues.long_answers)
        });
        let have_threads = of_directories && has_thread(&self.metadata) && has_thread(&self.large);
        if !have_threads {
            self.lacks_thread.store(true, Ordering::SeqCst);
        }
        have_threads
    }

    /// Takes out what waits at any of them for a connection that is gone: else a client that comes back
    /// again and again would fill the memory while a log directory does not answer. Appends stay: they
    /// were accepted, and are bounded by the memory for requests.
    pub fn forget(&self, thread: usize, connection: u64) -> Vec<StorageCall> {
        let mut forgotten = Vec::new();
        for queues in &self.directories {
            for queue in [&queues.reads, &queues.searches, &queues.long_answers] {
                queue.forget(thread, connection, &mut forgotten);
            }
        }
        self.large.forget(thread, connection, &mut forgotten);
        forgotten
    }

    /// Logs are being made or deleted, or the metadata is being written, in a directory that does not
    /// answer.
    pub fn are_changes_stuck(&self) -> bool {
        let mut changes = self.directories.iter().map(|queues| &queues.changes);
        !self.metadata.is_open() || changes.any(|queue| !queue.is_open())
    }

    /// Returns once all logs are made and deleted that were to be, and the metadata is written, or at the
    /// deadline.
    pub fn wait_for_changes(&self, deadline: Instant) {
        self.metadata.wait_until_open(deadline);
        for queues in &self.directories {
            queues.changes.wait_until_open(deadline);
        }
    }

    /// Returns once nothing of the metadata is being written, however long that takes.
    pub fn wait_for_metadata(&self) {
        self.metadata.wait();
    }

    pub fn are_open(&self) -> bool {
        self.directories
            .iter()
            .all(|queues| queues.writes.is_open() && queues.reads.is_open())
    }

    /// Ends the threads, each after what is in its queue.
    pub fn end(&self) {
        for queues in &self.directories {
            queues.writes.end();
            queues.reads.end();
            queues.searches.end();
            queues.calls.end();
            queues.changes.end();
            queues.long_answers.end();
        }
        self.metadata.end();
        self.large.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::storage_call::AppendBatch;

    /// A queue that a call has closed which did not return, with another one queued behind it.
    fn closed(kind: Kind) -> Arc<DirectoryQueue> {
        let queue = DirectoryQueue::new('x', 0, kind);
        queue.stall();
        queue.state.lock().jobs.push_back(Job {
            work: StorageCall::Append(AppendBatch::default()),
            thread: 0,
        });
        queue
    }

    #[test]
    fn a_gate_is_silent_while_it_is_closed_and_nothing_returns() {
        let (soon, late) = (Duration::ZERO, Duration::from_secs(3600));
        let queue = DirectoryQueue::new('x', 0, Kind::Ordered);
        assert!(!queue.is_silent(soon), "it is open");
        queue.stall();
        assert!(queue.is_silent(soon));
        assert!(!queue.is_silent(late));
        let closed = queue.state.lock().moved;
        queue.stall();
        assert_eq!(queue.state.lock().moved, closed, "nothing has returned");
        queue.state.lock().moved = None;
        queue.recover();
        assert!(queue.state.lock().moved.is_some(), "one has");
        queue.recover();
        assert!(!queue.is_silent(soon), "it is open again");
    }

    #[test]
    fn reads_go_on_where_they_come_up_once_the_directory_answers_in_time() {
        let prompt = Duration::from_millis(STORAGE_TICK_MS - 1);
        for kind in [Kind::Ordered, Kind::Unordered] {
            let queue = closed(kind);
            queue.ran(&mut queue.state.lock(), prompt);
            assert!(!queue.is_open(), "a call has not returned yet");
            queue.recover();
            assert!(!queue.is_open(), "nothing has been prompt since");
            queue.ran(&mut queue.state.lock(), 2 * prompt);
            assert!(!queue.is_open());
            queue.ran(&mut queue.state.lock(), prompt);
            assert_eq!(queue.is_open(), kind == Kind::Unordered);
        }
    }
}
