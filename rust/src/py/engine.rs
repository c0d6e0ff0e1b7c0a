//! The log of a partition for Python, and what it answers with. Thin: a method converts, goes
//! through the door, converts back. What only tests ask of the engine is in `engine_for_tests.rs`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::AppendOrigin;
use crate::error::{Error, Result};
use crate::log::append::AppendRequest;
use crate::log::config::LogConfig;
use crate::log::log as engine;
use crate::log::read::ReadIsolation;
use crate::log::segment::Segment;

use super::door::{enter, raise};

/// Texts of a topic's configuration by Kafka's keys.
pub type Configs = HashMap<String, String>;

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
}

impl ProducerEntry {
    /// By producer id.
    pub fn all_of(log: &engine::Log) -> Vec<ProducerEntry> {
        let mut producers = log.map_producers(|(producer_id, entry)| ProducerEntry {
            producer_id,
            producer_epoch: entry.producer_epoch,
            coordinator_epoch: entry.coordinator_epoch,
            last_timestamp: entry.last_timestamp,
            current_transaction_first_offset: entry.current_transaction_first_offset,
            last_sequence: entry.last_sequence(),
            last_offset: entry.last_batch().map_or(-1, |batch| batch.last_offset),
        });
        producers.sort_unstable_by_key(|one| one.producer_id);
        producers
    }
}

/// Each becomes an object when Python comes to it: a million at once would keep the GIL.
#[pyclass(module = "kafkalite._native")]
pub struct ProducerEntries(std::vec::IntoIter<ProducerEntry>);

impl ProducerEntries {
    pub fn of(log: &engine::Log) -> ProducerEntries {
        ProducerEntries(ProducerEntry::all_of(log).into_iter())
    }
}

#[pymethods]
impl ProducerEntries {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Option<ProducerEntry> {
        self.0.next()
    }
}

#[pyclass(frozen, get_all, eq, module = "kafkalite._native")]
#[derive(PartialEq)]
pub struct SegmentInfo {
    base_offset: i64,
    next_offset: i64,
    size_bytes: u64,
}

#[pyclass(frozen, subclass, module = "kafkalite._native")]
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

    fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let end = self.inner.end_of_epoch(epoch);
        end.map(|end| (end.leader_epoch, end.end_offset))
    }

    fn segments(&self, py: Python<'_>) -> PyResult<Vec<SegmentInfo>> {
        enter(py, || {
            let segments = self.inner.segments();
            let convert = |segment: &Arc<Segment>| SegmentInfo {
                base_offset: segment.base_offset(),
                next_offset: segment.end().next_offset,
                size_bytes: segment.size_bytes(),
            };
            Ok(segments.iter().map(convert).collect())
        })
    }
}

/// `base` with `configs` on top.
pub fn log_config(base: &LogConfig, configs: &Configs) -> Result<LogConfig> {
    let pairs = configs.iter();
    base.with_properties(pairs.map(|(key, value)| (key.as_str(), value.as_str())))
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
