//! Fetched records as Arrow batches: the same columns as those of files, through
//! the same tight loop. Whoever fetches gives chunks, one after the other, each the bytes of one
//! fetch of one partition.
//!
//! The memory in use is one chunk, one Arrow batch and, for compressed ones, a window of an
//! inflated batch.
//! Whoever bounds the memory of many streams lets one wait (`receive`) with what its rows take so
//! far, and takes more before it has them become a whole batch (`next_full`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::columns::{BatchBounds, ColumnBuilder};
use super::shape::Shape;
use super::stream::append_set;
use super::walk::inflated::{Fault, InflatedRecords, is_inflated};
use super::walk::{RecordCursor, Walked, append_counted, append_records, is_counted};
use crate::batch::header::RECORD_BATCH_OVERHEAD;
use crate::batch::{BatchHeader, RecordReader};
use crate::client::FetchedBatches;
use crate::error::{Error, Result};
use crate::limits::ARROW_SILENT_BYTES_MAX;

/// The records of one partition that one fetch brought.
pub struct FetchedChunk<B> {
    pub topic: String,
    pub partition: i32,
    /// Batches, the last one maybe cut off.
    pub records: B,
    /// Offsets `start .. stop` are wanted.
    pub start: i64,
    pub stop: i64,
    /// Producer and first offset of the aborted transactions in it, if they are to be left out.
    pub aborted: Vec<(i64, i64)>,
}

/// A source of fetched chunks. An error is a sentence.
pub trait FetchSource: Send {
    type Bytes: AsRef<[u8]> + Send;

    /// The next chunk, of the partition at hand or of another one; `None` after the last.
    fn next_chunk(&mut self) -> std::result::Result<Option<FetchedChunk<Self::Bytes>>, String>;

    /// Says whether the next chunk may have to be waited for, as one from another process.
    fn may_wait(&self) -> bool {
        true
    }
}

/// An iterator over the rows of all chunks. After an error every further call gives the same error.
pub struct FetchedStream<S: FetchSource> {
    source: S,
    schema: SchemaRef,
    builder: ColumnBuilder,
    partition: Option<(String, i32)>,
    chunk: Option<Chunk<S::Bytes>>,
    scratch: Scratch,
    /// Gives batches without rows as well, where there are none for long.
    tells_progress: bool,
    /// Bytes of the log since the last batch.
    silent_bytes: usize,
    failure: Option<String>,
}

struct Chunk<B> {
    topic: String,
    partition: i32,
    records: B,
    stop: i64,
    batches: FetchedBatches,
    /// The batch at hand, where it ends in the chunk, and how far it has been taken.
    batch: Option<(BatchHeader, usize, RecordCursor)>,
}

/// Memory kept from batch to batch.
#[derive(Default)]
struct Scratch {
    inflated: InflatedRecords,
    legacy: RecordReader,
}

impl<S: FetchSource> FetchedStream<S> {
    pub fn new(source: S, shape: &Shape, bounds: BatchBounds) -> FetchedStream<S> {
        FetchedStream {
            source,
            builder: ColumnBuilder::new(shape, bounds),
            schema: shape.schema().clone(),
            partition: None,
            chunk: None,
            scratch: Scratch::default(),
            tells_progress: false,
            silent_bytes: 0,
            failure: None,
        }
    }

    /// Gives a batch without rows where those of a whole one were left out, or a long part of the
    /// log has none: whoever takes them can see that it goes on, and can end it.
    pub fn telling_progress(mut self) -> Self {
        self.tells_progress = true;
        self
    }

    /// Memory that is held between two batches beside the bytes of a fetch.
    pub fn held_bytes(&self) -> usize {
        self.scratch.inflated.held_bytes()
    }

    /// The next rows, of one partition, and at least one unless progress is told; `None` after the
    /// last.
    fn next_batch(&mut self) -> std::result::Result<Option<RecordBatch>, String> {
        while self.receive()? {
            if let Some(batch) = self.build()? {
                return Ok(Some(batch));
            }
        }
        self.finish()
    }

    /// Waits for a chunk, unless there is one at hand; false after the last. Before a wait it gives
    /// back the memory that was kept for the rows to come, unless there are rows already.
    pub fn receive(&mut self) -> std::result::Result<bool, String> {
        if self.chunk.is_none() {
            let is_idle = self.builder.rows() == 0 && self.source.may_wait();
            if is_idle && self.partition.take().is_some() {
                self.builder.release();
            }
            self.chunk = self.source.next_chunk()?.map(Chunk::new);
            let received = self.chunk.as_ref().map(|chunk| chunk.records.as_ref());
            self.silent_bytes += received.map_or(0, <[u8]>::len);
        }
        Ok(self.chunk.is_some())
    }

    /// A full batch of what has been received, and of what comes without a wait. `None`: more is to
    /// be received, or, where there is no more, `finish` has the last rows.
    pub fn next_full(&mut self) -> std::result::Result<Option<RecordBatch>, String> {
        while self.chunk.is_some() || (!self.source.may_wait() && self.receive()?) {
            if let Some(batch) = self.build()? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// The most bytes of memory that a batch of the rows gathered so far
    /// takes; 0 if there are none.
    pub fn unfinished_bytes(&self) -> usize {
        self.builder.unfinished_bytes()
    }

    /// Takes rows of the chunk at hand, until a batch is full or the chunk has no more. `None`: no
    /// batch is full yet.
    fn build(&mut self) -> std::result::Result<Option<RecordBatch>, String> {
        let Some(mut chunk) = self.chunk.take() else {
            return Ok(None);
        };
        if !chunk.is_of(self.partition.as_ref()) {
            if self.builder.rows() > 0 {
                self.chunk = Some(chunk);
                return self.finish();
            }
            self.builder.start_partition(&chunk.topic, chunk.partition);
            self.partition = Some((chunk.topic.clone(), chunk.partition));
        }
        let filled = chunk.fill(&mut self.builder, &mut self.scratch);
        let is_long = self.tells_progress && self.silent_bytes >= ARROW_SILENT_BYTES_MAX;
        match filled.map_err(|error| self.describe(&error))? {
            Walked::Exhausted if is_long => self.finish_with_progress(),
            Walked::Exhausted => Ok(None),
            Walked::Full => {
                self.chunk = Some(chunk);
                self.finish_with_progress()
            }
        }
    }

    fn finish_with_progress(&mut self) -> std::result::Result<Option<RecordBatch>, String> {
        self.silent_bytes = 0;
        let no_rows = || RecordBatch::new_empty(self.schema.clone());
        let no_rows = self.tells_progress.then(no_rows);
        Ok(self.finish()?.or(no_rows))
    }

    /// The rows gathered so far; `None` if there are none, or all of them are left out.
    pub fn finish(&mut self) -> std::result::Result<Option<RecordBatch>, String> {
        match self.builder.rows() {
            0 => Ok(None),
            _ => self.builder.finish().map_err(|error| error.to_string()),
        }
    }

    fn describe(&self, error: &Error) -> String {
        match &self.partition {
            Some((topic, partition)) => format!("{topic}-{partition}: {error}"),
            None => error.to_string(),
        }
    }
}

impl<B: AsRef<[u8]>> Chunk<B> {
    fn new(fetched: FetchedChunk<B>) -> Chunk<B> {
        Chunk {
            batches: FetchedBatches::new(fetched.start, &fetched.aborted),
            topic: fetched.topic,
            partition: fetched.partition,
            records: fetched.records,
            stop: fetched.stop,
            batch: None,
        }
    }

    fn is_of(&self, place: Option<&(String, i32)>) -> bool {
        place.is_some_and(|(topic, partition)| *topic == self.topic && *partition == self.partition)
    }

    /// Takes rows until the builder is full, or the chunk has no more.
    fn fill(&mut self, builder: &mut ColumnBuilder, scratch: &mut Scratch) -> Result<Walked> {
        let bytes = self.records.as_ref();
        loop {
            let (header, end, mut cursor) = match self.batch.take() {
                Some(batch) => batch,
                None => match self.batches.next(bytes)? {
                    Some((header, _)) if header.base_offset >= self.stop => {
                        return Ok(Walked::Exhausted);
                    }
                    Some((header, batch)) => {
                        let range = self.batches.next_offset()..self.stop;
                        if is_inflated(&header) && !is_counted(builder, &header, &range) {
                            let records = batch.get(RECORD_BATCH_OVERHEAD..);
                            let records = records.unwrap_or_default();
                            scratch.inflated.begin(&header, records)?;
                        }
                        (
                            header,
                            self.batches.position_byte(),
                            RecordCursor::default(),
                        )
                    }
                    None => return Ok(Walked::Exhausted),
                },
            };
            let batch = bytes.get(end - header.size_bytes..end).unwrap_or_default();
            let range = self.batches.next_offset()..self.stop;
            let walked = if is_counted(builder, &header, &range) {
                append_counted(builder, &header, &mut cursor)
            } else if header.magic < 2 {
                let legacy = &mut scratch.legacy;
                append_set(builder, &header, batch, &mut cursor, range, legacy)?
            } else {
                let records = batch.get(RECORD_BATCH_OVERHEAD..).unwrap_or_default();
                let bounds = (range.start, range.end);
                let walked = if is_inflated(&header) {
                    let inflated = &mut scratch.inflated;
                    inflated.append(builder, &header, records, &mut cursor, bounds)
                } else {
                    append_records(builder, &header, records, &mut cursor, bounds.0, bounds.1)
                        .map_err(Fault::Record)
                };
                walked.map_err(|fault| match fault {
                    Fault::Stream(error) => error,
                    Fault::Record(reason) => Error::InvalidRecord(format!(
                        "record {} of the batch at offset {}: {reason}",
                        cursor.passed + 1,
                        header.base_offset
                    )),
                })?
            };
            match walked {
                Walked::Exhausted => self.batches.pass(&header),
                Walked::Full => {
                    self.batch = Some((header, end, cursor));
                    return Ok(Walked::Full);
                }
            }
        }
    }
}

impl<S: FetchSource> Iterator for FetchedStream<S> {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failure.is_none() {
            // A panic must not unwind into the C code that asked.
            let result = catch_unwind(AssertUnwindSafe(|| self.next_batch()));
            self.failure = Some(match result {
                Ok(Ok(batch)) => return batch.map(Ok),
                Ok(Err(sentence)) => sentence,
                Err(_) => "the reader of fetched records panicked".to_owned(),
            });
        }
        let sentence = self.failure.clone()?;
        Some(Err(ArrowError::ExternalError(sentence.into())))
    }
}

impl<S: FetchSource> RecordBatchReader for FetchedStream<S> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, Int64Type};
    use arrow_array::{Array, BinaryArray};
    use arrow_schema::{DataType, Field, Fields, Schema};

    use super::*;
    use crate::arrow::ShapeRequest;
    use crate::arrow::decode::{Decoder, Reader};
    use crate::batch::build::end_transaction_marker;
    use crate::batch::header::{CRC_AT, compute_crc, patch_offset_and_epoch};
    use crate::batch::{BatchBuilder, BatchOptions, Codec, EndTransactionMarker};

    /// Chunks of a source that may wait for them, or not.
    struct Given(std::vec::IntoIter<FetchedChunk<Vec<u8>>>, bool);

    impl FetchSource for Given {
        type Bytes = Vec<u8>;

        fn next_chunk(&mut self) -> std::result::Result<Option<FetchedChunk<Vec<u8>>>, String> {
            Ok(self.0.next())
        }

        fn may_wait(&self) -> bool {
            self.1
        }
    }

    fn batch(base_offset: i64, count: i64, codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            codec,
            ..BatchOptions::default()
        });
        for offset in base_offset..base_offset + count {
            let value = format!("value {offset}");
            builder
                .append(offset, None, Some(value.as_bytes()), &[])
                .expect("it fits");
        }
        builder.finish().expect("it is built")
    }

    fn chunk(partition: i32, records: Vec<u8>, start: i64, stop: i64) -> FetchedChunk<Vec<u8>> {
        FetchedChunk {
            topic: "t".to_owned(),
            partition,
            records,
            start,
            stop,
            aborted: Vec::new(),
        }
    }

    /// Partition and offset of each row, batch by batch.
    fn rows(chunks: Vec<FetchedChunk<Vec<u8>>>, rows_max: usize) -> Vec<Vec<(i32, i64)>> {
        let bounds = BatchBounds {
            rows: rows_max,
            bytes: 1 << 20,
        };
        let source = Given(chunks.into_iter(), true);
        FetchedStream::new(source, &Shape::all(), bounds)
            .map(|batch| {
                let batch = batch.expect("good records");
                let partitions = batch.column(3).as_primitive::<Int32Type>();
                let offsets = batch.column(4).as_primitive::<Int64Type>();
                let pairs = partitions.values().iter().zip(offsets.values());
                pairs
                    .map(|(partition, offset)| (*partition, *offset))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn rows_of_chunks_of_one_partition_share_a_batch_and_those_of_two_do_not() {
        let mut first = batch(0, 3, Codec::Lz4);
        first.extend(batch(3, 2, Codec::None));
        first.extend(&batch(5, 9, Codec::None)[..50]);
        let chunks = vec![
            chunk(0, first, 1, 7),
            chunk(0, batch(5, 9, Codec::Zstd), 5, 7),
            chunk(1, batch(0, 2, Codec::None), 0, 2),
        ];
        let expected = vec![
            (1..7).map(|offset| (0, offset)).collect::<Vec<_>>(),
            vec![(1, 0), (1, 1)],
        ];
        assert_eq!(rows(chunks, 100), expected);
    }

    #[test]
    fn a_full_batch_goes_on_where_it_stopped() {
        let chunks = vec![chunk(0, batch(0, 10, Codec::Gzip), 0, 10)];
        let found = rows(chunks, 4);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
        let offsets: Vec<i64> = found.iter().flatten().map(|(_, offset)| *offset).collect();
        assert_eq!(offsets, (0..10).collect::<Vec<_>>());
    }

    /// The number of rows of each batch of up to four, and the bytes kept at the beginning,
    /// whenever more is to be received, and at the end.
    fn received(source: impl FetchSource) -> (Vec<usize>, Vec<usize>) {
        let bounds = BatchBounds {
            rows: 4,
            bytes: 1 << 20,
        };
        let mut stream = FetchedStream::new(source, &Shape::all(), bounds);
        let (mut rows, mut kept_bytes) = (Vec::new(), vec![stream.unfinished_bytes()]);
        while stream.receive().expect("a chunk") {
            match stream.next_full().expect("good records") {
                Some(batch) => rows.push(batch.num_rows()),
                None => kept_bytes.push(stream.unfinished_bytes()),
            }
        }
        let last = stream.finish().expect("good records");
        rows.extend(last.map(|batch| batch.num_rows()));
        kept_bytes.push(stream.unfinished_bytes());
        (rows, kept_bytes)
    }

    #[test]
    fn a_stream_that_waits_keeps_what_its_rows_take_and_nothing_without_rows() {
        let (six, three) = (batch(0, 6, Codec::Lz4), batch(6, 3, Codec::None));
        let most = BatchBounds {
            rows: 4,
            bytes: 1 << 20,
        };
        let most = most.memory_bytes(&Shape::all(), 1);
        for (may_wait, expected) in [
            (true, [false, true, true, false].as_slice()),
            (false, &[false, true, false]),
        ] {
            let chunks = vec![chunk(0, six.clone(), 0, 9), chunk(0, three.clone(), 6, 9)];
            let (rows, kept_bytes) = received(Given(chunks.into_iter(), may_wait));
            assert_eq!(rows, [4, 4, 1]);
            let is_kept: Vec<bool> = kept_bytes.iter().map(|bytes| *bytes > 0).collect();
            assert_eq!(is_kept, expected);
            assert!(kept_bytes.iter().all(|bytes| *bytes < most / 10));
        }
    }

    /// The rows of each Arrow batch of 1,000 such values, read as JSON with these fields.
    fn typed_rows(value: &str, fields: Vec<Field>) -> Vec<usize> {
        let schema = Schema::new(fields);
        let formats = [("value.format".to_owned(), "json".to_owned())];
        let shape = Shape::choose(&ShapeRequest {
            columns: Some(&["value".to_owned()]),
            value_schema: Some(&schema),
            formats: Some(&formats.into()),
            ..ShapeRequest::default()
        });
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for offset in 0..1_000 {
            let value = Some(value.as_bytes());
            builder.append(offset, None, value, &[]).expect("it fits");
        }
        let records = builder.finish().expect("it is built");
        let source = Given(vec![chunk(0, records, 0, 1_000)].into_iter(), true);
        let bounds = BatchBounds {
            rows: 10_000,
            bytes: 100_000,
        };
        FetchedStream::new(source, &shape.expect("a shape"), bounds)
            .map(|batch| batch.expect("good records").num_rows())
            .collect()
    }

    /// A read that drops every record went through a whole log before it looked whether its client
    /// was still there, or the broker was to stop.
    #[test]
    fn who_wants_progress_hears_of_batches_whose_rows_are_all_dropped() {
        let formats = [("value.format", "json"), ("mode", "DROPMALFORMED")];
        let formats = formats.map(|(name, word)| (name.to_owned(), word.to_owned()));
        let schema = Schema::new(decimals(1));
        let shape = Shape::choose(&ShapeRequest {
            columns: Some(&["value".to_owned()]),
            value_schema: Some(&schema),
            formats: Some(&formats.into()),
            ..ShapeRequest::default()
        });
        let shape = shape.expect("a shape");
        let read = |tells: bool| {
            let chunks = vec![chunk(0, batch(0, 10, Codec::Zstd), 0, 10)];
            let bounds = BatchBounds {
                rows: 4,
                bytes: 1 << 20,
            };
            let stream = FetchedStream::new(Given(chunks.into_iter(), true), &shape, bounds);
            let stream = if tells {
                stream.telling_progress()
            } else {
                stream
            };
            let rows = stream.map(|batch| batch.expect("good records").num_rows());
            rows.collect::<Vec<_>>()
        };
        assert_eq!(read(false), [0_usize; 0]);
        assert_eq!(read(true), [0, 0]);
    }

    fn decimals(count: usize) -> Vec<Field> {
        let decimal = DataType::Decimal128(38, 0);
        (0..count)
            .map(|each| Field::new(format!("f{each}"), decimal.clone(), true))
            .collect()
    }

    /// A megabyte of `{}` with a schema of 500 decimals took a gigabyte: 32,768 rows at once.
    #[test]
    fn a_batch_has_the_fewer_rows_the_wider_they_are() {
        // 20 bytes a decimal, of 800,000 bytes.
        for (fields, expected) in [(1, vec![1_000]), (100, vec![400, 400, 200])] {
            assert_eq!(typed_rows("{}", decimals(fields)), expected);
        }
        let of_500 = typed_rows("{}", decimals(500));
        assert_eq!(of_500, [[80; 12].as_slice(), &[40]].concat());
    }

    /// Three bytes of a list are a row of its own.
    #[test]
    fn a_batch_has_the_fewer_rows_the_more_items_lists_may_have() {
        let of_items = |value: &str, fields| {
            let item = Field::new("item", DataType::Struct(decimals(fields).into()), true);
            let list = Field::new("l", DataType::List(item.into()), true);
            let rows = typed_rows(value, vec![list]);
            assert_eq!(rows.iter().sum::<usize>(), 1_000);
            rows.into_iter().max()
        };
        assert_eq!(of_items("{}", 10), Some(1_000));
        // 2,004 bytes an item, of which there may be one for two bytes of the record.
        assert_eq!(of_items(r#"{"l":[{},{},{},{}]}"#, 100), Some(41));
        assert_eq!(of_items(r#"{"l":[{},{},{},{}]}"#, 1_000), Some(4));
    }

    #[test]
    fn a_record_whose_items_take_more_than_a_batch_may_is_bad() {
        let item = Field::new("item", DataType::Struct(decimals(2_000).into()), true);
        let list = Field::new("l", DataType::List(item.into()), true);
        let fields = Fields::from(vec![list]);
        let mut decoder = Decoder::new(Reader::Json, &fields).expect("fields");
        let of_items = |count| format!(r#"{{"l":[{}null]}}"#, "{},".repeat(count));
        let texts = [of_items(2), of_items(14_000), of_items(3)];
        let values = BinaryArray::from_iter_values(&texts);
        let decoded = decoder.decode(&values).expect("columns");
        assert_eq!(decoded.bad, [1]);
        let reason = decoded.reason.expect("why").to_string();
        let sentence = "the items of its lists take more than 512 MiB";
        assert!(reason.starts_with(sentence), "{reason}");
        let lists = decoded.fields[0].as_list::<i32>();
        let lengths: Vec<i32> = (0..3).map(|row| lists.value_length(row)).collect();
        assert_eq!((lengths, lists.is_null(1)), (vec![3, 0, 4], true));
    }

    /// A batch whose records cannot be inflated, though its CRC is right.
    fn sealed(base_offset: i64, count: i64, producer_id: i64) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            codec: Codec::Zstd,
            producer_id,
            producer_epoch: 0,
            transactional: producer_id >= 0,
            ..BatchOptions::default()
        });
        for offset in base_offset..base_offset + count {
            builder.append(offset, None, None, &[]).expect("it fits");
        }
        let mut batch = builder.finish().expect("it is built");
        batch[RECORD_BATCH_OVERHEAD..].fill(0xff);
        let crc = compute_crc(&batch);
        batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
        batch
    }

    fn marker(offset: i64, producer_id: i64) -> Vec<u8> {
        let marker = EndTransactionMarker {
            is_commit: false,
            coordinator_epoch: 0,
        };
        let mut batch = end_transaction_marker(1, producer_id, 0, marker);
        patch_offset_and_epoch(&mut batch, offset, 0);
        batch
    }

    /// The rows of each Arrow batch, of at most four, if only their number is asked for.
    fn counted(chunks: Vec<FetchedChunk<Vec<u8>>>) -> std::result::Result<Vec<usize>, ArrowError> {
        let request = ShapeRequest {
            schema: Some(&Schema::empty()),
            ..ShapeRequest::default()
        };
        let shape = Shape::choose(&request).expect("no columns");
        let bounds = BatchBounds { rows: 4, bytes: 1 };
        FetchedStream::new(Given(chunks.into_iter(), true), &shape, bounds)
            .map(|batch| batch.map(|batch| batch.num_rows()))
            .collect()
    }

    #[test]
    fn rows_that_are_only_counted_are_not_inflated() {
        let mut records = sealed(0, 3, -1);
        records.extend(sealed(3, 6, -1));
        let chunks = vec![chunk(0, records, 0, 9), chunk(1, sealed(0, 1, -1), 0, 1)];
        assert_eq!(counted(chunks).expect("headers suffice"), [4, 4, 1, 1]);
    }

    #[test]
    fn batches_at_the_ends_of_a_range_are_looked_at_to_be_counted() {
        let mut records = batch(0, 5, Codec::Zstd);
        records.extend(sealed(5, 2, -1));
        records.extend(batch(7, 5, Codec::Lz4));
        let chunks = vec![chunk(0, records, 2, 9)];
        assert_eq!(counted(chunks).expect("the middle is sealed"), [4, 3]);
        for (start, stop) in [(1, 3), (0, 2)] {
            assert!(counted(vec![chunk(0, sealed(0, 3, -1), start, stop)]).is_err());
        }
    }

    #[test]
    fn neither_markers_nor_aborted_records_are_counted() {
        let mut records = sealed(0, 2, 7);
        records.extend(sealed(2, 1, 8));
        records.extend(marker(3, 7));
        records.extend(sealed(4, 1, 7));
        let mut committed = chunk(0, records.clone(), 0, 5);
        committed.aborted = vec![(7, 0)];
        assert_eq!(counted(vec![committed]).expect("headers suffice"), [2]);
        let all = vec![chunk(0, records, 0, 5)];
        assert_eq!(counted(all).expect("headers suffice"), [4]);
    }

    #[test]
    fn damage_is_told_again_and_again() {
        let mut records = batch(0, 3, Codec::None);
        let last = records.len() - 3;
        records[last] ^= 1;
        let source = Given(vec![chunk(4, records, 0, 3)].into_iter(), true);
        let bounds = BatchBounds {
            rows: 10,
            bytes: 100,
        };
        let mut stream = FetchedStream::new(source, &Shape::all(), bounds);
        for _ in 0..2 {
            let error = stream.next().expect("an error").expect_err("damaged");
            assert!(error.to_string().contains("t-4: "), "{error}");
        }
    }
}
