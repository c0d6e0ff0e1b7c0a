//! One record of magic 2 as it stands in a batch, and of any magic as it is read.
//!
//! One record of magic 2 (`DefaultRecord`); all lengths are zig-zag varints:
//!
//! ```text
//! length            varint    bytes after this field
//! attributes        i8        unused
//! timestamp_delta   varlong   from the batch's base_timestamp
//! offset_delta      varint    from the batch's base_offset
//! key_length        varint    -1: null
//! key
//! value_length      varint    -1: null
//! value
//! headers_count     varint
//!   key_length varint, key, value_length varint (-1: null), value     × headers_count
//! ```

use super::header::{BatchHeader, TimestampType};
use super::varint::{read_varint, read_varlong};
use crate::error::Error;

/// One record with its offset and timestamp resolved. Key, value and headers lie in the batch or
/// in the reader's scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub offset: i64,
    /// Milliseconds since 1970; -1 if the format (magic 0) or the producer gave none.
    pub timestamp: i64,
    pub timestamp_type: TimestampType,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of one record, bounds checked, decoded when iterated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The headers as they stand in the record, without their count.
    pub fn raw_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Pairs of key and value. Keys are bytes: as in Kafka, nobody checked that they are UTF-8.
    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter {
            bytes: self.bytes,
            at: 0,
            left: self.count,
        }
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let key = read_slice(self.bytes, &mut self.at)??;
        let value = read_slice(self.bytes, &mut self.at)?;
        Some((key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The fields of one magic 2 record as they stand, deltas unresolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRecord<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// Why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    BeyondTheBatch,
    Field,
    HeadersCount,
    Length,
    Remainder,
}

impl Malformed {
    #[cold]
    pub(crate) fn into_error(self) -> Error {
        Error::InvalidRecord(String::from(match self {
            Malformed::BeyondTheBatch => "a record goes beyond its batch",
            Malformed::Field => "a field of a record goes beyond it or cannot be read",
            Malformed::HeadersCount => "a record has an impossible number of headers",
            Malformed::Length => "a record's length does not match its fields",
            Malformed::Remainder => "bytes remain behind the last record of a batch",
        }))
    }
}

/// Reads the record at `*at` of a batch's (inflated) records and moves behind it.
#[inline(always)]
pub(crate) fn read_raw_record<'a>(
    bytes: &'a [u8],
    at: &mut usize,
) -> std::result::Result<RawRecord<'a>, Malformed> {
    let length = read_varint(bytes, at).ok_or(Malformed::BeyondTheBatch)?;
    let length = usize::try_from(length).map_err(|_| Malformed::Field)?;
    let Some(record) = bytes.get(*at..).and_then(|rest| rest.get(..length)) else {
        return Err(Malformed::BeyondTheBatch);
    };
    *at += length;
    let mut inner = 1; // attributes
    let timestamp_delta = read_varlong(record, &mut inner).ok_or(Malformed::Field)?;
    let offset_delta = read_varint(record, &mut inner).ok_or(Malformed::Field)?;
    let key = read_slice(record, &mut inner).ok_or(Malformed::Field)?;
    let value = read_slice(record, &mut inner).ok_or(Malformed::Field)?;
    let headers_count = read_varint(record, &mut inner).ok_or(Malformed::Field)?;
    let headers = if headers_count == 0 {
        Headers::default()
    } else {
        read_headers(record, &mut inner, headers_count)?
    };
    if inner != length {
        return Err(Malformed::Length);
    }
    Ok(RawRecord {
        timestamp_delta,
        offset_delta,
        key,
        value,
        headers,
    })
}

#[inline(never)]
pub(crate) fn read_headers<'a>(
    record: &'a [u8],
    at: &mut usize,
    count: i32,
) -> std::result::Result<Headers<'a>, Malformed> {
    let start = *at;
    let count = usize::try_from(count).map_err(|_| Malformed::HeadersCount)?;
    if count > record.len() - start {
        return Err(Malformed::HeadersCount);
    }
    for _ in 0..count {
        let key = read_slice(record, at).ok_or(Malformed::Field)?;
        if key.is_none() {
            return Err(Malformed::Field);
        }
        read_slice(record, at).ok_or(Malformed::Field)?;
    }
    Ok(Headers {
        count,
        bytes: &record[start..*at],
    })
}

/// A length and that many bytes. `None`: they go beyond `bytes`; `Some(None)`: null, which any
/// negative length means, as in Kafka.
#[inline(always)]
fn read_slice<'a>(bytes: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    let length = read_varint(bytes, at)?;
    if length < 0 {
        return Some(None);
    }
    let slice = bytes.get(*at..)?.get(..length as usize)?;
    *at += length as usize;
    Some(Some(slice))
}

/// By what the deltas of a magic 2 batch's records are resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaOrigin {
    offset: i64,
    timestamp: i64,
    timestamp_type: TimestampType,
    /// Stands for every record's own if the type is LogAppendTime.
    max_timestamp: i64,
}

impl DeltaOrigin {
    pub fn of(header: &BatchHeader) -> DeltaOrigin {
        DeltaOrigin {
            offset: header.base_offset,
            timestamp: header.base_timestamp,
            timestamp_type: header.timestamp_type(),
            max_timestamp: header.max_timestamp,
        }
    }

    #[inline]
    pub fn offset(&self, delta: i32) -> i64 {
        self.offset + i64::from(delta)
    }

    #[inline]
    pub fn timestamp(&self, delta: i64) -> i64 {
        match self.timestamp_type {
            TimestampType::CreateTime => self.timestamp.wrapping_add(delta),
            TimestampType::LogAppendTime => self.max_timestamp,
        }
    }

    #[inline]
    pub fn record<'a>(&self, raw: RawRecord<'a>) -> Record<'a> {
        Record {
            offset: self.offset(raw.offset_delta),
            timestamp: self.timestamp(raw.timestamp_delta),
            timestamp_type: self.timestamp_type,
            key: raw.key,
            value: raw.value,
            headers: raw.headers,
        }
    }
}
