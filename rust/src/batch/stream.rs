//! The records of one batch, one after the other, of which a window is in memory and not all that
//! the batch inflates to: one of 0.3 MB may hold a gigabyte.
//!
//! ```text
//! compressed ─► Inflation ─► window of INFLATE_WINDOW_BYTES ─► next_record: as a whole; where it is larger
//!                                                              than the window, that has room for it
//!                                                           ─► pass: its fields but for key, value, headers
//!                                                           ─► next_large: one larger than the window, in parts
//! ```
//! A batch that inflates to no more than the window, or has no codec, is at hand as a whole, and
//! costs what it would without all this. Message sets of magic 0 and 1 are unwrapped as a whole:
//! nobody can produce them any more.

use super::compression::Codec;
use super::header::BatchHeader;
use super::inflate::{Inflater, Inflation};
use super::legacy::LegacyEntry;
use super::record::{DeltaOrigin, Malformed, RawRecord, Record, read_raw_record};
use super::varint::{read_varint, read_varlong};
use super::walk::{Walk, walk};
use crate::error::Result;
use crate::limits::INFLATE_WINDOW_BYTES;

/// The numbers of a record beside its key, value and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassedRecord {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub has_null_key: bool,
}

impl PassedRecord {
    fn of(record: &RawRecord<'_>) -> PassedRecord {
        PassedRecord {
            timestamp_delta: record.timestamp_delta,
            offset_delta: record.offset_delta,
            has_null_key: record.key.is_none(),
        }
    }
}

/// The records of a magic 2 batch as they stand, deltas unresolved.
pub(crate) enum RawRecords<'a> {
    /// All bytes, and where the next record starts.
    Whole(&'a [u8], usize),
    Part(Window<'a>),
}

impl<'a> RawRecords<'a> {
    /// Inflates `input` into `inflated`, or the first window of it. Errors: `InvalidRecord` for a
    /// stream that does not inflate.
    pub fn inflate(
        codec: Codec,
        input: &'a [u8],
        inflater: &'a mut Inflater,
        inflated: &'a mut Vec<u8>,
    ) -> Result<RawRecords<'a>> {
        inflated.clear();
        inflated.shrink_to(INFLATE_WINDOW_BYTES);
        let mut inflation = inflater.begin(codec, 2, input)?;
        let filled = inflation.fill(inflater, inflated, INFLATE_WINDOW_BYTES);
        if !matches!(filled, Ok(false)) {
            inflater.give_back();
        }
        if filled? {
            return Ok(RawRecords::Whole(inflated, 0));
        }
        Ok(RawRecords::Part(Window {
            codec,
            input,
            inflater,
            inflation,
            inflated,
            at: 0,
            is_first: true,
        }))
    }

    /// Goes back to the first record.
    pub fn rewind(&mut self) -> Result<()> {
        match self {
            RawRecords::Whole(_, at) => {
                *at = 0;
                Ok(())
            }
            RawRecords::Part(window) => window.rewind(),
        }
    }

    /// The next record. Errors: `InvalidRecord` where there is none, or none that can be read.
    pub fn next_record(&mut self) -> Result<RawRecord<'_>> {
        match self {
            RawRecords::Whole(bytes, at) => {
                read_raw_record(bytes, at).map_err(Malformed::into_error)
            }
            RawRecords::Part(window) => {
                let size = window.record_bytes()?;
                window.record(size)
            }
        }
    }

    /// The next record in parts, if it is larger than the window.
    pub fn next_large(&mut self) -> Result<Option<LargeRecord<'_, 'a>>> {
        match self {
            RawRecords::Whole(..) => Ok(None),
            RawRecords::Part(window) => window.large_record(),
        }
    }

    /// As `next_record`; of a record larger than the window no more than that is in memory.
    pub fn pass(&mut self) -> Result<PassedRecord> {
        match self {
            RawRecords::Part(window) => window.pass_record(),
            RawRecords::Whole(..) => self.next_record().map(|record| PassedRecord::of(&record)),
        }
    }

    /// Says whether nothing is left.
    pub fn is_over(&mut self) -> Result<bool> {
        match self {
            RawRecords::Whole(bytes, at) => Ok(*at == bytes.len()),
            RawRecords::Part(window) => Ok(!window.need(1)?),
        }
    }

    /// Walks over all records, from the first (`walk.rs`).
    pub fn walk(&mut self, header: &BatchHeader) -> Result<Walk> {
        if let RawRecords::Whole(bytes, _) = self {
            return walk(bytes, header).map_err(Malformed::into_error);
        }
        self.rewind()?;
        let mut walk = Walk::EMPTY;
        for index in 0..header.records_count {
            let record = self.pass()?;
            let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
            let is_in_line = record.offset_delta == index;
            walk.add(index, timestamp, record.has_null_key, is_in_line);
        }
        if header.records_count > 0 && !self.is_over()? {
            Err(Malformed::Remainder.into_error())
        } else {
            Ok(walk)
        }
    }
}

/// Inflated bytes of records, of which a part is at hand.
pub(crate) struct Window<'a> {
    codec: Codec,
    input: &'a [u8],
    inflater: &'a mut Inflater,
    inflation: Inflation<'a>,
    inflated: &'a mut Vec<u8>,
    /// Where the next record starts in `inflated`.
    at: usize,
    /// The bytes at hand begin with the first record.
    is_first: bool,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.inflater.give_back();
    }
}

impl<'w> Window<'w> {
    fn rewind(&mut self) -> Result<()> {
        self.at = 0;
        if !self.is_first {
            self.inflated.clear();
            self.inflation = self.inflater.begin(self.codec, 2, self.input)?;
            self.is_first = true;
        }
        Ok(())
    }

    fn rest(&self) -> &[u8] {
        self.inflated.get(self.at..).unwrap_or(&[])
    }

    /// Makes so many bytes ready and says whether they are at hand; if not, fewer are left.
    fn need(&mut self, count: usize) -> Result<bool> {
        if self.rest().len() < count {
            self.inflated.drain(..self.at);
            self.is_first &= self.at == 0;
            self.at = 0;
            let wanted_bytes = count.max(INFLATE_WINDOW_BYTES);
            self.inflation
                .fill(self.inflater, self.inflated, wanted_bytes)?;
        }
        Ok(self.rest().len() >= count)
    }

    /// Bytes of the next record with its length field.
    fn record_bytes(&mut self) -> Result<usize> {
        self.need(VARINT_BYTES_MAX)?;
        let mut at = 0;
        let length = read_varint(self.rest(), &mut at);
        let length = length.ok_or_else(|| Malformed::BeyondTheBatch.into_error())?;
        let length = usize::try_from(length).map_err(|_| Malformed::Field.into_error())?;
        Ok(at + length)
    }

    fn record(&mut self, size_bytes: usize) -> Result<RawRecord<'_>> {
        if !self.need(size_bytes)? {
            return Err(Malformed::BeyondTheBatch.into_error());
        }
        read_raw_record(self.inflated, &mut self.at).map_err(Malformed::into_error)
    }

    fn pass_record(&mut self) -> Result<PassedRecord> {
        let size = self.record_bytes()?;
        if size <= INFLATE_WINDOW_BYTES {
            return self.record(size).map(|record| PassedRecord::of(&record));
        }
        let (mut left, timestamp_delta, offset_delta) = self.pass_head(size)?;
        let has_null_key = !self.pass_slice(&mut left)?;
        self.pass_slice(&mut left)?;
        self.pass_headers(&mut left)?;
        if left > 0 {
            return Err(Malformed::Length.into_error());
        }
        Ok(PassedRecord {
            timestamp_delta,
            offset_delta,
            has_null_key,
        })
    }

    /// The next record, if it is larger than the window.
    fn large_record(&mut self) -> Result<Option<LargeRecord<'_, 'w>>> {
        let size = self.record_bytes()?;
        if size <= INFLATE_WINDOW_BYTES {
            return Ok(None);
        }
        let (left_bytes, timestamp_delta, _) = self.pass_head(size)?;
        Ok(Some(LargeRecord {
            window: self,
            timestamp_delta,
            left_bytes,
        }))
    }

    /// Goes to the key's length of a record of `size_bytes`. Returns the bytes from there on, and
    /// the deltas of time and offset.
    fn pass_head(&mut self, size_bytes: usize) -> Result<(usize, i64, i32)> {
        let before = self.at;
        read_varint(self.inflated, &mut self.at);
        let mut left = size_bytes - (self.at - before);
        self.pass_bytes(&mut left, 1)?; // attributes
        let timestamp_delta = self.field(&mut left, read_varlong)?;
        let offset_delta = self.field(&mut left, read_varint)?;
        Ok((left, timestamp_delta, offset_delta))
    }

    fn pass_headers(&mut self, left: &mut usize) -> Result<()> {
        let count = usize::try_from(self.field(left, read_varint)?);
        let count = count.ok().filter(|count| count <= left);
        let count = count.ok_or_else(|| Malformed::HeadersCount.into_error())?;
        for _ in 0..count {
            if !self.pass_slice(left)? {
                return Err(Malformed::Field.into_error());
            }
            self.pass_slice(left)?;
        }
        Ok(())
    }

    /// Goes behind a length and that many bytes. Returns whether they are not null.
    fn pass_slice(&mut self, left: &mut usize) -> Result<bool> {
        let length = usize::try_from(self.field(left, read_varint)?);
        match length {
            Ok(length) => self.pass_bytes(left, length).map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Reads a number among the `left` bytes of a record.
    fn field<T>(
        &mut self,
        left: &mut usize,
        read: impl Fn(&[u8], &mut usize) -> Option<T>,
    ) -> Result<T> {
        self.need(VARLONG_BYTES_MAX)?;
        let rest = self.rest();
        let mut at = 0;
        let value = read(&rest[..rest.len().min(*left)], &mut at);
        self.at += at;
        *left -= at;
        value.ok_or_else(|| Malformed::Field.into_error())
    }

    fn pass_bytes(&mut self, left: &mut usize, mut count: usize) -> Result<()> {
        let Some(behind) = left.checked_sub(count) else {
            return Err(Malformed::Field.into_error());
        };
        *left = behind;
        while count > 0 {
            self.next_part(&mut count)?;
        }
        Ok(())
    }

    /// The next bytes at hand, of `left` that there are to be, at least one.
    fn next_part(&mut self, left: &mut usize) -> Result<&[u8]> {
        if !self.need(1)? {
            return Err(Malformed::BeyondTheBatch.into_error());
        }
        let start = self.at;
        let here = self.rest().len().min(*left);
        self.at += here;
        *left -= here;
        Ok(&self.inflated[start..self.at])
    }
}

/// A record larger than the window, at its key's length.
pub(crate) struct LargeRecord<'r, 'a> {
    window: &'r mut Window<'a>,
    pub timestamp_delta: i64,
    left_bytes: usize,
}

impl LargeRecord<'_, '_> {
    /// Bytes of its key, value and headers, as they are encoded, that are still to be taken.
    pub fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    /// The next part of them; `None` behind the last. Errors: `InvalidRecord` where the stream ends
    /// before.
    pub fn next_part(&mut self) -> Result<Option<&[u8]>> {
        if self.left_bytes == 0 {
            return Ok(None);
        }
        self.window.next_part(&mut self.left_bytes).map(Some)
    }
}

const VARINT_BYTES_MAX: usize = 5;
const VARLONG_BYTES_MAX: usize = 10;

/// The records of one batch of any magic, resolved. Made by `RecordReader::stream`.
pub struct RecordStream<'a> {
    source: Source<'a>,
    origin: DeltaOrigin,
    count: i32,
    left: i32,
}

pub(super) enum Source<'a> {
    Current(RawRecords<'a>),
    Legacy(&'a [u8], &'a [LegacyEntry]),
}

impl<'a> RecordStream<'a> {
    pub(super) fn new(header: &BatchHeader, source: Source<'a>) -> RecordStream<'a> {
        let count = match &source {
            Source::Current(_) => header.records_count,
            Source::Legacy(_, entries) => i32::try_from(entries.len()).unwrap_or(i32::MAX),
        };
        RecordStream {
            source,
            origin: DeltaOrigin::of(header),
            count,
            left: count,
        }
    }

    /// The next record; `None` behind the last. Errors: as of `RecordReader::read`.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        if self.is_over()? {
            return Ok(None);
        }
        let index = self.begin_next();
        Ok(Some(match &mut self.source {
            Source::Current(records) => self.origin.record(records.next_record()?),
            Source::Legacy(bytes, entries) => entries[index].record(bytes),
        }))
    }

    /// Offset and timestamp of the next record, whose size does not matter; `None` behind the last.
    pub fn next_offset_and_timestamp(&mut self) -> Result<Option<(i64, i64)>> {
        if self.is_over()? {
            return Ok(None);
        }
        let index = self.begin_next();
        Ok(Some(match &mut self.source {
            Source::Current(records) => {
                let record = records.pass()?;
                let offset = self.origin.offset(record.offset_delta);
                (offset, self.origin.timestamp(record.timestamp_delta))
            }
            Source::Legacy(bytes, entries) => {
                let record = entries[index].record(bytes);
                (record.offset, record.timestamp)
            }
        }))
    }

    /// Goes back to the first record.
    pub fn rewind(&mut self) -> Result<()> {
        self.left = self.count;
        match &mut self.source {
            Source::Current(records) => records.rewind(),
            Source::Legacy(..) => Ok(()),
        }
    }

    fn begin_next(&mut self) -> usize {
        self.left -= 1;
        (self.count - 1 - self.left) as usize
    }

    fn is_over(&mut self) -> Result<bool> {
        if self.left > 0 {
            return Ok(false);
        }
        if let Source::Current(records) = &mut self.source
            && self.count > 0
            && !records.is_over()?
        {
            return Err(Malformed::Remainder.into_error());
        }
        Ok(true)
    }
}
