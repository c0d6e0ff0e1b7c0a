//! The network threads: as many as there are reactors drive one, and spare ones wait to go on with
//! the reactor of a thread that is stuck in a storage call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::crash::{end_process, or_end_process};
use crate::limits::{NETWORK_SLICE, SPARE_THREADS_MAX};
use crate::net::control::queue::ControlQueue;
use crate::net::poller;
use crate::net::reactor::Reactor;
use crate::net::reactor::event_loop::{LoopExit, drive};
use crate::net::storage_io::{Handoff, Successor};

#[derive(Default)]
struct Pool {
    /// Reactors that no thread has yet.
    waiting: VecDeque<Box<Reactor>>,
    /// Threads that wait for a reactor, or are about to.
    idle: usize,
    /// Threads there are, those that are stuck among them.
    count: usize,
    /// Reactors that have not ended.
    running: usize,
    is_stopping: bool,
    /// The log has been told that no thread can be started.
    is_short: bool,
    handles: Vec<JoinHandle<()>>,
}

/// The network threads: as many work as there are reactors, others are stuck in a call or wait.
pub struct Threads {
    pool: Mutex<Pool>,
    changed: Condvar,
    /// For what the log is to be told.
    control: Arc<ControlQueue>,
}

impl Threads {
    pub fn new(control: Arc<ControlQueue>) -> Arc<Threads> {
        Arc::new(Threads {
            pool: Mutex::default(),
            changed: Condvar::new(),
            control,
        })
    }

    /// Has `stop` wait for a thread too.
    pub fn wait_for(&self, handle: JoinHandle<()>) {
        self.pool.lock().handles.push(handle);
    }

    /// Starts a thread with a new reactor.
    pub fn add(self: &Arc<Threads>, reactor: Box<Reactor>) -> std::io::Result<()> {
        let mut pool = self.pool.lock();
        pool.running += 1;
        let number = reactor.index();
        pool.waiting.push_back(reactor);
        self.spawn(&mut pool, number)
    }

    /// Starts a thread that takes the next reactor that waits.
    fn spawn(self: &Arc<Threads>, pool: &mut Pool, number: usize) -> std::io::Result<()> {
        let threads = self.clone();
        let body = move || {
            poller::ask_for_short_slices(NETWORK_SLICE);
            or_end_process(|| threads.run());
        };
        let builder = std::thread::Builder::new().name(format!("network-{number}"));
        let handle = builder.spawn(body)?;
        pool.idle += 1;
        pool.count += 1;
        pool.handles.retain(|handle| !handle.is_finished());
        pool.handles.push(handle);
        Ok(())
    }

    /// There may be one more thread.
    fn has_room(&self) -> bool {
        let pool = self.pool.lock();
        pool.idle > pool.waiting.len() || pool.count < pool.running + SPARE_THREADS_MAX
    }

    fn run_elsewhere(self: &Arc<Threads>, reactor: Box<Reactor>) {
        self.pool.lock().waiting.push_back(reactor);
        self.staff();
    }

    /// Has a thread take each reactor that waits for one. False: none can be started now, so one
    /// that comes back takes it, or this is to be tried again.
    pub fn staff(self: &Arc<Threads>) -> bool {
        let mut pool = self.pool.lock();
        if pool.waiting.is_empty() {
            pool.is_short = false;
            return true;
        }
        self.changed.notify_all();
        while let Some(reactor) = pool.waiting.get(pool.idle) {
            let number = reactor.index();
            let Err(error) = self.spawn(&mut pool, number) else {
                continue;
            };
            if !std::mem::replace(&mut pool.is_short, true) {
                let sentence =
                    format!("network thread {number} waits for a thread to go on with: {error}");
                self.control.notice(sentence);
            }
            return false;
        }
        pool.is_short = false;
        true
    }

    fn run(self: Arc<Threads>) {
        while let Some(reactor) = self.next_reactor() {
            match drive(reactor) {
                LoopExit::HandedOver => {}
                LoopExit::Stopped(Ok(())) => self.ended(),
                LoopExit::Stopped(Err(error)) => {
                    end_process(&format!(
                        "a network thread cannot wait for its sockets: {error}"
                    ));
                }
            }
            self.pool.lock().idle += 1;
        }
    }

    /// The next reactor for a thread that is idle. `None`: it has to end.
    fn next_reactor(&self) -> Option<Box<Reactor>> {
        let mut pool = self.pool.lock();
        let next = loop {
            if let Some(next) = pool.waiting.pop_front() {
                break Some(next);
            }
            if pool.is_stopping || pool.idle > SPARE_THREADS_MAX {
                break None;
            }
            self.changed.wait(&mut pool);
        };
        pool.idle -= 1;
        pool.count -= usize::from(next.is_none());
        next
    }

    fn ended(&self) {
        self.pool.lock().running -= 1;
        self.changed.notify_all();
    }

    /// Waits until every reactor has ended, at most `timeout`, and then for the threads, but not
    /// for those that are stuck.
    pub fn stop(&self, timeout: Duration, end_watchdog: impl FnOnce()) {
        let deadline = Instant::now() + timeout;
        let mut pool = self.pool.lock();
        while pool.running > 0 {
            if self.changed.wait_until(&mut pool, deadline).timed_out() {
                break;
            }
        }
        pool.is_stopping = true;
        self.changed.notify_all();
        let handles = std::mem::take(&mut pool.handles);
        drop(pool);
        end_watchdog();
        for handle in handles {
            while !handle.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_micros(200));
            }
            if handle.is_finished() {
                // None of them panics (`crash.rs`).
                let _ = handle.join();
            }
        }
    }
}

/// The threads, as who goes on with one reactor.
pub struct Spares {
    pub threads: Arc<Threads>,
    pub handoff: Arc<Handoff<Box<Reactor>>>,
}

impl Successor for Spares {
    type Left = Box<Reactor>;

    fn handoff(&self) -> &Handoff<Box<Reactor>> {
        &self.handoff
    }

    fn has_thread(&self) -> bool {
        self.threads.has_room()
    }

    fn take_over(&self, reactor: Box<Reactor>) {
        self.threads.run_elsewhere(reactor);
    }
}
