//! Changes of the metadata, made to what this node serves: topics and their partitions come, change
//! and go, and with them the replicas of this node.
//!
//! ```text
//! MetadataDelta ─► make_logs (before, by whoever publishes) ─► publish ─► the next image
//!                                                replica made, kept, or gone ┘   └─► who waits looks again
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Node;
use crate::error::{Error, Result};
use crate::image::{NO_LEADER, PartitionRegistration, Topic};
use crate::log::config::LogConfig;
use crate::log::directory::{LogDirectory, NewLog};
use crate::replica::follower::{Assignment, Followers};
use crate::replica::park::{StopReason, Waiters};
use crate::replica::{HostedPartition, Partition, Role};
use crate::uuid::Uuid;

/// A topic of the metadata, with the configuration of its logs.
pub struct TopicPlan {
    pub name: String,
    pub id: Uuid,
    pub is_internal: bool,
    pub config: LogConfig,
    /// By index.
    pub partitions: Vec<PartitionRegistration>,
}

/// A change of the topics: `deleted` go by their names before `changed` come or change.
#[derive(Clone, Copy, Default)]
pub struct MetadataDelta<'a> {
    pub deleted: &'a [String],
    pub changed: &'a [TopicPlan],
}

/// Things that lie in log directories, by these.
pub type ByDirectory<T> = Vec<(Arc<LogDirectory>, Vec<T>)>;

impl Node {
    /// Replaces the image by the next one, after the logs that `changed` lacked were made: a
    /// replica whose log is not there is offline. Whoever waits at a replica that is gone, or
    /// plays another role, is woken. Returns the replicas that are gone, of deleted topics
    /// and of partitions that name other nodes only by now: their logs are out of use, and
    /// their files still there.
    ///
    /// Errors: `InvalidArgument` if a deleted topic is not there, or a changed one has taken the
    /// name of one that was not deleted. Nothing has changed then.
    pub fn publish(&self, delta: MetadataDelta<'_>) -> Result<ByDirectory<Arc<Partition>>> {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        let mut deleted = Vec::with_capacity(delta.deleted.len());
        for name in delta.deleted {
            let unknown = || Error::InvalidArgument(format!("there is no topic {name}"));
            deleted.push(next.remove_topic(name).ok_or_else(unknown)?);
        }
        for plan in delta.changed {
            if next
                .topic(&plan.name)
                .is_some_and(|older| older.id != plan.id)
            {
                let sentence = format!("there is an older topic {}", plan.name);
                return Err(Error::InvalidArgument(sentence));
            }
        }
        let mut replaced = Vec::new();
        for plan in delta.changed {
            let older = next.topic(&plan.name).cloned();
            let topic = Arc::new(self.make_topic(plan, older.as_deref()));
            next.insert_topic(topic.clone());
            replaced.extend(older.map(|older| (topic, older)));
        }
        *self.image.write() = Arc::new(next);
        let mut gone = Gone::default();
        for topic in &deleted {
            for replica in topic.replicas() {
                gone.take(topic, replica);
                replica.waiters.end(StopReason::Deleted);
            }
        }
        for (topic, older) in &replaced {
            transfer_waiters(topic, older, &mut gone);
            self.tell_misplaced(topic, older);
        }
        for replica in gone.0.iter().flat_map(|(_, replicas)| replicas) {
            self.moves.cancel_soon(&replica.log);
        }
        self.give_up_futures();
        self.moves.look_again();
        if let Some(followers) = self.followers.get() {
            let mut following = Following {
                leaves: self
                    .in_controlled_shutdown
                    .load(Ordering::Relaxed)
                    .then_some(self.node_id),
                ..Following::default()
            };
            for topic in &deleted {
                following.remove_all(topic);
            }
            for plan in delta.changed {
                let topic = self.image().topic(&plan.name).cloned();
                let older = replaced.iter().find(|(_, older)| *older.name == *plan.name);
                if let Some(topic) = topic {
                    following.change(&topic, older.map(|(_, older)| &**older));
                }
            }
            followers.assign(following.assigned, following.removed);
        }
        Ok(gone.0)
    }

    /// From now on this node's replicas follow their leaders by `followers`, those that there are
    /// as well as those to come. Once.
    pub fn set_followers(&self, followers: Arc<dyn Followers>) {
        let _changing = self.changing.lock();
        let mut following = Following::default();
        for topic in self.image().topics() {
            following.change(topic, None);
        }
        followers.assign(following.assigned, following.removed);
        let is_first = self.followers.set(followers).is_ok();
        assert!(is_first, "a node has one set of fetchers");
    }

    /// Gives the logs of a topic another configuration.
    pub fn set_topic_config(&self, name: &str, config: &LogConfig) {
        if let Some(topic) = self.image().topic(name) {
            for replica in topic.replicas() {
                replica.log.set_config(config.clone());
                replica.look_again();
            }
        }
    }

    /// The topic of a plan whose logs have been made.
    fn make_topic(&self, plan: &TopicPlan, older: Option<&Topic>) -> Topic {
        let count = plan.partitions.len();
        let known = older.map_or(0, |older| older.partitions().len());
        assert!(known <= count, "the topic {} loses partitions", plan.name);
        let mut hosted = Vec::with_capacity(count);
        for (index, registration) in (0_i32..).zip(&plan.partitions) {
            if let Some(known) = older.and_then(|topic| topic.partition(index)) {
                assert!(
                    known.partition_epoch <= registration.partition_epoch,
                    "the partition epoch of {}-{index} goes back",
                    plan.name
                );
            }
            let known = older.and_then(|topic| topic.replica(index));
            let part = self.make_hosted(plan, index, registration, known);
            if let Some(replica) = part.replica() {
                replica.on_registration(registration);
            }
            hosted.push(part);
        }
        let (name, partitions) = ((&*plan.name, plan.id), plan.partitions.clone());
        Topic::new(name, plan.is_internal, partitions, hosted, self.node_id)
    }

    /// The part of this node in a partition. The replica that was there before stays as it is if it
    /// goes on in its role and epoch.
    fn make_hosted(
        &self,
        plan: &TopicPlan,
        index: i32,
        registration: &PartitionRegistration,
        known: Option<&Arc<Partition>>,
    ) -> HostedPartition {
        if registration.directory_of(self.node_id).is_none() {
            return HostedPartition::Elsewhere;
        }
        if let Some(known) = known.filter(|known| known.is_of(registration)) {
            return HostedPartition::Online(known.clone());
        }
        let Some((directory, log)) = self.directories.log(&plan.name, index, plan.id) else {
            // Its directory is offline, and it must not be made elsewhere.
            return HostedPartition::Offline;
        };
        let known = known.filter(|known| Arc::ptr_eq(&known.log, &log));
        let health = directory.health().clone();
        let new_waiters = || Waiters::new(self.waker.clone(), health);
        let place = (directory, log);
        let known = known.map(|known| &**known);
        HostedPartition::Online(Arc::new(Partition::new(
            place,
            registration,
            &self.replication,
            known,
            new_waiters,
        )))
    }

    /// The logs that this node's replicas lack, by their directories, as far as these are online.
    pub fn missing_logs(&self, plans: &[TopicPlan]) -> ByDirectory<NewLog> {
        let mut missing: HashMap<Uuid, Vec<NewLog>> = HashMap::new();
        for plan in plans {
            let topic: Arc<str> = Arc::from(plan.name.as_str());
            for (index, registration) in (0_i32..).zip(&plan.partitions) {
                if let Some(directory_id) = registration.directory_of(self.node_id)
                    && self.directories.log(&plan.name, index, plan.id).is_none()
                {
                    // Of what others lead the log knows the epochs of its batches, and no other.
                    let leads = registration.leader_id == self.node_id;
                    missing.entry(directory_id).or_default().push(NewLog {
                        topic: topic.clone(),
                        partition: index,
                        topic_id: plan.id,
                        config: plan.config.clone(),
                        leader_epoch: leads.then_some(registration.leader_epoch),
                    });
                }
            }
        }
        let by_directory = missing.into_iter().filter_map(|(id, wanted)| {
            let directory = self.directories.by_id(id)?;
            Some((directory.clone(), wanted))
        });
        by_directory.collect()
    }
}

/// The leaders that this node's replicas follow from now on.
#[derive(Default)]
struct Following {
    /// This node, if it is about to stop.
    leaves: Option<i32>,
    assigned: Vec<Assignment>,
    removed: Vec<(Uuid, i32)>,
}

impl Following {
    fn remove_all(&mut self, topic: &Topic) {
        let indexes = topic.replicas().map(|replica| replica.index);
        self.removed.extend(indexes.map(|index| (topic.id, index)));
    }

    /// Replicas that are as they were in `older` go on as they do.
    fn change(&mut self, topic: &Topic, older: Option<&Topic>) {
        for (index, (part, registration)) in
            (0_i32..).zip(topic.hosted().iter().zip(topic.partitions()))
        {
            let before = older.and_then(|older| older.replica(index));
            let Some(replica) = part.replica() else {
                if before.is_some() {
                    self.removed.push((topic.id, index));
                }
                continue;
            };
            if self.leaves.is_some_and(|id| {
                replica.role == Role::Follower && !registration.in_sync_replicas.contains(&id)
            }) {
                self.removed.push((topic.id, index));
                continue;
            }
            if before.is_some_and(|before| Arc::ptr_eq(before, replica)) {
                continue;
            }
            if replica.role == Role::Follower && registration.leader_id != NO_LEADER {
                self.assigned.push(Assignment {
                    topic_id: topic.id,
                    partition: replica.clone(),
                    leader_id: registration.leader_id,
                });
            } else {
                self.removed.push((topic.id, index));
            }
        }
    }
}

/// Replicas that are out of use.
#[derive(Default)]
struct Gone(ByDirectory<Arc<Partition>>);

impl Gone {
    fn take(&mut self, topic: &Topic, replica: &Arc<Partition>) {
        let directory = replica.directory();
        directory.forget(&topic.name, replica.index);
        let is_its = |(known, _): &&mut (Arc<LogDirectory>, _)| Arc::ptr_eq(known, directory);
        match self.0.iter_mut().find(is_its) {
            Some((_, replicas)) => replicas.push(replica.clone()),
            None => self.0.push((directory.clone(), vec![replica.clone()])),
        }
    }
}

/// Has those who wait at replicas of `older` look at the ones that `topic` has in their place.
fn transfer_waiters(topic: &Topic, older: &Topic, gone: &mut Gone) {
    for replica in older.replicas() {
        let next = topic.hosted_partition(replica.index);
        let registration = topic.partition(replica.index);
        match next.zip(registration) {
            Some((HostedPartition::Online(next), _)) if Arc::ptr_eq(next, replica) => {}
            Some((HostedPartition::Online(next), _)) => next.succeed(replica),
            Some((HostedPartition::Elsewhere, registration)) => {
                gone.take(topic, replica);
                replica.end(registration.leader_epoch);
            }
            // Its directory has failed, and has woken those who wait.
            Some((HostedPartition::Offline, _)) => {}
            None => unreachable!("a topic loses no partition"),
        }
    }
}
