//! A topic: what the metadata says of its partitions, and the part that this node has in them.

use std::sync::Arc;

use crate::replica::{HostedPartition, Partition, Role};
use crate::uuid::Uuid;

/// The leader of a partition that has none.
pub const NO_LEADER: i32 = -1;

/// A partition in the metadata (`org.apache.kafka.metadata.PartitionRegistration`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRegistration {
    pub leader_id: i32,
    /// Goes up by each election.
    pub leader_epoch: i32,
    /// Goes up by each change.
    pub partition_epoch: i32,
    pub replicas: Box<[i32]>,
    pub in_sync_replicas: Box<[i32]>,
    /// The log directory of each replica, in the order of `replicas`.
    pub directories: Box<[Uuid]>,
}

impl PartitionRegistration {
    /// The log directory of a node's replica; `None` where it has no replica. A replica whose
    /// directory nobody has assigned has the id of no directory.
    pub fn directory_of(&self, node_id: i32) -> Option<Uuid> {
        let at = self.replicas.iter().position(|each| *each == node_id)?;
        Some(self.directories.get(at).copied().unwrap_or(Uuid::ZERO))
    }
}

/// Why this node does not lead a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLeader {
    /// There is no such partition.
    Unknown,
    /// This node's replica of it lies in a log directory that is offline.
    Offline,
    /// Another node leads it, or none does. With the leader epoch, if this node has a replica.
    Elsewhere { leader_epoch: Option<i32> },
}

pub struct Topic {
    pub name: Arc<str>,
    pub id: Uuid,
    pub is_internal: bool,
    /// By index, without gaps.
    partitions: Box<[PartitionRegistration]>,
    /// The part of this node in each of `partitions`.
    hosted: Box<[HostedPartition]>,
}

impl Topic {
    /// `hosted` is the part of `node_id` in each of the partitions, by index.
    pub fn new(
        (name, id): (&str, Uuid),
        is_internal: bool,
        partitions: Vec<PartitionRegistration>,
        hosted: Vec<HostedPartition>,
        node_id: i32,
    ) -> Topic {
        assert_eq!(partitions.len(), hosted.len(), "a part in each partition");
        for (partition, part) in partitions.iter().zip(&hosted) {
            let is_ours = partition.replicas.contains(&node_id);
            assert_eq!(
                is_ours,
                !matches!(part, HostedPartition::Elsewhere),
                "a partition that names this node is hosted"
            );
            if let HostedPartition::Online(replica) = part {
                let leads = partition.leader_id == node_id;
                assert_eq!(replica.leader_epoch, partition.leader_epoch);
                assert_eq!(replica.role == Role::Leader, leads, "one idea of the role");
            }
        }
        Topic {
            name: name.into(),
            id,
            is_internal,
            partitions: partitions.into(),
            hosted: hosted.into(),
        }
    }

    /// The partitions as the metadata has them, by index, without gaps.
    pub fn partitions(&self) -> &[PartitionRegistration] {
        &self.partitions
    }

    /// A partition as the metadata has it.
    pub fn partition(&self, index: i32) -> Option<&PartitionRegistration> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// The part that this node has in a partition.
    pub fn hosted_partition(&self, index: i32) -> Option<&HostedPartition> {
        self.hosted.get(usize::try_from(index).ok()?)
    }

    /// The part that this node has in each partition, by index.
    pub fn hosted(&self) -> &[HostedPartition] {
        &self.hosted
    }

    /// There is such a partition, wherever it is led.
    pub fn has(&self, index: i32) -> bool {
        usize::try_from(index).is_ok_and(|index| index < self.partitions.len())
    }

    /// This node's replicas of the topic, in whatever role, by index.
    pub fn replicas(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.hosted.iter().filter_map(HostedPartition::replica)
    }

    /// This node's replica of a partition, in whatever role.
    pub fn replica(&self, index: i32) -> Option<&Arc<Partition>> {
        self.hosted_partition(index)?.replica()
    }

    /// This node's replica that leads a partition, or why there is none, in the order in which
    /// Kafka looks (`ReplicaManager.getPartitionOrError`, `Partition.getLocalLog`).
    pub fn leader(&self, index: i32) -> Result<&Arc<Partition>, NoLeader> {
        match self.hosted_partition(index) {
            None => Err(NoLeader::Unknown),
            Some(HostedPartition::Elsewhere) => Err(NoLeader::Elsewhere { leader_epoch: None }),
            Some(HostedPartition::Offline) => Err(NoLeader::Offline),
            Some(HostedPartition::Online(replica)) if replica.is_offline() => {
                Err(NoLeader::Offline)
            }
            Some(HostedPartition::Online(replica)) => match replica.role {
                Role::Leader => Ok(replica),
                Role::Follower => Err(NoLeader::Elsewhere {
                    leader_epoch: Some(replica.leader_epoch),
                }),
            },
        }
    }
}
