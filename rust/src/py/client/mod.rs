//! The parts of the client in Python (`kafkalite.client`) that are Rust: records out of fetched
//! bytes, batches for a load, the partition of a key.

pub mod accumulator;
pub mod arrow_encoder;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::batch::RecordReader;
use crate::batch::build;
use crate::client::perf_records::{self, Payload};
use crate::client::{FetchedBatches, fetched, partitioner};
use crate::error::{Error, Result};
use crate::py::batch::{BatchBuilder, finished};
use crate::py::door::{self, raise};

/// See `_native.pyi`.
#[pyfunction]
#[pyo3(signature = (records, start, aborted=Vec::new()))]
pub fn read_fetched<'py>(
    py: Python<'py>,
    records: &[u8],
    start: i64,
    aborted: Vec<(i64, i64)>,
) -> PyResult<(Bound<'py, PyList>, i64)> {
    let mut batches = FetchedBatches::new(start, &aborted);
    let mut reader = RecordReader::new();
    let rows = PyList::empty(py);
    while let Some((header, batch)) = batches.next(records).map_err(|error| raise(py, &error))? {
        let from = batches.next_offset();
        for record in reader.read(batch).map_err(|error| raise(py, &error))? {
            let record = record.map_err(|error| raise(py, &error))?;
            if record.offset < from {
                continue;
            }
            let headers = record
                .headers
                .iter()
                .map(|(key, value)| (PyBytes::new(py, key), value.map(|v| PyBytes::new(py, v))));
            rows.append((
                record.offset,
                record.timestamp,
                record.timestamp_type as i8,
                record.key.map(|key| PyBytes::new(py, key)),
                record.value.map(|value| PyBytes::new(py, value)),
                PyTuple::new(py, headers.collect::<Vec<_>>())?,
            ))?;
        }
        batches.pass(&header);
    }
    Ok((rows, batches.next_offset()))
}

/// See `_native.pyi`.
#[pyfunction]
#[pyo3(signature = (records, start, aborted=Vec::new()))]
pub fn count_fetched(
    py: Python<'_>,
    records: &[u8],
    start: i64,
    aborted: Vec<(i64, i64)>,
) -> PyResult<(usize, usize, i64)> {
    door::enter(py, || count(records, start, &aborted))
}

fn count(bytes: &[u8], start: i64, aborted: &[(i64, i64)]) -> Result<(usize, usize, i64)> {
    let mut batches = FetchedBatches::new(start, aborted);
    let mut reader = RecordReader::new();
    let (mut records_count, mut size_bytes) = (0, 0);
    while let Some((header, batch)) = batches.next(bytes)? {
        let from = batches.next_offset();
        for record in reader.read(batch)? {
            let record = record?;
            if record.offset >= from {
                records_count += 1;
                size_bytes += record.key.map_or(0, <[u8]>::len);
                size_bytes += record.value.map_or(0, <[u8]>::len);
            }
        }
        batches.pass(&header);
    }
    Ok((records_count, size_bytes, batches.next_offset()))
}

/// See `_native.pyi`.
#[pyfunction]
pub fn fetched_end(records: &[u8], start: i64) -> i64 {
    fetched::fetched_end(records, start)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn fetched_tail(records: &[u8], start: i64) -> (i64, i32) {
    fetched::fetched_tail(records, start)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn stamp_producer<'py>(
    py: Python<'py>,
    batch: &[u8],
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut batch = batch.to_vec();
    build::stamp_producer(&mut batch, producer_id, producer_epoch, base_sequence)
        .map_err(|error| raise(py, &error))?;
    Ok(PyBytes::new(py, &batch))
}

/// See `_native.pyi`.
#[pyfunction]
pub fn partition_for_key(py: Python<'_>, key: &[u8], partition_count: u32) -> PyResult<u32> {
    if partition_count == 0 {
        let error = Error::InvalidArgument(String::from("a topic has at least one partition"));
        return Err(raise(py, &error));
    }
    Ok(partitioner::partition_for_key(key, partition_count))
}

/// Records for a load; see `_native.pyi`.
#[pyclass(module = "kafkalite._native")]
pub struct LoadRecords {
    inner: perf_records::LoadRecords,
}

#[pymethods]
impl LoadRecords {
    #[new]
    #[pyo3(signature = (*, record_size=None, payloads=None))]
    fn new(record_size: Option<usize>, payloads: Option<Vec<Vec<u8>>>) -> LoadRecords {
        let payload = match (record_size, payloads) {
            (Some(size_bytes), _) => Payload::Random { size_bytes },
            (None, Some(payloads)) if !payloads.is_empty() => Payload::Listed(payloads),
            _ => Payload::Monotonic,
        };
        LoadRecords {
            inner: perf_records::LoadRecords::new(payload),
        }
    }

    fn fill(
        &mut self,
        py: Python<'_>,
        builder: &mut BatchBuilder,
        timestamp: i64,
        records_max: usize,
        batch_bytes: usize,
    ) -> PyResult<(usize, usize)> {
        let builder = builder.inner.as_mut();
        let builder = builder.ok_or_else(|| raise(py, &finished()))?;
        let load = &mut self.inner;
        door::enter(py, || {
            load.fill(builder, timestamp, records_max, batch_bytes)
        })
    }
}
