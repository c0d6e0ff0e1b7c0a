//! The one door between the languages: the only place that releases the GIL and the only place
//! that turns `Error` into an exception. A function that works, waits or touches a file goes
//! through `enter`; one that only looks at memory may use `raise` alone.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{Error, Result};

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

/// The class in `kafkalite/errors.py`. Exhaustive on purpose: no catch-all arm.
fn class_name(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } => "StorageError",
        Error::CorruptFile { .. } => "CorruptFileError",
        Error::LogDirOffline { .. } => "LogDirOfflineError",
        Error::LogDirLocked { .. } => "LogDirLockedError",
        Error::LogDirRefused { .. } => "LogDirRefusedError",
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
        Error::OffsetOutOfRange { .. } => "OffsetOutOfRangeError",
        Error::UnexpectedAppendOffset { .. } => "UnexpectedAppendOffsetError",
        Error::MalformedRequest(_) => "MalformedRequestError",
        Error::InvalidArgument(_) => "InvalidArgumentError",
    }
}
