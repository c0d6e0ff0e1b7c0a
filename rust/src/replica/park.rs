//! Parked requests: whoever waits for a partition's log to move is registered here and woken by the
//! append or the flush itself.
//!
//! ```text
//! Produce, acks=all   waits for the high watermark to pass its last record
//! Fetch               waits for high watermark or last stable offset, by its isolation, to move; a follower's for
//!                     the log end
//! DeleteRecords       waits for the low watermark
//! ```
//!
//! Which offset the high watermark waits for (with `kafkalite.acks.fsync` the flushed one) is the
//! log's affair. No wake is lost as long as a waiter registers first and looks at the log
//! afterwards, and the log tells after each append and flush, also one that failed (`LogObserver`).
//! Nothing moves any more for those who wait at a partition that is deleted, or that this node does
//! not lead any more: all are woken (`Waiters::end`), and find out why (`ended`).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use parking_lot::Mutex;

use crate::log::health::{CurrentHealth, Health};
use crate::log::log::{Log, LogObserver};
use crate::log::state::ends::LogOffsets;

/// The `thread` of what the control thread waits for; its `slot` is then a number of Python's.
pub const CONTROL_THREAD: usize = usize::MAX;

/// A request that waits for anything: the network thread, the connection on it,
/// the response slot of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Parked {
    pub thread: usize,
    pub connection: u64,
    pub slot: u64,
}

/// Tells the owners of parked requests to look at them again. Must not block.
pub trait Wake: Send + Sync {
    /// All at once: an owner is woken by one call once, however many are its.
    fn wake(&self, parked: &[Parked]);
}

/// The event for which a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// High watermark at or above the offset.
    Committed(i64),
    /// High watermark above the offset (a reader of everything).
    HighWatermark(i64),
    /// Last stable offset above the offset (a reader of committed records).
    LastStable(i64),
    /// Log end above the offset (a follower).
    LogEnd(i64),
    /// Low watermark at or above the offset: no replica that lives has records below it any more.
    LowWatermark(i64),
}

impl WaitFor {
    pub fn is_met(self, offsets: &LogOffsets) -> bool {
        match self {
            WaitFor::Committed(target) => offsets.high_watermark >= target,
            WaitFor::HighWatermark(seen) => offsets.high_watermark > seen,
            WaitFor::LastStable(seen) => offsets.last_stable_offset > seen,
            WaitFor::LogEnd(seen) => offsets.log_end_offset > seen,
            // No log knows it (`Waiters::advance_low_watermark`).
            WaitFor::LowWatermark(_) => false,
        }
    }
}

/// Why nothing will move any more at a partition whose log directory is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The partition is deleted.
    Deleted,
    /// This node does not lead it any more, since this leader epoch.
    NotLeader { leader_epoch: i32 },
}

/// The waiters of one partition while this node leads it, each once. Found by their names: who
/// waits at a thousand partitions leaves all of them when one has moved, and others wait there too.
pub struct Waiters {
    parked: Mutex<HashMap<Parked, WaitFor, RandomState>>,
    waker: Arc<dyn Wake>,
    health: CurrentHealth,
    ended: OnceLock<StopReason>,
}

impl Waiters {
    /// `health` is that of the log directory.
    pub fn new(waker: Arc<dyn Wake>, health: Arc<Health>) -> Waiters {
        Waiters {
            parked: Mutex::default(),
            waker,
            health: CurrentHealth::new(health),
            ended: OnceLock::new(),
        }
    }

    /// The caller looks at the log after this returns, and deregisters when it answers.
    pub fn register(&self, parked: Parked, wait_for: WaitFor) {
        self.parked.lock().insert(parked, wait_for);
    }

    /// The log lies in another log directory from now on, of this health.
    pub fn move_to(&self, health: Arc<Health>) {
        self.health.replace(health);
    }

    /// Takes a waiter out. False: it has been woken, and was out already.
    pub fn deregister(&self, parked: Parked) -> bool {
        self.parked.lock().remove(&parked).is_some()
    }

    /// Nothing will move any more: the log directory is offline, or `ended` says why.
    pub fn has_failed(&self) -> bool {
        self.ended().is_some() || self.health.is_offline()
    }

    /// Why nothing will move any more, once `end` was called.
    pub fn ended(&self) -> Option<StopReason> {
        self.ended.get().copied()
    }

    /// Wakes everybody, those as well that have come since an earlier call. The first reason stays.
    pub fn end(&self, reason: StopReason) {
        // Before they are woken, so that they find it.
        let _ = self.ended.set(reason);
        self.wake_those(|_| true);
    }

    /// Wakes those that wait for records of others.
    pub fn wake_readers(&self) {
        let writes =
            |wait_for| matches!(wait_for, WaitFor::Committed(_) | WaitFor::LowWatermark(_));
        self.wake_those(|wait_for| !writes(wait_for));
    }

    /// The low watermark has come to this.
    pub fn advance_low_watermark(&self, low_watermark: i64) {
        self.wake_those(
            |wait_for| matches!(wait_for, WaitFor::LowWatermark(target) if low_watermark >= target),
        );
    }

    /// Wakes those that wait for what has come.
    fn wake_those(&self, has_come: impl Fn(WaitFor) -> bool) {
        let mut waiting = self.parked.lock();
        let woken = waiting.extract_if(|_, wait_for| has_come(*wait_for));
        let mut woken: Vec<Parked> = woken.map(|(parked, _)| parked).collect();
        drop(waiting);
        if !woken.is_empty() {
            // Requests of a connection in their order.
            woken.sort_unstable();
            self.waker.wake(&woken);
        }
    }

    /// Shows each waiter and its event.
    pub fn look(&self, mut at: impl FnMut(Parked, WaitFor)) {
        for (parked, wait_for) in self.parked.lock().iter() {
            at(*parked, *wait_for);
        }
    }

    pub fn count(&self) -> usize {
        self.parked.lock().len()
    }
}

impl LogObserver for Waiters {
    fn advanced(&self, _log: &Log, offsets: LogOffsets) {
        let has_failed = self.has_failed();
        self.wake_those(|wait_for| has_failed || wait_for.is_met(&offsets));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;

    #[derive(Default)]
    struct Calls(Mutex<Vec<Vec<u64>>>);

    impl Wake for Calls {
        fn wake(&self, parked: &[Parked]) {
            let slots = parked.iter().map(|each| each.slot).collect();
            self.0.lock().push(slots);
        }
    }

    /// Each of the requests that one flush committed woke its network thread for itself, if that
    /// was quick enough to have taken the one before.
    #[test]
    fn all_whose_wait_is_over_are_told_at_once_and_in_their_order() {
        let calls = Arc::new(Calls::default());
        let waiters = Waiters::new(calls.clone(), Arc::new(Health::new(Path::new("/"))));
        for slot in 0..5 {
            let parked = Parked {
                thread: 0,
                connection: slot,
                slot,
            };
            waiters.register(parked, WaitFor::Committed(slot as i64 % 2));
        }
        let is_first = |wait_for: WaitFor| wait_for == WaitFor::Committed(0);
        waiters.wake_those(is_first);
        waiters.wake_those(is_first);
        assert_eq!(waiters.count(), 2);
        waiters.end(StopReason::Deleted);
        assert_eq!(*calls.0.lock(), [vec![0, 2, 4], vec![1, 3]]);
    }

    /// Each looked through all the others: with 400 consumers of 1,000
    /// partitions a record cost 0.7 s.
    #[test]
    fn who_leaves_does_not_look_through_those_that_stay() {
        let health = Arc::new(Health::new(Path::new("/")));
        let waiters = Waiters::new(Arc::new(Calls::default()), health);
        let parked = |connection| Parked {
            thread: 0,
            connection,
            slot: 0,
        };
        let count = 200_000;
        for connection in 0..count {
            waiters.register(parked(connection), WaitFor::HighWatermark(0));
        }
        let began = Instant::now();
        // Not in their order: the first one is soon found.
        assert!(
            (0..count)
                .rev()
                .all(|each| waiters.deregister(parked(each)))
        );
        // Some hundredths of a second; with a look at all it is half a minute.
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
