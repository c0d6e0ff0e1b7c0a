//! The reader of a batch's records, in each of Kafka's three formats, without a copy
//! where there is no codec.
//!
//! Nothing here looks at a CRC: `BatchHeader::crc_matches` does, once, where
//! bytes come from outside.

use super::compression::Codec;
use super::header::{BatchHeader, RECORD_BATCH_OVERHEAD};
use super::inflate::Inflater;
use super::legacy::{self, LegacyEntry};
use super::record::{DeltaOrigin, Malformed, Record, read_raw_record};
use super::stream::{RawRecords, RecordStream, Source};
use crate::error::{Error, Result};

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
        let records = if codec != Codec::None && header.records_count > 0 {
            let (inflater, inflated) = (&mut self.inflater, &mut self.inflated);
            RawRecords::inflate(codec, records, inflater, inflated)?
        } else {
            RawRecords::Whole(records, 0)
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
