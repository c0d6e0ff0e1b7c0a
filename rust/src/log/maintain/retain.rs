//! Retention: which of the oldest segments go (`UnifiedLog.deleteOldSegments`).

use std::sync::Arc;

use crate::error::{Error, Result};

use crate::log::log::Log;
use crate::log::names::LOG;
use crate::log::segment::Segment;

impl Log {
    /// Removes the oldest segments that `retention.ms`, `retention.bytes` or the log start offset
    /// let go, as far as they lie below the high watermark. Returns how many.
    ///
    /// With `cleanup.policy=compact` alone, only the log start offset counts. If the active segment
    /// itself is to go, it is rolled first; an empty one stays.
    pub fn delete_old_segments(&self, now_ms: i64) -> Result<usize> {
        let mut count = 0;
        let done = loop {
            match self.delete_oldest_segment(now_ms) {
                Ok(true) => count += 1,
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if count > 0 {
            self.notify();
        }
        done.map(|()| count)
    }

    /// Removes the oldest segment if it may go. One a lock: appends and flushes wait for the
    /// removal of one at most, and never for the proof that it is old, which may read all of it.
    fn delete_oldest_segment(&self, now_ms: i64) -> Result<bool> {
        self.check_writable()?;
        let Some(proved) = self.doomed_segment(now_ms)? else {
            return Ok(false);
        };
        let flushing = self.flushing.lock();
        let mut appender = self.lock_appender();
        self.check_writable()?;
        let first = self.segments.read().first().cloned();
        let is_first = first.is_some_and(|first| Arc::ptr_eq(&first, &proved));
        // What was read is known now; all else may have changed meanwhile.
        if !is_first || self.doomed_segment(now_ms)?.is_none() {
            return Ok(false);
        }
        if self.segments.read().len() == 1 {
            let log_end_offset = self.ends.read().log_end.offset;
            self.roll(&mut appender, log_end_offset, now_ms)?;
        }
        if let Some(next) = self.segment_after(proved.base_offset()) {
            let mut ends = self.ends.write();
            ends.log_start_offset = ends.log_start_offset.max(next.base_offset());
            ends.check_order();
        }
        let removed = self.remove_segments(&mut appender, &[proved], now_ms);
        let log_start_offset = self.ends.read().log_start_offset;
        let state = &mut *appender;
        state
            .snapshots
            .on_log_start_offset(&mut state.producers, log_start_offset);
        self.ends.write().note_unstable(&state.producers);
        drop((appender, flushing));
        removed.inspect_err(|error| self.health.fail(error))?;
        self.forget_epochs_below(log_start_offset)?;
        Ok(true)
    }

    /// The oldest segment, if it may go. Reads its batches where its time index does not tell their
    /// largest timestamp, once.
    fn doomed_segment(&self, now_ms: i64) -> Result<Option<Arc<Segment>>> {
        let config = self.config();
        let ends = *self.ends.read();
        let (oldest, next) = {
            let segments = self.segments.read();
            let mut values = segments.values();
            let oldest = values.next().cloned();
            (oldest, values.next().map(|next| next.base_offset()))
        };
        let Some(oldest) = oldest else {
            return Ok(None);
        };
        let size_bytes = oldest.size_bytes();
        let upper_bound = next.unwrap_or(ends.log_end.offset);
        let is_empty_active = next.is_none() && size_bytes == 0;
        if is_empty_active || upper_bound > ends.high_watermark.offset {
            return Ok(None);
        }
        let is_below_start = next.is_some_and(|next| next <= ends.log_start_offset);
        let by_size = config.cleanup_policy.delete && config.retention_bytes >= 0;
        let is_surplus = || {
            let surplus = self.size_bytes() as i64 - config.retention_bytes;
            surplus >= size_bytes as i64
        };
        let by_time = config.cleanup_policy.delete && config.retention_ms >= 0;
        let is_old = |written_ms: i64| now_ms.saturating_sub(written_ms) > config.retention_ms;
        let may_go = is_below_start
            || by_size && is_surplus()
            // What goes is gone: then no batch of it may be younger, whatever its index says.
            || by_time
                && is_old(self.last_written_ms(&oldest)?)
                && is_old(oldest.largest_timestamp_of_all()?.timestamp);
        Ok(may_go.then_some(oldest))
    }

    /// The largest timestamp of a segment, or the time of its last write if its records have none.
    pub(in crate::log) fn last_written_ms(&self, segment: &Segment) -> Result<i64> {
        let largest = segment.largest_timestamp()?.timestamp;
        if largest >= 0 {
            return Ok(largest);
        }
        self.modified_ms(segment)
    }

    /// When the segment was last written, milliseconds. The cleaner's output has it from what it
    /// was made of, else records without timestamps would grow young again with each round.
    pub(in crate::log) fn modified_ms(&self, segment: &Segment) -> Result<i64> {
        let path = segment.files().path(LOG);
        self.storage()
            .modified_ms(&path)
            .map_err(Error::io("stat", &path))
    }

    pub(in crate::log) fn set_modified_ms(
        &self,
        segment: &Segment,
        modified_ms: i64,
    ) -> Result<()> {
        let path = segment.files().path(LOG);
        self.storage()
            .set_modified_ms(&path, modified_ms)
            .map_err(Error::io("utimensat", &path))
    }
}
