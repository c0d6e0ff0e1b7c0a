//! Step 3 of a load: segments that an unclean stop has left are read whole, and the log is cut at
//! the first byte that cannot be; segments whose indexes cannot be theirs get new ones.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::log::names::{self, LOG, TRANSACTION_INDEX};
use crate::log::recover::Loader;
use crate::log::segment::Segment;
use crate::log::segment::rebuild::{Rebuilt, SegmentScan};
use crate::log::segment::transaction_index::AbortedIndex;
use crate::log::state::producers::ProducerState;
use crate::log::state::snapshots::ProducerSnapshots;

impl Loader<'_> {
    /// Segments below the recovery point are not read, but they need indexes that can be theirs.
    pub(super) fn rebuild_missing_indexes(
        &mut self,
        snapshots: &mut ProducerSnapshots,
    ) -> Result<()> {
        // Those of the last one, `find_end` looks at.
        let last = self.segments.last().map_or(0, |last| last.base_offset());
        let end = self.first_unflushed().min(last);
        for segment in self.segments.clone().range(0..end) {
            let base = segment.base_offset();
            if let Some(fault) = self.index_fault(segment)? {
                self.report
                    .note(format!("rebuilt the indexes of segment {base}: {fault}"));
                let mut producers = self.producers_at(snapshots, base)?;
                let rebuilt = self.scan(segment, &mut producers, base, i64::MAX)?;
                segment.replace_indexes(&rebuilt.indexes)?;
                segment.replace_aborted(rebuilt.aborted)?;
            }
        }
        Ok(())
    }

    /// Base offset of the segment that holds the recovery point; all from it on are recovered.
    /// After a clean stop none is, but the last one's end is still looked for.
    fn first_unflushed(&self) -> i64 {
        if self.parameters.was_clean {
            return i64::MAX;
        }
        let holder = self.segments.at(self.parameters.recovery_point);
        holder
            .or_else(|| self.segments.first())
            .map_or(i64::MAX, |segment| segment.base_offset())
    }

    /// Step 3. Returns the producer state at the end of what was recovered.
    pub(super) fn recover(&mut self, snapshots: &mut ProducerSnapshots) -> Result<ProducerState> {
        let from = self.first_unflushed();
        let unflushed: Vec<_> = self
            .segments
            .values()
            .map(|segment| (segment.base_offset(), segment.clone()))
            .filter(|(base, _)| *base >= from)
            .collect();
        let Some((first, _)) = unflushed.first() else {
            return Ok(ProducerState::default());
        };
        // Nothing has made those behind durable: a power cut leaves them empty, or torn.
        let durable = self.parameters.recovery_point.max(*first);
        snapshots.delete_after(self.storage, durable)?;
        let mut producers = self.producers_at(snapshots, *first)?;
        let expiration_ms = self.parameters.config.producer_id_expiration_ms;
        producers.remove_expired(self.parameters.now_ms, expiration_ms);
        let mut next_offset = *first;
        let mut todo = VecDeque::from(unflushed);
        while let Some((base, segment)) = todo.pop_front() {
            let size = segment.size_bytes();
            if base < next_offset && size == 0 {
                self.discard(&segment, "it is empty and overlaps the one before")?;
                continue;
            }
            let following = todo.iter().find(|(_, other)| other.size_bytes() > 0);
            let limit = following.map_or(i64::MAX, |(base, _)| *base);
            let rebuilt = self.scan(&segment, &mut producers, next_offset.max(base), limit)?;
            self.report.recovered_segments += 1;
            self.report.recovered_bytes += rebuilt.end.size_bytes;
            if let Some(reason) = &rebuilt.cut {
                let lost = size - rebuilt.end.size_bytes;
                self.report.truncated_bytes += lost;
                self.report
                    .note(format!("cut {lost} bytes off segment {base}: {reason}"));
            }
            let goes_on = todo.front().map_or(i64::MIN, |(base, _)| *base);
            if rebuilt.cut.is_some() || self.is_hole(rebuilt.end.next_offset, goes_on) {
                // These first, the last of them first: a crash before the cut must not leave a
                // log that goes on behind a hole.
                while let Some((_, later)) = todo.pop_back() {
                    self.discard(&later, "the log ends before it")?;
                }
                self.sync_directory()?;
            }
            if base < next_offset && rebuilt.end.size_bytes == 0 {
                segment.set_end(rebuilt.end);
                self.discard(&segment, "all of it overlaps the one before")?;
                continue;
            }
            next_offset = rebuilt.end.next_offset;
            self.adopt(&segment, rebuilt, todo.is_empty())?;
            if base < self.parameters.log_start_offset {
                // The scan has also replayed what DeleteRecords took away. Such batches are
                // nobody's duplicates: neither the state nor its snapshot may know them.
                producers = self.producers_at(snapshots, next_offset)?;
            }
            if !todo.is_empty() {
                snapshots.take(self.storage, &producers, false)?;
            }
        }
        if !self.parameters.is_synced_later {
            self.sync_directory()?;
        }
        Ok(producers)
    }

    /// Records between two segments are lost: the end of the first one has not come to the disk,
    /// and the next one has. A follower fetches from its end on, so nothing would ever restore
    /// them. With `acks_fsync` a segment is on disk before the next one has a name; in a log that
    /// may be compacted records go from between segments by right.
    fn is_hole(&self, end_offset: i64, next_base: i64) -> bool {
        let config = &self.parameters.config;
        let may_lack = !config.acks_fsync && !config.cleanup_policy.compact;
        may_lack && end_offset >= self.parameters.recovery_point && next_base > end_offset
    }

    pub(super) fn discard(&mut self, segment: &Segment, why: &str) -> Result<()> {
        let base = segment.base_offset();
        self.report.truncated_bytes += segment.size_bytes();
        self.report.note(format!("removed segment {base}: {why}"));
        self.segments.remove(base);
        self.open_segments.remove(segment.files())
    }

    /// Takes over what a scan of a segment has made, which `is_last` of the log or not,
    /// and cuts its file to it. Index files need no sync: the recovery point does not pass
    /// them before they have one.
    pub(super) fn adopt(&self, segment: &Segment, rebuilt: Rebuilt, is_last: bool) -> Result<()> {
        let path = segment.files().path(LOG);
        let file = segment.file()?;
        if rebuilt.end.size_bytes < segment.size_bytes() {
            let cut = file.set_size(rebuilt.end.size_bytes);
            cut.map_err(Error::io("ftruncate", &path))?;
        }
        // A write that had failed before is told of to whoever has the file, and to nobody later.
        let synced = if self.parameters.is_synced_later {
            file.check_written()
        } else {
            file.sync_data()
        };
        synced.map_err(Error::io("fsync", &path))?;
        segment.set_end(rebuilt.end);
        if is_last {
            segment.activate_recovered(rebuilt.indexes)?;
        } else {
            segment.replace_indexes_unsynced(&rebuilt.indexes)?;
        }
        if self.has_aborted(segment, &rebuilt.aborted)? {
            return Ok(());
        }
        segment.replace_aborted(rebuilt.aborted)
    }

    /// Says whether a segment's `.txnindex` holds just these entries. An empty one is no file.
    fn has_aborted(&self, segment: &Segment, rebuilt: &AbortedIndex) -> Result<bool> {
        if !self.is_there(&names::segment_name(
            segment.base_offset(),
            TRANSACTION_INDEX,
        )) {
            return Ok(rebuilt.is_empty());
        }
        match segment.aborted() {
            Ok(found) => Ok(!found.is_empty() && *found == *rebuilt),
            Err(Error::CorruptFile { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a segment whole, with what is known of the log before it.
    pub(super) fn scan(
        &mut self,
        segment: &Segment,
        producers: &mut ProducerState,
        expected_offset: i64,
        limit_offset: i64,
    ) -> Result<Rebuilt> {
        let mut scan = SegmentScan {
            producers,
            epochs: &mut self.epochs,
            notes: &mut self.report.notes,
            index_interval_bytes: self.parameters.config.index_interval_bytes,
            stop: &self.parameters.stop,
        };
        scan.run(segment, expected_offset, limit_offset)
    }
}
