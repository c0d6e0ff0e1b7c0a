//! The one door between the languages: the only place that releases the GIL and the only place
//! that turns `Error` into an exception. A function that works, waits or touches a file goes
//! through `enter`; one that only looks at memory may use `raise` alone.

#![expect(
    unsafe_code,
    reason = "whether this thread holds the GIL, and who has an object, is asked of the interpreter"
)]

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{Error, Result};
use crate::limits::GIL_STEP_VALUES;

/// Runs `work` without the GIL and turns its error into an exception.
///
/// `work` must not touch Python objects, which the compiler sees to (`Send`, no `Python<'_>`).
pub fn enter<T, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    F: FnOnce() -> Result<T> + Send,
    T: Send,
{
    py.detach(work).map_err(|error| raise(py, &error))
}

/// Lets others that wait for the GIL have it from time to time, between two steps of a long work.
#[derive(Default)]
pub struct GilSteps(Cell<usize>);

impl GilSteps {
    /// Counts a value.
    pub fn count(&self, py: Python<'_>) {
        self.0.set(self.0.get() + 1);
        if self.0.get() >= GIL_STEP_VALUES {
            self.0.set(0);
            py.detach(|| ());
        }
    }
}

/// How many references there are to an object: who has the only one may do with it as he likes.
pub fn references_to(object: &Bound<'_, PyAny>) -> isize {
    // SAFETY: a live object, looked at with the GIL held, without which nobody counts.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

/// Gives memory back to the system that was freed between what is still there: large requests take
/// it from the allocator in small pieces.
pub fn give_back_memory(py: Python<'_>) {
    #[cfg(target_env = "gnu")]
    py.detach(|| {
        // SAFETY: the allocator's own call, which any thread may make at any time.
        unsafe { libc::malloc_trim(0) }
    });
    let _ = py;
}

/// Runs `work` without the GIL for callbacks of other libraries, which may hold it or not: pyarrow
/// lets it go before it asks for a batch, polars does not.
pub fn without_gil<T, F>(work: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if !holds_gil() {
        return work();
    }
    // SAFETY: this thread is attached, as was just seen, and only it can detach itself.
    unsafe { Python::assume_attached() }.detach(work)
}

/// True if this thread is known to be attached to the interpreter.
///
/// `PyGILState_Check` would not do: it says yes always once there was a sub-interpreter. The
/// current thread state is this thread's own only while it is attached (before Python 3.12 it is
/// that of whichever thread holds the GIL). It is not in the stable ABI, so it is looked up by
/// name; where it is not found, the answer is no, and a batch is built with the GIL held.
fn holds_gil() -> bool {
    type Current = unsafe extern "C" fn() -> *mut ffi::PyThreadState;
    static CURRENT: OnceLock<Option<Current>> = OnceLock::new();
    let current = CURRENT.get_or_init(|| {
        let symbol = find_symbol(c"PyThreadState_GetUnchecked")
            .or_else(|| find_symbol(c"_PyThreadState_UncheckedGet"))?;
        // SAFETY: CPython's functions of these names take nothing and return a thread state.
        Some(unsafe { std::mem::transmute::<*mut c_void, Current>(symbol) })
    });
    let Some(current) = current else {
        return false;
    };
    // SAFETY: both may be called with and without the GIL and return a pointer or null.
    let (current, own) = unsafe { (current(), ffi::PyGILState_GetThisThreadState()) };
    !current.is_null() && current == own
}

fn find_symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is NUL-terminated; the default handle searches what is loaded.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// The exception for `error`: the class of `kafkalite.errors` with the error's sentence.
///
/// If that module cannot be imported (interpreter shutdown), what its import raised.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let build = || {
        let class = py
            .import("kafkalite.errors")?
            .getattr(PyString::intern(py, class_name(error)))?;
        class.call1((error.to_string(),))
    };
    match build() {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

impl From<Error> for PyErr {
    /// As `raise`, for code that has no token of the interpreter at hand; it
    /// holds the GIL all the same.
    fn from(error: Error) -> PyErr {
        Python::attach(|py| raise(py, &error))
    }
}

/// The class in `kafkalite/errors.py`. Exhaustive on purpose: no catch-all arm.
fn class_name(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } if error.lacks_descriptors() => "DescriptorsExhaustedError",
        Error::Io { .. } => "StorageError",
        Error::CorruptFile { .. } => "CorruptFileError",
        Error::LogDirOffline { .. } => "LogDirOfflineError",
        Error::LogDirLocked { .. } => "LogDirLockedError",
        Error::LogDirRefused { .. } => "LogDirRefusedError",
        Error::MoveNotEnded { .. } => "MoveNotEndedError",
        Error::CorruptMessage(_) => "CorruptMessageError",
        Error::InvalidRecord(_) => "InvalidRecordError",
        Error::RecordsRefused(refused) if refused.invalid_timestamp => "InvalidTimestampError",
        Error::RecordsRefused(_) => "InvalidRecordError",
        Error::InvalidTimestamp(_) => "InvalidTimestampError",
        Error::MessageTooLarge { .. } => "MessageTooLargeError",
        Error::RecordListTooLarge { .. } => "RecordListTooLargeError",
        Error::UnsupportedCompression(_) => "UnsupportedCompressionTypeError",
        Error::UnsupportedForMessageFormat(_) => "UnsupportedForMessageFormatError",
        Error::OutOfOrderSequence(_) => "OutOfOrderSequenceError",
        Error::InvalidProducerEpoch(_) => "InvalidProducerEpochError",
        Error::UnknownProducerId(_) => "UnknownProducerIdError",
        Error::InvalidTxnState(_) => "InvalidTxnStateError",
        Error::TransactionCoordinatorFenced(_) => "TransactionCoordinatorFencedError",
        Error::LogDeleted { .. } => "LogDeletedError",
        Error::NotLeader { .. } => "NotLeaderOrFollowerError",
        Error::NotEnoughReplicas { .. } => "NotEnoughReplicasError",
        Error::NotEnoughReplicasAfterAppend { .. } => "NotEnoughReplicasAfterAppendError",
        Error::OffsetOutOfRange { .. } => "OffsetOutOfRangeError",
        Error::UnexpectedAppendOffset { .. } => "UnexpectedAppendOffsetError",
        Error::Panicked { .. } => "KafkaliteError",
        Error::TooCostly => "KafkaliteError",
        Error::LoadStopped => "LoadStoppedError",
        Error::MalformedRequest(_) => "MalformedRequestError",
        Error::InvalidArgument(_) => "InvalidArgumentError",
    }
}
