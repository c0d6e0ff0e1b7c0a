//! Arrow batches, one after the other, made when they are asked for: the memory in use is one
//! Arrow batch, one read buffer and, for compressed ones, a window of an inflated batch of the log.

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::batches::BatchWalk;
use super::columns::ColumnBuilder;
use super::isolation::AbortedRanges;
use super::plan::LogRead;
use super::walk::inflated::{Fault, InflatedRecords, is_inflated};
use super::walk::{
    RecordCursor, Walked, append_counted, append_legacy, append_records, is_counted,
};
use crate::batch::header::RECORD_BATCH_OVERHEAD;
use crate::batch::{BatchHeader, RecordReader};
use crate::error::{Error, Result};
use crate::limits::ARROW_READ_BYTES;

/// An iterator over the rows of a `LogRead`, and what the C stream interface takes. After an error
/// every further call gives the same error: rows that are missing must not look like an end.
pub struct LogStream {
    read: Arc<LogRead>,
    builder: ColumnBuilder,
    ranges_begun: usize,
    rows: Option<PartitionRows>,
    scratch: Scratch,
    /// Gives batches without rows as well, where all rows of one were left out.
    tells_progress: bool,
    failure: Option<(bool, String)>,
}

/// Memory kept from batch to batch.
#[derive(Default)]
struct Scratch {
    /// The records of the batch at hand, if they were compressed.
    inflated: InflatedRecords,
    legacy: RecordReader,
}

/// The partition at hand.
struct PartitionRows {
    walk: BatchWalk,
    aborted: Option<Arc<AbortedRanges>>,
    /// The batch at hand, loaded, and how far it has been taken.
    batch: Option<(BatchHeader, RecordCursor)>,
}

impl LogStream {
    /// All rows, from the first. Nothing is read before the first batch is asked for.
    pub fn new(read: Arc<LogRead>) -> LogStream {
        let builder = ColumnBuilder::new(&read.shape, read.bounds);
        LogStream {
            read,
            builder,
            ranges_begun: 0,
            rows: None,
            scratch: Scratch::default(),
            tells_progress: false,
            failure: None,
        }
    }

    /// As `FetchedStream::telling_progress`, but for parts of the log that have no rows.
    pub fn telling_progress(mut self) -> LogStream {
        self.tells_progress = true;
        self
    }

    /// Memory that is held between two batches beside the read buffer.
    pub fn held_bytes(&self) -> usize {
        self.scratch.inflated.held_bytes()
    }

    /// The next rows, of one partition, and at least one unless progress is told; `None` after the
    /// last.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.rows.is_none() && !self.begin_partition() {
                return Ok(None);
            }
            let has_more = self.fill()?;
            if !has_more {
                self.rows = None;
            }
            if self.builder.rows() > 0 {
                match self.builder.finish()? {
                    Some(batch) => return Ok(Some(batch)),
                    None if self.tells_progress => {
                        let schema = Arc::clone(self.read.shape.schema());
                        return Ok(Some(RecordBatch::new_empty(schema)));
                    }
                    None => {}
                }
            }
        }
    }

    fn begin_partition(&mut self) -> bool {
        let Some(range) = self.read.ranges.get(self.ranges_begun) else {
            return false;
        };
        self.ranges_begun += 1;
        let partition = &range.partition;
        self.builder
            .start_partition(&partition.topic, partition.partition);
        self.rows = Some(PartitionRows {
            walk: BatchWalk::new(partition.clone(), range.start, range.stop, ARROW_READ_BYTES),
            aborted: range.aborted.clone(),
            batch: None,
        });
        true
    }

    /// Takes rows until the builder is full (true) or the partition has no more (false).
    fn fill(&mut self) -> Result<bool> {
        let Some(rows) = &mut self.rows else {
            return Ok(false);
        };
        loop {
            let (header, mut cursor) = match rows.batch.take() {
                Some(batch) => batch,
                None => match rows.next_batch()? {
                    Some(header) => {
                        rows.inflate(&self.builder, &header, &mut self.scratch)?;
                        (header, RecordCursor::default())
                    }
                    None => return Ok(false),
                },
            };
            let walked = rows.append(&mut self.builder, &header, &mut cursor, &mut self.scratch)?;
            match walked {
                Walked::Exhausted => rows.walk.pass(&header),
                Walked::Full => {
                    rows.batch = Some((header, cursor));
                    return Ok(true);
                }
            }
        }
    }
}

impl PartitionRows {
    /// Loads the next batch with records to show.
    fn next_batch(&mut self) -> Result<Option<BatchHeader>> {
        while let Some(header) = self.walk.next_header()? {
            self.walk.load(&header)?;
            let is_aborted = header.is_transactional()
                && self.aborted.as_ref().is_some_and(|aborted| {
                    aborted.contains(header.producer_id, header.base_offset)
                });
            if !header.is_control() && !is_aborted {
                return Ok(Some(header));
            }
            self.walk.pass(&header);
        }
        Ok(None)
    }

    /// Begins to inflate the records of the batch at hand, if they are to be looked at.
    fn inflate(
        &self,
        builder: &ColumnBuilder,
        header: &BatchHeader,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if !is_inflated(header) || self.is_counted(builder, header) {
            return Ok(());
        }
        let records = &self.walk.loaded(header)[RECORD_BATCH_OVERHEAD..];
        let begun = scratch.inflated.begin(header, records);
        begun.map_err(|error| self.walk.corrupt(header, &error.to_string()))
    }

    /// Takes rows of the batch at hand, from the cursor on.
    fn append(
        &self,
        builder: &mut ColumnBuilder,
        header: &BatchHeader,
        cursor: &mut RecordCursor,
        scratch: &mut Scratch,
    ) -> Result<Walked> {
        let (start, stop) = (self.walk.next_offset(), self.walk.stop());
        if header.magic < 2 {
            let batch = self.walk.loaded(header);
            return append_set(
                builder,
                header,
                batch,
                cursor,
                start..stop,
                &mut scratch.legacy,
            )
            .map_err(|error| self.walk.corrupt(header, &error.to_string()));
        }
        if self.is_counted(builder, header) {
            return Ok(append_counted(builder, header, cursor));
        }
        let records = &self.walk.loaded(header)[RECORD_BATCH_OVERHEAD..];
        let walked = if is_inflated(header) {
            let inflated = &mut scratch.inflated;
            inflated.append(builder, header, records, cursor, (start, stop))
        } else {
            append_records(builder, header, records, cursor, start, stop).map_err(Fault::Record)
        };
        walked.map_err(|fault| match fault {
            Fault::Stream(error) => self.walk.corrupt(header, &error.to_string()),
            Fault::Record(reason) => {
                let record = cursor.passed + 1;
                self.walk
                    .corrupt(header, &format!("record {record}: {reason}"))
            }
        })
    }

    fn is_counted(&self, builder: &ColumnBuilder, header: &BatchHeader) -> bool {
        is_counted(
            builder,
            header,
            &(self.walk.next_offset()..self.walk.stop()),
        )
    }
}

/// Takes rows of a message or compressed set of magic 0 or 1, less those passed before: a set that
/// does not fit into one Arrow batch is unwrapped once for each it goes into.
pub(super) fn append_set(
    builder: &mut ColumnBuilder,
    header: &BatchHeader,
    batch: &[u8],
    cursor: &mut RecordCursor,
    range: Range<i64>,
    reader: &mut RecordReader,
) -> Result<Walked> {
    for record in reader.read(batch)?.skip(cursor.passed) {
        let record = record?;
        if record.offset >= range.end {
            return Ok(Walked::Exhausted);
        }
        let is_wanted = record.offset >= range.start;
        if is_wanted && !append_legacy(builder, header.magic, &record) {
            return Ok(Walked::Full);
        }
        cursor.passed += 1;
    }
    Ok(Walked::Exhausted)
}

impl Iterator for LogStream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failure.is_none() {
            // A panic must not unwind into the C code that asked.
            let result = catch_unwind(AssertUnwindSafe(|| self.next_batch()));
            self.failure = Some(match result {
                Ok(Ok(batch)) => return batch.map(Ok),
                Ok(Err(error)) => (matches!(error, Error::Io { .. }), error.to_string()),
                Err(_) => (false, "the reader of the log panicked".to_owned()),
            });
        }
        let (is_io, sentence) = self.failure.clone()?;
        Some(Err(if is_io {
            ArrowError::IoError(sentence.clone(), io::Error::other(sentence))
        } else {
            ArrowError::ExternalError(sentence.into())
        }))
    }
}

impl RecordBatchReader for LogStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.read.shape.schema())
    }
}
