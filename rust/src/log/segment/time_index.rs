//! The time index: from which offset on a timestamp is to be looked for.
//!
//! ```text
//! entry, 12 bytes, big-endian:  timestamp i64 (ms)   relative_offset u32 (offset − base offset)
//! ```
//! An entry says: up to and with this offset no record is later than this timestamp. An entry is
//! written beside an offset index entry if the timestamp has grown, and once more when the segment
//! closes, so that the last one holds the largest timestamp of a closed segment.

use crate::log::segment::search::{EntryBytes, largest_not_above};

pub const ENTRY_BYTES: usize = 12;

/// One entry, with the offset made absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Milliseconds since the epoch; -1 where no record has a timestamp.
    pub timestamp: i64,
    pub offset: i64,
}

impl TimestampOffset {
    /// The largest timestamp of a segment that has none.
    pub fn none(base_offset: i64) -> TimestampOffset {
        TimestampOffset {
            timestamp: -1,
            offset: base_offset,
        }
    }
}

/// The entries of one index file: any bytes, the incomplete entry at their end is left out.
#[derive(Clone, Copy)]
pub struct TimeIndex<'a> {
    base_offset: i64,
    bytes: &'a [u8],
}

impl<'a> TimeIndex<'a> {
    pub fn new(base_offset: i64, bytes: &'a [u8]) -> TimeIndex<'a> {
        TimeIndex { base_offset, bytes }
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn entry(&self, slot: usize) -> Option<TimestampOffset> {
        let timestamp = self.bytes.i64_at(slot * ENTRY_BYTES)?;
        let relative = self.bytes.u32_at(slot * ENTRY_BYTES + 8)?;
        Some(TimestampOffset {
            timestamp,
            offset: self.base_offset + i64::from(relative),
        })
    }

    pub fn last(&self) -> Option<TimestampOffset> {
        self.entry(self.len().checked_sub(1)?)
    }

    /// The last entry whose timestamp is at most `timestamp`: records at or after its offset may be
    /// as late. `None`: the search starts at the base offset.
    pub fn lookup(&self, timestamp: i64) -> Option<TimestampOffset> {
        let slot = largest_not_above(self.len(), ENTRY_BYTES, |slot| {
            self.entry(slot)
                .is_some_and(|entry| entry.timestamp <= timestamp)
        })?;
        self.entry(slot)
    }
}

/// Appends an entry if the timestamp is later than that of the last one (`TimeIndex.maybeAppend`).
pub fn push_entry(bytes: &mut Vec<u8>, base_offset: i64, entry: TimestampOffset) {
    let last = TimeIndex::new(base_offset, bytes)
        .last()
        .map_or(-1, |last| last.timestamp);
    if entry.timestamp > last
        && let Ok(relative) = u32::try_from(entry.offset - base_offset)
    {
        bytes.extend_from_slice(&entry.timestamp.to_be_bytes());
        bytes.extend_from_slice(&relative.to_be_bytes());
    }
}

/// The largest timestamp of a segment, and how far that is proved.
#[derive(Clone, Copy, Debug)]
pub struct LargestTimestamp {
    pub top: TimestampOffset,
    /// No batch of the segment is later; else none of those that the first proof looked at.
    pub is_of_all: bool,
}

impl LargestTimestamp {
    /// Made from the records, not read from an index.
    pub fn known(top: TimestampOffset) -> LargestTimestamp {
        LargestTimestamp {
            top,
            is_of_all: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_timestamp_gets_an_entry() {
        let mut bytes = Vec::new();
        for (timestamp, offset) in [(-1, 10), (5, 11), (5, 12), (4, 13), (9, 14)] {
            push_entry(&mut bytes, 10, TimestampOffset { timestamp, offset });
        }
        let index = TimeIndex::new(10, &bytes);
        assert_eq!(index.len(), 2);
        assert_eq!(
            index.last(),
            Some(TimestampOffset {
                timestamp: 9,
                offset: 14
            })
        );
        assert_eq!(index.lookup(4), None);
        assert_eq!(
            index.lookup(8),
            Some(TimestampOffset {
                timestamp: 5,
                offset: 11
            })
        );
    }
}
