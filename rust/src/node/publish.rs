//! Changes of the metadata, made to what this node serves: topics and their partitions come, change and go.

use std::collections::HashMap;
use std::sync::Arc;

use super::Node;
use crate::error::{Error, Result};
use crate::image::{Partition, Topic};
use crate::log::config::LogConfig;
use crate::log::directory::{LogDirectory, NewLog};
use crate::log::log::Log;
use crate::park::Waiters;
use crate::uuid::Uuid;

/// What metadata says of a topic.
pub struct TopicPlan {
    pub name: String,
    pub id: Uuid,
    pub is_internal: bool,
    pub config: LogConfig,
    /// By index.
    pub partitions: Vec<PartitionPlan>,
}

/// What metadata says of a partition.
pub struct PartitionPlan {
    pub leader_epoch: i32,
    /// Of the log directory.
    pub directory_id: Uuid,
}

/// What lies in each log directory.
pub type ByDirectory<T> = Vec<(Arc<LogDirectory>, Vec<T>)>;

impl Node {
    /// What topics are now, after their metadata changed and the logs that they lacked were made: a
    /// partition whose log is not there is offline.
    pub fn publish_topics(&self, plans: &[TopicPlan]) {
        let _changing = self.changing.lock();
        let image = self.image();
        let mut next = (*image).clone();
        for plan in plans {
            let older = image.topic(&plan.name).filter(|older| older.id == plan.id);
            next.insert_topic(Arc::new(self.make_topic(plan, older)));
        }
        let next = Arc::new(next);
        *self.image.write() = next.clone();
        for plan in plans {
            if let (Some(topic), Some(older)) = (next.topic(&plan.name), image.topic(&plan.name)) {
                topic.wake_led_anew(older);
            }
        }
    }

    /// Takes topics out of the image and their logs out of use, wakes who waits for them, and returns
    /// the partitions of each log directory, whose files are still there. Errors: `InvalidArgument` if
    /// there is no such topic, and then nothing has changed.
    pub fn remove_topics(&self, names: &[String]) -> Result<ByDirectory<Arc<Partition>>> {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        let mut topics = Vec::with_capacity(names.len());
        for name in names {
            let unknown = || Error::InvalidArgument(format!("there is no topic {name}"));
            topics.push(next.remove_topic(name).ok_or_else(unknown)?);
        }
        *self.image.write() = Arc::new(next);
        let mut gone: ByDirectory<Arc<Partition>> = Vec::new();
        for topic in topics {
            for partition in topic.partitions.iter().flatten() {
                let directory = &partition.directory;
                directory.forget(&topic.name, partition.index);
                partition.waiters.abandon();
                let is_its =
                    |(known, _): &&mut (Arc<LogDirectory>, _)| Arc::ptr_eq(known, directory);
                match gone.iter_mut().find(is_its) {
                    Some((_, partitions)) => partitions.push(partition.clone()),
                    None => gone.push((directory.clone(), vec![partition.clone()])),
                }
            }
        }
        Ok(gone)
    }

    /// Gives the logs of a topic another configuration.
    pub fn set_topic_config(&self, name: &str, config: &LogConfig) {
        if let Some(topic) = self.image().topic(name) {
            for partition in topic.partitions.iter().flatten() {
                partition.log.set_config(config.clone());
            }
        }
    }

    /// The topic of a plan whose logs have been made; a partition that `older` has with the same
    /// leader epoch stays as it is.
    fn make_topic(&self, plan: &TopicPlan, older: Option<&Arc<Topic>>) -> Topic {
        let mut partitions = Vec::with_capacity(plan.partitions.len());
        for (index, planned) in (0_i32..).zip(&plan.partitions) {
            let known = older.and_then(|topic| topic.partition(index));
            let partition = match known {
                Some(known) if known.leader_epoch == planned.leader_epoch => Some(known.clone()),
                // Without a log the directory is offline, and it must not be made elsewhere.
                _ => self
                    .directories
                    .log(&plan.name, index, plan.id)
                    .map(|(directory, log)| {
                        let known = known.filter(|known| Arc::ptr_eq(&known.log, &log));
                        self.partition(directory, log, planned.leader_epoch, known)
                    }),
            };
            partitions.push(partition);
        }
        Topic {
            name: plan.name.as_str().into(),
            id: plan.id,
            is_internal: plan.is_internal,
            partitions,
        }
    }

    /// The logs that topics have not yet, by their directories, as far as these are online.
    pub fn missing_logs(&self, plans: &[TopicPlan]) -> ByDirectory<NewLog> {
        let mut missing: HashMap<Uuid, Vec<NewLog>> = HashMap::new();
        for plan in plans {
            let topic: Arc<str> = Arc::from(plan.name.as_str());
            for (index, planned) in (0_i32..).zip(&plan.partitions) {
                if self.directories.log(&plan.name, index, plan.id).is_none() {
                    let wanted = missing.entry(planned.directory_id).or_default();
                    wanted.push(NewLog {
                        topic: topic.clone(),
                        partition: index,
                        topic_id: plan.id,
                        config: plan.config.clone(),
                        leader_epoch: Some(planned.leader_epoch),
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

    fn partition(
        &self,
        directory: Arc<LogDirectory>,
        log: Arc<Log>,
        leader_epoch: i32,
        known: Option<&Arc<Partition>>,
    ) -> Arc<Partition> {
        let waiters = known.map(|known| known.waiters.clone());
        let waiters = waiters.unwrap_or_else(|| {
            Arc::new(Waiters::new(self.waker.clone(), directory.health().clone()))
        });
        log.set_observer(waiters.clone());
        log.lead(leader_epoch);
        Arc::new(Partition {
            index: log.partition(),
            leader_id: self.node_id,
            leader_epoch,
            replicas: vec![self.node_id],
            in_sync_replicas: vec![self.node_id],
            log,
            waiters,
            directory,
        })
    }
}
