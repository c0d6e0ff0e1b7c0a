//! The place that accepts or refuses what is appended. Only what a Produce request is refused for
//! before any log is asked is elsewhere (`shape.rs`, `k00_produce/`).
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

mod judge;
mod rules;
mod scratch;
mod validated;

pub use rules::{AppendOrigin, ValidationRules};
pub use scratch::{Scratch, ScratchPool};
pub use validated::{BatchSummary, Summaries, Validated};

use judge::{ClientTime, walk_and_judge};

use super::build::{BatchBuilder, BatchOptions};
use super::compression::Codec;
use super::control::{ControlRecord, EndTransactionMarker};
use super::header::{
    ATTRIBUTES_AT, BatchHeader, CRC_AT, MAX_TIMESTAMP_AT, TimestampType, compute_crc,
};
use super::record::Record;
use super::shape::{Misshapen, check_coordinated, check_produced};
use super::stream::RawRecords;
use crate::error::{Error, Result};

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
    let mut validated = Validated::empty();
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
        validated.add(records, position_byte, summary, replacement);
    }
    Ok(validated)
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
        marker_of(&mut scratch.inflate(batch, codec)?, &header)?
    } else {
        None
    };
    Ok(BatchSummary::new(header, header.last_offset_delta, marker))
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
        return Ok((
            BatchSummary::new(header, header.last_offset_delta, None),
            None,
        ));
    }
    let mut records = scratch.inflate(batch, codec)?;
    let walk = walk_and_judge(&mut records, &header, rules)?;
    let marker = marker_of(&mut records, &header)?;
    if recompress || !walk.offsets_count_from_zero {
        let target = target.unwrap_or((codec, None));
        let rebuilt = rebuild(&mut records, &header, target, rules)?;
        let header = BatchHeader::parse(&rebuilt)?
            .ok_or_else(|| Error::CorruptMessage(String::from("the batch built again is short")))?;
        let delta = walk.index_of_max_timestamp;
        return Ok((BatchSummary::new(header, delta, marker), Some(rebuilt)));
    }
    drop(records);
    correct(batch, &mut header, walk.max_timestamp, rules);
    Ok((
        BatchSummary::new(header, walk.index_of_max_timestamp, marker),
        None,
    ))
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
    let check_size = |size_bytes: usize| {
        if size_bytes > rules.max_message_bytes {
            Err(Error::MessageTooLarge {
                size_bytes,
                max_bytes: rules.max_message_bytes,
            })
        } else {
            Ok(())
        }
    };
    records.rewind()?;
    for index in 0..header.records_count {
        // Not first when all is built: it may be a gigabyte.
        check_size(builder.finished_bytes_min())?;
        let offset = header.base_offset + i64::from(index);
        if let Some(mut large) = records.next_large()? {
            let timestamp = by_client.timestamp(large.timestamp_delta);
            builder.begin_record(offset, timestamp, large.left_bytes())?;
            while let Some(part) = large.next_part()? {
                builder.push_body(part)?;
                check_size(builder.finished_bytes_min())?;
            }
            continue;
        }
        let raw = records.next_record()?;
        builder.append_record(&Record {
            offset,
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
