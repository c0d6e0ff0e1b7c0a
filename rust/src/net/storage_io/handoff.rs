//! How a network thread goes on when one of its storage calls does not return.
//!
//! Append, look-up and `sendfile` run on the network thread, since most of them take microseconds and a
//! hop to another thread costs as much as they do. But any of them may meet a frozen or slow disk, or a
//! lock whose holder met one. So a thread gets up before such a call: it leaves its reactor (sockets,
//! sessions, everything) on a handoff and takes only what the call needs.
//!
//! ```text
//! thread A   ── leave(reactor) ── pwrite … … … … … … … … … returns ── back(): gone ── posts the result, becomes a spare
//! watchdog            tick      tick: the same call, and A sleeps in it: takes the reactor, closes the queue
//! thread B                                     └─ goes on with the reactor
//! ```
//!
//! As Go's scheduler takes the processor from a thread that sits in a system call. When the call returns
//! in time the price was two locks that nobody else wanted. The watchdog sleeps while nobody is away.
//! Python's control thread does the same with its turn (`log_calls.rs`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::crash::{end_process, or_end_process};
use crate::limits::{
    NETWORK_SLICE, SPARE_THREADS_MAX, STORAGE_BUSY_TICKS, STORAGE_TICK_MS, WATCHDOG_QUIET_TICKS,
};
use crate::net::poller;
use crate::net::reactor::{Ended, Reactor, drive};
use crate::net::shared::Shared;
use crate::net::storage_io::directory_queue::DirectoryQueue;

/// What a thread has left that is in a storage call.
struct Away<T> {
    thing: T,
    queue: Arc<DirectoryQueue>,
    thread_id: i32,
}

/// Where something is left during a call, each under the number of its call. The thread whose call
/// returns late must not take what a later call has left: by then another thread goes on with the
/// reactor, and has left it here again.
struct Deposit<T> {
    left: Mutex<Option<(u64, T)>>,
    /// Calls begun.
    calls: AtomicU64,
}

impl<T> Default for Deposit<T> {
    fn default() -> Deposit<T> {
        Deposit {
            left: Mutex::new(None),
            calls: AtomicU64::new(0),
        }
    }
}

impl<T> Deposit<T> {
    /// Gives the number of the call. Only who has the thing can leave it, so calls begin one by one.
    fn leave(&self, thing: T) -> u64 {
        let call = self.calls.load(Ordering::Relaxed) + 1;
        *self.left.lock() = Some((call, thing));
        self.calls.store(call, Ordering::Relaxed);
        call
    }

    /// What this call has left, unless it was taken meanwhile.
    fn back(&self, call: u64) -> Option<T> {
        let mut left = self.left.lock();
        let is_ours = left.as_ref().is_some_and(|(number, _)| *number == call);
        if !is_ours {
            return None;
        }
        left.take().map(|(_, thing)| thing)
    }
}

/// The handoff of one reactor, or of the control thread's turn.
pub struct Handoff<T> {
    deposit: Deposit<Away<T>>,
}

impl<T> Default for Handoff<T> {
    fn default() -> Handoff<T> {
        Handoff {
            deposit: Deposit::default(),
        }
    }
}

impl<T> Handoff<T> {
    /// Before a call of the thread: the thing stays here. Gives the call's number, for `back`.
    pub fn leave(
        &self,
        thing: T,
        thread_id: i32,
        queue: Arc<DirectoryQueue>,
        watch: &Watch,
    ) -> u64 {
        let call = self.deposit.leave(Away {
            thing,
            queue,
            thread_id,
        });
        fence(Ordering::SeqCst);
        if watch.is_asleep.load(Ordering::SeqCst) {
            watch.wake();
        }
        call
    }

    /// After the call. `None`: another thread goes on with the thing.
    pub fn back(&self, call: u64) -> Option<T> {
        self.deposit.back(call).map(|away| away.thing)
    }

    fn is_empty(&self) -> bool {
        self.deposit.left.lock().is_none()
    }
}

#[derive(Default)]
struct WatchState {
    is_stopping: bool,
}

/// What wakes the watchdog.
#[derive(Default)]
pub struct Watch {
    is_asleep: AtomicBool,
    state: Mutex<WatchState>,
    wake: Condvar,
}

impl Watch {
    pub(super) fn wake(&self) {
        let _state = self.state.lock();
        self.wake.notify_one();
    }

    fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.wake.notify_one();
    }
}

/// What the watchdog saw of a handoff at its last tick.
#[derive(Clone, Copy, Default)]
struct Seen {
    calls: u64,
    /// Ticks for which the same call has been under way.
    ticks: u32,
}

/// The watchdog's thread.
fn watch(threads: &Arc<Threads>, shared: &Arc<Shared>) {
    let mut seen = vec![Seen::default(); shared.handoffs.len()];
    let mut seen_control = Seen::default();
    let control = shared.control();
    let mut quiet_ticks = 0;
    loop {
        let mut state = shared.watch.state.lock();
        if state.is_stopping {
            return;
        }
        if quiet_ticks < WATCHDOG_QUIET_TICKS {
            let tick = Duration::from_millis(STORAGE_TICK_MS);
            shared.watch.wake.wait_for(&mut state, tick);
        } else {
            shared.watch.is_asleep.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let nobody_is_away = shared.handoffs.iter().all(Handoff::is_empty);
            let nobody_waits = nobody_is_away && !shared.queues.lack_threads();
            if nobody_waits && control.handoff.is_empty() {
                shared.watch.wake.wait(&mut state);
            }
            shared.watch.is_asleep.store(false, Ordering::SeqCst);
            quiet_ticks = 0;
        }
        drop(state);
        quiet_ticks += 1;
        for (handoff, seen) in shared.handoffs.iter().zip(&mut seen) {
            let go_on = |reactor| threads.go_on(reactor, shared);
            if look_at(handoff, seen, || threads.has_room(), go_on, shared) {
                quiet_ticks = 0;
            }
        }
        // Threads that could not be started a moment ago.
        if !threads.staff(shared) || !shared.queues.start_threads(shared) {
            quiet_ticks = 0;
        }
        let (has_room, go_on) = (|| control.has_spare(), |turn| control.pass(turn));
        if look_at(&control.handoff, &mut seen_control, has_room, go_on, shared) {
            quiet_ticks = 0;
        }
    }
}

/// Takes what was left if the call does not return and there is a thread to go on with it. True: calls
/// have been made since the last tick.
fn look_at<T>(
    handoff: &Handoff<T>,
    seen: &mut Seen,
    has_room: impl Fn() -> bool,
    go_on: impl FnOnce(T),
    shared: &Shared,
) -> bool {
    let calls = handoff.deposit.calls.load(Ordering::Relaxed);
    if calls != seen.calls {
        *seen = Seen { calls, ticks: 0 };
        return true;
    }
    let mut left = handoff.deposit.left.lock();
    let Some((_, away)) = left.as_ref() else {
        return false;
    };
    seen.ticks += 1;
    // One that computes (a large batch to be inflated) or waits for a processor gets more time.
    if seen.ticks < STORAGE_BUSY_TICKS && !poller::is_blocked(away.thread_id) {
        return true;
    }
    if !has_room() {
        return true;
    }
    away.queue.stall();
    let taken = left.take();
    drop(left);
    if let Some((_, away)) = taken {
        shared.counts.hand_overs.fetch_add(1, Ordering::Relaxed);
        go_on(away.thing);
    }
    true
}

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
#[derive(Default)]
pub struct Threads {
    pool: Mutex<Pool>,
    changed: Condvar,
}

impl Threads {
    /// Starts the watchdog.
    pub fn start(self: &Arc<Threads>, shared: &Arc<Shared>) -> std::io::Result<()> {
        let (threads, shared) = (self.clone(), shared.clone());
        let builder = std::thread::Builder::new().name("watchdog".to_owned());
        let handle = builder.spawn(move || or_end_process(|| watch(&threads, &shared)))?;
        self.pool.lock().handles.push(handle);
        Ok(())
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

    /// Whether there may be one more thread.
    fn has_room(&self) -> bool {
        let pool = self.pool.lock();
        pool.idle > pool.waiting.len() || pool.count < pool.running + SPARE_THREADS_MAX
    }

    fn go_on(self: &Arc<Threads>, reactor: Box<Reactor>, shared: &Arc<Shared>) {
        self.pool.lock().waiting.push_back(reactor);
        self.staff(shared);
    }

    /// Has a thread take each reactor that waits for one. False: none can be started now, so one that
    /// comes back takes it, or this is to be tried again.
    fn staff(self: &Arc<Threads>, shared: &Arc<Shared>) -> bool {
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
                shared.control().notice(sentence);
            }
            return false;
        }
        pool.is_short = false;
        true
    }

    fn run(self: Arc<Threads>) {
        while let Some(reactor) = self.next_reactor() {
            match drive(reactor) {
                Ended::HandedOver => {}
                Ended::Stopped(Ok(())) => self.ended(),
                Ended::Stopped(Err(error)) => {
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

    /// Waits until every reactor has ended, at most `timeout`, and then for the threads, but not for
    /// those that are stuck.
    pub fn stop(&self, timeout: Duration, shared: &Shared) {
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
        shared.watch.stop();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread A's append did not return, B went on with the reactor and left it for a read; then the
    /// append returned, and A took the reactor that B had left. Nobody told the write queue that the
    /// append was back: it stayed closed, and no Produce request was answered any more.
    #[test]
    fn a_call_that_returns_late_leaves_alone_what_a_later_call_has_left() {
        let deposit = Deposit::default();
        let append = deposit.leave("reactor");
        let taken_by_the_watchdog = deposit.left.lock().take();
        assert_eq!(taken_by_the_watchdog, Some((append, "reactor")));
        let read = deposit.leave("reactor");
        assert_eq!(deposit.back(append), None, "the append has lost it");
        assert_eq!(deposit.back(read), Some("reactor"));
        assert_eq!(deposit.back(read), None);
    }
}
