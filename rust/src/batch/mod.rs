//! Record batches: the unit in which Kafka's records travel and lie on disk. Nothing here reads a
//! clock or a file.

pub mod build;
pub mod compression;
pub mod control;
pub mod header;
pub mod inflate;
pub mod legacy;
pub mod record;
pub mod record_reader;
pub mod shape;
pub mod stream;
pub mod validate;
pub mod varint;
mod walk;

pub use build::{BatchBuilder, BatchOptions};
pub use compression::Codec;
pub use control::{ControlRecord, EndTransactionMarker};
pub use header::BatchHeader;
pub use record::{Headers, Record};
pub use record_reader::RecordReader;
pub use validate::{AppendOrigin, BatchSummary, ValidationRules, validate};
