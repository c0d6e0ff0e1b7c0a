//! This node's replicas: the part that it has in each partition of the metadata, which is a log
//! with those who wait for it, and the role that it plays
//! (`org.apache.kafka.server.HostedPartition`).
//!
//! ```text
//! HostedPartition  Elsewhere   the metadata names other nodes only
//!                  Offline     its log directory was offline when the logs were loaded: there is no log
//!                  Online ─ Partition   role × leader epoch, log, waiters, directory
//! ```
//!
//! A `Partition` does not change: another leader epoch or role makes another one in its place,
//! around the same log. Who waits at one that leads goes on where the next one leads too, and
//! is woken and told NOT_LEADER_OR_FOLLOWER where it does not. They are found by topic and
//! index: each topic of the image holds its own (`Topic::leader`), so that a request looks up
//! its topic and nothing else.

pub mod brokers;
pub mod follower;
mod home;
pub mod isr_changes;
pub mod leader;
mod leading;
pub mod moves;
pub mod park;
mod partition;
pub mod replication;
pub mod throttle;
mod turns;
pub mod wake_numbers;

use std::sync::Arc;

pub use leading::LeaderFacts;
pub use partition::{Batches, Partition, Role};

/// The part that this node has in a partition.
#[derive(Clone)]
pub enum HostedPartition {
    Elsewhere,
    Offline,
    Online(Arc<Partition>),
}

impl HostedPartition {
    pub fn replica(&self) -> Option<&Arc<Partition>> {
        match self {
            HostedPartition::Online(replica) => Some(replica),
            HostedPartition::Elsewhere | HostedPartition::Offline => None,
        }
    }

    /// This node has a replica, whose log directory is offline: since the
    /// start, or it has failed since.
    pub fn is_offline(&self) -> bool {
        match self {
            HostedPartition::Elsewhere => false,
            HostedPartition::Offline => true,
            HostedPartition::Online(replica) => replica.is_offline(),
        }
    }
}
