//! Room in the active segment: an append has its place there, or has to go to a new one
//! (`LogSegment.shouldRoll`).

/// The room of a segment, until something is written to it: it is asked for each request, and all
/// but the request stays the same.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub(super) base_offset: i64,
    pub size_bytes: u64,
    pub(super) size_bytes_max: u64,
    /// How much later than its first batch a batch may be.
    pub(super) ms_max: i64,
    /// A batch that is later than this has to go to another segment.
    pub(super) timestamp_max: i64,
    /// Nothing has room any more: its time has passed, or its indexes are full.
    pub(super) is_over: bool,
}

impl Room {
    /// Says whether an append of `append_bytes` up to `last_offset` has its place here, behind
    /// `staged_bytes` that are to be written before it. `max_timestamp` is that of the append.
    pub fn holds(
        &self,
        staged_bytes: u64,
        append_bytes: u64,
        last_offset: i64,
        max_timestamp: i64,
    ) -> bool {
        let start = self.size_bytes + staged_bytes;
        let fits = start == 0 || start + append_bytes <= self.size_bytes_max;
        fits && can_hold(self.base_offset, last_offset)
            && !self.is_over
            && max_timestamp <= self.timestamp_max
    }

    /// The first batch that is to be written, where the segment has none yet: rolling by time
    /// counts from its largest timestamp.
    pub fn begin(&mut self, timestamp: i64) {
        if self.size_bytes == 0 && timestamp >= 0 {
            self.timestamp_max = timestamp.saturating_add(self.ms_max);
        }
    }
}

/// Says whether an offset can stand in the indexes of a segment (31 bits above its base offset).
pub(super) fn can_hold(base_offset: i64, offset: i64) -> bool {
    (0..=i64::from(i32::MAX)).contains(&(offset - base_offset))
}
