//! Record batches for Python: made for tests and tools, and taken apart again. The broker's hot
//! path does not come by here.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::batch::build::{self, BatchOptions};
use crate::batch::{BatchHeader, Codec, EndTransactionMarker, RecordReader};
use crate::error::{Error, Result};

use super::door::{self, raise};

type Header = (Vec<u8>, Option<Vec<u8>>);

#[pyclass(module = "kafkalite._native")]
pub struct BatchBuilder {
    /// `None` once `finish` has taken it.
    pub(super) inner: Option<build::BatchBuilder>,
}

#[pymethods]
impl BatchBuilder {
    #[new]
    #[pyo3(signature = (
        codec="none", *, level=None, base_offset=0, leader_epoch=-1, producer_id=-1,
        producer_epoch=-1, base_sequence=-1, transactional=false, control=false,
        log_append_time_ms=None, delete_horizon_ms=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        codec: &str,
        level: Option<i32>,
        base_offset: i64,
        leader_epoch: i32,
        producer_id: i64,
        producer_epoch: i16,
        base_sequence: i32,
        transactional: bool,
        control: bool,
        log_append_time_ms: Option<i64>,
        delete_horizon_ms: Option<i64>,
    ) -> PyResult<BatchBuilder> {
        let unknown = || Error::InvalidArgument(format!("{codec} is no codec of Kafka's"));
        let codec = Codec::from_name(codec).ok_or_else(|| raise(py, &unknown()))?;
        Ok(BatchBuilder {
            inner: Some(build::BatchBuilder::new(BatchOptions {
                codec,
                level,
                base_offset,
                partition_leader_epoch: leader_epoch,
                producer_id,
                producer_epoch,
                base_sequence,
                transactional,
                control,
                log_append_time_ms,
                delete_horizon_ms,
            })),
        })
    }

    #[pyo3(signature = (timestamp, key, value, headers=Vec::new()))]
    fn append(
        &mut self,
        py: Python<'_>,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Vec<Header>,
    ) -> PyResult<usize> {
        let headers: Vec<(&[u8], Option<&[u8]>)> = headers
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
            .collect();
        let builder = self.inner.as_mut().ok_or_else(|| raise(py, &finished()))?;
        let appended = builder.append(timestamp, key, value, &headers);
        appended.map_err(|error| raise(py, &error))?;
        Ok(builder.size_bytes())
    }

    /// Appends keys and values, all of one time.
    fn extend(
        &mut self,
        py: Python<'_>,
        timestamp: i64,
        records: Vec<(Bound<'_, PyBytes>, Option<Bound<'_, PyBytes>>)>,
    ) -> PyResult<()> {
        let builder = self.inner.as_mut().ok_or_else(|| raise(py, &finished()))?;
        for (key, value) in &records {
            let value = value.as_ref().map(|value| value.as_bytes());
            let appended = builder.append(timestamp, Some(key.as_bytes()), value, &[]);
            appended.map_err(|error| raise(py, &error))?;
        }
        Ok(())
    }

    /// Bytes of the batch so far, before compression; 0 once it is finished.
    #[getter]
    fn size_bytes(&self) -> usize {
        self.inner
            .as_ref()
            .map_or(0, build::BatchBuilder::size_bytes)
    }

    /// Records of the batch so far; 0 once it is finished.
    #[getter]
    fn records_count(&self) -> i32 {
        self.inner
            .as_ref()
            .map_or(0, build::BatchBuilder::records_count)
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let builder = self.inner.take().ok_or_else(|| raise(py, &finished()))?;
        let batch = if builder.codec() == Codec::None {
            // That is a checksum: to give the GIL up for it, and to get it back, takes longer.
            builder.finish().map_err(|error| raise(py, &error))?
        } else {
            door::enter(py, || builder.finish())?
        };
        Ok(PyBytes::new(py, &batch))
    }
}

pub(super) fn finished() -> Error {
    Error::InvalidArgument(String::from("the batch is finished"))
}

#[pyfunction]
#[pyo3(signature = (timestamp, producer_id, producer_epoch, *, commit, coordinator_epoch=0))]
pub fn end_transaction_marker<'py>(
    py: Python<'py>,
    timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    commit: bool,
    coordinator_epoch: i32,
) -> Bound<'py, PyBytes> {
    let marker = EndTransactionMarker {
        is_commit: commit,
        coordinator_epoch,
    };
    let batch = build::end_transaction_marker(timestamp, producer_id, producer_epoch, marker);
    PyBytes::new(py, &batch)
}

/// One batch with its records, in memory of its own.
#[pyclass(frozen, get_all, module = "kafkalite._native")]
pub struct RecordBatch {
    base_offset: i64,
    last_offset: i64,
    size_bytes: usize,
    magic: i8,
    leader_epoch: i32,
    codec: &'static str,
    timestamp_type: i8,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    is_transactional: bool,
    is_control: bool,
    delete_horizon_ms: Option<i64>,
    /// Tuples of offset, timestamp, key, value, headers.
    records: Py<PyTuple>,
}

/// The whole batches at the start of `records`. `stop_at_corrupt` ends the list before a batch that
/// cannot be read, in place of an error.
#[pyfunction]
#[pyo3(signature = (records, *, stop_at_corrupt=false))]
pub fn read_batches(
    py: Python<'_>,
    records: &[u8],
    stop_at_corrupt: bool,
) -> PyResult<Vec<RecordBatch>> {
    let mut reader = RecordReader::new();
    let mut batches = Vec::new();
    let mut rest = records;
    loop {
        let next = next_batch(rest).and_then(|next| match next {
            Some((header, batch)) => Ok(Some((header, batch, raw_rows(&mut reader, batch)?))),
            None => Ok(None),
        });
        match next {
            Ok(None) => return Ok(batches),
            Err(_) if stop_at_corrupt => return Ok(batches),
            Err(error) => return Err(raise(py, &error)),
            Ok(Some((header, batch, rows))) => {
                rest = &rest[batch.len()..];
                batches.push(RecordBatch::of(py, &header, rows)?);
            }
        }
    }
}

/// Offset, timestamp, key, value, headers.
type RawRow = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<Header>);

fn raw_rows(reader: &mut RecordReader, batch: &[u8]) -> Result<Vec<RawRow>> {
    let mut rows = Vec::new();
    for record in reader.read(batch)? {
        let record = record?;
        let headers = record.headers.iter();
        let headers = headers
            .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
            .collect();
        rows.push((
            record.offset,
            record.timestamp,
            record.key.map(<[u8]>::to_vec),
            record.value.map(<[u8]>::to_vec),
            headers,
        ));
    }
    Ok(rows)
}

impl RecordBatch {
    fn of(py: Python<'_>, header: &BatchHeader, rows: Vec<RawRow>) -> PyResult<RecordBatch> {
        let codec = Codec::from_id(header.codec_id()).map_err(|error| raise(py, &error))?;
        let mut records = Vec::with_capacity(rows.len());
        for (offset, timestamp, key, value, headers) in rows {
            let headers: Vec<_> = headers
                .iter()
                .map(|(key, value)| {
                    let value = value.as_deref().map(|value| PyBytes::new(py, value));
                    (PyBytes::new(py, key), value)
                })
                .collect();
            let key = key.map(|key| PyBytes::new(py, &key));
            let value = value.map(|value| PyBytes::new(py, &value));
            records.push((offset, timestamp, key, value, PyTuple::new(py, headers)?));
        }
        Ok(RecordBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            size_bytes: header.size_bytes,
            magic: header.magic,
            leader_epoch: header.partition_leader_epoch,
            codec: codec.name(),
            timestamp_type: header.timestamp_type() as i8,
            base_timestamp: header.base_timestamp,
            max_timestamp: header.max_timestamp,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            is_transactional: header.is_transactional(),
            is_control: header.is_control(),
            delete_horizon_ms: header.delete_horizon_ms(),
            records: PyTuple::new(py, records)?.unbind(),
        })
    }
}

/// The batch at the start of `bytes`, CRC checked; `None` if no whole one is left.
fn next_batch(bytes: &[u8]) -> Result<Option<(BatchHeader, &[u8])>> {
    let Some(header) = BatchHeader::parse(bytes)? else {
        return Ok(None);
    };
    let Some(batch) = bytes.get(..header.size_bytes) else {
        return Ok(None);
    };
    if !header.crc_matches(batch) {
        return Err(Error::CorruptMessage(format!(
            "the CRC of the batch at offset {} is wrong",
            header.base_offset
        )));
    }
    Ok(Some((header, batch)))
}
