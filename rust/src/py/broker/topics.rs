//! Topics and brokers as Python gives them: where their partitions go, and
//! what clients see of them.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::state::BrokerState;
use crate::error::Result;
use crate::image::{Broker, Endpoint, Features, PartitionRegistration};
use crate::log::config::LogConfig;
use crate::log::directory::LogDirectory;
use crate::net::control::log_lifecycle;
use crate::node::{MetadataDelta, TopicPlan};
use crate::py::door::enter;
use crate::py::engine::{Configs, log_config};
use crate::replica::brokers::{RegisteredBroker, RegisteredBrokers};
use crate::uuid::Uuid;

/// `kafkalite.metadata.publisher.TopicState`.
#[derive(FromPyObject)]
pub struct GivenTopic {
    id: [u8; 16],
    is_internal: bool,
    configs: Configs,
    partitions: Vec<GivenPartition>,
}

/// Id, rack, and host and port for each listener of this node that the broker has.
type GivenBroker = (i32, Option<String>, Vec<Option<(String, i32)>>);

/// `kafkalite.metadata.publisher.RegisteredBroker`.
#[derive(FromPyObject)]
pub struct GivenRegistration {
    id: i32,
    epoch: i64,
    is_fenced: bool,
    in_controlled_shutdown: bool,
    rack: Option<String>,
    address: Option<(String, i32)>,
}

/// `kafkalite.metadata.image.PartitionImage`.
#[derive(FromPyObject)]
pub struct GivenPartition {
    leader: i32,
    leader_epoch: i32,
    partition_epoch: i32,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    directories: Vec<[u8; 16]>,
}

impl From<GivenPartition> for PartitionRegistration {
    fn from(given: GivenPartition) -> PartitionRegistration {
        PartitionRegistration {
            leader_id: given.leader,
            leader_epoch: given.leader_epoch,
            partition_epoch: given.partition_epoch,
            replicas: given.replicas.into(),
            in_sync_replicas: given.isr.into(),
            directories: given.directories.into_iter().map(Uuid).collect(),
        }
    }
}

/// The topics of one node.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct Topics {
    broker: Arc<BrokerState>,
}

#[pymethods]
impl Topics {
    /// Ids of the log directories where `count` new partitions go.
    fn place<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let core = self.broker.core.lock().clone();
        let is_silent = |directory: &Arc<LogDirectory>| {
            let core = core.as_ref();
            core.is_some_and(|core| core.shared.storage.is_silent(directory))
        };
        let ids = enter(py, || self.broker.node.place(count, is_silent))?;
        Ok(ids.iter().map(|id| PyBytes::new(py, &id.0)).collect())
    }

    /// Has clients see topics as they are now, with those partitions whose logs have been made.
    /// Logs of partitions that name other nodes only by now are deleted by the next `wait`, as
    /// Kafka does (`ReplicaManager.stopPartitions`); a directory where that fails is offline.
    fn publish(&self, py: Python<'_>, topics: HashMap<String, GivenTopic>) -> PyResult<()> {
        enter(py, || {
            let (deleted, changed) = (&[][..], &*topic_plans(topics)?);
            let gone = self
                .broker
                .node
                .publish(MetadataDelta { deleted, changed })?;
            if !gone.is_empty() {
                log_lifecycle::delete_logs(gone, None, &self.broker.mailboxes.control);
            }
            Ok(())
        })
    }

    /// Has clients told of these brokers, all that are alive; and leaders judge their followers by
    /// what is `registered`, alive or not.
    fn set_brokers(&self, brokers: Vec<GivenBroker>, registered: Vec<GivenRegistration>) {
        let registered = registered.into_iter().map(|each| RegisteredBroker {
            node_id: each.id,
            broker_epoch: each.epoch,
            is_fenced: each.is_fenced,
            in_controlled_shutdown: each.in_controlled_shutdown,
            rack: each.rack,
            endpoint: each.address,
        });
        let registered = RegisteredBrokers::new(registered);
        self.broker.node.set_registered_brokers(registered);
        let brokers = brokers.into_iter().map(|(node_id, rack, addresses)| {
            let endpoint = |(host, port)| Endpoint { host, port };
            let endpoints = addresses.into_iter().map(|each| each.map(endpoint));
            Broker {
                node_id,
                rack,
                endpoints: endpoints.collect(),
            }
        });
        self.broker.node.set_brokers(brokers.collect());
    }

    /// Gives the logs of a topic another configuration.
    fn set_configs(&self, py: Python<'_>, name: &str, configs: Configs) -> PyResult<()> {
        enter(py, || {
            let config = log_config(&LogConfig::default(), &configs)?;
            self.broker.node.set_topic_config(name, &config);
            Ok(())
        })
    }

    /// Sets what ApiVersions tells: (name, lowest, highest level) of the supported features, (name,
    /// level) of the finalised, up to which offset of the metadata that is so, and the versions of
    /// keys that the active controller answers, as (key, lowest, highest).
    fn set_features(
        &self,
        supported: Vec<(String, i16, i16)>,
        finalized: Vec<(String, i16)>,
        epoch: i64,
        forwarded: Vec<(i16, i16, i16)>,
    ) {
        self.broker.node.set_features(Features {
            supported,
            finalized,
            epoch,
            forwarded,
        });
    }
}

impl Topics {
    pub fn new(broker: Arc<BrokerState>) -> Topics {
        Topics { broker }
    }
}

pub fn topic_plans(topics: HashMap<String, GivenTopic>) -> Result<Vec<TopicPlan>> {
    let plans = topics.into_iter();
    plans.map(|(name, facts)| topic_plan(name, facts)).collect()
}

fn topic_plan(name: String, given: GivenTopic) -> Result<TopicPlan> {
    let partitions = given.partitions.into_iter();
    Ok(TopicPlan {
        config: log_config(&LogConfig::default(), &given.configs)?,
        name,
        id: Uuid(given.id),
        is_internal: given.is_internal,
        partitions: partitions.map(PartitionRegistration::from).collect(),
    })
}
