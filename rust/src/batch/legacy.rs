//! Messages of magic 0 and 1, as disks from before Kafka 0.11 hold them; read only.
//!
//! ```text
//!                 magic 0   magic 1
//! offset    i64       0         0     of a compressed set: that of its last message
//! size      i32       8         8     bytes after this field
//! crc       u32      12        12     CRC-32 (IEEE) of bytes 16 to the end
//! magic     i8       16        16
//! attributes i8      17        17     0-2 codec, 3 timestamp type (magic 1)
//! timestamp i64       -        18
//! key       i32 + bytes        -1: null
//! value     i32 + bytes        -1: null; the compressed inner messages if a codec is set
//! ```
//!
//! Inner messages of a magic 0 set carry absolute offsets. Those of a magic 1 set count from the
//! set's start, which is the wrapper's offset less the last inner one; some librdkafka wrote 0 as
//! wrapper offset, then they stand as they are. If the wrapper says LogAppendTime, its timestamp
//! is that of all inner messages of magic 1.

use std::ops::Range;

use super::header::{BatchHeader, LOG_OVERHEAD, NO_TIMESTAMP, TimestampType};
use super::record::{Headers, Record};
use crate::error::{Error, Result};

/// Smallest size field of a message: CRC, magic, attributes, two lengths.
const MESSAGE_BYTES_MIN: usize = 14;
const MAGIC_AT: usize = LOG_OVERHEAD + 4;
const ATTRIBUTES_AT: usize = LOG_OVERHEAD + 5;
const TIMESTAMP_AT: usize = LOG_OVERHEAD + 6;

/// One message, resolved; key and value are ranges of the bytes it was parsed from.
#[derive(Clone, Debug)]
pub(crate) struct LegacyEntry {
    offset: i64,
    magic: i8,
    codec_id: u8,
    timestamp: i64,
    timestamp_type: TimestampType,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

impl LegacyEntry {
    pub(crate) fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.value.clone()?)
    }

    pub(crate) fn record<'a>(&self, bytes: &'a [u8]) -> Record<'a> {
        Record {
            offset: self.offset,
            timestamp: self.timestamp,
            timestamp_type: self.timestamp_type,
            key: self.key.clone().and_then(|range| bytes.get(range)),
            value: self.value(bytes),
            headers: Headers::default(),
        }
    }
}

/// Parses the message that starts at `at` and goes to the end of `bytes`. Errors: `InvalidRecord`.
pub(crate) fn parse_message(bytes: &[u8], at: usize) -> Result<LegacyEntry> {
    let invalid = || Error::InvalidRecord(String::from("a message goes beyond its bytes"));
    let message = bytes.get(at..).ok_or_else(invalid)?;
    let offset = i64::from_be_bytes(*message.first_chunk().ok_or_else(invalid)?);
    let magic = *message.get(MAGIC_AT).ok_or_else(invalid)? as i8;
    let attributes = *message.get(ATTRIBUTES_AT).ok_or_else(invalid)?;
    let (timestamp, key_at) = match magic {
        0 => (NO_TIMESTAMP, TIMESTAMP_AT),
        1 => {
            let field = message
                .get(TIMESTAMP_AT..)
                .and_then(|rest| rest.first_chunk());
            (
                i64::from_be_bytes(*field.ok_or_else(invalid)?),
                TIMESTAMP_AT + 8,
            )
        }
        _ => {
            return Err(Error::InvalidRecord(format!(
                "a message of magic {magic} inside a message set"
            )));
        }
    };
    let (key, value_at) = read_range(bytes, at + key_at).ok_or_else(invalid)?;
    let (value, _) = read_range(bytes, value_at).ok_or_else(invalid)?;
    Ok(LegacyEntry {
        offset,
        magic,
        codec_id: attributes & 0x07,
        timestamp,
        timestamp_type: if magic == 1 && attributes & 0x08 != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        },
        key,
        value,
    })
}

/// A length at `at` and the range of that many bytes (`None` within: null), and where it ends.
fn read_range(bytes: &[u8], at: usize) -> Option<(Option<Range<usize>>, usize)> {
    let field = bytes.get(at..)?.first_chunk()?;
    let start = at + 4;
    let Ok(length) = usize::try_from(i32::from_be_bytes(*field)) else {
        return Some((None, start));
    };
    let end = start + length;
    (end <= bytes.len()).then_some((Some(start..end), end))
}

/// Unwraps the inflated messages of the set that `wrapper` heads into `entries`.
///
/// A message cut short at the end is left out, as Kafka does. Errors: `CorruptMessage` for an
/// impossible size, `InvalidRecord` for an empty set, a codec within, or offsets that do not fit
/// the wrapper's.
pub(crate) fn unwrap_set(
    wrapper: &BatchHeader,
    inflated: &[u8],
    entries: &mut Vec<LegacyEntry>,
) -> Result<()> {
    let mut at = 0;
    while let Some(size) = inner_size(inflated, at)? {
        let end = at + LOG_OVERHEAD + size;
        let mut entry = parse_message(&inflated[..end], at)?;
        if entry.codec_id != 0 {
            return Err(Error::InvalidRecord(String::from(
                "a message inside a compressed set is compressed itself",
            )));
        }
        if entry.magic == 1 {
            entry.timestamp_type = wrapper.timestamp_type();
            if entry.timestamp_type == TimestampType::LogAppendTime {
                entry.timestamp = wrapper.max_timestamp;
            }
        }
        entries.push(entry);
        at = end;
    }
    let Some(last) = entries.last() else {
        return Err(Error::InvalidRecord(String::from(
            "a compressed message set holds no message",
        )));
    };
    if wrapper.magic == 1 && wrapper.base_offset != 0 {
        let start = wrapper.base_offset.checked_sub(last.offset);
        let Some(start) = start.filter(|start| *start >= 0) else {
            return Err(Error::InvalidRecord(format!(
                "a message set of offset {} ends with inner offset {}",
                wrapper.base_offset, last.offset
            )));
        };
        for entry in entries {
            entry.offset = entry
                .offset
                .checked_add(start)
                .ok_or_else(|| Error::InvalidRecord(format!("inner offset {}", entry.offset)))?;
        }
    }
    Ok(())
}

/// The size field of the inner message at `at`; `None` if the message is not whole.
fn inner_size(inflated: &[u8], at: usize) -> Result<Option<usize>> {
    let Some(field) = inflated
        .get(at + 8..)
        .and_then(|rest| rest.first_chunk::<4>())
    else {
        return Ok(None);
    };
    let size = i32::from_be_bytes(*field);
    let Some(size) = usize::try_from(size)
        .ok()
        .filter(|size| *size >= MESSAGE_BYTES_MIN)
    else {
        return Err(Error::CorruptMessage(format!(
            "size {size} of an inner message is too small"
        )));
    };
    Ok((size <= inflated.len() - at - LOG_OVERHEAD).then_some(size))
}
