//! `_native.LogRead` and `_native.FetchRead`: rows of log files, or of what brokers send,
//! as an Arrow C stream, in capsules that any Arrow library takes. No Python object is made
//! per record or per batch.
#![expect(unsafe_code, reason = "a capsule of another library is a raw pointer")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyCapsule;

use super::door;
use crate::arrow::plan::check_bounds;
use crate::arrow::{
    BatchBounds, FetchSource, FetchedChunk, FetchedStream, Isolation, LogRead, LogStream,
    OffsetSpec, Offsets, ReadOptions, Shape, ShapeRequest,
};
use crate::error::Error;
use crate::log::storage::{DiskStorage, Storage};

/// A fixed set of rows; see `_native.pyi`.
#[pyclass(frozen, name = "LogRead", module = "kafkalite._native")]
pub struct PyLogRead {
    read: Arc<LogRead>,
}

#[pymethods]
impl PyLogRead {
    #[new]
    #[pyo3(signature = (
        paths, *, topic, start, start_by_partition, stop, stop_by_partition, columns, isolation,
        batch_rows, batch_bytes, schema=None, key_schema=None, value_schema=None, formats=None
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword arguments, called from one place"
    )]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        topic: Option<String>,
        start: Option<PyOffsetSpec>,
        start_by_partition: BTreeMap<String, PyOffsetSpec>,
        stop: Option<PyOffsetSpec>,
        stop_by_partition: BTreeMap<String, PyOffsetSpec>,
        columns: Option<Vec<String>>,
        isolation: &str,
        batch_rows: usize,
        batch_bytes: usize,
        schema: Option<&Bound<'_, PyAny>>,
        key_schema: Option<&Bound<'_, PyAny>>,
        value_schema: Option<&Bound<'_, PyAny>>,
        formats: Option<BTreeMap<String, String>>,
    ) -> PyResult<PyLogRead> {
        let shape = choose_shape(py, columns, [schema, key_schema, value_schema], formats)?;
        let read = door::enter(py, || {
            let options = ReadOptions {
                topic,
                start: offsets(start, start_by_partition),
                stop: offsets(stop, stop_by_partition),
                shape,
                isolation: Isolation::from_name(isolation)?,
                bounds: BatchBounds {
                    rows: batch_rows,
                    bytes: batch_bytes,
                },
            };
            let storage: Arc<dyn Storage> = Arc::new(DiskStorage);
            LogRead::open(&storage, &paths, options)
        })?;
        Ok(PyLogRead {
            read: Arc::new(read),
        })
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        check_requested(py, &self.read.shape, requested_schema)?;
        stream_capsule(py, LogStream::new(self.read.clone()))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.read.shape)
    }

    /// Name and Arrow type of each column.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        names_and_types(&self.read.shape)
    }

    /// Topic, partition, start and stop of each range of offsets.
    #[getter]
    fn ranges(&self) -> Vec<(String, i32, i64, i64)> {
        let ranges = self.read.ranges.iter();
        ranges
            .map(|range| {
                let partition = &range.partition;
                let topic = partition.topic.clone();
                (topic, partition.partition, range.start, range.stop)
            })
            .collect()
    }
}

/// An offset, or a time in an object of its own (`_OffsetOfTime` in `_native.pyi`).
#[derive(FromPyObject)]
enum PyOffsetSpec {
    Offset(i64),
    Time { timestamp_ms: i64 },
}

impl From<PyOffsetSpec> for OffsetSpec {
    fn from(spec: PyOffsetSpec) -> OffsetSpec {
        match spec {
            PyOffsetSpec::Offset(offset) => OffsetSpec::Offset(offset),
            PyOffsetSpec::Time { timestamp_ms } => OffsetSpec::Time(timestamp_ms),
        }
    }
}

fn offsets(for_all: Option<PyOffsetSpec>, by_partition: BTreeMap<String, PyOffsetSpec>) -> Offsets {
    let by_partition = by_partition.into_iter();
    Offsets {
        for_all: for_all.map(OffsetSpec::from),
        by_partition: by_partition
            .map(|(name, spec)| (name, spec.into()))
            .collect(),
    }
}

/// Rows that are fetched when they are asked for; see `_native.pyi`.
#[pyclass(frozen, name = "FetchRead", module = "kafkalite._native")]
pub struct PyFetchRead {
    /// Called once a stream; gives an object with `next_chunk` and `close`.
    open: Py<PyAny>,
    #[pyo3(get)]
    ranges: Vec<(String, i32, i64, i64)>,
    shape: Shape,
    bounds: BatchBounds,
}

#[pymethods]
impl PyFetchRead {
    #[new]
    #[pyo3(signature = (
        open, *, ranges, columns, batch_rows, batch_bytes, schema=None, key_schema=None,
        value_schema=None, formats=None
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword arguments, called from one place"
    )]
    fn new(
        py: Python<'_>,
        open: Py<PyAny>,
        ranges: Vec<(String, i32, i64, i64)>,
        columns: Option<Vec<String>>,
        batch_rows: usize,
        batch_bytes: usize,
        schema: Option<&Bound<'_, PyAny>>,
        key_schema: Option<&Bound<'_, PyAny>>,
        value_schema: Option<&Bound<'_, PyAny>>,
        formats: Option<BTreeMap<String, String>>,
    ) -> PyResult<PyFetchRead> {
        let bounds = BatchBounds {
            rows: batch_rows,
            bytes: batch_bytes,
        };
        check_bounds(bounds).map_err(|error| door::raise(py, &error))?;
        Ok(PyFetchRead {
            open,
            ranges,
            shape: choose_shape(py, columns, [schema, key_schema, value_schema], formats)?,
            bounds,
        })
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        check_requested(py, &self.shape, requested_schema)?;
        let source = PythonSource(self.open.call0(py)?);
        stream_capsule(py, FetchedStream::new(source, &self.shape, self.bounds))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.shape)
    }

    /// Name and Arrow type of each column.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        names_and_types(&self.shape)
    }
}

/// Fetches in Python: it holds the GIL while it does, not while it waits for the socket.
pub(super) struct PythonSource(pub(super) Py<PyAny>);

type PythonChunk = (String, i32, PyBackedBytes, i64, i64, Vec<(i64, i64)>);

impl FetchSource for PythonSource {
    type Bytes = PyBackedBytes;

    fn next_chunk(&mut self) -> Result<Option<FetchedChunk<PyBackedBytes>>, String> {
        Python::attach(|py| {
            let answer = self.0.call_method0(py, pyo3::intern!(py, "next_chunk"))?;
            let chunk: Option<PythonChunk> = answer.extract(py)?;
            Ok(chunk.map(
                |(topic, partition, records, start, stop, aborted)| FetchedChunk {
                    topic,
                    partition,
                    records,
                    start,
                    stop,
                    aborted,
                },
            ))
        })
        .map_err(|error: PyErr| Python::attach(|py| error.value(py).to_string()))
    }
}

impl Drop for PythonSource {
    /// The connections go with the stream; at the interpreter's end they go with the process. A
    /// consumer may drop the stream with an exception of its own on the way, which stays.
    fn drop(&mut self) {
        Python::try_attach(|py| {
            let pending = PyErr::take(py);
            self.0.call_method0(py, pyo3::intern!(py, "close")).ok();
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

/// Builds its batches without the GIL, whether whoever asks for one holds it or not.
struct Detached<S>(S);

impl<S: RecordBatchReader + Send> Iterator for Detached<S> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        door::without_gil(|| self.0.next())
    }
}

impl<S: RecordBatchReader + Send> RecordBatchReader for Detached<S> {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

/// Raises where a consumer asks for another schema than the rows have.
fn check_requested(
    py: Python<'_>,
    shape: &Shape,
    requested: Option<&Bound<'_, PyCapsule>>,
) -> PyResult<()> {
    let Some(capsule) = requested else {
        return Ok(());
    };
    let checked = shape.check_requested(&import_schema(py, capsule)?);
    checked.map_err(|error| door::raise(py, &error))
}

fn stream_capsule<'py>(
    py: Python<'py>,
    stream: impl RecordBatchReader + Send + 'static,
) -> PyResult<Bound<'py, PyCapsule>> {
    let stream = FFI_ArrowArrayStream::new(Box::new(Detached(stream)));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

fn schema_capsule<'py>(py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(shape.schema().as_ref());
    let schema = schema.map_err(|error| raise_arrow(py, &error))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// Name and type of each column.
fn names_and_types(shape: &Shape) -> Vec<(String, String)> {
    let fields = shape.schema().fields().iter();
    fields
        .map(|field| (field.name().clone(), field.data_type().to_string()))
        .collect()
}

/// The rows' schema, the key's and the value's are any objects that export one
/// (`__arrow_c_schema__`).
fn choose_shape(
    py: Python<'_>,
    columns: Option<Vec<String>>,
    schemas: [Option<&Bound<'_, PyAny>>; 3],
    formats: Option<BTreeMap<String, String>>,
) -> PyResult<Shape> {
    let export = |schema: Option<&Bound<'_, PyAny>>| {
        schema.map(|schema| export_schema(py, schema)).transpose()
    };
    let [schema, key_schema, value_schema] = schemas;
    let (schema, key_schema) = (export(schema)?, export(key_schema)?);
    let value_schema = export(value_schema)?;
    let request = ShapeRequest {
        columns: columns.as_deref(),
        schema: schema.as_ref(),
        key_schema: key_schema.as_ref(),
        value_schema: value_schema.as_ref(),
        formats: formats.as_ref(),
    };
    Shape::choose(&request).map_err(|error| door::raise(py, &error))
}

fn export_schema(py: Python<'_>, schema: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let capsule = schema.call_method0(pyo3::intern!(py, "__arrow_c_schema__"))?;
    import_schema(py, capsule.cast::<PyCapsule>()?)
}

fn import_schema(py: Python<'_>, capsule: &Bound<'_, PyCapsule>) -> PyResult<Schema> {
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?;
    // SAFETY: the capsule's name says that it holds an ArrowSchema, and it stays alive, with what
    // it holds, as long as `capsule` is borrowed. It is read, not taken.
    let schema = unsafe { pointer.cast::<FFI_ArrowSchema>().as_ref() };
    // arrow-rs takes it for granted that names and formats are UTF-8;
    // pyarrow reads others from IPC.
    let Ok(imported) = catch_unwind(AssertUnwindSafe(|| Schema::try_from(schema))) else {
        let sentence = "the schema has a name or a format that is not UTF-8".to_owned();
        return Err(door::raise(py, &Error::InvalidArgument(sentence)));
    };
    imported.map_err(|error| raise_arrow(py, &error))
}

fn raise_arrow(py: Python<'_>, error: &ArrowError) -> PyErr {
    door::raise(py, &Error::InvalidArgument(error.to_string()))
}
