//! The files of another log, in another log directory, take the place of those of a log: the last
//! step of a move between log directories (KIP-113). The log stays the same to whoever has it: its
//! ends, its role, who observes it. What it holds and where it lies are of the other one by then,
//! which takes the old files over.
//!
//! ```text
//! one/orders-0                          ──1──► one/orders-0.<unique>-delete      fsync of one
//! two/orders-0.<unique>-future          ──2──► two/orders-0                      fsync of two
//! ```
//!
//! All that was appended is in the new files, on disk, before 1. A crash between 1 and 2 leaves
//! a future replica alone, which a start takes for the log where the metadata says that it lies
//! there (`Claimed::load_logs`), as Kafka's does (`LogManager.recoverAbandonedFutureLogs`).
//! Kafka renames in the other order, and a start of it refuses what a crash leaves in between:
//! two logs of one partition.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};

use crate::log::log::{Appender, Log, Phase};
use crate::log::segment::map::SegmentMap;
use crate::log::state::ends::{LogEnds, LogPosition};

impl Log {
    /// Puts the files of `future` in the place of those of this log, which get the directory name
    /// `aside`. Appends and flushes wait meanwhile; readers go on. `catch_up` is called when they
    /// wait: it brings what `future` lacks, or answers `false` where that cannot be. Returns the
    /// path of the old files; `None`: nothing has changed.
    ///
    /// Errors: likewise, but a directory that cannot be brought back to what it was is offline.
    pub fn replace_by(
        &self,
        future: &Log,
        aside: &str,
        now_ms: i64,
        catch_up: impl FnOnce() -> Result<bool>,
    ) -> Result<Option<PathBuf>> {
        assert!(self.topic == future.topic && self.partition == future.partition);
        let flushing = self.flushing.lock();
        let mut appender = self.lock_appender();
        self.check_writable()?;
        future.check_writable()?;
        if !catch_up()? {
            return Ok(None);
        }
        let ends = *self.ends.read();
        future.end_at(ends.log_end.offset, now_ms)?;
        if future.offsets().log_end_offset != ends.log_end.offset {
            return Ok(None);
        }
        future.flush()?;
        future.set_replicated_offset(ends.high_watermark.offset);
        future.advance_log_start_offset(ends.log_start_offset)?;
        // Those too whose records compaction has taken away.
        let epochs = self.epochs.read().clone();
        epochs.write(self.storage(), &future.directory())?;
        let other_flushing = future.flushing.lock();
        let mut other = future.lock_appender();
        // It may have been deleted since it was looked at.
        future.check_writable()?;
        let (place, aside) = self.exchange_names(future, aside)?;
        self.exchange(future, (&mut appender, &mut other), &place, &aside);
        drop((other, other_flushing, appender, flushing));
        self.notify();
        Ok(Some(aside))
    }

    /// Has the log end at `offset`, where the last records below it were compacted away.
    fn end_at(&self, offset: i64, now_ms: i64) -> Result<()> {
        let offsets = self.offsets();
        if offsets.log_end_offset >= offset {
            return Ok(());
        }
        if self.size_bytes() == 0 {
            return self.truncate_fully_and_start_at(offset, now_ms);
        }
        let mut appender = self.lock_appender();
        self.roll(&mut appender, offset, now_ms)?;
        self.publish_end(&mut appender);
        Ok(())
    }

    /// Renames the directories of both logs; returns their new paths. After an error
    /// the names are as before.
    fn exchange_names(&self, future: &Log, aside: &str) -> Result<(PathBuf, PathBuf)> {
        let storage = self.storage();
        let (from, to) = (self.directory(), future.directory());
        let name = from.file_name().unwrap_or_default();
        let (place, aside) = (to.with_file_name(name), from.with_file_name(aside));
        let sync = |path: &PathBuf| {
            let parent = path.parent().unwrap_or(path);
            storage
                .sync_directory(parent)
                .map_err(Error::io("fsync", parent))
        };
        storage
            .sync_directory(&to)
            .map_err(Error::io("fsync", &to))
            .inspect_err(|error| future.health.fail(error))?;
        storage
            .rename(&from, &aside)
            .map_err(Error::io("rename", &from))?;
        // From here on the old directory's failure does not hinder: all is in the new one.
        sync(&aside).unwrap_or_else(|error| self.health.fail(&error));
        let renamed = storage.rename(&to, &place);
        if let Err(error) = renamed.map_err(Error::io("rename", &to)) {
            let back = storage.rename(&aside, &from);
            back.map_err(Error::io("rename", &aside))
                .unwrap_or_else(|broken| self.health.fail(&broken));
            return Err(error);
        }
        sync(&place).unwrap_or_else(|error| future.health.fail(&error));
        Ok((place, aside))
    }

    /// In memory, what `exchange_names` has done on disk.
    fn exchange(
        &self,
        future: &Log,
        (appender, other): (&mut Appender, &mut Appender),
        place: &PathBuf,
        aside: &PathBuf,
    ) {
        let (mut segments, mut others) = (self.segments.write(), future.segments.write());
        let (mut ends, mut other_ends) = (self.ends.write(), future.ends.write());
        let move_to = |segments: &SegmentMap, path: &PathBuf| {
            for segment in segments.values() {
                segment.files().move_to(path);
            }
        };
        move_to(&segments, aside);
        move_to(&others, place);
        std::mem::swap(&mut *segments, &mut *others);
        std::mem::swap(&mut appender.producers, &mut other.producers);
        std::mem::swap(&mut appender.snapshots, &mut other.snapshots);
        appender.snapshots.set_directory(place);
        other.snapshots.set_directory(aside);
        let (mut condemned, mut others) = (self.condemned.write(), future.condemned.write());
        std::mem::swap(&mut *condemned, &mut *others);
        condemned.take_to(place);
        others.move_all_to(aside);
        drop((condemned, others));
        let old_health = self.health.replace(future.health.get());
        future.health.replace(old_health);
        self.directory.write().clone_from(place);
        future.directory.write().clone_from(aside);
        let (old, new) = (*ends, *other_ends);
        assert_eq!(old.log_end.offset, new.log_end.offset, "the same records");
        let log_start_offset = new.log_start_offset.max(old.log_start_offset);
        // What was deleted was committed, which this log may not know any more since a crash.
        let high_watermark = old.high_watermark.offset.max(log_start_offset);
        appender.producers.on_high_watermark(high_watermark);
        *ends = LogEnds {
            log_start_offset,
            high_watermark: if high_watermark == new.log_end.offset {
                new.log_end
            } else {
                LogPosition::unresolved(high_watermark)
            },
            replicated_offset: old.replicated_offset,
            cuts: old.cuts + 1,
            ..new
        };
        ends.note_unstable(&appender.producers);
        ends.check_order();
        *other_ends = LogEnds {
            cuts: new.cuts + 1,
            ..old
        };
        self.names.note();
        // What is still queued finds nothing to do: the files are on their way out.
        future.phase.store(Phase::Deleted as u8, Ordering::Release);
        self.replacements.fetch_add(1, Ordering::Release);
    }
}
