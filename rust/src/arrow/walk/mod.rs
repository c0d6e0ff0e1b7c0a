//! The tight loop: the records of one magic 2 batch, uncompressed or inflated, into columns.
//!
//! ```text
//! length           varint   bytes that follow
//! attributes       i8
//! timestamp_delta  varlong  ms
//! offset_delta     varint
//! key_length       varint   negative: null          key
//! value_length     varint   negative: null          value
//! headers_count    varint   each: key_length varint, key, value_length varint, value
//! ```
//!
//! The length lets the loop leave a record as
//! soon as it has what is wanted: headers that no one asked for are not looked at.

pub(super) mod inflated;

use std::ops::Range;

use super::columns::ColumnBuilder;
use super::shape::Wanted;
use crate::batch::header::TimestampType;
use crate::batch::varint::{read_varint, read_varlong};
use crate::batch::{BatchHeader, Record};

/// Kafka's number for the timestamp type of a format without timestamps.
const NO_TIMESTAMP_TYPE: i32 = -1;

/// How far the records of a batch have been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCursor {
    /// In the records' bytes.
    pub at: usize,
    /// Records taken or passed over.
    pub passed: usize,
}

/// Why the loop came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// No more records of the batch are wanted.
    Exhausted,
    /// The Arrow batch is full; the cursor stands before the next record.
    Full,
}

/// Takes records with offsets in `start .. stop` into `builder`, from the cursor on.
///
/// `records` is what follows the header, inflated. Errors: what is wrong with the record at the
/// cursor; the builder must then be thrown away.
pub fn append_records(
    builder: &mut ColumnBuilder,
    header: &BatchHeader,
    records: &[u8],
    cursor: &mut RecordCursor,
    start: i64,
    stop: i64,
) -> Result<Walked, &'static str> {
    let count = header.records_count as usize;
    let wanted = builder.wanted;
    let is_append_time = header.timestamp_type() == TimestampType::LogAppendTime;
    let append_time = is_append_time.then_some(header.max_timestamp);
    reserve(builder, count - cursor.passed, records.len() - cursor.at);
    let walked = loop {
        if cursor.passed == count {
            if cursor.at != records.len() {
                return Err("bytes follow its last record");
            }
            break Walked::Exhausted;
        }
        let mut at = cursor.at;
        let length = read_varint(records, &mut at).ok_or("its length is cut off")?;
        let length = usize::try_from(length).ok();
        let end = length.and_then(|length| at.checked_add(length));
        let end = end.ok_or("its length is negative")?;
        let record = records.get(..end).ok_or("it ends behind its batch")?;
        at += 1;
        let timestamp_delta = read_varlong(record, &mut at).ok_or("its timestamp is cut off")?;
        let offset_delta = read_varint(record, &mut at).ok_or("its offset is cut off")?;
        let offset = header.base_offset.wrapping_add(i64::from(offset_delta));
        if offset < start {
            cursor.at = end;
            cursor.passed += 1;
            continue;
        }
        if offset >= stop {
            break Walked::Exhausted;
        }
        let key = read_bytes(record, &mut at).ok_or("its key is cut off")?;
        let value = read_bytes(record, &mut at).ok_or("its value is cut off")?;
        let headers = if wanted.headers { end - at } else { 0 };
        if !builder.has_room_for(size(wanted.key, key), size(wanted.value, value), headers) {
            break Walked::Full;
        }
        push_row(builder, wanted, offset, key, value);
        if wanted.timestamp {
            let created = header.base_timestamp.wrapping_add(timestamp_delta);
            builder.push_timestamp(append_time.unwrap_or(created));
        }
        if wanted.headers {
            append_headers(builder, &record[at..])?;
        }
        cursor.at = end;
        cursor.passed += 1;
    };
    builder.append_timestamp_type(header.timestamp_type() as i32);
    Ok(walked)
}

/// Bytes of a key or value, if it is wanted.
#[inline(always)]
fn size(is_wanted: bool, bytes: Option<&[u8]>) -> usize {
    bytes.filter(|_| is_wanted).map_or(0, <[u8]>::len)
}

/// Adds a row that has room, but for its timestamp and headers.
#[inline(always)]
fn push_row(
    builder: &mut ColumnBuilder,
    wanted: Wanted,
    offset: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) {
    builder.rows += 1;
    if wanted.key {
        builder.keys.push_nullable(key);
    }
    if wanted.value {
        builder.values.push_nullable(value);
    }
    if wanted.key_size {
        builder.key_sizes.push(key);
    }
    if wanted.value_size {
        builder.value_sizes.push(value);
    }
    if wanted.offset {
        builder.offsets.push(offset);
    }
}

/// True if the header says all that is wanted of a batch: its records lie within `range`, and only
/// their number is asked for. Batches of older formats do not say how many there are.
pub fn is_counted(builder: &ColumnBuilder, header: &BatchHeader, range: &Range<i64>) -> bool {
    builder.counts_only()
        && header.magic == 2
        && header.base_offset >= range.start
        && header.last_offset() < range.end
}

/// Takes the records of a batch that `is_counted`, from the cursor on.
pub fn append_counted(
    builder: &mut ColumnBuilder,
    header: &BatchHeader,
    cursor: &mut RecordCursor,
) -> Walked {
    let count = header.records_count as usize;
    let left = count - cursor.passed;
    cursor.passed += builder.append_count(left, header.timestamp_type() as i32);
    if cursor.passed == count {
        Walked::Exhausted
    } else {
        Walked::Full
    }
}

/// Takes one record of magic 0 or 1; false: the Arrow batch is full.
pub fn append_legacy(builder: &mut ColumnBuilder, magic: i8, record: &Record<'_>) -> bool {
    let wanted = builder.wanted;
    let (key, value) = (record.key, record.value);
    if !builder.has_room_for(size(wanted.key, key), size(wanted.value, value), 0) {
        return false;
    }
    push_row(builder, wanted, record.offset, key, value);
    if wanted.timestamp {
        builder.push_timestamp(record.timestamp);
    }
    if wanted.headers {
        builder.headers.end_list();
    }
    builder.append_timestamp_type(match magic {
        0 => NO_TIMESTAMP_TYPE,
        _ => record.timestamp_type as i32,
    });
    true
}

/// Makes room for what the batch can hold at most, so that the loop does not grow its buffers.
fn reserve(builder: &mut ColumnBuilder, count: usize, bytes: usize) {
    // A record has at least 7 bytes: a count that lies reserves no more than the batch is worth.
    let rows = count
        .min(bytes / 7 + 1)
        .min(builder.bounds.rows.saturating_sub(builder.rows));
    let wanted = builder.wanted;
    if wanted.key {
        builder.keys.ends.reserve(rows);
    }
    if wanted.value {
        builder.values.ends.reserve(rows);
        let room = builder.bounds.bytes.saturating_sub(builder.bytes);
        builder.values.bytes.reserve(bytes.min(room));
    }
    if wanted.key_size {
        builder.key_sizes.reserve(rows);
    }
    if wanted.value_size {
        builder.value_sizes.reserve(rows);
    }
    if wanted.offset {
        builder.offsets.reserve(rows);
    }
    if wanted.timestamp {
        builder.timestamps.reserve(rows);
    }
}

fn append_headers(builder: &mut ColumnBuilder, bytes: &[u8]) -> Result<(), &'static str> {
    let mut at = 0;
    let count = read_varint(bytes, &mut at).ok_or("its header count is cut off")?;
    if count < 0 {
        return Err("its header count is negative");
    }
    for _ in 0..count {
        let key = read_bytes(bytes, &mut at)
            .flatten()
            .ok_or("a header key is cut off or null")?;
        let value = read_bytes(bytes, &mut at).ok_or("a header value is cut off")?;
        builder.headers.push(key, value);
    }
    builder.headers.end_list();
    Ok(())
}

/// A length and that many bytes; `Some(None)` for a negative length, which is null.
#[inline(always)]
fn read_bytes<'a>(bytes: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    let length = read_varint(bytes, at)?;
    let Ok(length) = usize::try_from(length) else {
        return Some(None);
    };
    let end = at.checked_add(length)?;
    let slice = bytes.get(*at..end)?;
    *at = end;
    Some(Some(slice))
}
