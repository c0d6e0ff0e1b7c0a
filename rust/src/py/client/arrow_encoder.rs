//! `_native.ArrowEncoder`: rows that another Arrow library holds into batches for Produce. Arrow
//! comes in by capsules, no Python object is made per record.
#![expect(unsafe_code, reason = "a capsule of another library is a raw pointer")]

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, StructArray};
use arrow_schema::{ArrowError, DataType};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::batch::Codec;
use crate::client::{self, EncodeOptions, EncodedBatch};
use crate::error::{Error, Result};
use crate::py::door::{self, raise};

/// The source of the rows of one call.
enum Input {
    Batch(Option<RecordBatch>),
    Stream(RecordBatchStreamReader),
}

/// Topic, partition, batch, number of its records.
type Made<'py> = (String, u32, Bound<'py, PyBytes>, i32);

/// See `_native.pyi`.
#[pyclass(module = "kafkalite._native")]
pub struct ArrowEncoder {
    inner: client::ArrowEncoder,
    /// The lock is never waited for: a stream is for one thread, a class of Python for several.
    input: Mutex<Option<Input>>,
}

#[pymethods]
impl ArrowEncoder {
    #[new]
    #[pyo3(signature = (
        topic, *, codec, level, batch_bytes, record_bytes_max, open_bytes_max, transactional, seed
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword arguments, called from one place"
    )]
    fn new(
        py: Python<'_>,
        topic: Option<String>,
        codec: &str,
        level: Option<i32>,
        batch_bytes: usize,
        record_bytes_max: usize,
        open_bytes_max: usize,
        transactional: bool,
        seed: u64,
    ) -> PyResult<ArrowEncoder> {
        let unknown = || Error::InvalidArgument(format!("{codec} is no codec of Kafka's"));
        let inner = Codec::from_name(codec)
            .ok_or_else(unknown)
            .and_then(|codec| {
                client::ArrowEncoder::new(EncodeOptions {
                    topic,
                    codec,
                    level,
                    batch_bytes,
                    record_bytes_max,
                    open_bytes_max,
                    transactional,
                    seed,
                })
            });
        Ok(ArrowEncoder {
            inner: inner.map_err(|error| raise(py, &error))?,
            input: Mutex::new(None),
        })
    }

    fn open(&mut self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let input = if rows.hasattr("__arrow_c_array__")? {
            let capsules = rows.call_method0("__arrow_c_array__")?;
            let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
                capsules.extract()?;
            Input::Batch(Some(import_batch(py, &schema, &array)?))
        } else if rows.hasattr("__arrow_c_stream__")? {
            let capsule = rows.call_method0("__arrow_c_stream__")?;
            Input::Stream(import_stream(py, capsule.cast::<PyCapsule>()?)?)
        } else {
            let kind = rows.get_type().name()?;
            let sentence = format!("{kind} is no Arrow data: it has no __arrow_c_stream__");
            return Err(raise(py, &Error::InvalidArgument(sentence)));
        };
        *self.input.get_mut() = Some(input);
        Ok(())
    }

    /// Topics that have to be described before `encode`; `None` after the last Arrow batch.
    fn load(&mut self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        let ArrowEncoder { inner, input } = self;
        let input = input.get_mut();
        door::enter(py, || {
            let batch = match input {
                None => None,
                Some(Input::Batch(batch)) => batch.take(),
                Some(Input::Stream(stream)) => stream
                    .next()
                    .transpose()
                    .map_err(|error| Error::InvalidArgument(error.to_string()))?,
            };
            batch.map(|batch| inner.load(&batch)).transpose()
        })
    }

    fn set_topic(
        &mut self,
        py: Python<'_>,
        name: &str,
        partition_count: u32,
        available: Vec<u32>,
    ) -> PyResult<()> {
        let set = self.inner.set_topic(name, partition_count, &available);
        set.map_err(|error| raise(py, &error))
    }

    /// The batches that became full, and whether rows of the Arrow batch are left.
    fn encode<'py>(&mut self, py: Python<'py>, now_ms: i64) -> PyResult<(Vec<Made<'py>>, bool)> {
        let inner = &mut self.inner;
        let (made, has_more) = door::enter(py, || {
            let mut made = Vec::new();
            let has_more = inner.encode(now_ms, &mut made)?;
            Ok((made, has_more))
        })?;
        Ok((self.copy_out(py, made), has_more))
    }

    /// The batches that were still open.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Made<'py>>> {
        let inner = &mut self.inner;
        let made = door::enter(py, || {
            let mut made = Vec::new();
            inner.finish(&mut made)?;
            Ok(made)
        })?;
        Ok(self.copy_out(py, made))
    }
}

impl ArrowEncoder {
    fn copy_out<'py>(&mut self, py: Python<'py>, made: Vec<EncodedBatch>) -> Vec<Made<'py>> {
        made.into_iter()
            .map(|batch| {
                let records = PyBytes::new(py, &batch.records);
                self.inner.recycle(batch.records);
                let topic = batch.topic.to_string();
                (topic, batch.partition, records, batch.records_count)
            })
            .collect()
    }
}

fn import_batch(
    py: Python<'_>,
    schema: &Bound<'_, PyCapsule>,
    array: &Bound<'_, PyCapsule>,
) -> PyResult<RecordBatch> {
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?;
    let array = array.pointer_checked(Some(c"arrow_array"))?;
    // SAFETY: the capsules' names say that they hold an ArrowSchema and an ArrowArray, which stay
    // alive as long as the capsules are borrowed. The schema is read; the array is taken, and an
    // empty one left in its place, as the PyCapsule interface asks for. That the array is what the
    // schema says is the promise of whoever exported them.
    let data = unsafe {
        let array = FFI_ArrowArray::from_raw(array.cast::<FFI_ArrowArray>().as_ptr());
        from_ffi(array, schema.cast::<FFI_ArrowSchema>().as_ref())
    };
    let batch = data
        .map_err(|error| arrow_error(&error))
        .and_then(|data| match data.data_type() {
            DataType::Struct(_) if data.null_count() == 0 => {
                Ok(RecordBatch::from(StructArray::from(data)))
            }
            found => Err(Error::InvalidArgument(format!(
                "rows are a struct without nulls, not {found}"
            ))),
        });
    batch.map_err(|error| raise(py, &error))
}

fn import_stream(
    py: Python<'_>,
    capsule: &Bound<'_, PyCapsule>,
) -> PyResult<RecordBatchStreamReader> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: the capsule's name says that it holds an ArrowArrayStream, which stays alive as long
    // as the capsule is borrowed. It is taken, and an empty one left in its place, as the PyCapsule
    // interface asks for.
    let stream =
        unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast::<FFI_ArrowArrayStream>().as_ptr()) };
    let reader: std::result::Result<_, ArrowError> = RecordBatchStreamReader::try_new(stream);
    let reader: Result<_> = reader.map_err(|error| arrow_error(&error));
    reader.map_err(|error| raise(py, &error))
}

fn arrow_error(error: &ArrowError) -> Error {
    Error::InvalidArgument(error.to_string())
}
