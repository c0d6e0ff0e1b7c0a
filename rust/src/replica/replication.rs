//! The things that all replicas of a node need beside their logs, to lead others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::limits::REPLICA_LAG_MS_MAX;
use crate::replica::brokers::CurrentBrokers;
use crate::replica::isr_changes::IsrChanges;
use crate::replica::park::Wake;

pub struct Replication {
    pub node_id: i32,
    pub brokers: CurrentBrokers,
    pub isr_changes: IsrChanges,
    /// How many times in-sync replicas of this node's leaders have become fewer, and more.
    pub isr_shrinks: AtomicU64,
    pub isr_expands: AtomicU64,
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

    /// Consumers are sent to a replica in their rack (`RackAwareReplicaSelector`).
    pub fn is_rack_aware(&self) -> bool {
        self.is_rack_aware.load(Ordering::Relaxed)
    }

    pub fn set_rack_aware(&self, is_rack_aware: bool) {
        self.is_rack_aware.store(is_rack_aware, Ordering::Relaxed);
    }
}
