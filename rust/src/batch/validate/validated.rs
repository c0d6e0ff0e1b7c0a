//! The batches that were accepted, and the bytes that go to the log.

use std::ops::{Deref, DerefMut};

use crate::batch::control::EndTransactionMarker;
use crate::batch::header::{BatchHeader, NO_TIMESTAMP};

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

impl BatchSummary {
    /// At the start of its records, until it is added to others.
    pub(super) fn new(
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

/// The batches that `validate` accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    pub batches: Summaries,
    /// Append these bytes instead of the records, which had to be built again.
    pub replacement: Option<Vec<u8>>,
    /// Bytes of the records that are whole batches; a tail behind them is cut off, as Kafka does.
    pub valid_bytes: usize,
}

impl Validated {
    /// No batch yet.
    pub(super) fn empty() -> Validated {
        Validated {
            batches: Summaries(Inner::Any(Vec::new())),
            replacement: None,
            valid_bytes: 0,
        }
    }

    /// Adds an accepted batch. Once one was built again, all go into the replacement.
    pub(super) fn add(
        &mut self,
        records: &[u8],
        position_byte: usize,
        mut summary: BatchSummary,
        rebuilt: Option<Vec<u8>>,
    ) {
        summary.position_byte = position_byte;
        match (&mut self.replacement, rebuilt) {
            (None, None) => {}
            (None, Some(rebuilt)) if position_byte == 0 => self.replacement = Some(rebuilt),
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
        self.batches.push(summary);
    }

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
