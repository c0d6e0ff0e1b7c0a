//! Topics as Python gives them: where their partitions go, and what clients see of them.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::broker::BrokerState;
use super::door::enter;
use super::engine::{Configs, log_config};
use crate::error::Result;
use crate::image::{Features, PartitionRegistration};
use crate::log::config::LogConfig;
use crate::log::directory::LogDirectory;
use crate::node::{MetadataDelta, TopicPlan};
use crate::uuid::Uuid;

/// Id, whether it is internal, configs, partitions.
pub type TopicFacts = ([u8; 16], bool, Configs, Vec<GivenPartition>);

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
    fn publish(&self, py: Python<'_>, topics: HashMap<String, TopicFacts>) -> PyResult<()> {
        enter(py, || {
            let (deleted, changed) = (&[][..], &*topic_plans(topics)?);
            // A log that is out of use stays: the next start calls it stray.
            self.broker
                .node
                .publish(MetadataDelta { deleted, changed })?;
            Ok(())
        })
    }

    /// Gives the logs of a topic another configuration.
    fn set_configs(&self, py: Python<'_>, name: &str, configs: Configs) -> PyResult<()> {
        enter(py, || {
            let config = log_config(&LogConfig::default(), &configs)?;
            self.broker.node.set_topic_config(name, &config);
            Ok(())
        })
    }

    /// Sets the features that ApiVersions tells: (name, lowest, highest level) of the supported, (name,
    /// level) of the finalised, and up to which offset of the metadata that is so.
    fn set_features(
        &self,
        supported: Vec<(String, i16, i16)>,
        finalized: Vec<(String, i16)>,
        epoch: i64,
    ) {
        self.broker.node.set_features(Features {
            supported,
            finalized,
            epoch,
        });
    }
}

impl Topics {
    pub fn new(broker: Arc<BrokerState>) -> Topics {
        Topics { broker }
    }
}

pub fn topic_plans(topics: HashMap<String, TopicFacts>) -> Result<Vec<TopicPlan>> {
    let plans = topics.into_iter();
    plans.map(|(name, facts)| topic_plan(name, facts)).collect()
}

fn topic_plan(
    name: String,
    (id, is_internal, configs, partitions): TopicFacts,
) -> Result<TopicPlan> {
    let partitions = partitions.into_iter();
    Ok(TopicPlan {
        config: log_config(&LogConfig::default(), &configs)?,
        name,
        id: Uuid(id),
        is_internal,
        partitions: partitions.map(PartitionRegistration::from).collect(),
    })
}
