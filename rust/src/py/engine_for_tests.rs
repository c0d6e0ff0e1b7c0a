//! The log engine for the tests and benchmarks of Python: no code of the broker or of the client
//! names a class of this file. A log directory is opened here without a broker, and its logs say
//! what Kafka's own classes say of the same files. The wheel that is tested is the one that is
//! shipped, so it is in both.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::limits::OPEN_SEGMENTS_MAX;
use crate::log::compact::Cleaner;
use crate::log::config::LogConfig;
use crate::log::directory::meta_properties::MetaProperties;
use crate::log::directory::{self, DirectoryOptions};
use crate::log::log as engine;
use crate::log::read::{FoundTimestamp, ReadIsolation};
use crate::log::recover::LoadReport;
use crate::log::segment::open_segments::OpenSegments;
use crate::log::state::producers;
use crate::log::storage::DiskStorage;
use crate::uuid::Uuid;

use super::door::{enter, raise};
use super::engine::{Configs, Log, ProducerEntry, log_config};

/// Memory of a cleaner that is made for one round.
const CLEANER_MEMORY_BYTES: usize = 8 << 20;
const CLEANER_LOAD_FACTOR: f64 = 0.9;

/// The work that loading a log took; see `LoadReport`.
#[pyclass(frozen, get_all, module = "kafkalite._native")]
#[derive(Clone)]
pub struct LoadedLog {
    topic: String,
    partition: i32,
    notes: Vec<String>,
    recovered_segments: usize,
    recovered_bytes: u64,
    truncated_bytes: u64,
}

#[pyclass(frozen, module = "kafkalite._native")]
pub struct LogDirectory {
    /// `None` once it is closed or abandoned.
    inner: Mutex<Option<directory::LogDirectory>>,
    path: PathBuf,
    config: LogConfig,
    identity: MetaProperties,
    was_clean: bool,
    previous_broker_epoch: Option<i64>,
    loaded: Vec<LoadedLog>,
}

#[pymethods]
impl LogDirectory {
    #[staticmethod]
    #[pyo3(signature = (
        path, *, now_ms, cluster_id=None, node_id=None, directory_id=None, config=None,
        topic_configs=None, recovery_threads=1,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        now_ms: i64,
        cluster_id: Option<String>,
        node_id: Option<i32>,
        directory_id: Option<&str>,
        config: Option<Configs>,
        topic_configs: Option<HashMap<String, Configs>>,
        recovery_threads: usize,
    ) -> PyResult<LogDirectory> {
        let directory_id = directory_id.map(|text| parse_id(py, text)).transpose()?;
        let identity = MetaProperties {
            version: 1,
            cluster_id,
            node_id,
            directory_id,
        };
        enter(py, || {
            let config = log_config(&LogConfig::default(), &config.unwrap_or_default())?;
            let mut configs = HashMap::new();
            for (topic, properties) in topic_configs.unwrap_or_default() {
                configs.insert(topic, log_config(&config, &properties)?);
            }
            let open_segments = OpenSegments::new(Arc::new(DiskStorage), OPEN_SEGMENTS_MAX);
            let loaded = Mutex::new(Vec::new());
            let options = DirectoryOptions {
                identity,
                config_of: &|topic| configs.get(topic).unwrap_or(&config).clone(),
                is_ours: &|_, _, _| true,
                on_loaded: &|log, report, _| loaded.lock().push(LoadedLog::of(log, report)),
                recovery_threads,
                flush_threads: 1,
                is_single_replica: &|_, _| true,
                now_ms,
                jitter_seed: 0,
                stop: Arc::default(),
            };
            let inner = directory::LogDirectory::open(&open_segments, &path, &options)?;
            let mut loaded = loaded.into_inner();
            loaded.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
            Ok(LogDirectory {
                path,
                config,
                identity: inner.identity().clone(),
                was_clean: inner.was_clean(),
                previous_broker_epoch: inner.previous_broker_epoch(),
                loaded,
                inner: Mutex::new(Some(inner)),
            })
        })
    }

    #[getter]
    fn path(&self) -> &Path {
        &self.path
    }

    #[getter]
    fn directory_id(&self) -> Option<String> {
        self.identity.directory_id.map(|id| id.to_string())
    }

    #[getter]
    fn was_clean(&self) -> bool {
        self.was_clean
    }

    #[getter]
    fn previous_broker_epoch(&self) -> Option<i64> {
        self.previous_broker_epoch
    }

    #[getter]
    fn loaded(&self) -> Vec<LoadedLog> {
        self.loaded.clone()
    }

    #[pyo3(signature = (topic, partition, topic_id, *, now_ms, config=None))]
    fn create_log(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        topic_id: &str,
        now_ms: i64,
        config: Option<Configs>,
    ) -> PyResult<Py<LogForTests>> {
        let topic_id = parse_id(py, topic_id)?;
        let made = enter(py, || {
            let config = log_config(&self.config, &config.unwrap_or_default())?;
            self.with(|inner| inner.create_log(topic, partition, topic_id, config, now_ms))
        })?;
        LogForTests::new(py, made)
    }

    fn log(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
    ) -> PyResult<Option<Py<LogForTests>>> {
        let found = enter(py, || self.with(|inner| Ok(inner.log(topic, partition))))?;
        found.map(|log| LogForTests::new(py, log)).transpose()
    }

    fn logs(&self, py: Python<'_>) -> PyResult<Vec<Py<LogForTests>>> {
        let mut logs = enter(py, || self.with(|inner| Ok(inner.logs())))?;
        logs.sort_by(|a, b| (a.topic(), a.partition()).cmp(&(b.topic(), b.partition())));
        let logs = logs.into_iter();
        logs.map(|log| LogForTests::new(py, log)).collect()
    }

    fn write_checkpoints(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || self.with(|inner| inner.write_checkpoints()))
    }

    #[pyo3(signature = (*, now_ms))]
    fn clean_dirtiest(&self, py: Python<'_>, now_ms: i64) -> PyResult<Option<i64>> {
        enter(py, || {
            let mut cleaner = Cleaner::new(CLEANER_MEMORY_BYTES, CLEANER_LOAD_FACTOR);
            let stop = AtomicBool::new(false);
            self.with(|inner| {
                let report = cleaner.clean_dirtiest(inner, now_ms, &stop)?;
                Ok(report.map(|report| report.end_offset))
            })
        })
    }

    #[pyo3(signature = (broker_epoch=-1))]
    fn close(&self, py: Python<'_>, broker_epoch: i64) -> PyResult<()> {
        enter(py, || match self.inner.lock().take() {
            Some(inner) => inner.close(broker_epoch),
            None => Ok(()),
        })
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || {
            drop(self.inner.lock().take());
            Ok(())
        })
    }
}

impl LogDirectory {
    fn with<T>(&self, work: impl FnOnce(&directory::LogDirectory) -> Result<T>) -> Result<T> {
        match &*self.inner.lock() {
            Some(inner) => work(inner),
            None => Err(Error::InvalidArgument(format!(
                "the log directory {} is closed",
                self.path.display()
            ))),
        }
    }
}

impl LoadedLog {
    fn of(log: &engine::Log, report: &LoadReport) -> LoadedLog {
        LoadedLog {
            topic: log.topic().to_owned(),
            partition: log.partition(),
            notes: report.notes.clone(),
            recovered_segments: report.recovered_segments,
            recovered_bytes: report.recovered_bytes,
            truncated_bytes: report.truncated_bytes,
        }
    }
}

#[pyclass(frozen, get_all, eq, module = "kafkalite._native")]
#[derive(PartialEq)]
pub struct AbortedTransaction {
    producer_id: i64,
    first_offset: i64,
    last_offset: i64,
    last_stable_offset: i64,
}

/// A log of a `LogDirectory`.
#[pyclass(frozen, extends = Log, module = "kafkalite._native")]
pub struct LogForTests {
    inner: Arc<engine::Log>,
}

impl LogForTests {
    fn new(py: Python<'_>, inner: Arc<engine::Log>) -> PyResult<Py<LogForTests>> {
        let log = Log::new(inner.clone());
        Py::new(py, (LogForTests { inner }, log))
    }
}

#[pymethods]
impl LogForTests {
    #[getter]
    fn topic_id(&self) -> Option<String> {
        self.inner.topic_id().map(|id| id.to_string())
    }

    fn start_leader_epoch(&self, py: Python<'_>, epoch: i32) -> PyResult<()> {
        enter(py, || self.inner.start_leader_epoch(epoch))
    }

    fn offset_for_timestamp(
        &self,
        py: Python<'_>,
        timestamp: i64,
    ) -> PyResult<Option<(i64, i64, i32)>> {
        let found = enter(py, || self.inner.offset_for_timestamp(timestamp))?;
        Ok(found.map(tuple_of))
    }

    fn offset_of_max_timestamp(&self, py: Python<'_>) -> PyResult<Option<(i64, i64, i32)>> {
        let found = enter(py, || self.inner.offset_of_max_timestamp())?;
        Ok(found.map(tuple_of))
    }

    fn aborted_transactions(
        &self,
        py: Python<'_>,
        fetch_offset: i64,
        upper_bound_offset: i64,
    ) -> PyResult<Vec<AbortedTransaction>> {
        let found = enter(py, || {
            self.inner
                .aborted_transactions(fetch_offset, upper_bound_offset)
        })?;
        let convert = |one: producers::AbortedTransaction| AbortedTransaction {
            producer_id: one.producer_id,
            first_offset: one.first_offset,
            last_offset: one.last_offset,
            last_stable_offset: one.last_stable_offset,
        };
        Ok(found.into_iter().map(convert).collect())
    }

    fn leader_epochs(&self) -> Vec<(i32, i64)> {
        let epochs = self.inner.leader_epochs();
        let entries = epochs.entries().iter();
        entries.map(|one| (one.epoch, one.start_offset)).collect()
    }

    fn producers(&self, py: Python<'_>) -> PyResult<Vec<ProducerEntry>> {
        enter(py, || Ok(ProducerEntry::all_of(&self.inner)))
    }

    /// The byte at which the batch that holds `offset` begins.
    fn position_of(&self, py: Python<'_>, offset: i64) -> PyResult<(i64, u64)> {
        enter(py, || {
            let isolation = ReadIsolation::LogEnd;
            let range = self.inner.read(offset, 1, true, isolation)?;
            Ok((range.segment_base_offset, range.position_byte))
        })
    }
}

fn tuple_of(found: FoundTimestamp) -> (i64, i64, i32) {
    (found.timestamp, found.offset, found.leader_epoch)
}

fn parse_id(py: Python<'_>, text: &str) -> PyResult<Uuid> {
    let wrong = || Error::InvalidArgument(format!("{text:?} is no id of Kafka's"));
    Uuid::parse(text).ok_or_else(|| raise(py, &wrong()))
}
