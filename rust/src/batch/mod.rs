//! Record batches: the unit in which Kafka's records travel and lie on disk. Nothing here reads a
//! clock or a file.

pub mod accumulator;
mod arrow_rows;
pub mod build;
pub mod compression;
pub mod fetched;
pub mod from_arrow;
pub mod header;
pub mod inflate;
pub mod legacy;
pub mod load;
pub mod partitioner;
pub mod records;
pub mod shape;
pub mod stream;
pub mod validate;
pub mod varint;
mod walk;

pub use build::{BatchBuilder, BatchOptions};
pub use compression::Codec;
pub use fetched::FetchedBatches;
pub use from_arrow::{ArrowEncoder, EncodeOptions, EncodedBatch};
pub use header::BatchHeader;
pub use records::{ControlRecord, EndTransactionMarker, Headers, Record, RecordReader};
pub use validate::{AppendOrigin, BatchSummary, ValidationRules, validate};
