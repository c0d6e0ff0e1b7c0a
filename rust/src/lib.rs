//! kafkalite's hot path: record batches, the log, Arrow columns. The list of what Python sees is
//! below, in `_native`; `python/kafkalite/_native.pyi` says what each name means.

pub mod batch;
pub mod error;
pub mod limits;
pub mod log;
