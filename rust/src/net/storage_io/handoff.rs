//! How a thread goes on when one of its storage calls does not return: before the call it leaves
//! what it works with in its handoff, and takes only what the call needs.
//!
//! ```text
//! thread A   ── leave(reactor) ── pwrite … … … … … … … … … returns ── back(): gone ── delivers, becomes a spare
//! watchdog            tick      tick: the same call, and A sleeps in it: takes the reactor, closes the queue
//! thread B                                     └─ goes on with the reactor
//! ```
//!
//! As Go's scheduler takes the processor from a thread that sits in a system call. When the call
//! returns in time the price was two locks that nobody else wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::directory_queue::DirectoryQueue;
use super::watch::Watch;
use crate::net::poller;

/// A thread in a storage call, with what it has left.
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
    /// Gives the number of the call. Only who has the thing can leave it,
    /// so calls begin one by one.
    fn leave(&self, thing: T) -> u64 {
        let call = self.calls.load(Ordering::Relaxed) + 1;
        *self.left.lock() = Some((call, thing));
        self.calls.store(call, Ordering::Relaxed);
        call
    }

    /// Gives back what this call has left, unless it was taken meanwhile.
    fn back(&self, call: u64) -> Option<T> {
        let mut left = self.left.lock();
        let is_ours = left.as_ref().is_some_and(|(number, _)| *number == call);
        if !is_ours {
            return None;
        }
        left.take().map(|(_, thing)| thing)
    }
}

/// No thread is in a call.
pub struct NobodyAway;

/// Where a network thread leaves its reactor for the time of a call, and the
/// control thread its turn.
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
    /// Leaves the thing here before a call of the thread. Gives the call's number, for `back`.
    pub fn leave(&self, thing: T, queue: &Arc<DirectoryQueue>, watch: &Watch) -> u64 {
        let call = self.deposit.leave(Away {
            thing,
            queue: queue.clone(),
            thread_id: poller::thread_id(),
        });
        watch.wake_if_asleep();
        call
    }

    /// Gives the thing back after the call. `None`: another thread goes on with it.
    pub fn back(&self, call: u64) -> Option<T> {
        self.deposit.back(call).map(|away| away.thing)
    }

    pub fn is_empty(&self) -> bool {
        self.deposit.left.lock().is_none()
    }

    /// Calls begun.
    pub fn calls(&self) -> u64 {
        self.deposit.calls.load(Ordering::Relaxed)
    }

    /// Takes what was left if `may_take`, which is told the thread in the call, agrees; the
    /// call's queue is closed then.
    pub fn take_if(&self, may_take: impl FnOnce(i32) -> bool) -> Result<Option<T>, NobodyAway> {
        let mut left = self.deposit.left.lock();
        let (_, away) = left.as_ref().ok_or(NobodyAway)?;
        if !may_take(away.thread_id) {
            return Ok(None);
        }
        away.queue.stall();
        Ok(left.take().map(|(_, away)| away.thing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread A's append did not return, B went on with the reactor and left it for a read; then
    /// the append returned, and A took the reactor that B had left. Nobody told the write queue
    /// that the append was back: it stayed closed, and no Produce request was answered any more.
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
