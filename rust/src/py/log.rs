//! A log's files for the commands `log dump` and `log verify`. Rows leave as dictionaries: they are
//! printed, not computed with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::door;
use crate::batch::{Codec, ControlRecord};
use crate::log::check::findings::Finding;
use crate::log::check::inspect::{
    FileKind, Inspected, InspectedBatch, InspectedRecord, SegmentReader, Tail, control_name,
    inspect_file, kind_of, timestamp_type_name,
};
use crate::log::check::verify::Verification;
use crate::log::names;
use crate::log::storage::{self, DiskStorage};

/// Path, byte in the file, sentence.
type FindingRow = (String, Option<u64>, String);
type Rows<'py> = Vec<Bound<'py, PyDict>>;

/// The kind of a file by its name; see the stub.
#[pyfunction]
pub fn log_file_kind(name: &str) -> Option<&'static str> {
    kind_of(name).map(|(kind, _)| kind_name(kind))
}

/// Where in a segment's file the batch of an offset starts; see the stub.
#[pyfunction]
pub fn position_of_offset(py: Python<'_>, path: PathBuf, offset: i64) -> PyResult<u64> {
    door::enter(py, || {
        Ok(SegmentReader::open(&DiskStorage, &path)?.position_of(offset))
    })
}

/// The rows of a file that holds no batches; see the stub.
#[pyfunction]
pub fn read_log_file<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let inspected = door::enter(py, || inspect_file(&DiskStorage, &path))?;
    let file = PyDict::new(py);
    let (kind, rows) = match inspected {
        Inspected::OffsetIndex(tail) => {
            set_tail(&file, &tail)?;
            let rows = rows(py, &tail.entries, |row, entry| {
                row.set_item("offset", entry.offset)?;
                row.set_item("position", entry.position_byte)
            })?;
            (FileKind::OffsetIndex, rows)
        }
        Inspected::TimeIndex(tail) => {
            set_tail(&file, &tail)?;
            let rows = rows(py, &tail.entries, |row, entry| {
                row.set_item("timestamp", entry.timestamp)?;
                row.set_item("offset", entry.offset)
            })?;
            (FileKind::TimeIndex, rows)
        }
        Inspected::TransactionIndex(entries) => {
            let rows = rows(py, &entries, |row, entry| {
                row.set_item("producerId", entry.producer_id)?;
                row.set_item("firstOffset", entry.first_offset)?;
                row.set_item("lastOffset", entry.last_offset)?;
                row.set_item("lastStableOffset", entry.last_stable_offset)
            })?;
            (FileKind::TransactionIndex, rows)
        }
        Inspected::ProducerSnapshot(producers) => {
            let rows = rows(py, &producers, |row, (producer_id, entry)| {
                let last = entry.last_batch();
                row.set_item("producerId", producer_id)?;
                row.set_item("producerEpoch", entry.producer_epoch)?;
                row.set_item("coordinatorEpoch", entry.coordinator_epoch)?;
                let transaction = entry.current_transaction_first_offset;
                row.set_item("currentTxnFirstOffset", transaction)?;
                row.set_item("lastTimestamp", entry.last_timestamp)?;
                row.set_item("firstSequence", last.map(|batch| batch.first_sequence()))?;
                row.set_item("lastSequence", last.map(|batch| batch.last_sequence))?;
                row.set_item("lastOffset", last.map(|batch| batch.last_offset))?;
                row.set_item("offsetDelta", last.map(|batch| batch.offset_delta))
            })?;
            (FileKind::ProducerSnapshot, rows)
        }
        Inspected::LeaderEpochCheckpoint(entries) => {
            let rows = rows(py, &entries, |row, entry| {
                row.set_item("leaderEpoch", entry.epoch)?;
                row.set_item("startOffset", entry.start_offset)
            })?;
            (FileKind::LeaderEpochCheckpoint, rows)
        }
        Inspected::OffsetCheckpoint(checkpoint) => {
            let entries: Vec<_> = checkpoint.offsets.iter().collect();
            let rows = rows(py, &entries, |row, (partition, offset)| {
                row.set_item("topic", &partition.topic)?;
                row.set_item("partition", partition.partition)?;
                row.set_item("offset", offset)
            })?;
            (FileKind::OffsetCheckpoint, rows)
        }
        Inspected::PartitionMetadata(topic_id) => {
            let rows = rows(py, &[topic_id], |row, topic_id| {
                row.set_item("topicId", topic_id.to_string())
            })?;
            (FileKind::PartitionMetadata, rows)
        }
        Inspected::MetaProperties(properties) => {
            let rows = rows(py, &[properties], |row, properties| {
                let directory_id = properties.directory_id.map(|id| id.to_string());
                row.set_item("version", properties.version)?;
                row.set_item("clusterId", &properties.cluster_id)?;
                row.set_item("nodeId", properties.node_id)?;
                row.set_item("directoryId", directory_id)
            })?;
            (FileKind::MetaProperties, rows)
        }
    };
    file.set_item("kind", kind_name(kind))?;
    file.set_item("rows", rows)?;
    Ok(file)
}

fn rows<'py, T>(
    py: Python<'py>,
    entries: &[T],
    fill: impl Fn(&Bound<'py, PyDict>, &T) -> PyResult<()>,
) -> PyResult<Rows<'py>> {
    let row = |entry| {
        let row = PyDict::new(py);
        fill(&row, entry)?;
        Ok(row)
    };
    entries.iter().map(row).collect()
}

fn set_tail<E>(file: &Bound<'_, PyDict>, tail: &Tail<E>) -> PyResult<()> {
    file.set_item("unusedBytes", tail.unused_bytes)?;
    file.set_item("oddBytes", tail.odd_bytes)
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Segment => "segment",
        FileKind::OffsetIndex => "offset index",
        FileKind::TimeIndex => "time index",
        FileKind::TransactionIndex => "transaction index",
        FileKind::ProducerSnapshot => "producer snapshot",
        FileKind::LeaderEpochCheckpoint => "leader epoch checkpoint",
        FileKind::PartitionMetadata => "partition metadata",
        FileKind::OffsetCheckpoint => "offset checkpoint",
        FileKind::MetaProperties => "meta.properties",
        FileKind::MetadataSnapshot => "metadata snapshot",
    }
}

/// The batches of a segment, some at a time; see the stub.
#[pyclass(module = "kafkalite._native", frozen)]
pub struct SegmentBatches(Mutex<SegmentReader>);

#[pymethods]
impl SegmentBatches {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<SegmentBatches> {
        let reader = door::enter(py, || SegmentReader::open(&DiskStorage, &path))?;
        Ok(SegmentBatches(Mutex::new(reader)))
    }

    #[pyo3(signature = (max_bytes, *, records))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        max_bytes: usize,
        records: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let batches = door::enter(py, || self.0.lock().next_batches(max_bytes, records))?;
        let list = PyList::empty(py);
        for batch in &batches {
            list.append(batch_row(py, batch, records)?)?;
        }
        Ok(list)
    }

    #[getter]
    fn position(&self) -> u64 {
        self.0.lock().position_byte()
    }

    #[getter]
    fn size(&self) -> u64 {
        self.0.lock().size_bytes()
    }
}

fn batch_row<'py>(
    py: Python<'py>,
    batch: &InspectedBatch,
    with_records: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let header = &batch.header;
    let codec = Codec::from_id(header.codec_id()).map_or("unknown", Codec::name);
    let row = PyDict::new(py);
    row.set_item("baseOffset", header.base_offset)?;
    row.set_item("lastOffset", header.last_offset())?;
    row.set_item("count", header.records_count)?;
    row.set_item("baseSequence", header.base_sequence)?;
    row.set_item("lastSequence", header.last_sequence())?;
    row.set_item("producerId", header.producer_id)?;
    row.set_item("producerEpoch", header.producer_epoch)?;
    row.set_item("partitionLeaderEpoch", header.partition_leader_epoch)?;
    row.set_item("isTransactional", header.is_transactional())?;
    row.set_item("isControl", header.is_control())?;
    row.set_item("deleteHorizonMs", header.delete_horizon_ms())?;
    row.set_item("position", batch.position_byte)?;
    row.set_item("timestampType", timestamp_type_name(header))?;
    row.set_item("maxTimestamp", header.max_timestamp)?;
    row.set_item("size", header.size_bytes)?;
    row.set_item("magic", header.magic)?;
    row.set_item("compresscodec", codec)?;
    row.set_item("crc", header.crc)?;
    row.set_item("isvalid", batch.crc_is_valid)?;
    if with_records {
        let records = batch.records.iter().map(|record| record_row(py, record));
        row.set_item("records", records.collect::<PyResult<Rows<'py>>>()?)?;
        row.set_item("trouble", &batch.trouble)?;
    }
    Ok(row)
}

fn record_row<'py>(py: Python<'py>, record: &InspectedRecord) -> PyResult<Bound<'py, PyDict>> {
    let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| PyBytes::new(py, bytes));
    let row = PyDict::new(py);
    row.set_item("offset", record.offset)?;
    row.set_item("timestamp", record.timestamp)?;
    row.set_item("key", bytes(&record.key))?;
    row.set_item("value", bytes(&record.value))?;
    let headers = PyList::empty(py);
    for (key, value) in &record.headers {
        headers.append((PyBytes::new(py, key), bytes(value)))?;
    }
    row.set_item("headers", headers)?;
    if let Some(control) = record.control {
        row.set_item("control", control_name(control))?;
        if let ControlRecord::EndTransaction(marker) = control {
            row.set_item("coordinatorEpoch", marker.coordinator_epoch)?;
        }
    }
    Ok(row)
}

/// A check of a log directory under way; see the stub.
#[pyclass(module = "kafkalite._native", frozen)]
pub struct LogVerification(Mutex<Verification>);

#[pymethods]
impl LogVerification {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<LogVerification> {
        let verification = door::enter(py, || {
            let is_in_use = is_in_use(&path);
            Verification::open(Arc::new(DiskStorage), &path, is_in_use)
        })?;
        Ok(LogVerification(Mutex::new(verification)))
    }

    fn step(&self, py: Python<'_>) -> PyResult<Option<Vec<FindingRow>>> {
        let findings = door::enter(py, || self.0.lock().step())?;
        let row = |finding: Finding| {
            let path = finding.path.display().to_string();
            (path, finding.position_byte, finding.sentence)
        };
        Ok(findings.map(|list| list.into_iter().map(row).collect()))
    }

    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let summary = self.0.lock().summary().clone();
        let row = PyDict::new(py);
        row.set_item("partitions", summary.partitions)?;
        row.set_item("segments", summary.segments)?;
        row.set_item("batches", summary.batches)?;
        row.set_item("records", summary.records)?;
        row.set_item("findings", summary.findings)?;
        row.set_item("doneBytes", summary.done_bytes)?;
        row.set_item("totalBytes", summary.total_bytes)?;
        row.set_item("isInUse", summary.is_in_use)?;
        row.set_item("wasClean", summary.was_clean)?;
        Ok(row)
    }
}

/// True if a broker holds the directory, or the one above if this is a partition's. A lock file
/// that may not be opened says nothing, and then the strict rules hold.
fn is_in_use(path: &Path) -> bool {
    let above = path.join("..");
    [path, &above]
        .iter()
        .any(|directory| storage::is_locked(&directory.join(names::LOCK)).unwrap_or(false))
}
