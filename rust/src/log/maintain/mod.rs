//! Cutting a log at either end, and taking segments out of it or putting others in their place.
//!
//! `retain.rs` says which segments are too old or too many, `housekeeper.rs` does all that is
//! done from time to time, `replace.rs` puts the files of another log directory in the place
//! of those that there are.
//!
//! A segment leaves in two steps: out of the map, its files renamed `.deleted`; then, after
//! `file.delete.delay.ms`, unlinked. Readers that hold it read on. A crash in between is healed at
//! the next start, which removes what is called `.deleted`. On a file system so full that a rename
//! finds no block, both steps are one: else nothing could be freed there.

pub mod housekeeper;
mod replace;
mod retain;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};

use crate::log::deadline::Deadline;
use crate::log::log::{Appender, Log, Phase, next_jitter};
use crate::log::names::{self, CLEANED, LOG, SWAP};
use crate::log::segment::replay::replay_segments;
use crate::log::segment::{Segment, SegmentVersion};
use crate::log::state::ends::LogPosition;
use crate::log::state::snapshots;

impl Log {
    /// Cuts everything from `offset` on (a follower that has diverged). `Ok(false)`: nothing was
    /// there. A batch that straddles the offset goes whole. Readers of what is cut read on. Epochs
    /// that begin there are forgotten, also one that has no record. Of a log that may be compacted
    /// `cleaner_checkpoint::truncate` must be called.
    ///
    /// Errors: a failed cut takes the log directory offline.
    pub fn truncate_to(&self, offset: i64, now_ms: i64) -> Result<bool> {
        self.truncate_checked(offset, now_ms, || Ok(()))
    }

    /// As `truncate_to`, if `check` agrees under the append lock, and once more in the moment in
    /// which the log ends lower: what lies between may wait for a disk. Errors: its own, too.
    pub fn truncate_checked(
        &self,
        offset: i64,
        now_ms: i64,
        check: impl Fn() -> Result<()>,
    ) -> Result<bool> {
        if offset < 0 {
            return Err(Error::InvalidArgument(format!(
                "cannot truncate to offset {offset}"
            )));
        }
        let flushing = self.flushing.lock();
        let mut appender = self.lock_appender();
        self.check_writable()?;
        check()?;
        if offset >= self.ends.read().log_end.offset {
            self.truncate_epochs(|epochs| epochs.truncate_from_end(offset))?;
            return Ok(false);
        }
        let first = self.segments.read().first().map(|one| one.base_offset());
        let result = if first.is_some_and(|first| offset < first) {
            self.restart_ends(offset, check)?;
            self.restart_at(&mut appender, offset, now_ms)
        } else {
            let place = self.place_of_cut(offset);
            let (cut, position) = place.inspect_err(|error| self.health.fail(error))?;
            self.lower_ends(position, check)?;
            self.cut_at(&mut appender, &cut, position, now_ms)
        };
        drop((appender, flushing));
        self.notify();
        result
            .inspect_err(|error| self.health.fail(error))
            .map(|()| true)
    }

    /// Removes all records; the log is empty and goes on at `offset`. Of a log that may be
    /// compacted `cleaner_checkpoint::start_anew` must be called.
    pub fn truncate_fully_and_start_at(&self, offset: i64, now_ms: i64) -> Result<()> {
        self.restart_checked(offset, now_ms, || Ok(()))
    }

    /// As `truncate_fully_and_start_at`, if `check` agrees in the moment in which the log ends
    /// there. Errors: its own, too.
    pub fn restart_checked(
        &self,
        offset: i64,
        now_ms: i64,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let flushing = self.flushing.lock();
        let mut appender = self.lock_appender();
        self.check_writable()?;
        self.restart_ends(offset, check)?;
        let result = self.restart_at(&mut appender, offset, now_ms);
        drop((appender, flushing));
        self.notify();
        result.inspect_err(|error| self.health.fail(error))
    }

    /// The segment in which a cut at `offset` lies, and where in it.
    fn place_of_cut(&self, offset: i64) -> Result<(Arc<Segment>, LogPosition)> {
        let cut = self.segment_at(offset).ok_or_else(|| self.closed())?;
        let position_byte = cut.position_of(offset)?;
        assert!(cut.base_offset() <= offset && position_byte <= cut.size_bytes());
        let position = LogPosition {
            offset,
            segment_base_offset: cut.base_offset(),
            position_byte,
        };
        Ok((cut, position))
    }

    /// Takes away what lies behind the ends, which were lowered to `position`.
    fn cut_at(
        &self,
        appender: &mut Appender,
        cut: &Arc<Segment>,
        position: LogPosition,
        now_ms: i64,
    ) -> Result<()> {
        let LogPosition {
            offset,
            position_byte,
            ..
        } = position;
        let segments = self.segments.read();
        let beyond = segments.values().rev();
        let beyond = beyond.take_while(|one| one.base_offset() > cut.base_offset());
        let beyond: Vec<_> = beyond.cloned().collect();
        drop(segments);
        // The last first, and all before the cut: no crash may leave a log with a hole.
        self.remove_segments(appender, &beyond, now_ms)?;
        self.sync_directory()?;
        cut.truncate(position_byte, offset, now_ms)?;
        cut.truncate_aborted(offset)?;
        cut.sync_log()?;
        self.truncate_epochs(|epochs| epochs.truncate_from_end(offset))?;
        self.verifications.clear();
        self.reload_producers(appender, offset, now_ms)?;
        self.ends.write().note_unstable(&appender.producers);
        // A snapshot of what was cut off must not come back when the log is as long again.
        self.sync_directory()
    }

    pub(in crate::log) fn sync_directory(&self) -> Result<()> {
        let directory = self.directory();
        self.storage()
            .sync_directory(&directory)
            .map_err(Error::io("fsync", &directory))
    }

    /// Has the log begin and end at `offset`, if `check` agrees: who begins another role looks at
    /// the ends afterwards, under the same lock (`Partition::new`).
    fn restart_ends(&self, offset: i64, check: impl Fn() -> Result<()>) -> Result<()> {
        let position = LogPosition {
            offset,
            segment_base_offset: offset,
            position_byte: 0,
        };
        let mut ends = self.ends.write();
        check()?;
        self.truncations.fetch_add(1, Ordering::AcqRel);
        ends.cuts += 1;
        ends.log_start_offset = offset;
        ends.log_end = position;
        ends.flushed = position;
        ends.high_watermark = position;
        ends.recovery_point = offset;
        ends.first_unstable_offset = None;
        ends.check_order();
        Ok(())
    }

    /// Takes away all records of a log whose ends are at `offset` by now.
    fn restart_at(&self, appender: &mut Appender, offset: i64, now_ms: i64) -> Result<()> {
        let config = self.config();
        let directory = self.directory();
        let all = self.segments();
        self.remove_segments(appender, &all, now_ms)?;
        let jitter = next_jitter(&mut appender.jitter_seed, config.segment_jitter_ms_max());
        let segment = Segment::create(
            &self.open_segments,
            &directory,
            offset,
            "",
            &config,
            jitter,
            now_ms,
        )?;
        self.segments.write().insert(segment);
        self.verifications.clear();
        appender
            .snapshots
            .truncate_fully(self.storage(), &mut appender.producers, offset)?;
        self.sync_directory()?;
        self.truncate_epochs(|epochs| {
            epochs.clear();
            true
        })
    }

    /// No number may lie above `position` when bytes above it go. `check`: as in `restart_ends`.
    fn lower_ends(&self, position: LogPosition, check: impl Fn() -> Result<()>) -> Result<()> {
        let mut guard = self.ends.write();
        check()?;
        self.truncations.fetch_add(1, Ordering::AcqRel);
        let ends = &mut *guard;
        ends.cuts += 1;
        ends.log_end = position;
        for mark in [&mut ends.flushed, &mut ends.high_watermark] {
            if mark.offset >= position.offset {
                *mark = position;
            }
        }
        ends.recovery_point = ends.recovery_point.min(position.offset);
        ends.log_start_offset = ends.log_start_offset.min(position.offset);
        ends.check_order();
        Ok(())
    }

    /// Records below `offset` are no longer there (DeleteRecords, a follower's leader). Returns the
    /// log start offset. Segments that lie below it go with the next `delete_old_segments`.
    ///
    /// Errors: `OffsetOutOfRange` above the high watermark.
    pub fn advance_log_start_offset(&self, offset: i64) -> Result<i64> {
        self.advance_log_start_checked(offset, || Ok(()))
    }

    /// As `advance_log_start_offset`, if `check` agrees under the append
    /// lock. Errors: its own, too.
    pub fn advance_log_start_checked(
        &self,
        offset: i64,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<i64> {
        let mut appender = self.lock_appender();
        self.check_writable()?;
        check()?;
        let mut ends = self.ends.write();
        if offset > ends.high_watermark.offset {
            return Err(Error::OffsetOutOfRange {
                offset,
                log_start_offset: ends.log_start_offset,
                log_end_offset: ends.high_watermark.offset,
            });
        }
        if offset <= ends.log_start_offset {
            return Ok(ends.log_start_offset);
        }
        ends.log_start_offset = offset;
        ends.check_order();
        drop(ends);
        let appender_state = &mut *appender;
        appender_state
            .snapshots
            .on_log_start_offset(&mut appender_state.producers, offset);
        self.ends.write().note_unstable(&appender.producers);
        drop(appender);
        self.forget_epochs_below(offset)?;
        self.notify();
        Ok(offset)
    }

    /// Takes segments out of the log and condemns their files with their producer snapshots.
    pub(in crate::log) fn remove_segments(
        &self,
        appender: &mut Appender,
        gone: &[Arc<Segment>],
        now_ms: i64,
    ) -> Result<()> {
        for segment in gone {
            self.segments.write().remove(segment.base_offset());
            appender
                .snapshots
                .delete(self.storage(), segment.base_offset())?;
            self.condemn(segment, now_ms)?;
        }
        self.names.note();
        Ok(())
    }

    fn condemn(&self, segment: &Segment, now_ms: i64) -> Result<()> {
        // A reader that holds the segment may ask for these when the file is gone; none would mean
        // to it that nothing was aborted.
        let _ = segment.aborted();
        // One of the same name may wait already (compacted twice, or truncated and written again);
        // its turn must not take the files of this one. Whoever reads it holds it open.
        let condemned = self.condemned.read().clone();
        if let Some(earlier) = condemned.take(segment.base_offset()) {
            self.open_segments.remove(&earlier)?;
        }
        if !self.open_segments.set_aside(segment.files())? {
            return Ok(());
        }
        let delay_ms = self.config.read().file_delete_delay_ms;
        let until = Deadline::after(delay_ms, now_ms);
        condemned.add(segment.files().clone(), until);
        Ok(())
    }

    /// Unlinks the files whose `file.delete.delay.ms` is over, and producer snapshots that a start
    /// has found to be superfluous. Returns how many segments went.
    pub fn delete_due_files(&self, now_ms: i64) -> Result<usize> {
        self.remove_given_up_snapshots()?;
        let condemned = self.condemned.read().clone();
        condemned.remove_due(now_ms)
    }

    /// Unlinks producer snapshots that a start has found to be superfluous.
    pub(in crate::log) fn remove_given_up_snapshots(&self) -> Result<()> {
        let given_up = self.lock_appender().snapshots.take_given_up();
        for path in given_up {
            snapshots::remove(self.storage(), &path)?;
        }
        Ok(())
    }

    /// Unlinks what a cleaning that failed could not take away itself. To be called before one
    /// begins: at a start, a `.cleaned` says that every `.swap` above it is half of a split and has
    /// to go, with records whose old segments are gone (`crash_clean_up.rs`).
    pub(in crate::log) fn remove_cleaned_leftovers(&self) -> Result<()> {
        let directory = self.directory();
        let entries = self
            .storage()
            .read_directory(&directory)
            .map_err(Error::io("readdir", &directory))?;
        for entry in entries {
            if names::is_of_segment(&entry.name, CLEANED) {
                let path = directory.join(entry.name);
                self.storage()
                    .remove_file(&path)
                    .map_err(Error::io("unlink", &path))?;
            }
        }
        Ok(())
    }

    /// Puts the cleaner's output in place of the segments it was made from.
    ///
    /// `new`: closed segments whose files are called `.cleaned`, complete and fsynced, ascending.
    /// `old`: segments of this log, none active. `truncations`: how often the log had been cut
    /// before it was known which records they need not hold. A crash at any point leaves either all
    /// of the old or all of the new: `.cleaned` alone is thrown away at the next start, and once
    /// the first is called `.swap` all of them are, and are finished.
    ///
    /// `Ok(false)`: an old segment was deleted or replaced since its version was noted, or the
    /// log was cut, or is on its way to another log directory; nothing has changed. Errors take the
    /// log directory offline.
    pub fn replace_segments(
        &self,
        new: &[Arc<Segment>],
        old: &[SegmentVersion],
        truncations: u64,
        now_ms: i64,
    ) -> Result<bool> {
        let flushing = self.flushing.lock();
        self.check_writable()?;
        // Whatever removes or cuts a segment holds the flush lock, so that this stays true.
        let mut versions = old.iter();
        let is_current = versions.all(|version| self.is_closed_and_current(version));
        // The newer records of a key may be those that were cut off: then an older one, which the
        // new segments lack, is its newest again. Kafka aborts the round before it cuts
        // (`LogManager.truncateTo`).
        let is_cut = self.truncations() != truncations;
        if !is_current || is_cut || self.is_moving() {
            return Ok(false);
        }
        let old: Vec<Arc<Segment>> = old.iter().map(|old| old.segment.clone()).collect();
        let result = self.replace_locked(new, &old, now_ms);
        drop(flushing);
        result.inspect_err(|error| self.health.fail(error))?;
        Ok(true)
    }

    fn is_closed_and_current(&self, version: &SegmentVersion) -> bool {
        let segments = self.segments.read();
        let base_offset = version.segment.base_offset();
        let known = segments.get(base_offset);
        let last = segments.last().map(|last| last.base_offset());
        known.is_some_and(|known| Arc::ptr_eq(known, &version.segment))
            && last != Some(base_offset)
            && version.is_current()
    }

    fn replace_locked(
        &self,
        new: &[Arc<Segment>],
        old: &[Arc<Segment>],
        now_ms: i64,
    ) -> Result<()> {
        let first = old.first().map_or(i64::MAX, |old| old.base_offset());
        assert!(new.iter().all(|new| first <= new.base_offset()));
        assert!(
            old.is_sorted_by_key(|old| old.base_offset()),
            "segments ascend"
        );
        let directory = self.directory();
        let sync = || {
            self.storage()
                .sync_directory(&directory)
                .map_err(Error::io("fsync", &directory))
        };
        // Last first: recovery takes a `.cleaned` below a `.swap` for an unfinished operation.
        for segment in new.iter().rev() {
            self.open_segments.change_suffix(segment.files(), SWAP)?;
        }
        sync()?;
        {
            let mut segments = self.segments.write();
            for segment in old {
                segments.remove(segment.base_offset());
            }
            for segment in new {
                segments.insert(segment.clone());
            }
            let replaced =
                |base: i64| base >= 0 && old.iter().any(|segment| segment.base_offset() == base);
            // Bytes of marks that lay in a replaced segment mean nothing any more.
            let mut guard = self.ends.write();
            let ends = &mut *guard;
            ends.cuts += 1;
            for mark in [&mut ends.flushed, &mut ends.high_watermark] {
                if replaced(mark.segment_base_offset) {
                    *mark = LogPosition::unresolved(mark.offset);
                }
            }
            ends.check_order();
        }
        for segment in old {
            self.condemn(segment, now_ms)?;
        }
        for segment in new {
            self.open_segments.change_suffix(segment.files(), "")?;
        }
        let mut appender = self.lock_appender();
        for segment in old {
            let base_offset = segment.base_offset();
            if !new.iter().any(|new| new.base_offset() == base_offset) {
                appender.snapshots.delete(self.storage(), base_offset)?;
            }
        }
        drop(appender);
        sync()
    }

    /// Takes the log out of use and gives its directory another name; readers that hold a
    /// range read on. Returns the path; `None`: there was no block for the name, and the
    /// directory is removed already.
    pub(in crate::log) fn delete(&self, name: &str) -> Result<Option<PathBuf>> {
        let flushing = self.flushing.lock();
        let mut appender = self.lock_appender();
        self.check_not_deleted()?;
        let mut directory = self.directory.write();
        // Where it lies by now, which may be another log directory than it was in.
        let to = directory.with_file_name(name);
        let renamed = self.storage().rename(&directory, &to);
        let renamed = renamed.map_err(Error::io("rename", &directory));
        let is_renamed = match renamed {
            Err(error) if error.lacks_space() => {
                let removed = self.storage().remove_directory_all(&directory);
                removed.map_err(Error::io("rmdir", &directory))?;
                false
            }
            renamed => renamed.map(|()| true)?,
        };
        // From here on a flush that is still queued finds nothing to do: the files may go.
        self.phase.store(Phase::Deleted as u8, Ordering::Release);
        for segment in self.segments.read().values() {
            segment.files().move_to(&to);
        }
        self.condemned.read().move_all_to(&to);
        appender.snapshots.set_directory(&to);
        *directory = to.clone();
        drop((directory, appender, flushing));
        self.notify();
        Ok(is_renamed.then_some(to))
    }

    fn closed(&self) -> Error {
        Error::LogDirOffline {
            path: self.directory(),
            reason: format!("no {LOG} file is left"),
        }
    }
}

impl Log {
    /// Producer state for a log that has been cut to end at `offset`.
    fn reload_producers(&self, appender: &mut Appender, offset: i64, now_ms: i64) -> Result<()> {
        let log_start_offset = self.ends.read().log_start_offset;
        let expiration_ms = self.config.read().producer_id_expiration_ms;
        let state = &mut *appender;
        // What is in memory may know of batches that are gone.
        state.producers.clear(log_start_offset);
        state.snapshots.truncate_and_reload(
            self.storage(),
            &mut state.producers,
            log_start_offset,
            offset,
            now_ms,
            expiration_ms,
        )?;
        let segments = self.segments.read().clone();
        replay_segments(&segments, &mut state.producers, offset)
    }
}
