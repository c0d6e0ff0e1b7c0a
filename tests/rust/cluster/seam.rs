//! The places where the simulation meets the engine's replication: metadata in its words, and what
//! its leaders ask of the controller.

use std::fmt;
use std::sync::Arc;

use kafkalite::image::PartitionRegistration;
use kafkalite::log::config::LogConfig;
use kafkalite::node::{Claimed, Node, TopicPlan};
use kafkalite::replica::Partition;
use kafkalite::replica::brokers::{RegisteredBroker, RegisteredBrokers};
use kafkalite::replica::isr_changes::IsrChange;
use kafkalite::replica::leader::IsrAnswer;
use kafkalite::replica::park::Wake;
use kafkalite::uuid::Uuid;

use super::controller::{AlterPartition, Altered, Metadata, PartitionState, Registration, code};

/// Of brokers by turns, and of consumers that read nearby (KIP-392).
pub const RACKS: [&str; 2] = ["a", "b"];

/// Proposed in-sync replicas on their way to the controller.
#[derive(Clone)]
pub struct Asked(IsrChange);

impl fmt::Display for Asked {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IsrChange {
            partition,
            proposal,
            ..
        } = &self.0;
        let (leader_epoch, partition_epoch) = (proposal.leader_epoch, proposal.partition_epoch);
        write!(
            to,
            "for t-{partition} in epoch {leader_epoch}.{partition_epoch} "
        )?;
        write!(to, "{:?}", proposal.in_sync_replicas)
    }
}

impl Asked {
    pub fn partition(&self) -> usize {
        self.0.partition as usize
    }

    pub fn request(&self, broker: i32, broker_epoch: i64) -> AlterPartition {
        let IsrChange {
            partition,
            proposal,
            ..
        } = &self.0;
        AlterPartition {
            broker,
            broker_epoch,
            partition: *partition as usize,
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            isr: proposal.in_sync_replicas.clone(),
            is_recovering: false,
        }
    }
}

pub fn with_min_isr(config: LogConfig, min_isr: usize) -> LogConfig {
    LogConfig {
        min_in_sync_replicas: min_isr as u32,
        ..config
    }
}

/// `directory` is that of replicas that nobody has assigned another one.
pub fn registration(state: &PartitionState, directory: Uuid) -> PartitionRegistration {
    let directory_of = |id| state.directories.get(id).copied().unwrap_or(directory);
    PartitionRegistration {
        leader_id: state.leader,
        leader_epoch: state.leader_epoch,
        partition_epoch: state.partition_epoch,
        replicas: state.replicas.clone().into(),
        in_sync_replicas: state.isr.clone().into(),
        directories: state.replicas.iter().map(directory_of).collect(),
    }
}

pub fn load(
    claimed: Claimed,
    plan: &TopicPlan,
    waker: Arc<dyn Wake>,
    metadata: &Metadata,
    lag_ms: i64,
) -> Loaded {
    let loaded = Node::load(claimed, std::slice::from_ref(plan), waker).unwrap();
    let node = Arc::new(loaded.node);
    set_brokers(&node, metadata);
    set_lag(&node, lag_ms);
    node.replication().set_rack_aware(true);
    // Its moves go on when the simulation says so.
    node.resume_moves(0, |_| {});
    let moved = loaded.moved.iter();
    let moved = moved.map(|each| (each.partition as usize, each.directory_id));
    Loaded {
        moved: moved.collect(),
        node,
        notes: loaded.notes,
    }
}

/// A node whose logs are loaded, with the partitions that lie elsewhere than the metadata says.
pub struct Loaded {
    pub node: Arc<Node>,
    pub notes: Vec<String>,
    pub moved: Vec<(usize, Uuid)>,
}

/// Where replicas lie by now, that were moved or are about to be.
pub fn take_assignments(node: &Node) -> Vec<(usize, Uuid)> {
    let taken = node.moves().assignments.take().into_iter();
    taken
        .map(|each| (each.partition as usize, each.directory_id))
        .collect()
}

pub fn set_lag(node: &Node, lag_ms: i64) {
    node.replication().set_lag_ms_max(lag_ms);
}

pub fn set_brokers(node: &Node, metadata: &Metadata) {
    node.set_registered_brokers(RegisteredBrokers::new(registered(metadata)));
}

/// All brokers of the metadata, in two racks.
pub fn registered(metadata: &Metadata) -> impl Iterator<Item = RegisteredBroker> {
    metadata.brokers.iter().map(|(id, known)| RegisteredBroker {
        node_id: *id,
        broker_epoch: known.broker_epoch,
        is_fenced: known.is_fenced,
        in_controlled_shutdown: known.in_controlled_shutdown,
        rack: Some(RACKS[*id as usize % RACKS.len()].to_owned()),
        endpoint: None,
    })
}

pub fn sweep(node: &Node, now_ms: i64) {
    node.sweep_in_sync_replicas(now_ms);
}

pub fn take_isr_changes(node: &Node) -> Vec<Asked> {
    let taken = node.replication().isr_changes.take();
    taken.into_iter().map(Asked).collect()
}

/// Has the leader know what the controller said, in Kafka's way to read it
/// (`Partition.submitAlterPartition`).
pub fn settle(node: &Node, asked: Asked, answer: &Altered) {
    let said = match answer.error_code {
        code::NONE => IsrAnswer::Accepted {
            leader_epoch: answer.leader_epoch,
            partition_epoch: answer.partition_epoch,
            in_sync_replicas: answer.isr.clone(),
        },
        code::INELIGIBLE_REPLICA => IsrAnswer::Refused,
        code::FENCED_LEADER_EPOCH
        | code::INVALID_UPDATE_VERSION
        | code::INVALID_REQUEST
        | code::NEW_LEADER_ELECTED => IsrAnswer::Uncertain,
        _ => IsrAnswer::Retry,
    };
    let IsrChange {
        topic_id,
        partition,
        proposal,
    } = asked.0;
    node.settle_in_sync_replicas(&topic_id, partition, proposal.number, said);
}

/// Those of `isr` that the leader may leave out when it moves its high watermark.
pub fn outside_maximal_isr(leader: &Partition, isr: &[i32]) -> Vec<i32> {
    let Some(state) = leader.leader_state() else {
        return Vec::new();
    };
    let outside = isr.iter().filter(|id| !state.is_in_maximal_isr(**id));
    outside.copied().collect()
}

impl fmt::Display for Registration {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.is_fenced, self.in_controlled_shutdown) {
            (true, _) => "fenced",
            (_, true) => "about to stop",
            _ => "active",
        };
        write!(to, "is {state} in epoch {}", self.broker_epoch)
    }
}

impl fmt::Display for PartitionState {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (leader, replicas) = (self.leader, &self.replicas);
        write!(
            to,
            "is led by {leader} in epoch {}.{}",
            self.leader_epoch, self.partition_epoch
        )?;
        write!(
            to,
            ", ISR {:?} ELR {:?} of {replicas:?}",
            self.isr, self.elr
        )
    }
}
