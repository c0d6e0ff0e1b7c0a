//! The client's part of the engine: records into batches that a Produce request takes, and records
//! out of the batches that a Fetch brought. Nothing here reads a clock, a file or a socket.

pub mod accumulator;
mod arrow_rows;
pub mod fetched;
pub mod from_arrow;
pub mod partitioner;
pub mod perf_records;

pub use fetched::FetchedBatches;
pub use from_arrow::{ArrowEncoder, EncodeOptions, EncodedBatch};
