//! Record batches: the unit in which Kafka's records travel and lie on disk. Nothing here reads a
//! clock or a file.

pub mod header;

pub use header::BatchHeader;
