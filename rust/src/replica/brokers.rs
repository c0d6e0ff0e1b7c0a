//! The registered brokers of the cluster, as far as a leader judges its followers by them: who may
//! join the in-sync replicas, and whose Fetch is of a process that has gone (KIP-841, KIP-903).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// A broker of the metadata, alive or fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredBroker {
    pub node_id: i32,
    /// The offset of its registration: each process of a broker has its own.
    pub broker_epoch: i64,
    pub is_fenced: bool,
    pub in_controlled_shutdown: bool,
    pub rack: Option<String>,
    /// Host and port of the listener for other brokers, if it has one of that name.
    pub endpoint: Option<(String, i32)>,
}

/// All registered brokers at one moment, by their ids.
#[derive(Clone, Debug, Default)]
pub struct RegisteredBrokers(HashMap<i32, RegisteredBroker>);

impl RegisteredBrokers {
    pub fn new(brokers: impl IntoIterator<Item = RegisteredBroker>) -> RegisteredBrokers {
        let by_id = brokers.into_iter().map(|each| (each.node_id, each));
        RegisteredBrokers(by_id.collect())
    }

    pub fn get(&self, node_id: i32) -> Option<&RegisteredBroker> {
        self.0.get(&node_id)
    }

    /// -1 where it is not registered.
    pub fn broker_epoch(&self, node_id: i32) -> i64 {
        self.get(node_id).map_or(-1, |broker| broker.broker_epoch)
    }

    /// A fetch in `broker_epoch` is of an earlier process of the broker. -1 is
    /// of one that does not say.
    pub fn has_gone(&self, node_id: i32, broker_epoch: i64) -> bool {
        broker_epoch != -1 && broker_epoch < self.broker_epoch(node_id)
    }

    /// The broker, which fetched in `broker_epoch`, may be one of the in-sync replicas: it is
    /// neither fenced nor about to stop, and the process that the controller has registered
    /// (`Partition.isReplicaIsrEligible`).
    pub fn is_eligible(&self, node_id: i32, broker_epoch: i64) -> bool {
        self.get(node_id).is_some_and(|broker| {
            let is_registered = broker_epoch == -1 || broker_epoch == broker.broker_epoch;
            is_registered && !broker.is_fenced && !broker.in_controlled_shutdown
        })
    }
}

/// The registered brokers as they are now, for all who judge by them.
#[derive(Default)]
pub struct CurrentBrokers(RwLock<Arc<RegisteredBrokers>>);

impl CurrentBrokers {
    pub fn get(&self) -> Arc<RegisteredBrokers> {
        self.0.read().clone()
    }

    pub fn set(&self, brokers: RegisteredBrokers) {
        *self.0.write() = Arc::new(brokers);
    }
}
