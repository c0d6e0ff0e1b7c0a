//! The Arrow endpoint: ranges of partitions as Arrow IPC streams over a socket, for a reader
//! that has no Kafka client at hand and wants columns. docs/ARROW_ENDPOINT.md is the
//! protocol as clients see it.
//!
//! ```text
//! client   │ u32 BE length │ {"op":"read","topic":…,"partition":…,"start":…,"stop":…}  │   request
//! endpoint │ schema message │ record batch │ … │ record batch │ FFFFFFFF 00000000 │        answer
//!          │ schema message │ record batch │ FFFFFFFF │ u32 LE length + 1 │ sentence │ close  failure
//! ```
//!
//! The server is a `Home`: the broker (`live.rs`), or a process of its own beside a Spark executor,
//! which fetches from brokers or reads files (`files.rs`). `request.rs` reads requests and does no
//! I/O; `server.rs` owns sockets and threads, one a connection; `connection.rs` is what such a
//! thread does. A slow reader holds its own thread, one Arrow batch and the bytes of one fetch,
//! nothing else; what the batches of all readers take together is bounded (`batch_memory.rs`).

mod batch_memory;
mod connection;
pub mod files;
pub mod live;
pub mod request;
mod sent_schema;
pub mod server;

pub use files::LogFiles;
pub use live::LiveHome;
pub use request::{AskedRead, ReadRequest, Request};
pub use server::{ArrowServer, ServerSettings};

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use parking_lot::Mutex;

use super::fetched::{FetchSource, FetchedStream};
use crate::error::Result;

/// The rows of one read, made batch by batch as they are sent.
pub type Rows = Box<dyn ReadRows>;

/// See `Rows`. Whoever has them sent takes memory for a batch before the rows become one, and has
/// little or none while they are waited for, as those of hundreds of reads may be for minutes.
pub trait ReadRows: Send {
    fn schema(&self) -> SchemaRef;

    /// Waits until there is something to make rows of. False: `finish_batch` has the last ones.
    fn wait(&mut self) -> std::result::Result<bool, ArrowError>;

    /// A full batch; `None` if more must be waited for.
    fn next_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError>;

    /// A batch of the rows that there are; `None` if there are none.
    fn finish_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError>;

    /// The most bytes of memory that this batch takes.
    fn unfinished_bytes(&self) -> usize;

    /// Memory that is held while a batch is sent, beside that batch and some hundred KiB of the
    /// log, bytes.
    fn held_bytes(&self) -> usize {
        0
    }
}

impl<S: FetchSource> ReadRows for FetchedStream<S> {
    fn schema(&self) -> SchemaRef {
        RecordBatchReader::schema(self)
    }

    fn wait(&mut self) -> std::result::Result<bool, ArrowError> {
        self.receive().map_err(of_sentence)
    }

    fn next_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        self.next_full().map_err(of_sentence)
    }

    fn finish_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        self.finish().map_err(of_sentence)
    }

    fn unfinished_bytes(&self) -> usize {
        FetchedStream::unfinished_bytes(self)
    }

    fn held_bytes(&self) -> usize {
        FetchedStream::held_bytes(self)
    }
}

fn of_sentence(sentence: String) -> ArrowError {
    ArrowError::ExternalError(sentence.into())
}

/// Rows that nothing has to be waited for.
pub(super) struct RowsAtHand<R> {
    reader: R,
    is_over: bool,
    held_bytes: fn(&R) -> usize,
}

impl<R> RowsAtHand<R> {
    pub fn new(reader: R) -> RowsAtHand<R> {
        RowsAtHand {
            reader,
            is_over: false,
            held_bytes: |_| 0,
        }
    }

    /// With what says how much memory the reader holds.
    pub fn holding(self, held_bytes: fn(&R) -> usize) -> RowsAtHand<R> {
        RowsAtHand { held_bytes, ..self }
    }
}

impl<R: RecordBatchReader + Send> ReadRows for RowsAtHand<R> {
    fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }

    fn wait(&mut self) -> std::result::Result<bool, ArrowError> {
        Ok(!self.is_over)
    }

    fn next_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        let batch = self.reader.next().transpose()?;
        self.is_over = batch.is_none();
        Ok(batch)
    }

    fn finish_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        Ok(None)
    }

    fn unfinished_bytes(&self) -> usize {
        0
    }

    fn held_bytes(&self) -> usize {
        (self.held_bytes)(&self.reader)
    }
}

/// Where the rows come from. Called on the threads of connections, several at a time; may block.
pub trait Home: Send + Sync {
    /// Refuses a read of what is not there, or not for its client, before it is looked at how its
    /// rows are to look. Errors as of `read`, which looks again.
    fn check(&self, _read: &AskedRead) -> Result<()> {
        Ok(())
    }

    /// True if it looks into requests that are no reads, and thus at their schemas.
    fn plans(&self) -> bool {
        false
    }

    /// Errors become the sentence that the client is shown. What is skipped, since it is gone and
    /// that is no failure, is told to `losses`.
    fn read(&self, request: ReadRequest, losses: &Losses) -> Result<Rows>;

    /// Answers a request that is no read, JSON for JSON.
    fn answer(&self, op: &str, request: &[u8]) -> Result<Vec<u8>>;
}

/// Descriptors for connections, where others need them too. Asked by the thread that accepts.
pub trait Descriptors: Send + Sync {
    /// Takes one for a connection, if there is one left.
    fn take(&self) -> bool;
    /// A connection has ended that took one.
    fn give_back(&self);
}

/// Notes of a read that skipped something, in sentences that name the partition and the offsets.
#[derive(Clone, Debug, Default)]
pub struct Losses(Arc<Mutex<Vec<String>>>);

impl Losses {
    pub fn tell(&self, sentence: String) {
        self.0.lock().push(sentence);
    }

    /// The losses that have not been taken yet.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}
