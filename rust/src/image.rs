//! What the broker serves at this moment: an immutable picture of brokers, topics and partitions,
//! replaced as a whole when metadata changes. Hot keys read it without a lock that anyone holds long.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;

use crate::log::directory::LogDirectory;
use crate::log::log::Log;
use crate::park::Waiters;
use crate::uuid::Uuid;

/// A node as clients see it: one endpoint per listener, in the order of `listeners`.
#[derive(Clone, Debug)]
pub struct Broker {
    pub node_id: i32,
    pub rack: Option<String>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug)]
pub struct Endpoint {
    pub host: String,
    pub port: i32,
}

/// One partition with its log, if this node has one.
pub struct Partition {
    pub index: i32,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub in_sync_replicas: Vec<i32>,
    pub log: Arc<Log>,
    pub waiters: Arc<Waiters>,
    /// Where the log lies.
    pub directory: Arc<LogDirectory>,
}

impl Partition {
    /// Its log directory has failed. What of it is in memory is not told either, as in Kafka.
    pub fn is_offline(&self) -> bool {
        self.directory.health().is_offline()
    }

    /// Asks for a flush of what was appended so far. Does not wait.
    pub fn request_flush(&self) {
        self.directory.request_flush(&self.log);
    }

    /// Waits until what was appended so far is on disk, or the directory has failed.
    pub fn flush(&self) {
        self.directory.flush_here(&self.log);
    }
}

pub struct Topic {
    pub name: Arc<str>,
    pub id: Uuid,
    pub is_internal: bool,
    /// By index, without gaps; `None` is a partition whose log directory is offline since the start.
    pub partitions: Vec<Option<Arc<Partition>>>,
}

impl Topic {
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// A Fetch that waits at a partition that is led in another epoch than in `older` looks at it again:
    /// it may be of the epoch before.
    pub fn wake_led_anew(&self, older: &Topic) {
        for (partition, known) in self.partitions.iter().zip(&older.partitions) {
            if let (Some(partition), Some(known)) = (partition, known)
                && !Arc::ptr_eq(partition, known)
                && Arc::ptr_eq(&partition.waiters, &known.waiters)
            {
                partition.waiters.wake_readers();
            }
        }
    }

    /// There is such a partition, perhaps offline.
    pub fn has(&self, index: i32) -> bool {
        usize::try_from(index).is_ok_and(|index| index < self.partitions.len())
    }

    /// The partition exists, and its log directory is offline: since the start, or it has failed since.
    pub fn is_offline(&self, index: i32) -> bool {
        let index = usize::try_from(index).ok();
        let partition = index.and_then(|index| self.partitions.get(index));
        partition.is_some_and(|each| each.as_ref().is_none_or(|each| each.is_offline()))
    }
}

/// What ApiVersions says of features. A finalised one is at a level; one at level 0 is not listed.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Name, lowest and highest level.
    pub supported: Vec<(String, i16, i16)>,
    pub finalized: Vec<(String, i16)>,
    /// The offset in `__cluster_metadata-0` up to which `finalized` is known.
    pub epoch: i64,
}

impl Features {
    /// Whether a replica that is no leader any more leaves the ISR although it is the last one.
    pub fn has_eligible_leaders(&self) -> bool {
        let mut finalized = self.finalized.iter();
        finalized.any(|(name, _)| name == "eligible.leader.replicas.version")
    }
}

#[derive(Clone, Default)]
pub struct Image {
    pub cluster_id: String,
    pub controller_id: i32,
    pub brokers: Vec<Broker>,
    pub features: Features,
    /// By the bytes of their names. Looked up for each topic of each request: by a hash that is keyed
    /// as well, and much shorter than the standard library's.
    topics: HashMap<Arc<[u8]>, Arc<Topic>, RandomState>,
    by_id: HashMap<Uuid, Arc<Topic>, RandomState>,
}

impl Image {
    pub fn new(cluster_id: &str, controller_id: i32) -> Image {
        Image {
            cluster_id: cluster_id.to_owned(),
            controller_id,
            ..Image::default()
        }
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topic_by_bytes(name.as_bytes())
    }

    /// The same for a name that nobody has looked at: one that is known is UTF-8.
    pub fn topic_by_bytes(&self, name: &[u8]) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    pub fn topic_by_id(&self, id: &Uuid) -> Option<&Arc<Topic>> {
        self.by_id.get(id)
    }

    /// All topics, in no order.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// Puts a topic in, in place of an older one of its name.
    pub fn insert_topic(&mut self, topic: Arc<Topic>) {
        if let Some(older) = self.topics.insert(topic.name.clone().into(), topic.clone()) {
            self.by_id.remove(&older.id);
        }
        self.by_id.insert(topic.id, topic);
    }

    /// Takes a topic out and returns it.
    pub fn remove_topic(&mut self, name: &str) -> Option<Arc<Topic>> {
        let topic = self.topics.remove(name.as_bytes())?;
        self.by_id.remove(&topic.id);
        Some(topic)
    }
}
