//! Calls of logs: what Python asks of a log by name, and logs that it has made, deleted and
//! appended to. Each call has a number; `Requests.wait` gives it once the answer is there.
//!
//! A call is a line of `call_named`, and an `await` in the handler that needs it.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::state::BrokerState;
use super::topics::{GivenTopic, topic_plans};
use crate::error::{Error, Result};
use crate::log::log::Log as PartitionLog;
use crate::net::control::answer::{Answer, Kept};
use crate::net::control::log_calls::{LogCall, LogOperation, OfCoordinator};
use crate::net::control::{log_lifecycle, metadata_append};
use crate::net::storage_io::{QueueId, QueueKind};
use crate::node::MetadataDelta;
use crate::py::door::{enter, raise};
use crate::py::engine::{Log, ProducerEntries};
use crate::replica::Partition;

/// Makes the answer of a call an object.
type Make = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The logs of one node.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct Logs {
    broker: Arc<BrokerState>,
}

#[pymethods]
impl Logs {
    /// Has a log asked by the next `wait`: one gives `number` then, and `answer` what it says.
    #[pyo3(signature = (number, topic, partition, call, *arguments))]
    fn ask(
        &self,
        py: Python<'_>,
        number: u64,
        topic: &str,
        partition: i32,
        call: &str,
        arguments: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let partition = self.partition(topic, partition);
        let call = LogCall {
            partition: partition.map_err(|error| raise(py, &error))?,
            call: call_named(call, arguments)?,
            number,
        };
        self.broker.mailboxes.control.call(call);
        Ok(())
    }

    /// The answer to a call, of a log or of one of the following; once.
    fn answer(&self, py: Python<'_>, number: u64) -> PyResult<Py<PyAny>> {
        let unknown = || Error::InvalidArgument(format!("nothing was asked as {number}"));
        let answer = self.broker.mailboxes.control.take_answer(number);
        let answer = answer.ok_or_else(unknown).and_then(|answer| answer.take());
        match answer.map_err(|error| raise(py, &error))? {
            Answer::Offset(offset) => offset.into_py_any(py),
            Answer::Done => Ok(py.None()),
            Answer::Kept(kept) => match kept.downcast::<Make>() {
                Ok(make) => make(py),
                Err(_) => Err(raise(py, &unknown())),
            },
        }
    }

    /// Has the logs made that topics lack, by the next `wait`: one gives `number` then, and
    /// `answer` whether they are there.
    fn make(
        &self,
        py: Python<'_>,
        topics: HashMap<String, GivenTopic>,
        number: u64,
    ) -> PyResult<()> {
        enter(py, || {
            let missing = self.broker.node.missing_logs(&topic_plans(topics)?);
            log_lifecycle::make_logs(missing, number, &self.broker.mailboxes.control);
            Ok(())
        })
    }

    /// As `make`, but as many as can be made: `answer` gives the first failure. Those of a log
    /// directory that has failed are not asked for.
    fn make_each(
        &self,
        py: Python<'_>,
        topics: HashMap<String, GivenTopic>,
        number: u64,
    ) -> PyResult<()> {
        enter(py, || {
            let mut missing = self.broker.node.missing_logs(&topic_plans(topics)?);
            missing.retain(|(directory, _)| !directory.health().is_offline());
            log_lifecycle::make_each(missing, number, &self.broker.mailboxes.control);
            Ok(())
        })
    }

    /// Has batches appended to the metadata and made durable, by the next `wait`: one gives
    /// `number` then, and `answer` whether they are.
    fn append_metadata(&self, log: &Log, batches: Vec<Vec<u8>>, leader_epoch: i32, number: u64) {
        let log = log.inner().clone();
        metadata_append::append(
            log,
            batches,
            leader_epoch,
            number,
            &self.broker.mailboxes.control,
        );
    }

    /// Returns once what `append_metadata` was given is on disk, or is known not to be. After
    /// `stop`, and the end of who called `wait`.
    fn finish_metadata(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.broker.started(py)?;
        enter(py, || {
            core.finish_metadata();
            Ok(())
        })
    }

    /// Takes topics away at once, and has their logs deleted by the next `wait`: one gives `number`
    /// then, and `answer` whether they are gone.
    fn delete(&self, py: Python<'_>, names: Vec<String>, number: u64) -> PyResult<()> {
        enter(py, || {
            let (deleted, changed) = (&*names, &[][..]);
            let gone = self
                .broker
                .node
                .publish(MetadataDelta { deleted, changed })?;
            log_lifecycle::delete_logs(gone, Some(number), &self.broker.mailboxes.control);
            Ok(())
        })
    }

    /// The log directory of a partition does not answer, and requests that wait
    /// take so much of their memory that no more may wait for it.
    fn is_held_up(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<bool> {
        let shared = &self.broker.started(py)?.shared;
        if !shared.memory.is_half_used() {
            return Ok(false);
        }
        let image = self.broker.node.image();
        let partition = image
            .topic(topic)
            .and_then(|topic| topic.replica(partition));
        Ok(partition.is_some_and(|partition| {
            let number = shared.storage.number_of(partition.directory());
            let calls = QueueId::Directory(QueueKind::LogCalls, number);
            !shared.storage.is_open(calls)
        }))
    }

    /// Logs are being made or deleted, or the metadata is being written, in a directory
    /// that does not answer, and requests that wait take so much of their memory that
    /// no more may wait for it.
    fn is_change_held_up(&self, py: Python<'_>) -> PyResult<bool> {
        let shared = &self.broker.started(py)?.shared;
        Ok(shared.memory.is_half_used() && shared.storage.are_changes_stuck())
    }

    /// The log of a partition, if there is one.
    fn find(&self, topic: &str, partition: i32) -> Option<Log> {
        let image = self.broker.node.image();
        let partition = image.topic(topic)?.replica(partition)?;
        Some(Log::new(partition.log.clone()))
    }
}

impl Logs {
    pub fn new(broker: Arc<BrokerState>) -> Logs {
        Logs { broker }
    }

    fn partition(&self, topic: &str, index: i32) -> Result<Arc<Partition>> {
        let image = self.broker.node.image();
        let found = image.topic(topic).and_then(|topic| topic.replica(index));
        let unknown = || Error::InvalidArgument(format!("there is no partition {topic}-{index}"));
        found.cloned().ok_or_else(unknown)
    }
}

/// The calls that Python may name, with their arguments.
fn call_named(name: &str, arguments: &Bound<'_, PyTuple>) -> PyResult<LogOperation> {
    match name {
        "append" => {
            let (records, transaction_version, decided_in) = arguments.extract()?;
            Ok(LogOperation::Append(OfCoordinator {
                records,
                transaction_version,
                decided_in,
            }))
        }
        "delete_records" => {
            let (offset,) = arguments.extract()?;
            Ok(LogOperation::DeleteRecords(offset))
        }
        "describe_producers" => Ok(ask(|log| Ok(ProducerEntries::of(log)))),
        "has_open_transaction" => {
            let (producer_id,) = arguments.extract()?;
            Ok(ask(move |log| Ok(log.has_open_transaction(producer_id))))
        }
        _ => {
            let sentence = format!("logs have no call {name}");
            Err(raise(arguments.py(), &Error::InvalidArgument(sentence)))
        }
    }
}

/// A call whose answer becomes an object when Python asks for it.
fn ask<T>(question: impl FnOnce(&PartitionLog) -> Result<T> + Send + 'static) -> LogOperation
where
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    LogOperation::Ask(Box::new(move |log| {
        let answer = question(log)?;
        let make: Make = Box::new(move |py| answer.into_py_any(py));
        Ok(Box::new(make) as Kept)
    }))
}
