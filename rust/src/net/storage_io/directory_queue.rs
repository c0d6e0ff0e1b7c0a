//! Calls of one log directory that may not run on network threads, and the queue's own
//! thread, which makes them.
//!
//! ```text
//! open     calls run where they come up: no thread is woken, no buffer changes hands
//! closed   a call did not return in time (the watchdog saw it): the next ones queue here
//! open     the call has returned and no other waits; where no order is kept, the queue's thread got its
//!          last one done in time, so that the next ones need not wait behind those still there
//! ```
//!
//! Writes run in the order in which they came, the one that closed the queue first. Reads depend on
//! no other: of a connection there is one at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::call::{BlockingCall, Here, QueuedCall};
use super::watch::Watch;
use crate::crash::or_end_process;
use crate::limits::STORAGE_TICK_MS;
use crate::log::directory::LogDirectory;

#[derive(Default)]
struct State {
    waiting: VecDeque<Box<dyn QueuedCall>>,
    /// Calls that did not return in time and have not returned since.
    stalled: usize,
    is_running: bool,
    has_worker: bool,
    is_ending: bool,
    /// When the queue was closed, or a call has returned since.
    moved: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// No call may overtake one that waits.
    Kept,
    /// Each call for itself.
    Free,
    /// Each call for itself, which may wait for its socket to have room.
    Patient,
}

pub struct DirectoryQueue {
    name: String,
    directories: Arc<[Arc<LogDirectory>]>,
    /// The number of its log directory.
    directory: usize,
    order: Order,
    is_closed: AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
    opened: Condvar,
    watch: Arc<Watch>,
}

impl DirectoryQueue {
    pub fn new(
        letter: char,
        directory: usize,
        order: Order,
        directories: Arc<[Arc<LogDirectory>]>,
        watch: Arc<Watch>,
    ) -> Arc<DirectoryQueue> {
        Arc::new(DirectoryQueue {
            name: format!("{letter}{directory}"),
            directories,
            directory,
            order,
            is_closed: AtomicBool::new(false),
            state: Mutex::default(),
            wake: Condvar::new(),
            opened: Condvar::new(),
            watch,
        })
    }

    /// The directory, for a call that a thread makes which came with it.
    pub fn here(&self) -> Here<'_> {
        Here::new(&self.directories, self.directory, false)
    }

    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Closes the queue, since a call that was made where it came up does not return.
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

    /// The queue has been closed for so long, and no call has returned meanwhile.
    pub fn is_silent(&self, least: Duration) -> bool {
        let is_old = |moved: Instant| moved.elapsed() >= least;
        !self.is_open() && self.state.lock().moved.is_some_and(is_old)
    }

    /// The stalled call has returned, and its result is on its way.
    pub fn recover(&self) {
        let mut state = self.state.lock();
        assert!(state.stalled > 0, "no call has stalled");
        state.stalled -= 1;
        state.moved = Some(Instant::now());
        self.open_if_idle(&state);
        self.wake.notify_one();
    }

    fn open_if_idle(&self, state: &State) {
        if state.stalled == 0 && state.waiting.is_empty() && !state.is_running {
            self.is_closed.store(false, Ordering::Release);
            self.opened.notify_all();
        }
    }

    /// Returns once all calls that were put here are made, or at the deadline.
    pub fn wait_until_open(&self, deadline: Instant) {
        let mut state = self.state.lock();
        while !self.is_open() && !self.opened.wait_until(&mut state, deadline).timed_out() {}
    }

    /// Returns once all calls that were put here are made, however long that takes.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        while !self.is_open() {
            self.opened.wait(&mut state);
        }
    }

    /// The queue's thread is through with a call, which took so long.
    fn ran(&self, state: &mut State, took: Duration) {
        state.is_running = false;
        state.moved = Some(Instant::now());
        let is_prompt = took < Duration::from_millis(STORAGE_TICK_MS);
        if self.order != Order::Kept && is_prompt && state.stalled == 0 {
            self.is_closed.store(false, Ordering::Release);
        }
    }

    /// Has the queue's own thread make the call. Without a thread to be had, the call waits for
    /// one, or is given back where it waits for no other call.
    pub fn put<C: BlockingCall>(self: &Arc<DirectoryQueue>, call: C) -> Option<C> {
        let mut state = self.state.lock();
        if !self.start_thread(&mut state) {
            if state.stalled == 0 && state.waiting.is_empty() {
                return Some(call);
            }
            self.watch.note_lack_of_thread();
        }
        self.close(&mut state);
        state.waiting.push_back(call.queued());
        self.wake.notify_one();
        None
    }

    /// Cancels what waits here for a connection of a network thread.
    pub fn cancel(&self, thread: usize, connection: u64) {
        if self.is_open() {
            return;
        }
        let mut cancelled = Vec::new();
        let mut state = self.state.lock();
        for _ in 0..state.waiting.len() {
            match state.waiting.pop_front() {
                Some(call) if call.is_for(thread, connection) => cancelled.push(call),
                Some(call) => state.waiting.push_back(call),
                None => {}
            }
        }
        self.open_if_idle(&state);
        drop(state);
        for call in cancelled {
            call.cancel();
        }
    }

    /// Starts the queue's own thread where calls wait for one. False: none can be had.
    pub fn has_thread(self: &Arc<DirectoryQueue>) -> bool {
        let mut state = self.state.lock();
        state.waiting.is_empty() || self.start_thread(&mut state)
    }

    fn start_thread(self: &Arc<DirectoryQueue>, state: &mut State) -> bool {
        if !state.has_worker {
            let queue = self.clone();
            let builder = std::thread::Builder::new().name(format!("storage-{}", self.name));
            let spawned = builder.spawn(move || or_end_process(|| queue.run()));
            state.has_worker = spawned.is_ok();
        }
        state.has_worker
    }

    fn run(&self) {
        let is_patient = self.order == Order::Patient;
        let here = Here::new(&self.directories, self.directory, is_patient);
        let mut state = self.state.lock();
        loop {
            while state.stalled > 0 || state.waiting.is_empty() {
                self.open_if_idle(&state);
                if state.is_ending && state.waiting.is_empty() {
                    state.has_worker = false;
                    return;
                }
                self.wake.wait(&mut state);
            }
            let Some(call) = state.waiting.pop_front() else {
                continue;
            };
            state.is_running = true;
            drop(state);
            let begun = Instant::now();
            let deliver = call.run(&here);
            let took = begun.elapsed();
            // Before the result is out: what follows from it finds the queue as it is now.
            self.ran(&mut self.state.lock(), took);
            deliver();
            state = self.state.lock();
        }
    }

    /// Ends the queue's thread after the calls that wait here.
    pub fn end(&self) {
        self.state.lock().is_ending = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::Deliver;
    use super::*;

    struct Nothing;

    impl QueuedCall for Nothing {
        fn run(self: Box<Self>, _: &Here<'_>) -> Deliver {
            Box::new(|| ())
        }

        fn is_for(&self, _: usize, _: u64) -> bool {
            false
        }

        fn cancel(self: Box<Self>) {}
    }

    fn open(order: Order) -> Arc<DirectoryQueue> {
        DirectoryQueue::new('x', 0, order, Arc::new([]), Arc::default())
    }

    /// A queue that a call has closed which did not return, with another one behind it.
    fn closed(order: Order) -> Arc<DirectoryQueue> {
        let queue = open(order);
        queue.stall();
        queue.state.lock().waiting.push_back(Box::new(Nothing));
        queue
    }

    #[test]
    fn a_gate_is_silent_while_it_is_closed_and_nothing_returns() {
        let (soon, late) = (Duration::ZERO, Duration::from_secs(3600));
        let queue = open(Order::Kept);
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
        for order in [Order::Kept, Order::Free] {
            let queue = closed(order);
            queue.ran(&mut queue.state.lock(), prompt);
            assert!(!queue.is_open(), "a call has not returned yet");
            queue.recover();
            assert!(!queue.is_open(), "nothing has been prompt since");
            queue.ran(&mut queue.state.lock(), 2 * prompt);
            assert!(!queue.is_open());
            queue.ran(&mut queue.state.lock(), prompt);
            assert_eq!(queue.is_open(), order == Order::Free);
        }
    }
}
