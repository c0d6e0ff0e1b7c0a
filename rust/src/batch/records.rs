//! Records out of a batch, in each of Kafka's three formats, without a copy where there is no
//! codec.
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
//!
//! A control record's key is version i16 and type i16, its value version i16 and fields.
//! Nothing here looks at a CRC: `BatchHeader::crc_matches` does, once, where bytes come from outside.

use super::compression::Codec;
use super::header::{BatchHeader, RECORD_BATCH_OVERHEAD, TimestampType};
use super::inflate::Inflater;
use super::legacy::{self, LegacyEntry};
use super::stream::{RawRecords, RecordStream, Source};
use super::varint::{read_varint, read_varlong};
use crate::error::{Error, Result};

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

/// Reads batches one after the other and keeps what inflating them needs. Cost without a codec:
/// no allocation, no copy.
#[derive(Debug, Default)]
pub struct RecordReader {
    inflater: Inflater,
    inflated: Vec<u8>,
    legacy: Vec<LegacyEntry>,
}

impl RecordReader {
    pub fn new() -> RecordReader {
        RecordReader::default()
    }

    /// The records of the batch at the start of `batch`, whose bytes must all be there; more may
    /// follow. Compressed records are inflated as a whole, legacy sets unwrapped. A batch without
    /// records (the cleaner leaves such for its header's sake) gives none.
    ///
    /// Errors: `CorruptMessage` for a header that cannot be or a batch cut short,
    /// `UnsupportedCompression`, `InvalidRecord` for a stream that does not inflate. The CRC is
    /// not checked.
    pub fn read<'a>(&'a mut self, batch: &'a [u8]) -> Result<RecordIter<'a>> {
        let (header, codec) = whole_header(batch)?;
        let batch = &batch[..header.size_bytes];
        if header.magic < 2 {
            let (bytes, entries) = self.unwrap_legacy(batch, &header, codec)?;
            let entries = entries.iter();
            return Ok(RecordIter(Format::Legacy { bytes, entries }));
        }
        let mut records = &batch[RECORD_BATCH_OVERHEAD..];
        if codec != Codec::None && header.records_count > 0 {
            self.inflater
                .inflate(codec, header.magic, records, &mut self.inflated)?;
            records = &self.inflated;
        }
        Ok(RecordIter(Format::Current(CurrentIter::new(
            &header, records,
        ))))
    }

    /// As `read`, but of compressed records of magic 2 no more than a window is inflated at a time.
    pub fn stream<'a>(&'a mut self, batch: &'a [u8]) -> Result<RecordStream<'a>> {
        let (header, codec) = whole_header(batch)?;
        let batch = &batch[..header.size_bytes];
        if header.magic < 2 {
            let (bytes, entries) = self.unwrap_legacy(batch, &header, codec)?;
            return Ok(RecordStream::new(&header, Source::Legacy(bytes, entries)));
        }
        let records = &batch[RECORD_BATCH_OVERHEAD..];
        let records = match codec != Codec::None && header.records_count > 0 {
            true => {
                let (inflater, inflated) = (&mut self.inflater, &mut self.inflated);
                RawRecords::inflate(codec, records, inflater, inflated)?
            }
            false => RawRecords::Whole(records, 0),
        };
        Ok(RecordStream::new(&header, Source::Current(records)))
    }

    /// The entries of a legacy batch, and the bytes in which they lie.
    fn unwrap_legacy<'a>(
        &'a mut self,
        batch: &'a [u8],
        header: &BatchHeader,
        codec: Codec,
    ) -> Result<(&'a [u8], &'a [LegacyEntry])> {
        self.legacy.clear();
        let message = legacy::parse_message(batch, 0)?;
        let bytes = if codec == Codec::None {
            self.legacy.push(message);
            batch
        } else {
            let stream = message.value(batch).ok_or_else(|| {
                Error::InvalidRecord(String::from("a compressed message set has a null value"))
            })?;
            self.inflater
                .inflate(codec, header.magic, stream, &mut self.inflated)?;
            legacy::unwrap_set(header, &self.inflated, &mut self.legacy)?;
            &self.inflated
        };
        Ok((bytes, &self.legacy))
    }
}

/// The header of the batch at the start of `batch`, whose bytes are all there, and its codec.
fn whole_header(batch: &[u8]) -> Result<(BatchHeader, Codec)> {
    let header = BatchHeader::parse(batch)?
        .filter(|header| header.size_bytes <= batch.len())
        .ok_or_else(|| Error::CorruptMessage(String::from("the batch is cut short")))?;
    let codec = Codec::from_id(header.codec_id())?;
    Ok((header, codec))
}

/// Iterates the records of one batch; after an error it ends.
#[derive(Debug)]
pub struct RecordIter<'a>(Format<'a>);

#[derive(Debug)]
enum Format<'a> {
    Current(CurrentIter<'a>),
    Legacy {
        bytes: &'a [u8],
        entries: std::slice::Iter<'a, LegacyEntry>,
    },
}

#[derive(Debug)]
struct CurrentIter<'a> {
    bytes: &'a [u8],
    at: usize,
    left: i32,
    origin: DeltaOrigin,
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

impl<'a> CurrentIter<'a> {
    fn new(header: &BatchHeader, bytes: &'a [u8]) -> CurrentIter<'a> {
        CurrentIter {
            bytes,
            at: 0,
            left: header.records_count,
            origin: DeltaOrigin::of(header),
        }
    }

    #[inline]
    fn next(&mut self) -> Option<std::result::Result<Record<'a>, Malformed>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let raw = match read_raw_record(self.bytes, &mut self.at) {
            Ok(_) if self.left == 0 && self.at != self.bytes.len() => Err(Malformed::Remainder),
            read => read,
        };
        let raw = match raw {
            Ok(raw) => raw,
            Err(malformed) => {
                self.left = 0;
                return Some(Err(malformed));
            }
        };
        Some(Ok(self.origin.record(raw)))
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Record<'a>>> {
        match &mut self.0 {
            Format::Current(records) => {
                let record = records.next()?;
                Some(record.map_err(Malformed::into_error))
            }
            Format::Legacy { bytes, entries } => Some(Ok(entries.next()?.record(bytes))),
        }
    }

    /// The upper bound is the batch's own claim; do not allocate for it.
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Format::Current(records) => (0, Some(records.left as usize)),
            Format::Legacy { entries, .. } => entries.size_hint(),
        }
    }
}

/// How a transaction ended (`EndTransactionMarker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransactionMarker {
    pub is_commit: bool,
    pub coordinator_epoch: i32,
}

/// The kinds of control records (`ControlRecordType`). The values of the KRaft ones are messages of
/// their own and left to whoever reads `__cluster_metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    EndTransaction(EndTransactionMarker),
    LeaderChange,
    SnapshotHeader,
    SnapshotFooter,
    KraftVersion,
    KraftVoters,
    Unknown { type_id: i16 },
}

impl ControlRecord {
    /// Errors: `InvalidRecord` for a key or marker value that is null, short or of a negative
    /// version. Newer versions are read as version 0.
    pub fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<ControlRecord> {
        let Some(&[v0, v1, t0, t1, ..]) = key else {
            return Err(Error::InvalidRecord(String::from(
                "the key of a control record has fewer than 4 bytes",
            )));
        };
        if i16::from_be_bytes([v0, v1]) < 0 {
            return Err(Error::InvalidRecord(String::from(
                "a control record has a negative version",
            )));
        }
        Ok(match i16::from_be_bytes([t0, t1]) {
            type_id @ (0 | 1) => ControlRecord::EndTransaction(EndTransactionMarker {
                is_commit: type_id == 1,
                coordinator_epoch: parse_end_transaction(value)?,
            }),
            2 => ControlRecord::LeaderChange,
            3 => ControlRecord::SnapshotHeader,
            4 => ControlRecord::SnapshotFooter,
            5 => ControlRecord::KraftVersion,
            6 => ControlRecord::KraftVoters,
            type_id => ControlRecord::Unknown { type_id },
        })
    }
}

fn parse_end_transaction(value: Option<&[u8]>) -> Result<i32> {
    let Some(&[v0, v1, e0, e1, e2, e3, ..]) = value else {
        return Err(Error::InvalidRecord(String::from(
            "the value of an end transaction marker has fewer than 6 bytes",
        )));
    };
    if i16::from_be_bytes([v0, v1]) < 0 {
        return Err(Error::InvalidRecord(String::from(
            "an end transaction marker has a negative version",
        )));
    }
    Ok(i32::from_be_bytes([e0, e1, e2, e3]))
}
