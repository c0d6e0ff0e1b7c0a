//! The log engine for Python: one class for a log directory, one for the log of a partition, and
//! what they answer with. Thin: a method converts, goes through the door, converts back.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::AppendOrigin;
use crate::error::{Error, Result};
use crate::limits::OPEN_SEGMENTS_MAX;
use crate::log::append::AppendRequest;
use crate::log::compact::Cleaner;
use crate::log::config::LogConfig;
use crate::log::directory::meta_properties::MetaProperties;
use crate::log::directory::{self, DirectoryOptions};
use crate::log::log as engine;
use crate::log::read::{FoundTimestamp, ReadIsolation};
use crate::log::recover::LoadReport;
use crate::log::segment::open_segments::OpenSegments;
use crate::log::state::producers::ProducerState;
use crate::log::storage::DiskStorage;
use crate::uuid::Uuid;

use super::door::{enter, raise};

/// Memory of a cleaner that is made for one round.
const CLEANER_MEMORY_BYTES: usize = 8 << 20;
const CLEANER_LOAD_FACTOR: f64 = 0.9;

/// Texts of a topic's configuration by Kafka's keys.
pub type Configs = HashMap<String, String>;

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
        topic_configs=None, single_replica=true, recovery_threads=1, jitter_seed=0,
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
        single_replica: bool,
        recovery_threads: usize,
        jitter_seed: u64,
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
                is_single_replica: &|_, _| single_replica,
                now_ms,
                jitter_seed,
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
    ) -> PyResult<Log> {
        let topic_id = parse_id(py, topic_id)?;
        enter(py, || {
            let config = log_config(&self.config, &config.unwrap_or_default())?;
            self.with(|inner| {
                let inner = inner.create_log(topic, partition, topic_id, config, now_ms)?;
                Ok(Log { inner })
            })
        })
    }

    fn log(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Option<Log>> {
        let found = enter(py, || self.with(|inner| Ok(inner.log(topic, partition))))?;
        Ok(found.map(|inner| Log { inner }))
    }

    fn logs(&self, py: Python<'_>) -> PyResult<Vec<Log>> {
        let mut logs = enter(py, || self.with(|inner| Ok(inner.logs())))?;
        logs.sort_by(|a, b| (a.topic(), a.partition()).cmp(&(b.topic(), b.partition())));
        Ok(logs.into_iter().map(|inner| Log { inner }).collect())
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
pub struct AppendInfo {
    first_offset: i64,
    last_offset: i64,
    log_append_time_ms: i64,
    log_start_offset: i64,
    is_duplicate: bool,
}

#[pyclass(frozen, get_all, eq, module = "kafkalite._native")]
#[derive(PartialEq)]
pub struct LogOffsets {
    log_start_offset: i64,
    log_end_offset: i64,
    flushed_offset: i64,
    high_watermark: i64,
    last_stable_offset: i64,
    recovery_point: i64,
}

#[pyclass(frozen, get_all, eq, module = "kafkalite._native")]
#[derive(PartialEq)]
pub struct AbortedTransaction {
    producer_id: i64,
    first_offset: i64,
    last_offset: i64,
    last_stable_offset: i64,
}

#[pyclass(frozen, get_all, eq, module = "kafkalite._native")]
#[derive(PartialEq)]
pub struct ProducerEntry {
    producer_id: i64,
    producer_epoch: i16,
    coordinator_epoch: i32,
    last_timestamp: i64,
    current_transaction_first_offset: Option<i64>,
    last_sequence: i32,
    last_offset: i64,
    batches_count: usize,
}

impl ProducerEntry {
    /// By producer id.
    pub fn all_of(state: &ProducerState) -> Vec<ProducerEntry> {
        let mut producers: Vec<ProducerEntry> = state
            .producers()
            .map(|(producer_id, entry)| ProducerEntry {
                producer_id,
                producer_epoch: entry.producer_epoch,
                coordinator_epoch: entry.coordinator_epoch,
                last_timestamp: entry.last_timestamp,
                current_transaction_first_offset: entry.current_transaction_first_offset,
                last_sequence: entry.last_sequence(),
                last_offset: entry.last_batch().map_or(-1, |batch| batch.last_offset),
                batches_count: entry.batches().len(),
            })
            .collect();
        producers.sort_by_key(|one| one.producer_id);
        producers
    }
}

#[pyclass(frozen, get_all, eq, module = "kafkalite._native")]
#[derive(PartialEq)]
pub struct SegmentInfo {
    base_offset: i64,
    next_offset: i64,
    size_bytes: u64,
    largest_timestamp: i64,
}

#[pyclass(frozen, module = "kafkalite._native")]
pub struct Log {
    inner: Arc<engine::Log>,
}

impl Log {
    pub fn new(inner: Arc<engine::Log>) -> Log {
        Log { inner }
    }

    pub fn inner(&self) -> &Arc<engine::Log> {
        &self.inner
    }
}

#[pymethods]
impl Log {
    #[getter]
    fn topic(&self) -> &str {
        self.inner.topic()
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.inner.partition()
    }

    #[getter]
    fn topic_id(&self) -> Option<String> {
        self.inner.topic_id().map(|id| id.to_string())
    }

    #[getter]
    fn directory(&self) -> PathBuf {
        self.inner.directory()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    #[getter]
    fn is_offline(&self) -> bool {
        self.inner.is_offline()
    }

    #[getter]
    fn is_settled(&self) -> bool {
        self.inner.is_settled()
    }

    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || {
            self.inner.settle();
            Ok(())
        })
    }

    #[getter]
    fn offsets(&self) -> LogOffsets {
        let offsets = self.inner.offsets();
        LogOffsets {
            log_start_offset: offsets.log_start_offset,
            log_end_offset: offsets.log_end_offset,
            flushed_offset: offsets.flushed_offset,
            high_watermark: offsets.high_watermark,
            last_stable_offset: offsets.last_stable_offset,
            recovery_point: offsets.recovery_point,
        }
    }

    #[pyo3(signature = (records, *, now_ms, origin="client", leader_epoch=0,
        transaction_version=None))]
    fn append(
        &self,
        py: Python<'_>,
        records: Vec<u8>,
        now_ms: i64,
        origin: &str,
        leader_epoch: i32,
        transaction_version: Option<i16>,
    ) -> PyResult<AppendInfo> {
        let origin = parse_origin(origin).map_err(|error| raise(py, &error))?;
        let info = enter(py, || {
            let mut records = records;
            let mut requests = [AppendRequest {
                records: &mut records,
                origin,
                leader_epoch,
                transaction_version,
                guard: None,
            }];
            let answers = self.inner.append(&mut requests, now_ms);
            let answer = answers.into_iter().next();
            answer.unwrap_or_else(|| Err(Error::InvalidArgument(String::from("no records"))))
        })?;
        Ok(AppendInfo {
            first_offset: info.first_offset,
            last_offset: info.last_offset,
            log_append_time_ms: info.log_append_time_ms,
            log_start_offset: info.log_start_offset,
            is_duplicate: info.is_duplicate,
        })
    }

    #[pyo3(signature = (offset, max_bytes=1 << 20, isolation="log_end"))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: i64,
        max_bytes: u64,
        isolation: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let isolation = parse_isolation(isolation).map_err(|error| raise(py, &error))?;
        let bytes = enter(py, || {
            let range = self.inner.read(offset, max_bytes, true, isolation)?;
            range.to_vec()
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || self.inner.flush())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || self.inner.close())
    }

    fn start_leader_epoch(&self, py: Python<'_>, epoch: i32) -> PyResult<()> {
        enter(py, || self.inner.start_leader_epoch(epoch))
    }

    #[pyo3(signature = (offset, *, now_ms))]
    fn truncate_to(&self, py: Python<'_>, offset: i64, now_ms: i64) -> PyResult<bool> {
        enter(py, || self.inner.truncate_to(offset, now_ms))
    }

    #[pyo3(signature = (offset, *, now_ms))]
    fn truncate_fully_and_start_at(
        &self,
        py: Python<'_>,
        offset: i64,
        now_ms: i64,
    ) -> PyResult<()> {
        enter(py, || {
            self.inner.truncate_fully_and_start_at(offset, now_ms)
        })
    }

    fn advance_log_start_offset(&self, py: Python<'_>, offset: i64) -> PyResult<i64> {
        enter(py, || self.inner.advance_log_start_offset(offset))
    }

    #[pyo3(signature = (*, now_ms))]
    fn delete_old_segments(&self, py: Python<'_>, now_ms: i64) -> PyResult<usize> {
        enter(py, || self.inner.delete_old_segments(now_ms))
    }

    #[pyo3(signature = (*, now_ms))]
    fn delete_due_files(&self, py: Python<'_>, now_ms: i64) -> PyResult<usize> {
        enter(py, || self.inner.delete_due_files(now_ms))
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
        let convert = |one: crate::log::state::producers::AbortedTransaction| AbortedTransaction {
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

    fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let end = self.inner.end_of_epoch(epoch);
        end.map(|end| (end.leader_epoch, end.end_offset))
    }

    fn producers(&self, py: Python<'_>) -> PyResult<Vec<ProducerEntry>> {
        let state = enter(py, || Ok(self.inner.producers()))?;
        Ok(ProducerEntry::all_of(&state))
    }

    fn segments(&self, py: Python<'_>) -> PyResult<Vec<SegmentInfo>> {
        enter(py, || {
            let segments = self.inner.segments();
            let convert = |segment: &Arc<crate::log::segment::Segment>| {
                Ok(SegmentInfo {
                    base_offset: segment.base_offset(),
                    next_offset: segment.end().next_offset,
                    size_bytes: segment.size_bytes(),
                    largest_timestamp: segment.largest_timestamp()?.timestamp,
                })
            };
            segments.iter().map(convert).collect()
        })
    }

    /// For tests of the index: the byte at which the batch that holds `offset` begins.
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

/// `base` with `configs` on top.
pub fn log_config(base: &LogConfig, configs: &Configs) -> Result<LogConfig> {
    let pairs = configs.iter();
    base.with_properties(pairs.map(|(key, value)| (key.as_str(), value.as_str())))
}

fn parse_id(py: Python<'_>, text: &str) -> PyResult<Uuid> {
    let wrong = || Error::InvalidArgument(format!("{text:?} is no id of Kafka's"));
    Uuid::parse(text).ok_or_else(|| raise(py, &wrong()))
}

fn parse_origin(name: &str) -> Result<AppendOrigin> {
    match name {
        "client" => Ok(AppendOrigin::Client),
        "coordinator" => Ok(AppendOrigin::Coordinator),
        "replication" => Ok(AppendOrigin::Replication),
        _ => Err(Error::InvalidArgument(format!(
            "origin {name:?} is not client, coordinator or replication"
        ))),
    }
}

fn parse_isolation(name: &str) -> Result<ReadIsolation> {
    match name {
        "log_end" => Ok(ReadIsolation::LogEnd),
        "read_uncommitted" => Ok(ReadIsolation::HighWatermark),
        "read_committed" => Ok(ReadIsolation::LastStable),
        _ => Err(Error::InvalidArgument(format!(
            "isolation {name:?} is not log_end, read_uncommitted or read_committed"
        ))),
    }
}
