//! Plans which part of a log is cleaned, and in which pieces: decisions over numbers, no file is
//! touched.
//!
//! ```text
//! log start          first dirty            first uncleanable        log end
//!     │ clean: no key   │ dirty: keys that      │ not yet: active      │
//!     │ twice           │ may be further left   │ segment, unstable,   │
//!     │                 │                       │ too young            │
//! ```
//!
//! A log is due when the dirty part is more than `min.cleanable.dirty.ratio` of clean and dirty, or
//! has waited for longer than `max.compaction.lag.ms`. Kafka: `LogCleanerManager`, `LogToClean`,
//! `Cleaner.groupSegmentsBySize`.

use std::ops::Range;

use crate::log::config::LogConfig;

/// A segment as a plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    pub base_offset: i64,
    pub size_bytes: u64,
    /// Milliseconds; -1 if no record has one.
    pub largest_timestamp: i64,
    /// The largest of the first batch, milliseconds; -1 if there is none.
    pub first_batch_timestamp: i64,
    pub offset_index_bytes: u64,
    pub time_index_bytes: u64,
}

/// A log as a plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFacts {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    pub last_stable_offset: i64,
    /// How often it had been cut at its end before anything else was looked at.
    pub truncations: u64,
}

/// The part of a log that a round may clean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanPlan {
    pub first_dirty_offset: i64,
    /// Base offset of a segment that stays as it is, with all behind it.
    pub first_uncleanable_offset: i64,
    /// Bytes of segments that are clean to their end or in part.
    pub clean_bytes: u64,
    pub cleanable_bytes: u64,
    /// How long the oldest dirty segment has waited beyond `max.compaction.lag.ms`.
    pub compaction_delay_ms: i64,
    /// The checkpoint lies outside of the log and has to be set to `first_dirty_offset`.
    pub checkpoint_is_invalid: bool,
    /// How often the log had been cut: the plan is of no use once it is so more often.
    pub truncations: u64,
}

impl CleanPlan {
    /// Looks at `segments`, ascending, the last one being active; at least that one is there.
    /// `checkpoint` is where the last round ended.
    pub fn of(
        segments: &[SegmentFacts],
        log: LogFacts,
        checkpoint: Option<i64>,
        config: &LogConfig,
        now_ms: i64,
    ) -> CleanPlan {
        let valid = log.log_start_offset..=log.log_end_offset;
        let checkpoint = checkpoint.unwrap_or(log.log_start_offset);
        let checkpoint_is_invalid = !valid.contains(&checkpoint);
        let first_dirty_offset = if checkpoint_is_invalid {
            log.log_start_offset
        } else {
            checkpoint
        };
        let inactive = &segments[..segments.len().saturating_sub(1)];
        let active_base = segments.last().map_or(0, |active| active.base_offset);
        let dirty = if first_dirty_offset < active_base {
            &inactive[slot_of(inactive, first_dirty_offset)..]
        } else {
            &[]
        };

        let lag_ms = config.min_compaction_lag_ms.max(0);
        let young =
            |segment: &&SegmentFacts| segment.largest_timestamp > now_ms.saturating_sub(lag_ms);
        let first_young = dirty.iter().find(young).filter(|_| lag_ms > 0);
        let uncleanable = log
            .last_stable_offset
            .min(active_base)
            .min(first_young.map_or(i64::MAX, |segment| segment.base_offset))
            .max(first_dirty_offset);
        let holder = inactive.get(slot_of(inactive, uncleanable));
        let first_uncleanable_offset = match holder {
            Some(segment) if uncleanable < active_base => segment.base_offset,
            _ => active_base,
        };

        let size = |range: &[SegmentFacts]| range.iter().map(|segment| segment.size_bytes).sum();
        let clean = segments.partition_point(|segment| segment.base_offset < first_dirty_offset);
        let from = slot_of(segments, first_dirty_offset.min(first_uncleanable_offset));
        let to = segments.partition_point(|segment| segment.base_offset < first_uncleanable_offset);
        CleanPlan {
            first_dirty_offset,
            first_uncleanable_offset,
            clean_bytes: size(&segments[..clean]),
            cleanable_bytes: size(segments.get(from..to).unwrap_or_default()),
            compaction_delay_ms: compaction_delay_ms(dirty, config, now_ms),
            checkpoint_is_invalid,
            truncations: log.truncations,
        }
    }

    /// Share of dirty bytes in those that a round would go through, 0 to 1.
    pub fn dirty_ratio(&self) -> f64 {
        let total = self.clean_bytes + self.cleanable_bytes;
        if total == 0 {
            return 0.0;
        }
        self.cleanable_bytes as f64 / total as f64
    }

    /// Says whether a round is due.
    pub fn is_due(&self, config: &LogConfig) -> bool {
        (self.compaction_delay_ms > 0 && self.cleanable_bytes > 0)
            || self.dirty_ratio() > config.min_cleanable_dirty_ratio
    }
}

fn compaction_delay_ms(dirty: &[SegmentFacts], config: &LogConfig, now_ms: i64) -> i64 {
    let timestamps = dirty.iter().map(|segment| segment.first_batch_timestamp);
    let earliest = timestamps.filter(|timestamp| *timestamp > 0).min();
    let until_ms = now_ms.saturating_sub(config.max_compaction_lag_ms.max(0));
    earliest.map_or(0, |earliest| until_ms.saturating_sub(earliest).max(0))
}

/// The slot of the segment that holds `offset`: the last whose base is not above, else the first.
fn slot_of(segments: &[SegmentFacts], offset: i64) -> usize {
    let begun = segments.partition_point(|segment| segment.base_offset <= offset);
    begun.saturating_sub(1)
}

/// Runs of neighbouring segments, each to be cleaned into one: neither the records nor an index of
/// a run are larger together than one segment may be, and its offsets fit the index.
pub fn group_segments(
    segments: &[SegmentFacts],
    config: &LogConfig,
    first_uncleanable_offset: i64,
) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut start = 0;
    while let Some(first) = segments.get(start) {
        let mut end = start + 1;
        let (mut bytes, mut index) = (first.size_bytes, first.offset_index_bytes);
        let mut time_index = first.time_index_bytes;
        while let Some(next) = segments.get(end) {
            let behind = segments
                .get(end + 1)
                .map_or(first_uncleanable_offset, |s| s.base_offset);
            let fits = bytes + next.size_bytes <= config.segment_bytes
                && index + next.offset_index_bytes <= config.segment_index_bytes
                && time_index + next.time_index_bytes <= config.segment_index_bytes
                && (next.size_bytes == 0 || behind - 1 - first.base_offset <= i64::from(i32::MAX));
            if !fits {
                break;
            }
            bytes += next.size_bytes;
            index += next.offset_index_bytes;
            time_index += next.time_index_bytes;
            end += 1;
        }
        groups.push(start..end);
        start = end;
    }
    groups
}
