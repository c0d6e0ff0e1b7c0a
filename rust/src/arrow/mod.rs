//! A partition's files as Arrow columns, read without a broker, without a lock, and beside a live
//! broker.
//!
//! ```text
//! plan      which rows: partitions, offsets, isolation              (once per read)
//!  ├ times       from which offset on records are as late as a time
//!  └ isolation   last stable offset, aborted transactions
//! stream    Arrow batches, bounded in rows and bytes                (once per consumer)
//!  ├ batches     the log's batches between two offsets, proved
//!  │  ├ segments    which files, opened as one view
//!  │  └ reader      one file through one buffer
//!  ├ walk        the tight loop: one batch's records into columns
//!  └ columns     the buffers of one Arrow batch
//!     └ typed    keys and values as the fields of a schema: decode/
//! shape     what a row looks like (schema: names and types; formats: what keys and values are)
//! fetched   the same out of bytes that came over the wire           (once per consumer)
//! serve     the endpoint: ranges as Arrow IPC over a socket
//! ```

pub mod batches;
pub mod columns;
pub mod decode;
pub mod fetched;
pub mod formats;
mod growth;
pub mod isolation;
pub mod plan;
pub mod reader;
pub mod schema;
pub mod segments;
pub mod serve;
pub mod shape;
pub mod stream;
pub mod times;
pub mod typed;
pub mod walk;

pub use columns::BatchBounds;
pub use fetched::{FetchSource, FetchedChunk, FetchedStream};
pub use plan::{Isolation, LogRead, OffsetSpec, Offsets, ReadOptions};
pub use schema::Column;
pub use shape::{Shape, ShapeRequest};
pub use stream::LogStream;
