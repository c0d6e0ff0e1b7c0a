//! What must hold of metadata after each event.
//!
//! ```text
//! EpochsGrow           leader epochs and partition epochs of the controller, and broker epochs, only go up, those of the replicas
//!                      of a process likewise, and no log holds a record of a later epoch than its replica knows
//! MetadataLogMatching  brokers that are at the same version have the same image: that of the controller at this version
//! ```

use std::collections::BTreeMap;

use kafkalite::image::PartitionRegistration;
use kafkalite::replica::brokers::RegisteredBroker;

use super::bytes::TOPIC;
use super::checker::require;
use super::controller::{Metadata, PartitionState};
use super::seam;
use super::world::World;

#[derive(Default)]
pub struct MetadataChecker {
    /// The controller's, of which all before has been looked at.
    version: i64,
    /// By broker and partition: the life of the broker and its leader epoch there.
    replicas: BTreeMap<(i32, usize), (u64, i32)>,
}

impl MetadataChecker {
    pub fn check(&mut self, world: &World) {
        for version in self.version + 1..=world.controller.version() {
            let (old, new) = (
                world.controller.at(version - 1),
                world.controller.at(version),
            );
            require_growth(&old, &new);
        }
        self.version = world.controller.version();
        for (&id, broker) in &world.brokers {
            let Some(process) = &broker.process else {
                continue;
            };
            let Some(node) = &process.node else {
                continue;
            };
            let metadata = world.controller.at(process.version);
            let brokers = node.replication().brokers.get();
            let known = |each: RegisteredBroker| (brokers.get(each.node_id).cloned(), each);
            for (known, told) in seam::registered(&metadata).map(known) {
                require!(
                    known.as_ref() == Some(&told),
                    "MetadataLogMatching: broker {id} at version {} knows {known:?}, not {told:?}",
                    process.version
                );
            }
            let image = node.image();
            let topic = image.topic(TOPIC).expect("published");
            require!(
                topic.partitions().len() == metadata.partitions.len(),
                "MetadataLogMatching: broker {id} at version {} has {} partitions",
                process.version,
                topic.partitions().len()
            );
            for (known, told) in topic.partitions().iter().zip(&metadata.partitions) {
                require!(
                    is_same(known, told),
                    "MetadataLogMatching: broker {id} at version {} has {known:?}, not {told:?}",
                    process.version
                );
            }
            for replica in topic.replicas() {
                let index = replica.index as usize;
                let epoch = replica.leader_epoch;
                let (life, before) = self.replicas.get(&(id, index)).copied().unwrap_or((0, -1));
                require!(
                    life != broker.life || epoch >= before,
                    "EpochsGrow: broker {id} is in epoch {epoch} of t-{index}, after {before}"
                );
                let written = replica.log.latest_epoch();
                require!(
                    written.is_none_or(|written| written <= epoch),
                    "EpochsGrow: broker {id} is in epoch {epoch} of t-{index}, and has records of {written:?}"
                );
                self.replicas.insert((id, index), (broker.life, epoch));
            }
        }
    }
}

fn is_same(known: &PartitionRegistration, told: &PartitionState) -> bool {
    known.leader_id == told.leader
        && known.leader_epoch == told.leader_epoch
        && known.partition_epoch == told.partition_epoch
        && *known.replicas == *told.replicas
        && *known.in_sync_replicas == *told.isr
        && told
            .directories
            .iter()
            .all(|(id, directory)| known.directory_of(*id) == Some(*directory))
}

fn require_growth(old: &Metadata, new: &Metadata) {
    for (index, (before, now)) in old.partitions.iter().zip(&new.partitions).enumerate() {
        let has_other_leader = before.leader != now.leader;
        require!(
            now.leader_epoch >= before.leader_epoch + i32::from(has_other_leader),
            "EpochsGrow: leader {} of t-{index} in epoch {} is followed by {} in {}",
            before.leader,
            before.leader_epoch,
            now.leader,
            now.leader_epoch
        );
        require!(
            now.partition_epoch >= before.partition_epoch + i32::from(before != now),
            "EpochsGrow: t-{index} changes from {before:?} to {now:?}"
        );
    }
    for (id, before) in &old.brokers {
        let now = &new.brokers[id];
        let is_other = before.incarnation != now.incarnation;
        require!(
            now.broker_epoch >= before.broker_epoch + i64::from(is_other),
            "EpochsGrow: broker {id} in epoch {} is followed by another process in {}",
            before.broker_epoch,
            now.broker_epoch
        );
    }
}
