//! ListOffsets (key 2), versions 1 to 11.
//!
//! Behaviour: per partition the offset at a time, exact to the record, or one of the special times:
//!
//! ```text
//! -1 latest            end that the isolation level lets the client see
//! -2 earliest          log start offset
//! -3 max timestamp     record with the largest timestamp (v7, KIP-734)
//! -4 earliest local    log start offset: nothing is tiered (v8, KIP-405)
//! -5 latest tiered     none (v9, KIP-1005)
//! -6 earliest pending upload  none (v11, KIP-1023)
//! ```
//!
//! No such record: offset, timestamp and epoch -1, no error.
//!
//! Refusals, per partition: INVALID_REQUEST if it is named twice; UNSUPPORTED_VERSION for a special
//! time younger than the version; UNKNOWN_TOPIC_OR_PARTITION; a leader epoch that is not the
//! partition's (v4, KIP-320); storage errors.

use std::collections::HashSet;

use super::{ApiKey, TopicRef, code, leader_epoch_error};
use crate::error::Result;
use crate::image::{Image, Partition};
use crate::wire::{Reader, RequestHeader, Writer, frame};

pub const KEY: ApiKey = ApiKey {
    key: 2,
    advertised_min: 1,
    min: 1,
    max: 11,
    first_flexible: 6,
};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

const READ_COMMITTED: i8 = 1;

/// What is answered for a partition; -1 where there is none.
struct Found {
    timestamp: i64,
    offset: i64,
    leader_epoch: i32,
}

const NOTHING: Found = Found {
    timestamp: -1,
    offset: -1,
    leader_epoch: -1,
};

/// The whole answer. Looks into segments: costs an index look-up and up to `index.interval.bytes` of
/// reading for a time.
pub fn answer(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    image: &Image,
) -> Result<Vec<u8>> {
    let (version, flexible) = (header.api_version, header.flexible);
    let mut writer = header.begin_response(64);
    if version >= 2 {
        writer.i32(0);
    }
    let replica_id = reader.i32()?;
    let isolation = if version >= 2 { reader.i8()? } else { 0 };
    let mut seen = HashSet::new();
    let topic_count = reader.array_length(flexible)?;
    writer.array_length(topic_count, flexible);
    for topic_index in 0..topic_count {
        let topic = TopicRef::read(reader, false, flexible, image)?;
        topic.write(&mut writer, false, flexible);
        let count = reader.array_length(flexible)?;
        writer.array_length(count, flexible);
        for _ in 0..count {
            let index = reader.i32()?;
            let current_leader_epoch = if version >= 4 { reader.i32()? } else { -1 };
            let timestamp = reader.i64()?;
            reader.skip_tags(flexible)?;
            let result = if !seen.insert((topic_name(&topic, topic_index), index)) {
                Err(code::INVALID_REQUEST)
            } else if !knows(version, timestamp) {
                Err(code::UNSUPPORTED_VERSION)
            } else {
                find(
                    &topic,
                    index,
                    current_leader_epoch,
                    timestamp,
                    replica_id,
                    isolation,
                )
            };
            write_partition(&mut writer, header, index, result);
        }
        reader.skip_tags(flexible)?;
        writer.no_tags(flexible);
    }
    if version >= 10 {
        // A time-out, for logs that are tiered; ours answer at once.
        reader.i32()?;
    }
    reader.skip_tags(flexible)?;
    writer.no_tags(flexible);
    frame::finish(&mut writer.bytes, 0);
    Ok(writer.bytes)
}

fn topic_name(topic: &TopicRef, topic_index: usize) -> String {
    match topic {
        TopicRef::Known(topic) => topic.name.to_string(),
        TopicRef::Unknown { .. } => format!("/{topic_index}"),
    }
}

fn knows(version: i16, timestamp: i64) -> bool {
    let since = match timestamp {
        LATEST | EARLIEST => 1,
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        timestamp if timestamp < 0 => i16::MAX,
        _ => 1,
    };
    version >= since
}

fn find(
    topic: &TopicRef,
    index: i32,
    current_leader_epoch: i32,
    timestamp: i64,
    replica_id: i32,
    isolation: i8,
) -> std::result::Result<Found, i16> {
    let TopicRef::Known(topic) = topic else {
        return Err(code::UNKNOWN_TOPIC_OR_PARTITION);
    };
    let partition = topic
        .partition(index)
        .ok_or(code::UNKNOWN_TOPIC_OR_PARTITION)?;
    match leader_epoch_error(current_leader_epoch, partition.leader_epoch) {
        code::NONE => {}
        error_code => return Err(error_code),
    }
    let offsets = partition.log.offsets();
    let end = match (replica_id, isolation) {
        (0.., _) => offsets.log_end_offset,
        (_, READ_COMMITTED) => offsets.last_stable_offset,
        _ => offsets.high_watermark,
    };
    look_up(partition, timestamp, end).map_err(|error| error.kafka_code())
}

fn look_up(partition: &Partition, timestamp: i64, end: i64) -> Result<Found> {
    let log = &partition.log;
    let log_start_offset = log.offsets().log_start_offset;
    let found = match timestamp {
        LATEST => {
            return Ok(Found {
                offset: end,
                leader_epoch: partition.leader_epoch,
                ..NOTHING
            });
        }
        EARLIEST | EARLIEST_LOCAL => {
            let epochs = log.leader_epochs();
            return Ok(Found {
                offset: log_start_offset,
                leader_epoch: epochs.epoch_for_offset(log_start_offset).unwrap_or(-1),
                ..NOTHING
            });
        }
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => None,
        MAX_TIMESTAMP => log.offset_of_max_timestamp()?,
        timestamp => log.offset_for_timestamp(timestamp)?,
    };
    Ok(match found {
        Some(found) if found.offset < end => Found {
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: found.leader_epoch,
        },
        _ => NOTHING,
    })
}

fn write_partition(
    writer: &mut Writer,
    header: &RequestHeader<'_>,
    index: i32,
    result: std::result::Result<Found, i16>,
) {
    let (error_code, found) = match result {
        Ok(found) => (code::NONE, found),
        Err(error_code) => (error_code, NOTHING),
    };
    writer.i32(index);
    writer.i16(error_code);
    writer.i64(found.timestamp);
    writer.i64(found.offset);
    if header.api_version >= 4 {
        writer.i32(found.leader_epoch);
    }
    writer.no_tags(header.flexible);
}
