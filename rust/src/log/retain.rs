//! Retention: which of the oldest segments go (`UnifiedLog.deleteOldSegments`).

use std::sync::Arc;

use crate::error::{Error, Result};

use super::log::Log;
use super::names::LOG;
use super::segment::Segment;

impl Log {
    /// Removes the oldest segments that `retention.ms`, `retention.bytes` or the log start offset
    /// let go, as far as they lie below the high watermark. Returns how many.
    ///
    /// With `cleanup.policy=compact` alone, only the log start offset counts. If the active segment
    /// itself is to go, it is rolled first; an empty one stays.
    pub fn delete_old_segments(&self, now_ms: i64) -> Result<usize> {
        let flushing = self.flushing.lock();
        self.check_writable()?;
        let mut appender = self.appender.lock();
        let doomed = self.doomed_segments(now_ms)?;
        if doomed.is_empty() {
            return Ok(0);
        }
        if doomed.len() == self.segments.read().len() {
            let log_end_offset = self.ends.read().log_end.offset;
            self.roll(&mut appender, log_end_offset, now_ms)?;
        }
        let first = self
            .segments
            .read()
            .values()
            .map(|segment| segment.base_offset())
            .find(|base| !doomed.iter().any(|segment| segment.base_offset() == *base));
        if let Some(first) = first {
            let mut ends = self.ends.write();
            ends.log_start_offset = ends.log_start_offset.max(first);
        }
        let removed = self.remove_segments(&mut appender, &doomed, now_ms);
        let log_start_offset = self.ends.read().log_start_offset;
        let state = &mut *appender;
        state
            .snapshots
            .on_log_start_offset(&mut state.producers, log_start_offset);
        let unstable = state.producers.first_unstable_offset();
        self.ends.write().first_unstable_offset = unstable.map(|unstable| unstable.offset);
        drop((appender, flushing));
        removed.inspect_err(|error| self.health.fail(error))?;
        self.truncate_epochs(|epochs| epochs.truncate_from_start(log_start_offset))?;
        self.notify();
        Ok(doomed.len())
    }

    /// The segments that may go, oldest first: a prefix of the log.
    fn doomed_segments(&self, now_ms: i64) -> Result<Vec<Arc<Segment>>> {
        let config = self.config();
        let ends = *self.ends.read();
        let segments = self.segments();
        let total: u64 = segments.iter().map(|segment| segment.size_bytes()).sum();
        let by_time = config.cleanup_policy.delete && config.retention_ms >= 0;
        let by_size = config.cleanup_policy.delete && config.retention_bytes >= 0;
        let mut surplus = if by_size {
            total as i64 - config.retention_bytes
        } else {
            0
        };
        let mut doomed = Vec::new();
        for (slot, segment) in segments.iter().enumerate() {
            let next = segments.get(slot + 1).map(|next| next.base_offset());
            let upper_bound = next.unwrap_or(ends.log_end.offset);
            let is_empty_active = next.is_none() && segment.size_bytes() == 0;
            if is_empty_active || upper_bound > ends.high_watermark.offset {
                break;
            }
            let below_start = next.is_some_and(|next| next <= ends.log_start_offset);
            let is_old = |written_ms: i64| now_ms.saturating_sub(written_ms) > config.retention_ms;
            // What goes is gone: then no batch of it may be younger, whatever its index says.
            let too_old = by_time
                && is_old(self.last_written_ms(segment)?)
                && is_old(segment.largest_timestamp_of_all()?.timestamp);
            let size = segment.size_bytes() as i64;
            let too_much = by_size && surplus >= size;
            if !(below_start || too_old || too_much) {
                break;
            }
            surplus -= size;
            doomed.push(segment.clone());
        }
        Ok(doomed)
    }

    /// The largest timestamp of a segment, or the time of its last write if its records have none.
    pub(super) fn last_written_ms(&self, segment: &Segment) -> Result<i64> {
        let largest = segment.largest_timestamp()?.timestamp;
        if largest >= 0 {
            return Ok(largest);
        }
        self.modified_ms(segment)
    }

    /// When the segment was last written, milliseconds. The cleaner's output has it from what it was
    /// made of, else records without timestamps would grow young again with each round.
    pub(super) fn modified_ms(&self, segment: &Segment) -> Result<i64> {
        let path = segment.files().path(LOG);
        self.storage()
            .modified_ms(&path)
            .map_err(Error::io("stat", &path))
    }

    pub(super) fn set_modified_ms(&self, segment: &Segment, modified_ms: i64) -> Result<()> {
        let path = segment.files().path(LOG);
        self.storage()
            .set_modified_ms(&path, modified_ms)
            .map_err(Error::io("utimensat", &path))
    }
}
