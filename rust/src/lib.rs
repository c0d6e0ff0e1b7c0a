//! kafkalite's hot path: record batches, the log, Arrow columns. The list of what Python sees is
//! below, in `_native`; `python/kafkalite/_native.pyi` says what each name means.

pub mod batch;
pub mod error;
pub mod limits;
pub mod log;
#[cfg(feature = "python")]
pub mod py;

/// The compiled half of the package `kafkalite`.
#[cfg(feature = "python")]
#[pyo3::pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::py::log::{LogVerification, SegmentBatches, log_file_kind, read_log_file};

    /// Everything but plain functions and classes is added here.
    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::PyModuleMethods;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
