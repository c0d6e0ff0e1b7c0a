//! Arrow rows into batches of magic 2, one open batch a partition, without an object per record:
//! what a DataFrame is written to topics with.
//!
//! ```text
//! column      types (also large, view and dictionary)      without it, or null
//! value       binary, utf8                                 a tombstone; the column must be there
//! key         binary, utf8                                 no key
//! topic       utf8                                         the topic of the options, which goes
//!                                                          before the column
//! partition   any integer                                  murmur2 of the key; without a key
//!                                                          one partition until its batch is full
//! headers     list<struct<key: utf8, value: binary>>       no headers
//! timestamp   timestamp(s, ms, us, ns)                     the time of the call
//! ```
//!
//! Other columns are not looked at. `load` takes the columns of one Arrow batch and says which
//! topics nobody has described yet, `encode` works through its rows and gives the batches that
//! became full, `finish` gives the others.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::arrow_rows::{Headers, Partitions, Slices, Timestamps};
use super::partitioner::partition_for_key;
use crate::batch::build::{BatchBuilder, BatchOptions};
use crate::batch::compression::Codec;
use crate::batch::header::RECORD_BATCH_OVERHEAD;
use crate::batch::varint::varlong_bytes;
use crate::error::{Error, Result};
use crate::limits::{BATCH_BYTES_MAX, ENCODED_BYTES_MAX};

/// Bytes that Kafka counts for a record beside key, value and headers (`DefaultRecord`).
const MAX_RECORD_OVERHEAD: usize = 21;

/// How batches are made.
#[derive(Clone, Debug)]
pub struct EncodeOptions {
    /// The topic of every row; `None`: the column says.
    pub topic: Option<String>,
    pub codec: Codec,
    /// As `compression.*.level`; `None` is the codec's default.
    pub level: Option<i32>,
    /// `batch.size`: a batch is full at so many bytes before compression; a
    /// larger record goes alone.
    pub batch_bytes: usize,
    /// `max.request.size`: a larger record is an error.
    pub record_bytes_max: usize,
    /// Bytes in open batches, all partitions together, at which all of them are closed.
    pub open_bytes_max: usize,
    /// The batches belong to transactions.
    pub transactional: bool,
    /// Where the choice of partitions for rows without a key begins.
    pub seed: u64,
}

/// A batch that is complete but for the producer and its sequence number.
#[derive(Debug)]
pub struct EncodedBatch {
    pub topic: Arc<str>,
    pub partition: u32,
    pub records: Vec<u8>,
    pub records_count: i32,
}

/// Makes batches of rows. After an error it must not be used any more.
pub struct ArrowEncoder {
    options: EncodeOptions,
    batch: BatchOptions,
    topics: Vec<Topic>,
    topic_indexes: HashMap<Arc<str>, usize>,
    rows: Option<Rows>,
    /// Rows of the Arrow batches before the one at hand.
    rows_before: usize,
    open_bytes: usize,
    random: u64,
    scratch: Vec<u8>,
    /// Memory of batches that were copied out of here.
    buffers: Vec<Vec<u8>>,
}

struct Topic {
    name: Arc<str>,
    /// Open batches by partition; empty until somebody has said how many partitions there are.
    lanes: Vec<Option<BatchBuilder>>,
    /// Partitions that have a leader, or all.
    available: Vec<u32>,
    /// Where rows without a key go at the moment.
    sticky: Option<u32>,
}

/// The columns of one Arrow batch.
struct Rows {
    count: usize,
    /// Rows that are encoded.
    done: usize,
    key: Slices,
    value: Slices,
    /// By row; empty if all are of the one topic of the options.
    topics: Vec<u32>,
    partitions: Partitions,
    headers: Headers,
    timestamps: Timestamps,
}

/// One row, its columns looked up.
struct Row<'a> {
    number: usize,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers_count: usize,
    headers: &'a [u8],
    timestamp: i64,
}

impl ArrowEncoder {
    /// Errors: `InvalidArgument` for a level that the codec does not have and sizes out of bounds.
    pub fn new(options: EncodeOptions) -> Result<ArrowEncoder> {
        let refuse = |sentence: String| Err(Error::InvalidArgument(sentence));
        if let Some(level) = options.level
            && !options.codec.level_is_valid(level)
        {
            let codec = options.codec.name();
            return refuse(format!("{codec} has no compression level {level}"));
        }
        if options.batch_bytes > BATCH_BYTES_MAX / 2 {
            return refuse(format!("batch.size {} is too large", options.batch_bytes));
        }
        if options.record_bytes_max > BATCH_BYTES_MAX / 2 {
            let size = options.record_bytes_max;
            return refuse(format!("max.request.size {size} is too large"));
        }
        let batch = BatchOptions {
            codec: options.codec,
            level: options.level,
            transactional: options.transactional,
            ..BatchOptions::default()
        };
        let mut encoder = ArrowEncoder {
            batch,
            topics: Vec::new(),
            topic_indexes: HashMap::new(),
            rows: None,
            rows_before: 0,
            open_bytes: 0,
            random: options.seed | 1,
            scratch: Vec::new(),
            buffers: Vec::new(),
            options,
        };
        if let Some(topic) = encoder.options.topic.clone() {
            encoder.topic_index(&topic);
        }
        Ok(encoder)
    }

    /// Takes the next Arrow batch, once the one before is encoded; the topics in it that nobody
    /// has described by [`set_topic`](Self::set_topic).
    ///
    /// Errors: `InvalidArgument` for a column that is missing or of the wrong type, and for a row
    /// without a topic.
    pub fn load(&mut self, batch: &RecordBatch) -> Result<Vec<String>> {
        if self.rows.is_some() {
            let sentence = "the Arrow batch before has rows left";
            return Err(Error::InvalidArgument(sentence.to_owned()));
        }
        check_columns(&batch.schema(), self.options.topic.as_deref())?;
        let column = |name: &str| batch.column_by_name(name).map(AsRef::as_ref);
        let topics = match &self.options.topic {
            Some(_) => Vec::new(),
            None => self.topics_of(&Slices::text("topic", column("topic"))?, batch.num_rows())?,
        };
        self.rows = (batch.num_rows() > 0).then_some(Rows {
            count: batch.num_rows(),
            done: 0,
            key: Slices::bytes("key", column("key"))?,
            value: Slices::bytes("value", column("value"))?,
            topics,
            partitions: Partitions::of(column("partition"))?,
            headers: Headers::of(column("headers"))?,
            timestamps: Timestamps::of(column("timestamp"))?,
        });
        let unknown = self.topics.iter().filter(|topic| topic.lanes.is_empty());
        Ok(unknown.map(|topic| topic.name.to_string()).collect())
    }

    /// Says how many partitions a topic has, and which of them have a leader. Those of a topic can
    /// become more, not fewer. Errors: `InvalidArgument` for no partition, or too many.
    pub fn set_topic(&mut self, name: &str, count: u32, available: &[u32]) -> Result<()> {
        if count == 0 || count > i32::MAX as u32 {
            let sentence = format!("topic '{name}' with {count} partitions");
            return Err(Error::InvalidArgument(sentence));
        }
        let index = self.topic_index(name);
        let Some(topic) = self.topics.get_mut(index) else {
            return Ok(());
        };
        let lanes_count = topic.lanes.len().max(count as usize);
        topic.lanes.resize_with(lanes_count, || None);
        topic.available = available.iter().copied().filter(|p| *p < count).collect();
        if topic.available.is_empty() {
            topic.available = (0..count).collect();
        }
        Ok(())
    }

    /// Encodes rows of the Arrow batch at hand and adds the batches that become full, until there
    /// are [`ENCODED_BYTES_MAX`] of them. Returns whether rows are left.
    ///
    /// Errors: `InvalidArgument` for a row that cannot be a record, with its number and topic.
    pub fn encode(&mut self, now_ms: i64, made: &mut Vec<EncodedBatch>) -> Result<bool> {
        let Some(mut rows) = self.rows.take() else {
            return Ok(false);
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut made_bytes = 0;
        while rows.done < rows.count && made_bytes < ENCODED_BYTES_MAX {
            let at = rows.done;
            let number = self.rows_before + at;
            let topic_index = rows.topics.get(at).map_or(0, |index| *index as usize);
            scratch.clear();
            let headers_count = rows
                .headers
                .write(at, &mut scratch)
                .map_err(|why| self.refuse(number, topic_index, &why))?;
            let timestamp = rows
                .timestamps
                .get_ms(at)
                .map_err(|why| self.refuse(number, topic_index, &why))?;
            let row = Row {
                number,
                key: rows.key.get(at),
                value: rows.value.get(at),
                headers_count,
                headers: &scratch,
                timestamp: timestamp.unwrap_or(now_ms),
            };
            let made_before = made.len();
            self.append(topic_index, rows.partitions.get(at), &row, made)?;
            let new = made.iter().skip(made_before);
            made_bytes += new.map(|batch| batch.records.len()).sum::<usize>();
            rows.done += 1;
        }
        self.scratch = scratch;
        if rows.done < rows.count {
            self.rows = Some(rows);
            return Ok(true);
        }
        self.rows_before += rows.count;
        Ok(false)
    }

    /// Closes the open batches and adds them.
    pub fn finish(&mut self, made: &mut Vec<EncodedBatch>) -> Result<()> {
        for index in 0..self.topics.len() {
            let partitions = self.topics.get(index).map_or(0, |topic| topic.lanes.len());
            for partition in 0..partitions {
                self.close(index, partition as u32, made)?;
            }
        }
        Ok(())
    }

    /// Gives back the memory of a batch that was copied.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        const KEPT: usize = 8;
        if self.buffers.len() < KEPT && buffer.capacity() <= 4 * self.options.batch_bytes {
            self.buffers.push(buffer);
        }
    }

    /// Which topic each row names.
    fn topics_of(&mut self, column: &Slices, count: usize) -> Result<Vec<u32>> {
        let mut indexes: Vec<u32> = Vec::with_capacity(count);
        let (mut last, mut index): (&[u8], Option<u32>) = (b"", None);
        for row in 0..count {
            let Some(name) = column.get(row) else {
                // The connector's sentence (KAFKA_NULL_TOPIC_IN_DATA).
                return Err(Error::InvalidArgument(format!(
                    "row {}: The Kafka message data sent to the producer contains a null topic. \
                     Use the `topic` option for setting a default topic.",
                    self.rows_before + row
                )));
            };
            if index.is_none() || name != last {
                let text = std::str::from_utf8(name)
                    .map_err(|_| Error::InvalidArgument(String::from("a topic is no UTF-8")))?;
                index = Some(self.topic_index(text) as u32);
                last = name;
            }
            indexes.extend(index);
        }
        Ok(indexes)
    }

    fn topic_index(&mut self, name: &str) -> usize {
        if let Some(index) = self.topic_indexes.get(name) {
            return *index;
        }
        let index = self.topics.len();
        let name: Arc<str> = Arc::from(name);
        self.topics.push(Topic {
            name: Arc::clone(&name),
            lanes: Vec::new(),
            available: Vec::new(),
            sticky: None,
        });
        self.topic_indexes.insert(name, index);
        index
    }

    fn append(
        &mut self,
        topic_index: usize,
        wanted: Option<i64>,
        row: &Row<'_>,
        made: &mut Vec<EncodedBatch>,
    ) -> Result<()> {
        let size = size_upper_bound(row);
        if RECORD_BATCH_OVERHEAD + size > self.options.record_bytes_max {
            let (size, most) = (RECORD_BATCH_OVERHEAD + size, self.options.record_bytes_max);
            let why = format!(
                "the record is {size} bytes when serialized, which is more than max.request.size \
                 ({most})"
            );
            return Err(self.refuse(row.number, topic_index, &why));
        }
        let mut partition = self.choose(topic_index, wanted, row)?;
        // Without a key the next choice may be a partition whose batch is open, and full as well.
        while self.is_full_for(topic_index, partition, size) {
            self.close(topic_index, partition, made)?;
            partition = self.choose(topic_index, wanted, row)?;
        }
        let (options, buffer) = (self.batch.clone(), &mut self.buffers);
        let Some(lane) = self
            .topics
            .get_mut(topic_index)
            .and_then(|topic| topic.lanes.get_mut(partition as usize))
        else {
            return Ok(());
        };
        let open = lane.get_or_insert_with(|| {
            BatchBuilder::with_buffer(options, buffer.pop().unwrap_or_default())
        });
        let offset = i64::from(open.records_count());
        let before = open.size_bytes();
        open.append_encoded(
            offset,
            row.timestamp,
            row.key,
            row.value,
            row.headers_count,
            row.headers,
        )?;
        let after = open.size_bytes();
        self.open_bytes += after - before;
        if after >= self.options.batch_bytes {
            self.close(topic_index, partition, made)?;
        } else if self.open_bytes > self.options.open_bytes_max {
            self.finish(made)?;
        }
        Ok(())
    }

    fn is_full_for(&self, topic_index: usize, partition: u32, size: usize) -> bool {
        let topic = self.topics.get(topic_index);
        topic
            .and_then(|topic| topic.lanes.get(partition as usize)?.as_ref())
            .is_some_and(|open| open.size_bytes() + size > self.options.batch_bytes)
    }

    /// As `KafkaProducer.partition`: what the row says, else its key, else one after the other.
    fn choose(&mut self, topic_index: usize, wanted: Option<i64>, row: &Row<'_>) -> Result<u32> {
        let Some(topic) = self.topics.get_mut(topic_index) else {
            return Ok(0);
        };
        let count = topic.lanes.len() as u32;
        if count == 0 {
            let name = &topic.name;
            let sentence = format!("nobody said how many partitions topic '{name}' has");
            return Err(Error::InvalidArgument(sentence));
        }
        if let Some(wanted) = wanted {
            return match u32::try_from(wanted) {
                Ok(partition) if partition < count => Ok(partition),
                _ => {
                    let why = format!("there is no partition {wanted}, but 0 to {}", count - 1);
                    Err(self.refuse(row.number, topic_index, &why))
                }
            };
        }
        if let Some(key) = row.key {
            return Ok(partition_for_key(key, count));
        }
        if let Some(sticky) = topic.sticky {
            return Ok(sticky);
        }
        let draw = next_random(&mut self.random) as usize % topic.available.len().max(1);
        let drawn = topic.available.get(draw).copied().unwrap_or(0);
        topic.sticky = Some(drawn);
        Ok(drawn)
    }

    fn close(
        &mut self,
        topic_index: usize,
        partition: u32,
        made: &mut Vec<EncodedBatch>,
    ) -> Result<()> {
        let Some(topic) = self.topics.get_mut(topic_index) else {
            return Ok(());
        };
        let Some(open) = topic
            .lanes
            .get_mut(partition as usize)
            .and_then(Option::take)
        else {
            return Ok(());
        };
        if topic.sticky == Some(partition) {
            topic.sticky = None;
        }
        self.open_bytes -= open.size_bytes() - RECORD_BATCH_OVERHEAD;
        made.push(EncodedBatch {
            topic: Arc::clone(&topic.name),
            partition,
            records_count: open.records_count(),
            records: open.finish()?,
        });
        Ok(())
    }

    fn refuse(&self, row: usize, topic_index: usize, why: &str) -> Error {
        let topic = self.topics.get(topic_index);
        let topic = topic.map_or("", |topic| &topic.name);
        Error::InvalidArgument(format!("row {row}, topic '{topic}': {why}"))
    }
}

/// As `DefaultRecord.recordSizeUpperBound`.
fn size_upper_bound(row: &Row<'_>) -> usize {
    let slice = |slice: Option<&[u8]>| {
        slice.map_or(1, |slice| varlong_bytes(slice.len() as i64) + slice.len())
    };
    MAX_RECORD_OVERHEAD
        + slice(row.key)
        + slice(row.value)
        + varlong_bytes(row.headers_count as i64)
        + row.headers.len()
}

/// The connector's sentences (`KafkaWriter.validateQuery`).
fn check_columns(schema: &Schema, topic: Option<&str>) -> Result<()> {
    let has = |name: &str| schema.fields().iter().any(|field| field.name() == name);
    if topic.is_none() && !has("topic") {
        return Err(Error::InvalidArgument(
            "topic option required when no 'topic' attribute is present. Use the topic option for \
             setting a topic."
                .to_owned(),
        ));
    }
    if !has("value") {
        let sentence = "Required attribute 'value' not found";
        return Err(Error::InvalidArgument(sentence.to_owned()));
    }
    Ok(())
}

/// xorshift64*; the state is never 0.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}
