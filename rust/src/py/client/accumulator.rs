//! `_native.RecordAccumulator`: a record of Python's into an open batch, in one call.
//!
//! The GIL is held all the time and no code of Python's runs while `inner` is locked, so that a
//! call is whole for other threads, for handlers of signals and for `fork`: a producer needs no
//! lock around it, and nobody ever waits for this one. What would run such code (making an error
//! or an answer, which may have the collector run finalizers, and dropping an object) is done
//! before or after. The class is frozen: PyO3 would hold its borrow while it makes an answer, and
//! panic in another thread.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

use crate::batch::{BatchOptions, Codec};
use crate::client::accumulator::{Accumulator, AccumulatorOptions, Appended, NewRecord};
use crate::clock::wall_ms;
use crate::error::Error;
use crate::py::batch::BatchBuilder;
use crate::py::door::raise;

const APPENDED: u8 = 0;
const APPENDED_AND_DUE: u8 = 1;
const REFUSED: u8 = 2;

/// See `_native.pyi`.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct RecordAccumulator {
    inner: Mutex<Accumulator<Py<PyAny>>>,
}

type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);
type Header<'a> = (&'a [u8], Option<&'a [u8]>);

#[pymethods]
impl RecordAccumulator {
    #[new]
    #[pyo3(signature = (codec, *, level, transactional, linger_s, batch_bytes, buffer_bytes))]
    fn new(
        py: Python<'_>,
        codec: &str,
        level: Option<i32>,
        transactional: bool,
        linger_s: f64,
        batch_bytes: usize,
        buffer_bytes: usize,
    ) -> PyResult<RecordAccumulator> {
        let unknown = || Error::InvalidArgument(format!("{codec} is no codec of Kafka's"));
        let batch = BatchOptions {
            codec: Codec::from_name(codec).ok_or_else(|| raise(py, &unknown()))?,
            level,
            transactional,
            ..BatchOptions::default()
        };
        Ok(RecordAccumulator {
            inner: Mutex::new(Accumulator::new(AccumulatorOptions {
                batch,
                batch_bytes,
                buffer_bytes,
                linger: Duration::from_secs_f64(linger_s),
            })),
        })
    }

    #[pyo3(signature = (
        topic, value, key, headers, partition, timestamp_ms, on_delivery, opens=false, /
    ))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of send")]
    fn append<'py>(
        slf: &Bound<'py, Self>,
        topic: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        headers: &Bound<'py, PyAny>,
        partition: &Bound<'py, PyAny>,
        timestamp_ms: &Bound<'py, PyAny>,
        on_delivery: &Bound<'py, PyAny>,
        opens: bool,
    ) -> PyResult<u8> {
        let Some(pairs) = pairs(headers) else {
            return Ok(REFUSED);
        };
        let read = || {
            let topic = topic.cast::<PyString>().ok()?.to_str().ok()?;
            let partition = number::<u32>(partition)?;
            let timestamp = number::<i64>(timestamp_ms)?;
            let callback = match on_delivery {
                none if none.is_none() => None,
                callable if callable.is_callable() => Some(callable.clone().unbind()),
                _ => return None,
            };
            let (key, value, headers) = (bytes(key)?, bytes(value)?, self::headers(&pairs)?);
            Some((topic, partition, timestamp, callback, key, value, headers))
        };
        let Some((topic, partition, timestamp, callback, key, value, headers)) = read() else {
            return Ok(REFUSED);
        };
        let record = NewRecord {
            timestamp: timestamp.unwrap_or_else(wall_ms),
            key,
            value,
            headers: &headers,
        };
        let now = Instant::now();
        let appended = {
            let mut all = slf.get().inner.lock();
            match partition {
                Some(at) if opens => all.append_or_open(topic, at, &record, callback, now),
                _ => all.append(topic, partition, &record, callback, now),
            }
        };
        match appended {
            Ok(Appended::Yes) => Ok(APPENDED),
            Ok(Appended::AndDue) => Ok(APPENDED_AND_DUE),
            Ok(Appended::No) => Ok(REFUSED),
            Err(error) => Err(raise(slf.py(), &error)),
        }
    }

    fn learn(&self, topic: &str, partition_count: u32) {
        self.inner.lock().learn(topic, partition_count);
    }

    fn stick(&self, topic: &str, partition: u32) {
        self.inner.lock().stick(topic, partition);
    }

    fn sticky(&self, topic: &str) -> Option<u32> {
        self.inner.lock().sticky(topic)
    }

    /// The builder and its callbacks by number of the record.
    fn close(&self, topic: &str, partition: u32) -> Option<(BatchBuilder, Callbacks)> {
        let batch = self.inner.lock().close(topic, partition)?;
        let inner = Some(batch.builder);
        Some((BatchBuilder { inner }, batch.callbacks))
    }

    fn opened(&self) -> Vec<(String, u32)> {
        let inner = self.inner.lock();
        let opened = inner.opened();
        opened
            .map(|(topic, partition)| (topic.to_owned(), partition))
            .collect()
    }

    fn due(&self) -> Vec<(String, u32)> {
        let inner = self.inner.lock();
        let due = inner.due(Instant::now());
        due.map(|(topic, partition)| (topic.to_owned(), partition))
            .collect()
    }

    #[getter]
    fn seconds_until_due(&self) -> f64 {
        let left = |due: Instant| due.saturating_duration_since(Instant::now()).as_secs_f64();
        self.inner.lock().next_due().map_or(f64::INFINITY, left)
    }

    #[getter]
    fn open_count(&self) -> usize {
        self.inner.lock().opened().len()
    }

    #[getter]
    fn open_bytes(&self) -> usize {
        self.inner.lock().open_bytes()
    }

    #[getter]
    fn batch_bytes(&self) -> usize {
        self.inner.lock().options().batch_bytes
    }

    #[getter]
    fn closed_bytes(&self) -> usize {
        self.inner.lock().closed_bytes
    }

    #[setter]
    fn set_closed_bytes(&self, bytes: usize) {
        self.inner.lock().closed_bytes = bytes;
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // No collector runs while it is locked.
        let Some(inner) = self.inner.try_lock() else {
            return Ok(());
        };
        inner
            .callbacks()
            .try_for_each(|callback| visit.call(callback))
    }

    fn __clear__(&self) {
        // It is unreachable, and so is who would close them.
        for (topic, partition) in self.opened() {
            let closed = self.inner.lock().close(&topic, partition);
            drop(closed);
        }
    }
}

type Callbacks = Vec<(i32, Py<PyAny>)>;

/// The bytes, or None; nothing if it is neither.
fn bytes<'a>(given: &'a Bound<'_, PyAny>) -> Option<Option<&'a [u8]>> {
    if given.is_none() {
        return Some(None);
    }
    let bytes = given.cast::<PyBytes>().ok()?;
    Some(Some(bytes.as_bytes()))
}

/// A number from 0 on that is an int and no bool, or None; nothing if it is neither.
fn number<T: TryFrom<i64>>(given: &Bound<'_, PyAny>) -> Option<Option<T>> {
    if given.is_none() {
        return Some(None);
    }
    let number: i64 = given.cast_exact::<PyInt>().ok()?.extract().ok()?;
    if number < 0 {
        return None;
    }
    T::try_from(number).ok().map(Some)
}

/// Names and contents, from a list or tuple of pairs; nothing for all else.
fn pairs<'py>(given: &Bound<'py, PyAny>) -> Option<Vec<Pair<'py>>> {
    let items: Vec<Bound<'py, PyAny>> = match given.cast_exact::<PyTuple>() {
        Ok(tuple) if tuple.is_empty() => return Some(Vec::new()),
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => given.cast_exact::<PyList>().ok()?.iter().collect(),
    };
    let pairs = items.iter().map(|pair| {
        let pair = pair.cast_exact::<PyTuple>().ok()?;
        if pair.len() != 2 {
            return None;
        }
        Some((pair.get_item(0).ok()?, pair.get_item(1).ok()?))
    });
    pairs.collect()
}

/// Their bytes; nothing if a name is no text, or a content no bytes.
fn headers<'a>(pairs: &'a [Pair<'_>]) -> Option<Vec<Header<'a>>> {
    let headers = pairs.iter().map(|(name, content)| {
        let name = name.cast::<PyString>().ok()?.to_str().ok()?;
        Some((name.as_bytes(), bytes(content)?))
    });
    headers.collect()
}
