//! The place that accepts or refuses what is appended, save what a Produce request is refused for before
//! any log is asked (`shape.rs`, `k00_produce/`).
//!
//! Kafka spreads this over `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`
//! and `LogValidator`; the rules below are theirs, in their order, with their error codes:
//!
//! ```text
//!                                                        Client  Coordinator  Replication
//! at least one batch (`shape.rs`)         InvalidRecord     x         x
//! magic 2 (`shape.rs`)                    InvalidRecord     x         x
//! exactly one batch (`shape.rs`)          InvalidRecord     x
//! base offset 0                           InvalidRecord     x
//! at most max.message.bytes               MessageTooLarge   x         x
//! CRC                                     CorruptMessage    x         x           x
//! a codec that there is                   UnsupportedCompr. x         x           x
//! offsets follow each other               UnexpectedAppendOffset                  x
//! count > 0, = last_offset_delta + 1      InvalidRecord     x
//! no control batch                        InvalidRecord     x
//! producer id only with a sequence        InvalidRecord     x
//! the records can be read, to the byte    InvalidRecord     x         x
//! keys on compacted topics                RecordsRefused    x         x
//! timestamps                              RecordsRefused    x         x
//! ```
//!
//! A batch that is accepted goes to the log as it came, save that
//! - `max_timestamp` (and the timestamp type) is put right in place and the CRC made anew;
//! - a batch in another codec than the topic's `compression.type`, or whose inner offsets do not
//!   count from 0, is built again. Kafka repairs such offsets in compressed batches only and
//!   stores them as they are in others, where a consumer then sees offsets twice.
//!
//! Base offset and leader epoch are the log's to write, under its lock.

use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

use super::build::{BatchBuilder, BatchOptions};
use super::compression::Codec;
use super::control::{ControlRecord, EndTransactionMarker};
use super::header::{
    ATTRIBUTES_AT, BatchHeader, CRC_AT, MAX_TIMESTAMP_AT, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD,
    TimestampType, compute_crc,
};
use super::inflate::Inflater;
use super::record::Record;
use super::shape::{Misshapen, check_coordinated, check_produced};
use super::stream::{PassedRecord, RawRecords};
use super::walk::Walk;
use crate::error::{Error, RecordError, RefusedRecords, Result};
use crate::limits::{RECORD_ERRORS_MAX, SCRATCH_BYTES_KEPT_MAX, SCRATCHES_KEPT_MAX};

/// Who asks for an append; it decides which rules hold (`AppendOrigin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer: all rules.
    Client,
    /// The group or the transaction coordinator: control batches, no sequence numbers.
    Coordinator,
    /// The leader of the partition, or our own disk: it was judged before. What is checked is what
    /// a network or a disk can break.
    Replication,
}

/// The rules of a topic, a broker and the clock about batches. The default is Kafka's for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationRules {
    pub origin: AppendOrigin,
    /// Milliseconds since 1970; what LogAppendTime writes.
    pub now_ms: i64,
    /// `max.message.bytes`, bytes of one batch.
    pub max_message_bytes: usize,
    /// `cleanup.policy` has `compact`.
    pub compacted: bool,
    /// `message.timestamp.type`
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    /// `compression.type` and its level; `None` is "producer".
    pub compression: Option<(Codec, Option<i32>)>,
    /// `kafkalite.produce.validation=header`: the CRC and the header are enough, the records are
    /// the producer's word.
    pub trust_records: bool,
}

impl Default for ValidationRules {
    fn default() -> ValidationRules {
        ValidationRules {
            origin: AppendOrigin::Client,
            now_ms: 0,
            max_message_bytes: 1024 * 1024 + 12,
            compacted: false,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compression: None,
            trust_records: false,
        }
    }
}

/// The readers and memory that compressed batches are inflated with and into. Memory for it is
/// taken when the first of them comes, out of a pool if there is one, and goes back there.
#[derive(Debug, Default)]
pub struct Scratch<'p> {
    pool: Option<&'p ScratchPool>,
    memory: Option<ScratchMemory>,
}

#[derive(Debug, Default)]
struct ScratchMemory {
    inflater: Inflater,
    inflated: Vec<u8>,
}

/// Memory that validation keeps for the next batches, whichever log they are for: as much as
/// `SCRATCHES_KEPT_MAX` threads need at once, each cut down to `SCRATCH_BYTES_KEPT_MAX`.
#[derive(Debug, Default)]
pub struct ScratchPool {
    spare: Mutex<Vec<ScratchMemory>>,
}

impl ScratchPool {
    pub fn scratch(&self) -> Scratch<'_> {
        Scratch {
            pool: Some(self),
            memory: None,
        }
    }

    fn take(&self) -> Option<ScratchMemory> {
        self.spare.lock().pop()
    }

    fn put(&self, mut memory: ScratchMemory) {
        memory.inflated.clear();
        memory.inflated.shrink_to(SCRATCH_BYTES_KEPT_MAX);
        let mut spare = self.spare.lock();
        if spare.len() < SCRATCHES_KEPT_MAX {
            spare.push(memory);
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let (Some(pool), Some(memory)) = (self.pool, self.memory.take()) {
            pool.put(memory);
        }
    }
}

/// One accepted batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSummary {
    /// Where it starts in the records (or in their replacement), bytes.
    pub position_byte: usize,
    pub size_bytes: usize,
    /// As it now stands, after correction.
    pub header: BatchHeader,
    /// Delta of the first record with the greatest timestamp where the records were walked, else
    /// the last one's. Kafka's time index takes the batch's last offset, whichever record it was.
    pub offset_delta_of_max_timestamp: i32,
    /// How a transaction ended, if this is the control batch that says so.
    pub marker: Option<EndTransactionMarker>,
}

/// The accepted batches, in order. One is held without an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summaries(Inner);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner {
    One([BatchSummary; 1]),
    Any(Vec<BatchSummary>),
}

impl Summaries {
    fn push(&mut self, summary: BatchSummary) {
        match &mut self.0 {
            Inner::Any(summaries) if summaries.is_empty() => self.0 = Inner::One([summary]),
            Inner::Any(summaries) => summaries.push(summary),
            Inner::One([first]) => self.0 = Inner::Any(vec![*first, summary]),
        }
    }
}

impl Deref for Summaries {
    type Target = [BatchSummary];

    fn deref(&self) -> &[BatchSummary] {
        match &self.0 {
            Inner::One(one) => one,
            Inner::Any(summaries) => summaries,
        }
    }
}

/// The log writes base offset and leader epoch into the headers.
impl DerefMut for Summaries {
    fn deref_mut(&mut self) -> &mut [BatchSummary] {
        match &mut self.0 {
            Inner::One(one) => one,
            Inner::Any(summaries) => summaries,
        }
    }
}

/// The batches that [`validate`] accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    pub batches: Summaries,
    /// Append these bytes instead of the records, which had to be built again.
    pub replacement: Option<Vec<u8>>,
    /// Bytes of the records that are whole batches; a tail behind them is cut off, as Kafka does.
    pub valid_bytes: usize,
}

impl Validated {
    /// The bytes to append, whole batches: the replacement, or what is valid of `records`.
    pub fn bytes<'a>(&'a self, records: &'a [u8]) -> &'a [u8] {
        match &self.replacement {
            Some(replacement) => replacement,
            None => &records[..self.valid_bytes],
        }
    }

    /// As `bytes`, to write offsets and epochs into.
    pub fn bytes_mut<'a>(&'a mut self, records: &'a mut [u8]) -> &'a mut [u8] {
        match &mut self.replacement {
            Some(replacement) => replacement,
            None => &mut records[..self.valid_bytes],
        }
    }

    /// How many bytes are to be appended.
    pub fn size_bytes(&self) -> usize {
        self.replacement.as_ref().map_or(self.valid_bytes, Vec::len)
    }

    /// How many offsets the batches take where the log gives them.
    pub fn offsets_count(&self) -> i64 {
        let batches = self.batches.iter();
        let counts = batches.map(|batch| i64::from(batch.header.last_offset_delta) + 1);
        counts.sum()
    }

    /// The greatest of the batches' max timestamps; `NO_TIMESTAMP` where none has one.
    pub fn max_timestamp(&self) -> i64 {
        let timestamps = self.batches.iter().map(|batch| batch.header.max_timestamp);
        timestamps.max().unwrap_or(NO_TIMESTAMP)
    }
}

/// Accepts or refuses the batches in `records`, the records field of one partition.
///
/// On success the bytes of `records` may have changed where the module doc says so. On an error
/// nothing of them may be appended. Cost without a codec: one pass for the CRC, one walk, no
/// allocation; a compressed batch is inflated into `scratch`.
///
/// Errors: as the table of the module says.
pub fn validate(
    records: &mut [u8],
    rules: &ValidationRules,
    scratch: &mut Scratch<'_>,
) -> Result<Validated> {
    let mut validated = Validated {
        batches: Summaries(Inner::Any(Vec::new())),
        replacement: None,
        valid_bytes: 0,
    };
    match rules.origin {
        AppendOrigin::Client => check_produced(records, true).map_err(Misshapen::into_error)?,
        AppendOrigin::Coordinator => check_coordinated(records).map_err(Misshapen::into_error)?,
        AppendOrigin::Replication => {}
    }
    let mut last_offset = None;
    while let Some(header) = next_batch(&records[validated.valid_bytes..])? {
        let position_byte = validated.valid_bytes;
        let batch = &mut records[position_byte..position_byte + header.size_bytes];
        let codec = check_batch(batch, &header, rules)?;
        let (summary, replacement) = if rules.origin == AppendOrigin::Replication {
            let previous = last_offset.replace(header.last_offset());
            (
                accept_replicated(batch, header, codec, previous, scratch)?,
                None,
            )
        } else {
            check_header(&header, rules)?;
            accept_produced(batch, header, codec, rules, scratch)?
        };
        validated.valid_bytes += header.size_bytes;
        add(&mut validated, records, position_byte, summary, replacement);
    }
    Ok(validated)
}

/// Adds an accepted batch. Once one was built again, all go into the replacement.
fn add(
    validated: &mut Validated,
    records: &[u8],
    position_byte: usize,
    mut summary: BatchSummary,
    rebuilt: Option<Vec<u8>>,
) {
    summary.position_byte = position_byte;
    match (&mut validated.replacement, rebuilt) {
        (None, None) => {}
        (None, Some(rebuilt)) if position_byte == 0 => validated.replacement = Some(rebuilt),
        (replacement, rebuilt) => {
            let bytes = replacement.get_or_insert_with(|| records[..position_byte].to_vec());
            summary.position_byte = bytes.len();
            match rebuilt {
                Some(rebuilt) => bytes.extend_from_slice(&rebuilt),
                None => {
                    let end = position_byte + summary.size_bytes;
                    bytes.extend_from_slice(&records[position_byte..end]);
                }
            }
        }
    }
    validated.batches.push(summary);
}

/// The header of the batch at the start of `bytes`; `None` if what is left is no whole batch.
fn next_batch(bytes: &[u8]) -> Result<Option<BatchHeader>> {
    let header = BatchHeader::parse_unchecked(bytes)?;
    Ok(header.filter(|header| header.size_bytes <= bytes.len()))
}

/// Checks a batch as a whole, CRC included (`UnifiedLog.analyzeAndValidateRecords`).
fn check_batch(batch: &[u8], header: &BatchHeader, rules: &ValidationRules) -> Result<Codec> {
    if rules.origin == AppendOrigin::Client && header.base_offset != 0 {
        return refuse(format!("base offset {} instead of 0", header.base_offset));
    }
    if rules.origin != AppendOrigin::Replication && batch.len() > rules.max_message_bytes {
        return Err(Error::MessageTooLarge {
            size_bytes: batch.len(),
            max_bytes: rules.max_message_bytes,
        });
    }
    if !header.crc_matches(batch) {
        return Err(Error::CorruptMessage(format!(
            "the CRC of a batch is not {:08x} as it says",
            header.crc
        )));
    }
    if rules.origin != AppendOrigin::Client {
        header.check_ranges()?;
    }
    Codec::from_id(header.codec_id())
}

/// The header's fields against each other (`LogValidator.validateBatch`).
fn check_header(header: &BatchHeader, rules: &ValidationRules) -> Result<()> {
    if header.magic != 2 {
        return refuse(format!("a batch of magic {} behind others", header.magic));
    }
    if rules.origin != AppendOrigin::Client {
        return Ok(());
    }
    let (delta, count) = (header.last_offset_delta, header.records_count);
    if delta < 0 {
        return refuse(format!("last offset delta {delta} is negative"));
    }
    if count <= 0 {
        return refuse(format!("a batch of {count} records"));
    }
    if i64::from(delta) + 1 != i64::from(count) {
        return refuse(format!(
            "last offset delta {delta} in a batch of {count} records"
        ));
    }
    if header.is_control() {
        return refuse("clients must not write control records");
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        return refuse(format!(
            "sequence {} of producer {}",
            header.base_sequence, header.producer_id
        ));
    }
    Ok(())
}

fn accept_replicated(
    batch: &[u8],
    header: BatchHeader,
    codec: Codec,
    previous_offset: Option<i64>,
    scratch: &mut Scratch<'_>,
) -> Result<BatchSummary> {
    if let Some(previous) = previous_offset
        && header.last_offset() <= previous
    {
        return Err(Error::UnexpectedAppendOffset {
            expected_offset: previous + 1,
            found_offset: header.last_offset(),
        });
    }
    let marker = if header.is_control() {
        marker_of(&mut inflate(batch, codec, scratch)?, &header)?
    } else {
        None
    };
    Ok(summarize(header, header.last_offset_delta, marker))
}

fn accept_produced(
    batch: &mut [u8],
    mut header: BatchHeader,
    codec: Codec,
    rules: &ValidationRules,
    scratch: &mut Scratch<'_>,
) -> Result<(BatchSummary, Option<Vec<u8>>)> {
    // Control batches stay uncompressed, whatever the topic says.
    let target = rules.compression.filter(|_| !header.is_control());
    let recompress = target.is_some_and(|(target, _)| target != codec);
    if rules.trust_records && !recompress && !header.is_control() {
        let max_timestamp = header.max_timestamp;
        correct(batch, &mut header, max_timestamp, rules);
        return Ok((summarize(header, header.last_offset_delta, None), None));
    }
    let mut records = inflate(batch, codec, scratch)?;
    let walk = walk_and_judge(&mut records, &header, rules)?;
    let marker = marker_of(&mut records, &header)?;
    if recompress || !walk.offsets_count_from_zero {
        let target = target.unwrap_or((codec, None));
        let rebuilt = rebuild(&mut records, &header, target, rules)?;
        let header = BatchHeader::parse(&rebuilt)?
            .ok_or_else(|| Error::CorruptMessage(String::from("the batch built again is short")))?;
        let delta = walk.index_of_max_timestamp;
        return Ok((summarize(header, delta, marker), Some(rebuilt)));
    }
    drop(records);
    correct(batch, &mut header, walk.max_timestamp, rules);
    Ok((summarize(header, walk.index_of_max_timestamp, marker), None))
}

fn summarize(
    header: BatchHeader,
    offset_delta_of_max_timestamp: i32,
    marker: Option<EndTransactionMarker>,
) -> BatchSummary {
    BatchSummary {
        position_byte: 0,
        size_bytes: header.size_bytes,
        header,
        offset_delta_of_max_timestamp,
        marker,
    }
}

/// The records of a batch, through `scratch` if they are compressed.
fn inflate<'a>(
    batch: &'a [u8],
    codec: Codec,
    scratch: &'a mut Scratch<'_>,
) -> Result<RawRecords<'a>> {
    let records = &batch[RECORD_BATCH_OVERHEAD..];
    if codec == Codec::None {
        return Ok(RawRecords::Whole(records, 0));
    }
    let pool = scratch.pool;
    let memory = scratch
        .memory
        .get_or_insert_with(|| pool.and_then(ScratchPool::take).unwrap_or_default());
    let ScratchMemory { inflater, inflated } = memory;
    RawRecords::inflate(codec, records, inflater, inflated)
}

/// Reads every record to the byte and judges keys and timestamps. Times in the answer are those
/// by which the batch is judged.
fn walk_and_judge(
    records: &mut RawRecords<'_>,
    header: &BatchHeader,
    rules: &ValidationRules,
) -> Result<Walk> {
    let mut walk = records.walk(header)?;
    if header.timestamp_type() == TimestampType::LogAppendTime {
        walk.min_timestamp = header.max_timestamp;
        walk.max_timestamp = header.max_timestamp.max(NO_TIMESTAMP);
        walk.index_of_max_timestamp = 0;
    }
    if walk.index_of_max_timestamp < 0 {
        walk.index_of_max_timestamp = header.last_offset_delta;
    }
    let keys_are_good = !(rules.compacted && walk.has_null_key);
    if !(keys_are_good && times_are_good(&walk, header, rules)) {
        refuse_records(records, header, rules)?;
    }
    Ok(walk)
}

/// Says whether all times between the least and the greatest are allowed. False asks for a closer
/// look: -1, and what an overflow would decide, are judged one by one.
fn times_are_good(walk: &Walk, header: &BatchHeader, rules: &ValidationRules) -> bool {
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return false;
    }
    if rules.timestamp_type == TimestampType::LogAppendTime {
        return true;
    }
    let oldest_age_ms = rules.now_ms.checked_sub(walk.min_timestamp);
    let newest_age_ms = rules.now_ms.checked_sub(walk.max_timestamp);
    match (oldest_age_ms, newest_age_ms.and_then(i64::checked_neg)) {
        (Some(age_ms), Some(ahead_ms)) => {
            age_ms <= rules.timestamp_before_max_ms && ahead_ms <= rules.timestamp_after_max_ms
        }
        _ => false,
    }
}

/// Judges the records one by one and names those at fault (`LogValidator.validateRecord`).
#[cold]
fn refuse_records(
    records: &mut RawRecords<'_>,
    header: &BatchHeader,
    rules: &ValidationRules,
) -> Result<()> {
    let by_client = ClientTime::of(header);
    let mut refused = None;
    records.rewind()?;
    for index in 0..header.records_count {
        let record = records.pass()?;
        let timestamp = by_client.timestamp(record.timestamp_delta);
        if (rules.compacted && record.has_null_key) || !time_is_allowed(timestamp, header, rules) {
            note_refusal(&mut refused, index, &record, timestamp, rules);
        }
    }
    match refused {
        Some(refused) => Err(Error::RecordsRefused(refused)),
        None => Ok(()),
    }
}

/// How a batch as it came gives its records their time.
struct ClientTime {
    base_timestamp: i64,
    log_append_time: Option<i64>,
}

impl ClientTime {
    fn of(header: &BatchHeader) -> ClientTime {
        let is_log_append = header.timestamp_type() == TimestampType::LogAppendTime;
        ClientTime {
            base_timestamp: header.base_timestamp,
            log_append_time: is_log_append.then_some(header.max_timestamp),
        }
    }

    fn timestamp(&self, delta: i64) -> i64 {
        match self.log_append_time {
            None => self.base_timestamp.wrapping_add(delta),
            Some(timestamp) => timestamp,
        }
    }
}

/// `LogValidator.validateTimestamp`: a create time within the bounds, and no batch that claims
/// LogAppendTime for itself. (A claimed one on a CreateTime topic passes if it is in bounds.)
fn time_is_allowed(timestamp: i64, header: &BatchHeader, rules: &ValidationRules) -> bool {
    if rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
        let age_ms = rules.now_ms.wrapping_sub(timestamp);
        age_ms <= rules.timestamp_before_max_ms
            && age_ms.wrapping_neg() <= rules.timestamp_after_max_ms
    } else {
        header.timestamp_type() == TimestampType::CreateTime
    }
}

fn note_refusal(
    refused: &mut Option<Box<RefusedRecords>>,
    index: i32,
    record: &PassedRecord,
    timestamp: i64,
    rules: &ValidationRules,
) {
    let refused = refused.get_or_insert_default();
    refused.errors_count += 1;
    // Kafka looks at the key first and names one fault a record.
    let no_key = rules.compacted && record.has_null_key;
    refused.invalid_timestamp |= !no_key;
    if refused.errors.len() >= RECORD_ERRORS_MAX {
        return;
    }
    let message = if no_key {
        String::from("a compacted topic takes no record without a key")
    } else if rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
        format!(
            "timestamp {timestamp} is not within [{}, {}]",
            rules.now_ms.saturating_sub(rules.timestamp_before_max_ms),
            rules.now_ms.saturating_add(rules.timestamp_after_max_ms)
        )
    } else {
        String::from("a producer must not set the timestamp type to LogAppendTime")
    };
    refused.errors.push(RecordError {
        batch_index: index,
        message,
    });
}

/// Writes timestamp type and greatest timestamp where they differ, and then the CRC.
fn correct(
    batch: &mut [u8],
    header: &mut BatchHeader,
    max_timestamp: i64,
    rules: &ValidationRules,
) {
    let max_timestamp = match rules.timestamp_type {
        TimestampType::CreateTime => max_timestamp,
        TimestampType::LogAppendTime => rules.now_ms,
    };
    if header.timestamp_type() == rules.timestamp_type && header.max_timestamp == max_timestamp {
        return;
    }
    header.max_timestamp = max_timestamp;
    header.set_timestamp_type(rules.timestamp_type);
    batch[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&header.attributes.to_be_bytes());
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&max_timestamp.to_be_bytes());
    header.crc = compute_crc(batch);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&header.crc.to_be_bytes());
}

/// Builds the batch again, in the codec of `target` and with offsets that count from the base
/// (`LogValidator.buildRecordsAndAssignOffsets`). Producer id, epoch, sequence and times stay.
fn rebuild(
    records: &mut RawRecords<'_>,
    header: &BatchHeader,
    (codec, level): (Codec, Option<i32>),
    rules: &ValidationRules,
) -> Result<Vec<u8>> {
    let log_append_time = rules.timestamp_type == TimestampType::LogAppendTime;
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        level,
        log_append_time_ms: log_append_time.then_some(rules.now_ms),
        delete_horizon_ms: None,
        ..BatchOptions::of(header)?
    });
    let by_client = ClientTime::of(header);
    let check_size = |size_bytes: usize| match size_bytes > rules.max_message_bytes {
        true => Err(Error::MessageTooLarge {
            size_bytes,
            max_bytes: rules.max_message_bytes,
        }),
        false => Ok(()),
    };
    records.rewind()?;
    for index in 0..header.records_count {
        // Not first when all is built: it may be a gigabyte.
        check_size(builder.finished_bytes_min())?;
        let raw = records.next_record()?;
        builder.append_record(&Record {
            offset: header.base_offset + i64::from(index),
            timestamp: by_client.timestamp(raw.timestamp_delta),
            timestamp_type: rules.timestamp_type,
            key: raw.key,
            value: raw.value,
            headers: raw.headers,
        })?;
    }
    let rebuilt = builder.finish()?;
    check_size(rebuilt.len())?;
    Ok(rebuilt)
}

/// How a transaction ended, if this is a control batch that says so. One without records is one
/// whose transaction the cleaner has removed, one without a producer id is KRaft's.
fn marker_of(
    records: &mut RawRecords<'_>,
    header: &BatchHeader,
) -> Result<Option<EndTransactionMarker>> {
    if !header.is_control() || !header.has_producer_id() || header.records_count == 0 {
        return Ok(None);
    }
    records.rewind()?;
    let record = records.next_record()?;
    match ControlRecord::parse(record.key, record.value)? {
        ControlRecord::EndTransaction(marker) => Ok(Some(marker)),
        _ => Ok(None),
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::InvalidRecord(reason.into()))
}
