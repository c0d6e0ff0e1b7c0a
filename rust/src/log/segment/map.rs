//! The segments of a log by their base offsets.
//!
//! Every read looks an offset up here, so the offsets lie side by side: among 10,000
//! segments a search comes to two cache lines that are its own, where a tree comes to twice
//! as many nodes. The price is that whoever takes a segment out of the middle moves what
//! lies behind it, 16 bytes a segment.

use std::ops::Range;
use std::sync::Arc;

use crate::log::segment::Segment;

/// Both lists are of one length and one order, ascending.
#[derive(Clone, Default)]
pub struct SegmentMap {
    base_offsets: Vec<i64>,
    segments: Vec<Arc<Segment>>,
}

impl SegmentMap {
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    pub fn get(&self, base_offset: i64) -> Option<&Arc<Segment>> {
        let slot = self.base_offsets.binary_search(&base_offset).ok()?;
        self.segments.get(slot)
    }

    /// Puts a segment in the place of the one with its base offset, or between its neighbours.
    pub fn insert(&mut self, segment: Arc<Segment>) {
        let base_offset = segment.base_offset();
        match self.base_offsets.binary_search(&base_offset) {
            Ok(slot) => self.segments[slot] = segment,
            Err(slot) => {
                self.base_offsets.insert(slot, base_offset);
                self.segments.insert(slot, segment);
            }
        }
        self.check();
    }

    pub fn remove(&mut self, base_offset: i64) {
        if let Ok(slot) = self.base_offsets.binary_search(&base_offset) {
            self.base_offsets.remove(slot);
            let removed = self.segments.remove(slot);
            assert_eq!(
                removed.base_offset(),
                base_offset,
                "the lists are of one order"
            );
        }
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.base_offsets.len(), self.segments.len());
        debug_assert!(self.base_offsets.is_sorted_by(|one, next| one < next));
    }

    pub fn first(&self) -> Option<&Arc<Segment>> {
        self.segments.first()
    }

    pub fn last(&self) -> Option<&Arc<Segment>> {
        self.segments.last()
    }

    /// The segment with the largest base offset that is not above `offset`.
    pub fn at(&self, offset: i64) -> Option<&Arc<Segment>> {
        self.segments.get(self.slot_above(offset).checked_sub(1)?)
    }

    /// The segment with the smallest base offset above `offset`.
    pub fn above(&self, offset: i64) -> Option<&Arc<Segment>> {
        self.segments.get(self.slot_above(offset))
    }

    /// The segments with base offsets in the range, ascending.
    pub fn range(&self, base_offsets: Range<i64>) -> &[Arc<Segment>] {
        let slot = |offset: i64| self.base_offsets.partition_point(|base| *base < offset);
        let slots = slot(base_offsets.start)..slot(base_offsets.end);
        self.segments.get(slots).unwrap_or_default()
    }

    /// All, ascending.
    pub fn values(&self) -> std::slice::Iter<'_, Arc<Segment>> {
        self.segments.iter()
    }

    fn slot_above(&self, offset: i64) -> usize {
        self.base_offsets.partition_point(|base| *base <= offset)
    }
}
