//! The offset index: where in the segment's file an offset is to be found, one entry for every
//! `index.interval.bytes` of records.
//!
//! ```text
//! entry, 8 bytes, big-endian:  relative_offset u32 (offset − base offset)   position u32 (byte)
//! ```
//! The offset is the *last* of the batch that starts at the position; both columns ascend. The same
//! bytes serve in memory (the active segment) and mapped (closed ones).

use crate::log::segment::search::{EntryBytes, largest_not_above};

pub const ENTRY_BYTES: usize = 8;

/// One entry, with the offset made absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPosition {
    pub offset: i64,
    pub position_byte: u64,
}

/// The entries of one index file: any bytes, the incomplete entry at their end is left out.
#[derive(Clone, Copy)]
pub struct OffsetIndex<'a> {
    base_offset: i64,
    bytes: &'a [u8],
}

impl<'a> OffsetIndex<'a> {
    pub fn new(base_offset: i64, bytes: &'a [u8]) -> OffsetIndex<'a> {
        OffsetIndex { base_offset, bytes }
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn entry(&self, slot: usize) -> Option<OffsetPosition> {
        let relative = self.bytes.u32_at(slot * ENTRY_BYTES)?;
        let position = self.bytes.u32_at(slot * ENTRY_BYTES + 4)?;
        Some(OffsetPosition {
            offset: self.base_offset + i64::from(relative),
            position_byte: u64::from(position),
        })
    }

    pub fn last(&self) -> Option<OffsetPosition> {
        self.entry(self.len().checked_sub(1)?)
    }

    /// The last entry whose offset is at most `offset`; `None` if there is none, and the search for
    /// the offset starts at byte 0.
    pub fn lookup(&self, offset: i64) -> Option<OffsetPosition> {
        self.around(offset).0
    }

    /// The entry that `lookup` finds, and the one behind it: the batch that holds the offset starts
    /// at one of them or between them.
    pub fn around(&self, offset: i64) -> (Option<OffsetPosition>, Option<OffsetPosition>) {
        let slot = largest_not_above(self.len(), ENTRY_BYTES, |slot| {
            self.entry(slot).is_some_and(|entry| entry.offset <= offset)
        });
        match slot {
            Some(slot) => (self.entry(slot), self.entry(slot + 1)),
            None => (None, self.entry(0)),
        }
    }

    /// The first entry that starts at or behind `position_byte`.
    pub fn first_from_position(&self, position_byte: u64) -> Option<OffsetPosition> {
        let below = largest_not_above(self.len(), ENTRY_BYTES, |slot| {
            self.entry(slot)
                .is_some_and(|entry| entry.position_byte < position_byte)
        });
        self.entry(below.map_or(0, |slot| slot + 1))
    }
}

/// Appends an entry; the caller has made sure that the offset fits (`Segment::can_hold`).
pub fn push_entry(bytes: &mut Vec<u8>, base_offset: i64, entry: OffsetPosition) {
    let relative = u32::try_from(entry.offset - base_offset);
    let position = u32::try_from(entry.position_byte);
    if let (Ok(relative), Ok(position)) = (relative, position) {
        bytes.extend_from_slice(&relative.to_be_bytes());
        bytes.extend_from_slice(&position.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for slot in 0..entries {
            let entry = OffsetPosition {
                offset: 100 + 10 * slot as i64 + 9,
                position_byte: 5000 * slot as u64,
            };
            push_entry(&mut bytes, 100, entry);
        }
        bytes
    }

    #[test]
    fn a_look_up_finds_the_last_entry_at_or_below_the_offset() {
        for entries in [0, 1, 2, 3, 1023, 1024, 1025, 5000] {
            let bytes = index(entries);
            let index = OffsetIndex::new(100, &bytes);
            for offset in (95..100 + 10 * entries as i64 + 20).step_by(3) {
                let plain = (0..entries)
                    .filter_map(|slot| index.entry(slot))
                    .take_while(|entry| entry.offset <= offset)
                    .last();
                assert_eq!(
                    index.lookup(offset),
                    plain,
                    "{entries} entries, offset {offset}"
                );
            }
        }
    }

    #[test]
    fn the_first_entry_behind_a_position_bounds_what_a_fetch_may_hold() {
        let bytes = index(100);
        let index = OffsetIndex::new(100, &bytes);
        assert_eq!(index.first_from_position(0), index.entry(0));
        assert_eq!(index.first_from_position(5000), index.entry(1));
        assert_eq!(index.first_from_position(5001), index.entry(2));
        assert_eq!(index.first_from_position(99 * 5000 + 1), None);
    }

    #[test]
    fn half_an_entry_at_the_end_is_left_out() {
        let mut bytes = index(3);
        bytes.extend_from_slice(&[0xff; 5]);
        assert_eq!(OffsetIndex::new(100, &bytes).len(), 3);
    }
}
