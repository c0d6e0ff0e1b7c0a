//! Storage I/O: calls that may block (append, look-up, `sendfile`), made without holding up
//! the thread that needs them.
//!
//! Most calls take microseconds, and a hop to another thread costs as much as they do; but
//! any of them may meet a frozen or slow disk, or a lock whose holder met one. So a thread
//! makes them itself, and gives up what it was working with if one does not return. Callers
//! know `StorageIo::submit` and what it answers; a result that comes later comes to the
//! mailbox that the call names.
//!
//! ```text
//! submit(call) ─► queue open:    made here, between leave and back of a `Handoff`     ─► Made
//!             │                  it did not return in time: another thread goes on    ─► HandedOver
//!             └─► queue closed:  made by the queue's own thread                       ─► Queued
//! ```
//!
//! `call`: a call as callers see it. `directory_queue`: the calls of a log directory that wait, and
//! their thread. `handoff`: what a thread leaves during a call. `watchdog`, `watch`: who notices
//! that one does not return, and how it is woken.

mod call;
mod directory_queue;
mod handoff;
mod watch;
mod watchdog;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use self::call::{BlockingCall, Deliver, Here, QueueId, QueueKind, QueuedCall, Route};
use self::directory_queue::{DirectoryQueue, Order};
pub use self::handoff::Handoff;
use self::watch::Watch;
pub use self::watchdog::{Successor, Watchdog};
use crate::limits::DIRECTORY_SILENCE_MS;
use crate::log::directory::LogDirectory;

/// The outcome of a call that was submitted; with what its thread had left for the time of it.
pub enum Submitted<T, R> {
    /// It was made here.
    Made(T, R),
    /// The thread of its queue makes it, and delivers the result.
    Queued(T),
    /// It was made here, but took so long that another thread goes on with what was left.
    HandedOver(R),
}

/// Storage I/O of all log directories.
pub struct StorageIo {
    directories: Arc<[Arc<LogDirectory>]>,
    /// The queues of the directories, by kind.
    queues: Vec<[Arc<DirectoryQueue>; QueueKind::ALL.len()]>,
    /// For records of the metadata, whose directory may be none of the log directories.
    metadata: Arc<DirectoryQueue>,
    /// For large requests, which no network thread reads: it has a thread and no directory.
    large_requests: Arc<DirectoryQueue>,
    watch: Arc<Watch>,
}

impl StorageIo {
    pub fn new(directories: &[Arc<LogDirectory>]) -> StorageIo {
        let directories: Arc<[Arc<LogDirectory>]> = directories.into();
        let watch = Arc::new(Watch::default());
        let queue = |name: char, number: usize, order: Order| {
            DirectoryQueue::new(name, number, order, directories.clone(), watch.clone())
        };
        let of_directory =
            |number| QueueKind::ALL.map(|kind| queue(kind.letter(), number, order_of(kind)));
        StorageIo {
            queues: (0..directories.len()).map(of_directory).collect(),
            metadata: queue('k', 0, Order::Kept),
            large_requests: queue('q', 0, Order::Free),
            directories: directories.clone(),
            watch: watch.clone(),
        }
    }

    /// The number of a directory; that of the first one if it is a stranger.
    pub fn number_of(&self, directory: &Arc<LogDirectory>) -> usize {
        call::number_of(&self.directories, directory)
    }

    /// The queue for reading in a directory, which is not asked for where there is only one.
    pub fn reads_of<'a>(
        &self,
        directory: impl FnOnce() -> Option<&'a Arc<LogDirectory>>,
    ) -> Option<QueueId> {
        let number = match self.directories.len() {
            1 => 0,
            _ => self.number_of(directory()?),
        };
        Some(QueueId::Directory(QueueKind::Reads, number))
    }

    fn queue(&self, id: QueueId) -> Option<&Arc<DirectoryQueue>> {
        match id {
            QueueId::Directory(kind, number) => {
                self.queues.get(number).map(|all| &all[kind as usize])
            }
            QueueId::Metadata => Some(&self.metadata),
            QueueId::LargeRequests => Some(&self.large_requests),
        }
    }

    fn all_queues(&self) -> impl Iterator<Item = &Arc<DirectoryQueue>> {
        let others = [&self.metadata, &self.large_requests];
        self.queues.iter().flatten().chain(others)
    }

    /// Makes the call here, or has the thread of its queue make it where the route says so, or
    /// where the queue is closed. `left` is what the calling thread works with; whoever watches
    /// `handoff` goes on with it if the call does not return in time.
    pub fn submit<T, C: BlockingCall>(
        &self,
        left: T,
        handoff: &Handoff<T>,
        mut call: C,
        route: Option<Route>,
    ) -> Submitted<T, C::Result> {
        let passed = route.and_then(|route| Some((self.queue(route.queue)?, route)));
        let Some((queue, route)) = passed else {
            // Nothing of it lies in a log directory.
            let result = call.run(&Here::nowhere());
            return Submitted::Made(left, result);
        };
        let elsewhere = if queue.is_open() {
            route.by_thread_of.and_then(|id| self.queue(id))
        } else {
            Some(queue)
        };
        if let Some(elsewhere) = elsewhere {
            call = match elsewhere.put(call) {
                None => return Submitted::Queued(left),
                Some(call) => call,
            };
        }
        let number = handoff.leave(left, queue, &self.watch);
        let result = call.run(&queue.here());
        match handoff.back(number) {
            Some(left) => Submitted::Made(left, result),
            None => Submitted::HandedOver(result),
        }
    }

    /// After `HandedOver`, once the result has been delivered: the queue may open again.
    pub fn returned(&self, route: Option<Route>) {
        if let Some(queue) = route.and_then(|route| self.queue(route.queue)) {
            queue.recover();
        }
    }

    /// Calls of this queue are made where they come up.
    pub fn is_open(&self, id: QueueId) -> bool {
        self.queue(id).is_none_or(|queue| queue.is_open())
    }

    /// All log directories answer those who write and read on network threads.
    pub fn are_open(&self) -> bool {
        let hot = [QueueKind::Writes, QueueKind::Reads];
        let mut queues = self.queues.iter();
        queues.all(|all| hot.iter().all(|kind| all[*kind as usize].is_open()))
    }

    /// Writes of a directory have not returned for so long that nothing new is to lie there.
    pub fn is_silent(&self, directory: &Arc<LogDirectory>) -> bool {
        let least = Duration::from_millis(DIRECTORY_SILENCE_MS);
        let writing = [
            QueueKind::Writes,
            QueueKind::LogCalls,
            QueueKind::LogChanges,
        ];
        let queues = self.queues.get(self.number_of(directory));
        queues.is_some_and(|all| {
            let mut writing = writing.iter().map(|kind| &all[*kind as usize]);
            writing.any(|queue| queue.is_silent(least))
        })
    }

    /// Logs are being made or deleted, or the metadata is being written, in a
    /// directory that does not answer.
    pub fn are_changes_stuck(&self) -> bool {
        !self.metadata.is_open() || self.changes().any(|queue| !queue.is_open())
    }

    fn changes(&self) -> impl Iterator<Item = &Arc<DirectoryQueue>> {
        self.queues
            .iter()
            .map(|all| &all[QueueKind::LogChanges as usize])
    }

    /// Cancels calls that wait for a connection that is gone: else a client that comes back again
    /// and again would fill the memory while a log directory does not answer. Appends stay: they
    /// were accepted, and are bounded by the memory for requests.
    pub fn cancel(&self, thread: usize, connection: u64) {
        for queue in self.all_queues() {
            queue.cancel(thread, connection);
        }
    }

    /// Calls that did not return in time, so that another thread went on, since the start.
    pub fn hand_overs(&self) -> u64 {
        self.watch.hand_overs.load(Ordering::Relaxed)
    }

    /// Returns once all logs are made and deleted that were to be, and the metadata is
    /// written, or at the deadline.
    pub fn wait_for_changes(&self, deadline: Instant) {
        self.metadata.wait_until_open(deadline);
        for queue in self.changes() {
            queue.wait_until_open(deadline);
        }
    }

    /// Returns once nothing of the metadata is being written, however long that takes.
    pub fn wait_for_metadata(&self) {
        self.metadata.wait();
    }

    /// A watchdog of the threads that submit calls, to which who goes on for each is to be added.
    pub fn watchdog(&self) -> Watchdog {
        Watchdog::new(self.watch.clone())
    }

    /// Ends the watchdog.
    pub fn end_watchdog(&self) {
        self.watch.stop();
    }

    /// Starts threads of queues that could not be started a moment ago. False: still not all.
    pub fn start_threads(&self) -> bool {
        if !self.watch.take_lack_of_thread() {
            return true;
        }
        let have_threads = self.all_queues().all(|queue| queue.has_thread());
        if !have_threads {
            self.watch.note_lack_of_thread();
        }
        have_threads
    }

    /// Ends the threads of the queues, each after the calls that wait there.
    pub fn end(&self) {
        for queue in self.all_queues() {
            queue.end();
        }
    }
}

fn order_of(kind: QueueKind) -> Order {
    match kind {
        QueueKind::Writes
        | QueueKind::CostlyWrites
        | QueueKind::LogCalls
        | QueueKind::LogChanges => Order::Kept,
        QueueKind::Reads | QueueKind::Searches => Order::Free,
        QueueKind::LongAnswers => Order::Patient,
    }
}
