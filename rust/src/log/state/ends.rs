//! The numbers of a log: where it starts and ends, and how far it is
//! flushed, replicated and decided.

use crate::log::state::producers::ProducerState;

/// A place in the log: an offset, and the byte at which its batch starts or will start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    pub offset: i64,
    /// -1: the byte has not been looked for.
    pub segment_base_offset: i64,
    pub position_byte: u64,
}

impl LogPosition {
    /// A position of which only the offset is known; a reader that needs the byte finds it
    /// (`Log::resolve`).
    pub(in crate::log) fn unresolved(offset: i64) -> LogPosition {
        LogPosition {
            offset,
            segment_base_offset: -1,
            position_byte: 0,
        }
    }

    pub(in crate::log) fn is_resolved(self) -> bool {
        self.segment_base_offset >= 0
    }
}

/// The numbers of a log. `log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsets {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    /// Everything below is on disk.
    pub flushed_offset: i64,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// Recovery after an unclean stop starts with the segment that holds this offset.
    pub recovery_point: i64,
}

/// Ends and watermarks, published together.
#[derive(Clone, Copy, Debug)]
pub(in crate::log) struct LogEnds {
    pub log_start_offset: i64,
    pub log_end: LogPosition,
    pub flushed: LogPosition,
    pub high_watermark: LogPosition,
    /// The least log end of the in-sync replicas; `i64::MAX` while this replica is alone.
    pub replicated_offset: i64,
    pub first_unstable_offset: Option<i64>,
    pub recovery_point: i64,
    /// How often bytes below an end have been cut or replaced: a position noted
    /// before means nothing after.
    pub cuts: u64,
}

impl LogEnds {
    pub fn offsets(&self) -> LogOffsets {
        LogOffsets {
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end.offset,
            flushed_offset: self.flushed.offset,
            high_watermark: self.high_watermark.offset,
            last_stable_offset: self.last_stable_offset(),
            recovery_point: self.recovery_point,
        }
    }

    pub fn last_stable_offset(&self) -> i64 {
        let high_watermark = self.high_watermark.offset;
        self.first_unstable_offset
            .map_or(high_watermark, |unstable| {
                high_watermark.min(unstable.max(self.log_start_offset))
            })
    }

    pub fn note_unstable(&mut self, producers: &ProducerState) {
        let unstable = producers.first_unstable_offset();
        self.first_unstable_offset = unstable.map(|unstable| unstable.offset);
    }

    /// Holds the numbers to their order before others see them: whoever moves one calls this.
    pub fn check_order(&self) {
        let (start, end) = (self.log_start_offset, self.log_end.offset);
        let (flushed, high_watermark) = (self.flushed.offset, self.high_watermark.offset);
        let last_stable = self.last_stable_offset();
        assert!(
            start <= last_stable && last_stable <= high_watermark && high_watermark <= end,
            "start {start} ≤ last stable {last_stable} ≤ high watermark {high_watermark} ≤ end {end}"
        );
        assert!(
            self.recovery_point <= flushed && flushed <= end,
            "recovery point {} ≤ flushed {flushed} ≤ end {end}",
            self.recovery_point
        );
    }

    /// Moves the high watermark to what is replicated and, with `acks_fsync`, flushed. It never
    /// goes back here. Returns whether it moved.
    pub fn advance_high_watermark(&mut self, acks_fsync: bool) -> bool {
        let mut target = if acks_fsync {
            self.flushed
        } else {
            self.log_end
        };
        if self.replicated_offset < target.offset {
            target = LogPosition::unresolved(self.replicated_offset);
        }
        let moved = target.offset > self.high_watermark.offset;
        if moved {
            self.high_watermark = target;
        }
        debug_assert!(!acks_fsync || !moved || target.offset <= self.flushed.offset);
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(log_start_offset: i64, high_watermark: i64, unstable: Option<i64>) -> LogEnds {
        LogEnds {
            log_start_offset,
            log_end: LogPosition::unresolved(20),
            flushed: LogPosition::unresolved(20),
            high_watermark: LogPosition::unresolved(high_watermark),
            replicated_offset: i64::MAX,
            first_unstable_offset: unstable,
            recovery_point: 0,
            cuts: 0,
        }
    }

    #[test]
    fn the_last_stable_offset_is_bounded_by_the_high_watermark_and_the_log_start() {
        assert_eq!(ends(0, 5, Some(10)).last_stable_offset(), 5);
        assert_eq!(ends(0, 12, Some(10)).last_stable_offset(), 10);
        assert_eq!(ends(11, 12, Some(10)).last_stable_offset(), 11);
        assert_eq!(ends(0, 12, None).last_stable_offset(), 12);
        ends(11, 12, Some(10)).check_order();
    }

    #[test]
    #[should_panic(expected = "high watermark 21")]
    fn a_high_watermark_beyond_the_end_is_not_published() {
        ends(0, 21, None).check_order();
    }
}
