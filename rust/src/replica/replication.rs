//! The things that all replicas of a node need beside their logs, to lead others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use crate::limits::REPLICA_LAG_MS_MAX;
use crate::replica::brokers::CurrentBrokers;
use crate::replica::isr_changes::IsrChanges;
use crate::replica::park::Wake;
use crate::replica::throttle::Throttle;

pub struct Replication {
    pub node_id: i32,
    pub brokers: CurrentBrokers,
    pub isr_changes: IsrChanges,
    /// How many times in-sync replicas of this node's leaders have become fewer, and more.
    pub isr_shrinks: AtomicU64,
    pub isr_expands: AtomicU64,
    /// Turns taken at all partitions (`turns.rs`) that have not ended.
    pub(super) turns_open: AtomicUsize,
    /// The rates at which this node's leaders send, and its followers fetch, throttled replicas.
    pub leader_throttle: Throttle,
    pub follower_throttle: Throttle,
    lag_ms_max: AtomicI64,
    is_rack_aware: AtomicBool,
}

impl Replication {
    pub fn new(node_id: i32, waker: Arc<dyn Wake>) -> Replication {
        Replication {
            node_id,
            brokers: CurrentBrokers::default(),
            isr_changes: IsrChanges::new(waker),
            isr_shrinks: AtomicU64::new(0),
            isr_expands: AtomicU64::new(0),
            turns_open: AtomicUsize::new(0),
            leader_throttle: Throttle::default(),
            follower_throttle: Throttle::default(),
            lag_ms_max: AtomicI64::new(REPLICA_LAG_MS_MAX),
            is_rack_aware: AtomicBool::new(false),
        }
    }

    /// `replica.lag.time.max.ms`
    pub fn lag_ms_max(&self) -> i64 {
        self.lag_ms_max.load(Ordering::Relaxed)
    }

    pub fn set_lag_ms_max(&self, lag_ms_max: i64) {
        self.lag_ms_max.store(lag_ms_max, Ordering::Relaxed);
    }

    /// How long what was sent and fetched is remembered: so many samples, each
    /// of so many milliseconds.
    pub fn set_throttle_samples(&self, (samples_max, sample_ms): (usize, i64)) {
        for throttle in [&self.leader_throttle, &self.follower_throttle] {
            throttle.set_samples(samples_max, sample_ms);
        }
    }

    /// Consumers are sent to a replica in their rack (`RackAwareReplicaSelector`).
    pub fn is_rack_aware(&self) -> bool {
        self.is_rack_aware.load(Ordering::Relaxed)
    }

    pub fn set_rack_aware(&self, is_rack_aware: bool) {
        self.is_rack_aware.store(is_rack_aware, Ordering::Relaxed);
    }
}
