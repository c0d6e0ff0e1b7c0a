//! kafkalite's hot path: record batches, the log, Arrow columns. The list of what Python sees is
//! below, in `_native`; `python/kafkalite/_native.pyi` says what each name means.

pub mod access;
pub mod api;
pub mod arrow;
pub mod batch;
pub mod client;
pub mod clock;
pub mod codec;
pub mod codes;
mod crash;
pub mod error;
pub mod image;
pub mod limits;
pub mod log;
pub mod net;
pub mod node;
#[cfg(feature = "python")]
pub mod py;
pub mod quota;
pub mod re2;
pub mod replica;
pub mod uuid;
pub mod wire;

/// The compiled half of the package `kafkalite`.
#[cfg(feature = "python")]
#[pyo3::pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::py::arrow::{PyFetchRead, PyLogRead};
    #[pymodule_export]
    use crate::py::arrow_server::PyArrowServer;
    #[pymodule_export]
    use crate::py::batch::{BatchBuilder, RecordBatch, end_transaction_marker, read_batches};
    #[pymodule_export]
    use crate::py::broker::PyBrokerCore;
    #[pymodule_export]
    use crate::py::broker::claim::ClaimedDirectories;
    #[pymodule_export]
    use crate::py::broker::figures::{Figures, PartitionFigures};
    #[pymodule_export]
    use crate::py::broker::leaders::Leaders;
    #[pymodule_export]
    use crate::py::broker::log_calls::Logs;
    #[pymodule_export]
    use crate::py::broker::moves::{MoveRequest, Moves};
    #[pymodule_export]
    use crate::py::broker::requests::{Request, Requests};
    #[pymodule_export]
    use crate::py::broker::topics::Topics;
    #[pymodule_export]
    use crate::py::client::accumulator::RecordAccumulator;
    #[pymodule_export]
    use crate::py::client::arrow_encoder::ArrowEncoder;
    #[pymodule_export]
    use crate::py::client::{
        LoadRecords, count_fetched, fetched_end, fetched_tail, partition_for_key, read_fetched,
        stamp_producer,
    };
    #[pymodule_export]
    use crate::py::codec::{MessageCodec, message_layout, message_versions};
    #[pymodule_export]
    use crate::py::engine::{
        AppendInfo, Log, LogOffsets, ProducerEntries, ProducerEntry, SegmentInfo,
    };
    #[pymodule_export]
    use crate::py::engine_for_tests::{AbortedTransaction, LoadedLog, LogDirectory, LogForTests};
    #[pymodule_export]
    use crate::py::java::java_hash_code;
    #[pymodule_export]
    use crate::py::log::{
        LogVerification, SegmentBatches, log_file_kind, position_of_offset, read_log_file,
    };
    #[pymodule_export]
    use crate::py::outbound::PyOutbound;
    #[pymodule_export]
    use crate::py::re2::PyRe2;
    #[pymodule_export]
    use crate::py::release::release;
    #[pymodule_export]
    use crate::py::uuid::{random_uuid_bytes, random_uuid_text};

    /// Everything but plain functions and classes is added here.
    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use crate::replica::wake_numbers::*;
        use pyo3::types::PyModuleMethods;
        module.add("STOP_NUMBER", STOP_NUMBER)?;
        module.add("OUTBOUND_ANSWERS_NUMBER", OUTBOUND_ANSWERS_NUMBER)?;
        module.add("LEAVE_NUMBER", LEAVE_NUMBER)?;
        module.add("ISR_CHANGES_NUMBER", ISR_CHANGES_NUMBER)?;
        module.add("ASSIGNMENTS_NUMBER", ASSIGNMENTS_NUMBER)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
