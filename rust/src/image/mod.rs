//! The cluster at this moment: an immutable image of its brokers, topics and partitions, made
//! from the metadata and replaced as a whole when that changes. Hot keys read it without a
//! lock that anyone holds long.
//!
//! ```text
//! Image ─ brokers       who is alive, and where each listener is reached
//!       ├ features      levels, for ApiVersions
//!       ├ permits       what clients may do, and how much
//!       └ topics ─ partitions   leader, epochs, replicas, ISR, directories: facts of the whole cluster
//!                └ hosted       the part that this node has in each of them (`replica/`)
//! ```
//!
//! No log is in the facts: a partition that is led elsewhere looks as one that is led here
//! does. Whoever wants the log asks the topic for the leader (`Topic::leader`), and gets
//! it or the reason why not.

mod broker;
mod features;
mod permits;
mod topic;

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;

pub use broker::{Broker, Endpoint};
pub use features::Features;
pub use permits::Permits;
pub use topic::{NO_LEADER, NoLeader, PartitionRegistration, Topic};

use crate::uuid::Uuid;

#[derive(Clone, Default)]
pub struct Image {
    pub cluster_id: String,
    /// The node that serves from this image.
    pub node_id: i32,
    pub controller_id: i32,
    /// The brokers that are alive, by their ids, ascending.
    brokers: Vec<Broker>,
    pub features: Features,
    pub permits: Permits,
    /// By the bytes of their names. Looked up for each topic of each request: by a hash that is
    /// keyed as well, and much shorter than the standard library's.
    topics: HashMap<Arc<[u8]>, Arc<Topic>, RandomState>,
    by_id: HashMap<Uuid, Arc<Topic>, RandomState>,
}

impl Image {
    /// An image of no topics, of a node that is its own controller.
    pub fn new(cluster_id: &str, node_id: i32) -> Image {
        Image {
            cluster_id: cluster_id.to_owned(),
            node_id,
            controller_id: node_id,
            ..Image::default()
        }
    }

    pub fn brokers(&self) -> &[Broker] {
        &self.brokers
    }

    /// Replaces the brokers that are alive.
    pub fn set_brokers(&mut self, mut brokers: Vec<Broker>) {
        brokers.sort_unstable_by_key(|broker| broker.node_id);
        assert!(
            brokers.is_sorted_by(|one, next| one.node_id < next.node_id),
            "a node is one broker"
        );
        self.brokers = brokers;
    }

    /// The broker of this id, if it is alive.
    pub fn broker(&self, node_id: i32) -> Option<&Broker> {
        let found = self
            .brokers
            .binary_search_by_key(&node_id, |broker| broker.node_id);
        self.brokers.get(found.ok()?)
    }

    /// Finds a live broker that has the listener: one that clients of this listener can reach.
    pub fn reachable(&self, node_id: i32, listener: usize) -> Option<(&Broker, &Endpoint)> {
        let broker = self.broker(node_id)?;
        Some((broker, broker.endpoint(listener)?))
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topic_by_bytes(name.as_bytes())
    }

    /// Finds a topic by a name that nobody has looked at: one that is known is UTF-8.
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
        self.check();
    }

    /// Takes a topic out and returns it.
    pub fn remove_topic(&mut self, name: &str) -> Option<Arc<Topic>> {
        let topic = self.topics.remove(name.as_bytes())?;
        self.by_id.remove(&topic.id);
        self.check();
        Some(topic)
    }

    fn check(&self) {
        assert_eq!(self.topics.len(), self.by_id.len(), "a topic has one id");
    }
}
