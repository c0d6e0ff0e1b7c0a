//! This node: its log directories, and the image of the cluster with this node's replicas in it.
//! Knows no socket and no Python.
//!
//! ```text
//! Claimed::open      locks and meta.properties; nothing of a directory of Kafka's is changed
//!   metadata is read (python/kafkalite/metadata/reading.py) and says which topics there are
//! Node::load         the logs of those topics; a partition of no topic is stray
//! ```

mod background_work;
mod claim;
mod moves;
mod publish;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

pub use claim::{Claimed, LoadProgress, LostRecords, NodeOptions};
pub use moves::{FutureFacts, MoveOutcome, MoveRefusal, MoveRequest, Moves};
pub use publish::{ByDirectory, MetadataDelta, TopicPlan};

use crate::error::{Error, Result};
use crate::image::{Broker, Features, Image, Permits};
use crate::log::directory::directories::LogDirectories;
use crate::log::directory::offset_checkpoint::TopicPartition;
use crate::log::directory::{LogDirectory, NewLog};
use crate::log::maintain::housekeeper::{CleanerSettings, HousekeeperThread};
use crate::replica::brokers::RegisteredBrokers;
use crate::replica::follower::Followers;
use crate::replica::leader::IsrAnswer;
use crate::replica::moves::Assignments;
use crate::replica::park::Wake;
use crate::replica::replication::Replication;
use crate::uuid::Uuid;

/// A replica of this node that does not lie where the metadata says.
pub struct Moved {
    pub topic_id: Uuid,
    pub partition: i32,
    /// The id of the log directory where it lies.
    pub directory_id: Uuid,
}

/// A node whose logs are loaded.
pub struct Loaded {
    pub node: Node,
    /// Things that were not as a clean stop leaves them, a sentence each.
    pub notes: Vec<String>,
    pub moved: Vec<Moved>,
    /// Partitions that lack records which were on disk, or whose logs are gone.
    pub lost: Vec<LostRecords>,
    /// Topic and index of those whose logs could not be made, and that are offline.
    pub unmade: Vec<(String, i32)>,
}

pub struct Node {
    node_id: i32,
    directories: LogDirectories,
    /// If it is not one of `directories`.
    metadata_directory: Option<Arc<LogDirectory>>,
    housekeepers: Mutex<Vec<HousekeeperThread>>,
    /// The settings of all directories' cleaners.
    cleaner: Arc<Mutex<CleanerSettings>>,
    image: RwLock<Arc<Image>>,
    /// One change of the image at a time.
    changing: Mutex<()>,
    waker: Arc<dyn Wake>,
    /// Makes this node's replicas follow their leaders.
    followers: OnceLock<Arc<dyn Followers>>,
    /// It is about to stop, and its leaders are moved elsewhere.
    in_controlled_shutdown: AtomicBool,
    /// The parts that its replicas need to lead others.
    replication: Arc<Replication>,
    moves: Moves,
}

impl Node {
    /// Loads the logs of `topics`, and makes those that are missing: their creation was cut off, or
    /// their disk is new; one that cannot be made keeps no other from being served. `waker` is told
    /// of parked requests that may go on.
    ///
    /// Errors: that of the first directory, if none can be loaded; `LogDirRefused` if two hold the
    /// same partition.
    pub fn load(
        mut claimed: Claimed,
        topics: &[TopicPlan],
        waker: Arc<dyn Wake>,
    ) -> Result<Loaded> {
        let (mut notes, mut lost) = claimed.load_logs(topics)?;
        let Claimed {
            options,
            directories,
            metadata,
            ..
        } = claimed;
        let is_shared = directories
            .online
            .iter()
            .any(|each| Arc::ptr_eq(each, &metadata));
        let node = Node {
            node_id: options.node_id,
            directories,
            metadata_directory: (!is_shared).then_some(metadata),
            housekeepers: Mutex::default(),
            cleaner: Arc::default(),
            image: RwLock::new(Arc::new(Image::new(&options.cluster_id, options.node_id))),
            changing: Mutex::new(()),
            replication: Arc::new(Replication::new(options.node_id, waker.clone())),
            moves: Moves::new(Assignments::new(waker.clone())),
            waker,
            followers: OnceLock::new(),
            in_controlled_shutdown: AtomicBool::new(false),
        };
        let missing = node.missing_logs(topics);
        // One that no checkpoint names was not made before the end of the process that was told of
        // it: nobody has heard from it of a record there.
        let wanted = missing.iter().flat_map(|(_, wanted)| wanted);
        let had = wanted.map(NewLog::key).filter(|key| node.has_had(key));
        let had: Vec<LostRecords> = had.map(|key| (key.topic, key.partition)).collect();
        if !had.is_empty() {
            // Once they are made, no file says any more that there were others.
            node.directories.forget_broker_epoch()?;
            lost.extend(had);
        }
        let mut unmade = Vec::new();
        for (directory, wanted) in missing {
            let failed = directory.create_each(wanted, options.now_ms);
            if let Some((key, error)) = failed.first() {
                let count = failed.len();
                let sentence =
                    format!("{count} logs cannot be created, {key} the first one: {error}");
                notes.push(sentence);
            }
            unmade.extend(
                failed
                    .into_iter()
                    .map(|(key, _)| (key.topic, key.partition)),
            );
        }
        node.publish(MetadataDelta {
            changed: topics,
            ..MetadataDelta::default()
        })?;
        let moved = node.moved(topics);
        Ok(Loaded {
            node,
            notes,
            moved,
            lost,
            unmade,
        })
    }

    /// A log of this name is gone from one of the directories.
    fn has_had(&self, key: &TopicPartition) -> bool {
        let mut directories = self.directories.online.iter();
        directories.any(|directory| directory.has_had(key))
    }

    /// The partitions that lie in another directory than `topics` say.
    fn moved(&self, topics: &[TopicPlan]) -> Vec<Moved> {
        let image = self.image();
        let mut moved = Vec::new();
        for plan in topics {
            let Some(topic) = image.topic(&plan.name) else {
                continue;
            };
            for replica in topic.replicas() {
                let planned = topic.partition(replica.index);
                let planned = planned.and_then(|each| each.directory_of(self.node_id));
                let found = replica.directory().identity().directory_id;
                if let Some(directory_id) = found.filter(|_| found != planned) {
                    moved.push(Moved {
                        topic_id: topic.id,
                        partition: replica.index,
                        directory_id,
                    });
                }
            }
        }
        moved
    }

    /// How many connections the process may hold beside its files.
    pub fn connections_max(&self) -> usize {
        let directory = self.directories.online.first();
        directory.map_or(usize::MAX, |directory| directory.connections_max())
    }

    /// Answers are to hold records in memory, since they hold too many files already.
    pub fn is_crowded(&self) -> bool {
        let directory = self.directories.online.first();
        directory.is_some_and(|directory| directory.is_crowded())
    }

    /// The log directories that could not be taken, or have failed since.
    pub fn offline_log_dirs(&self) -> Vec<PathBuf> {
        let failed = self.directories.online.iter();
        let failed = failed.filter(|directory| directory.health().is_offline());
        let refused = self.directories.refused.iter().map(|(path, _)| path);
        failed
            .map(|directory| directory.path())
            .chain(refused.map(PathBuf::as_path))
            .map(Path::to_path_buf)
            .collect()
    }

    pub fn node_id(&self) -> i32 {
        self.node_id
    }

    pub fn image(&self) -> Arc<Image> {
        self.image.read().clone()
    }

    /// The log directories that are in use.
    pub fn directories(&self) -> &[Arc<LogDirectory>] {
        &self.directories.online
    }

    /// The parts that the replicas of this node need to lead others, and what comes of it.
    pub fn replication(&self) -> &Arc<Replication> {
        &self.replication
    }

    /// Replaces what is known of all registered brokers, alive or not. Who was fenced holds no high
    /// watermark back any more.
    pub fn set_registered_brokers(&self, brokers: RegisteredBrokers) {
        self.replication.brokers.set(brokers);
        for topic in self.image().topics() {
            for replica in topic.replicas() {
                replica.look_again();
            }
        }
    }

    /// Has followers of this node's leaders that are not caught up leave the in-sync
    /// replicas. To be called every half of `replica.lag.time.max.ms`; `now_ms` is of a
    /// clock that is not set back.
    pub fn sweep_in_sync_replicas(&self, now_ms: i64) {
        if let Some(followers) = self.followers.get() {
            followers.look_again();
        }
        for topic in self.image().topics() {
            for replica in topic.replicas() {
                replica.sweep(now_ms);
            }
        }
    }

    /// Has a leader know the controller's answer to its proposal of this number.
    pub fn settle_in_sync_replicas(
        &self,
        topic_id: &Uuid,
        partition: i32,
        number: u64,
        answer: IsrAnswer,
    ) {
        let image = self.image();
        let topic = image.topic_by_id(topic_id);
        if let Some(replica) = topic.and_then(|topic| topic.replica(partition)) {
            replica.on_isr_answer(number, answer);
        }
    }

    /// From now on a replica of this node that the controller takes out of the in-sync ones is
    /// fetched no more: what it gets would bring it back, and be missed there once the node has
    /// stopped (`ReplicaManager.beginControlledShutdown`).
    pub fn begin_controlled_shutdown(&self) {
        self.in_controlled_shutdown.store(true, Ordering::Relaxed);
    }

    /// Replaces the brokers that are alive.
    pub fn set_brokers(&self, brokers: Vec<Broker>) {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        next.set_brokers(brokers);
        *self.image.write() = Arc::new(next);
        if let Some(followers) = self.followers.get() {
            followers.brokers_changed();
        }
    }

    /// Where `count` new partitions go, not into a directory that `is_avoided` while there are
    /// others. Errors: `InvalidArgument` if no directory is online.
    pub fn place(
        &self,
        count: usize,
        is_avoided: impl Fn(&Arc<LogDirectory>) -> bool,
    ) -> Result<Vec<Uuid>> {
        let chosen = ids_of(&self.directories.for_new_logs(count, is_avoided));
        if chosen.len() == count {
            Ok(chosen)
        } else {
            Err(Error::InvalidArgument(
                "no log directory is online".to_owned(),
            ))
        }
    }

    pub fn set_features(&self, features: Features) {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        next.features = features;
        *self.image.write() = Arc::new(next);
    }

    /// Replaces all rights and quotas of clients: requests that begin from
    /// now on are judged by these.
    pub fn set_permits(&self, permits: Permits) {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        next.permits = permits;
        *self.image.write() = Arc::new(next);
    }
}

fn ids_of(directories: &[Arc<LogDirectory>]) -> Vec<Uuid> {
    let ids = directories.iter().map(|each| each.identity().directory_id);
    ids.map(|id| id.unwrap_or(Uuid::ZERO)).collect()
}

/// A random number.
pub fn random_u64() -> Result<u64> {
    getrandom::u64().map_err(|error| Error::InvalidArgument(format!("no randomness: {error}")))
}
