//! Moves of replicas between log directories, between the engine and the control thread. That has
//! the controller told where replicas lie.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::state::BrokerState;
use crate::clock::wall_ms;
use crate::codes;
use crate::node::{self, MoveRefusal};
use crate::py::door::enter;

/// Topic id, partition, and the id of the log directory.
type GivenAssignment<'py> = (Bound<'py, PyBytes>, i32, Bound<'py, PyBytes>);

/// Topic, index, path of the log directory, bytes, and how many offsets it lacks.
type FutureReplica = (String, i32, PathBuf, u64, i64);

#[pyclass(frozen, module = "kafkalite._native")]
pub struct Moves {
    broker: Arc<BrokerState>,
}

#[pymethods]
impl Moves {
    /// A request to move replicas, of which nothing has begun.
    fn request(&self) -> MoveRequest {
        MoveRequest {
            broker: self.broker.clone(),
            request: node::MoveRequest::default(),
        }
    }

    /// Takes the directories that the controller is to be told.
    fn take_assignments<'py>(&self, py: Python<'py>) -> Vec<GivenAssignment<'py>> {
        let taken = self.broker.node.moves().assignments.take().into_iter();
        taken
            .map(|each| {
                let topic_id = PyBytes::new(py, &each.topic_id.0);
                let directory_id = PyBytes::new(py, &each.directory_id.0);
                (topic_id, each.partition, directory_id)
            })
            .collect()
    }

    /// Topic and index of each future replica, the path of its log directory, its bytes, and
    /// how many offsets it lacks.
    fn futures(&self, py: Python<'_>) -> PyResult<Vec<FutureReplica>> {
        enter(py, || {
            let futures = self.broker.node.futures().into_iter();
            Ok(futures
                .map(|each| {
                    let topic = each.topic.to_string();
                    (topic, each.partition, each.path, each.size_bytes, each.lag)
                })
                .collect())
        })
    }

    /// The id of the log directory at a path, if it is in use.
    fn directory_id<'py>(&self, py: Python<'py>, path: PathBuf) -> Option<Bound<'py, PyBytes>> {
        let mut directories = self.broker.node.directories().iter();
        let found = directories.find(|directory| directory.path() == path)?;
        let id = found.identity().directory_id?;
        Some(PyBytes::new(py, &id.0))
    }

    /// Bytes a second that all moves together may copy from now on.
    fn set_rate(&self, rate_bytes: i64) {
        self.broker.node.moves().set_rate(rate_bytes);
    }
}

/// One request to move replicas, begun on a thread and answered on another.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct MoveRequest {
    broker: Arc<BrokerState>,
    request: node::MoveRequest,
}

#[pymethods]
impl MoveRequest {
    /// Begins to move a replica into a log directory; `answer` returns what became of it. Returns
    /// false once the request is answered.
    fn begin(&self, py: Python<'_>, topic: &str, partition: i32, path: PathBuf) -> PyResult<bool> {
        enter(py, || {
            let node = &self.broker.node;
            let begun = node.alter_log_dir(topic, partition, &path, &self.request, wall_ms());
            Ok(begun != Err(MoveRefusal::Answered))
        })
    }

    /// Topic, index, Kafka's code and a sentence of each partition that was looked at. No move of
    /// the others begins after this.
    fn answer(&self) -> Vec<(String, i32, i16, String)> {
        let outcomes = self.request.answer().into_iter();
        outcomes
            .map(|((topic, partition), outcome)| {
                let (code, sentence) = outcome.map_or_else(told, |()| (codes::NONE, String::new()));
                (topic, partition, code, sentence)
            })
            .collect()
    }
}

/// Kafka's code of a refusal, with a sentence.
fn told(refusal: MoveRefusal) -> (i16, String) {
    match refusal {
        MoveRefusal::NameTooLong => (
            codes::INVALID_TOPIC,
            "the name of the topic is too long".to_owned(),
        ),
        MoveRefusal::NoSuchDirectory(path) => {
            let sentence = format!("{} is no log directory", path.display());
            (codes::LOG_DIR_NOT_FOUND, sentence)
        }
        MoveRefusal::Offline(sentence) => (codes::KAFKA_STORAGE_ERROR, sentence),
        MoveRefusal::UnknownPartition => (
            codes::UNKNOWN_TOPIC_OR_PARTITION,
            "there is no such partition".to_owned(),
        ),
        MoveRefusal::NoReplica => (
            codes::REPLICA_NOT_AVAILABLE,
            "this broker has no replica of it".to_owned(),
        ),
        MoveRefusal::Answered => (
            codes::KAFKA_STORAGE_ERROR,
            "the request is answered already".to_owned(),
        ),
    }
}

impl Moves {
    pub fn new(broker: Arc<BrokerState>) -> Moves {
        Moves { broker }
    }
}
