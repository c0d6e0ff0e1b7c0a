//! Making a log durable.
//!
//! `flush` is one group commit: everything appended before it began is on disk when it returns, one
//! `fdatasync` per segment with new bytes (most often one) and one `fsync` of the directory if
//! names were made in it. `advance_recovery_point` does what may be late: indexes and producer
//! snapshots of closed segments, after which recovery need not look at them. Many logs at once are
//! flushed by one sync of their file system (`begin_shared_flush`, `finish_shared_flush`; see
//! `directory/flusher.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLockWriteGuard;

use crate::error::{Error, Result};

use super::health::Health;
use super::log::{Appender, Log, Phase};
use super::segment::Segment;
use super::state::ends::LogEnds;
use super::state::ends::LogPosition;
use super::storage::OpenMode;

/// The part of one log that a sync of the whole file system will have made durable.
#[derive(Clone)]
pub struct SharedFlush {
    target: LogPosition,
    cuts: u64,
    /// Changes of names in the log's directory.
    names: u64,
    /// The health of the log directory in which the log was.
    health: Arc<Health>,
}

impl Log {
    /// After `flush` returns `Ok`, every record appended before the call survives a power cut, and
    /// `flushed_offset` says so. Flushes of one log exclude each other; appends go on beside it.
    ///
    /// Errors: any failure takes the log directory offline (`Health`); what is on disk between the
    /// flushed offset and the log end is then unknown, and nothing tries again. But where there is
    /// no descriptor for a file nothing has been done, and the caller may try again.
    pub fn flush(&self) -> Result<()> {
        let flushing = self.flushing.lock();
        let result = self.flush_locked();
        drop(flushing);
        self.notify();
        result
    }

    /// Notes what there is to be flushed, before the file system is synced as a whole. `None`:
    /// nothing. Errors: `LogDirOffline`.
    pub fn begin_shared_flush(&self) -> Result<Option<SharedFlush>> {
        self.health.check()?;
        let ends = *self.ends.read();
        if self.is_in(Phase::Deleted) || ends.flushed.offset >= ends.log_end.offset {
            return Ok(None);
        }
        Ok(Some(SharedFlush {
            target: ends.log_end,
            cuts: ends.cuts,
            names: self.names.count(),
            health: self.health.get(),
        }))
    }

    /// After a sync of the file system that began behind `begin_shared_flush` has succeeded:
    /// publishes the flushed offset. A log that has been cut meanwhile is flushed by itself.
    pub fn finish_shared_flush(&self, shared: SharedFlush) -> Result<()> {
        self.names.note_synced(shared.names);
        let ends = self.ends.write();
        if ends.cuts != shared.cuts {
            drop(ends);
            return self.flush();
        }
        let health = self.health.check();
        match health {
            Ok(()) => self.publish_flushed(ends, shared.target),
            Err(_) => drop(ends),
        }
        self.notify();
        health
    }

    /// The sync has failed: nobody knows what of the directory is on disk.
    pub(super) fn fail_shared_flush(&self, shared: &SharedFlush, error: &Error) {
        shared.health.fail(error);
        self.notify();
    }

    pub(super) fn flush_locked(&self) -> Result<()> {
        self.health.check()?;
        if self.is_in(Phase::Deleted) {
            return Ok(());
        }
        let (from, target) = {
            let ends = self.ends.read();
            (ends.flushed.offset, ends.log_end)
        };
        if from < target.offset {
            self.sync_segments(from)
                .inspect_err(|error| self.health.fail_for_good(error))?;
        }
        self.publish_flushed(self.ends.write(), target);
        Ok(())
    }

    fn publish_flushed(&self, mut ends: RwLockWriteGuard<'_, LogEnds>, target: LogPosition) {
        let acks_fsync = self.config.read().acks_fsync;
        if target.offset > ends.flushed.offset {
            ends.flushed = target;
        }
        let moved = ends.advance_high_watermark(acks_fsync);
        ends.check_order();
        let has_transactions = ends.first_unstable_offset.is_some();
        drop(ends);
        if moved && has_transactions {
            self.is_unsettled.store(true, Ordering::SeqCst);
            self.settle_transactions();
        }
    }

    fn sync_segments(&self, from: i64) -> Result<()> {
        if !self.names.are_synced() {
            let (names, directory) = (self.names.count(), self.directory());
            self.storage()
                .sync_directory(&directory)
                .map_err(Error::io("fsync", &directory))?;
            self.names.note_synced(names);
        }
        let mut segment = self.segment_at(from);
        while let Some(dirty) = segment {
            dirty.sync_log()?;
            segment = self.segment_after(dirty.base_offset());
        }
        Ok(())
    }

    /// Ended transactions below the high watermark no longer hold back `read_committed`. Does
    /// not wait for the append lock, under which somebody may wait for a disk: whoever has it
    /// comes here once it is free.
    pub(super) fn settle_transactions(&self) {
        while self.is_unsettled.load(Ordering::SeqCst) {
            let Some(mut appender) = self.appender.try_lock() else {
                return;
            };
            self.is_unsettled.store(false, Ordering::SeqCst);
            let mut ends = self.ends.write();
            let high_watermark = ends.high_watermark.offset;
            appender.producers.on_high_watermark(high_watermark);
            ends.note_unstable(&appender.producers);
            ends.check_order();
        }
    }

    /// The replicas that are needed have everything below `offset`; `i64::MAX` where no other is.
    pub fn set_replicated_offset(&self, offset: i64) {
        if self.note_replicated_offset(offset) {
            self.after_high_watermark();
        }
    }

    /// As `set_replicated_offset`, without a wait for anything. True: the high watermark has moved,
    /// and `after_high_watermark` must follow.
    pub fn note_replicated_offset(&self, offset: i64) -> bool {
        self.replicate(offset, self.ends.write())
    }

    /// As `set_replicated_offset`, as long as the role of this number is the replica's
    /// (`begin_role`): who plays another one sets the offset after it has begun, and what was told
    /// before must not come behind that.
    pub fn set_replicated_offset_in(&self, role: u64, offset: i64) {
        let ends = self.ends.write();
        if self.check_role(role).is_ok() && self.replicate(offset, ends) {
            self.after_high_watermark();
        }
    }

    fn replicate(&self, offset: i64, mut ends: RwLockWriteGuard<'_, LogEnds>) -> bool {
        let acks_fsync = self.config.read().acks_fsync;
        ends.replicated_offset = offset;
        let moved = ends.advance_high_watermark(acks_fsync);
        ends.check_order();
        moved
    }

    /// The high watermark has moved: ended transactions below it are
    /// settled, and who waits is told.
    pub fn after_high_watermark(&self) {
        let has_transactions = self.ends.read().first_unstable_offset.is_some();
        self.is_unsettled
            .fetch_or(has_transactions, Ordering::SeqCst);
        self.notify();
    }

    /// Puts indexes and producer snapshots of the closed segments on disk and moves the recovery
    /// point to the base offset of the active one. After it returns `Ok`, the value may be written
    /// to the checkpoint file. Costs fsyncs; not for the thread that answers producers.
    pub fn advance_recovery_point(&self) -> Result<i64> {
        let flushing = self.flushing.lock();
        if self.is_in(Phase::Deleted) {
            return Ok(self.ends.read().recovery_point);
        }
        let (from, active) = (self.ends.read().recovery_point, self.active_segment()?);
        if active.base_offset() <= from {
            return Ok(from);
        }
        self.flush_locked()?;
        let moved = self.finish_segments(from, active.base_offset());
        drop(flushing);
        moved.inspect_err(|error| self.health.fail_for_good(error))
    }

    /// Under the flush lock, with all bytes below `offset` on disk.
    pub(super) fn finish_segments(&self, from: i64, offset: i64) -> Result<i64> {
        self.sync_closed(from, offset)?;
        self.sync_snapshot(offset)?;
        let directory = self.directory();
        self.storage()
            .sync_directory(&directory)
            .map_err(Error::io("fsync", &directory))?;
        let mut ends = self.ends.write();
        ends.recovery_point = ends.recovery_point.max(offset.min(ends.flushed.offset));
        ends.check_order();
        Ok(ends.recovery_point)
    }

    /// Indexes of the segments from `from` to below `end`, and the snapshots at their beginnings.
    fn sync_closed(&self, from: i64, end: i64) -> Result<()> {
        let mut segment = self.segment_at(from);
        while let Some(closed) = segment.filter(|segment| segment.base_offset() < end) {
            let base_offset = closed.base_offset();
            closed.sync_indexes()?;
            if base_offset > from {
                self.sync_snapshot(base_offset)?;
            }
            segment = self.segment_after(base_offset);
        }
        Ok(())
    }

    /// The producer snapshot at `offset`, if there is one: no batch of this log may have a producer
    /// id, or the state was saved at this offset before.
    fn sync_snapshot(&self, offset: i64) -> Result<()> {
        let snapshot = Log::snapshot_path(&self.directory(), offset);
        match self.storage().open(&snapshot, OpenMode::ReadWrite) {
            Ok(file) => file.sync_data().map_err(Error::io("fsync", &snapshot)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io("open", &snapshot)(error)),
        }
    }

    /// Puts everything on disk as a clean stop leaves it: records, the active segment's indexes
    /// with their last entry, epochs, and a snapshot of the producers at the log end, to which the
    /// recovery point moves. The log stays readable; appends are refused from here on.
    pub fn close(&self) -> Result<()> {
        let flushing = self.flushing.lock();
        {
            let _appends = self.lock_appender();
            if self.is_in(Phase::Deleted) {
                return Ok(());
            }
            // First of all: a record appended behind the flush below would never be looked for.
            self.phase.store(Phase::Closed as u8, Ordering::Release);
        }
        self.flush_locked()?;
        let mut appender = self.lock_appender();
        let active = self.active_segment()?;
        let result = self.close_locked(&mut appender, &active);
        drop(appender);
        drop(flushing);
        result.inspect_err(|error| self.health.fail_for_good(error))
    }

    fn close_locked(&self, appender: &mut Appender, active: &Segment) -> Result<()> {
        let ends = *self.ends.read();
        self.write_last(appender, active, ends)?;
        self.sync_closed(ends.recovery_point, active.base_offset())?;
        self.sync_snapshot(active.base_offset())?;
        // With a record the active segment ends behind its base offset, and is among them.
        if ends.log_end.offset == active.base_offset() {
            active.sync_indexes()?;
        }
        self.finish_segments(ends.log_end.offset, ends.log_end.offset)?;
        Ok(())
    }

    /// Writes what a clean stop leaves beside the records, and syncs nothing.
    fn write_last(&self, appender: &mut Appender, active: &Segment, ends: LogEnds) -> Result<()> {
        active.write_indexes(true)?;
        appender.producers.set_map_end_offset(ends.log_end.offset);
        let (storage, state) = (self.storage(), &appender.producers);
        appender.snapshots.take(storage, state, false)?;
        Ok(())
    }

    /// The part of `close` before a sync of the whole file system: refuses appends, and writes what
    /// is not there yet. `None`: the log is deleted. Errors: as those of `close`.
    pub fn begin_shared_close(&self) -> Result<Option<SharedFlush>> {
        let flushing = self.flushing.lock();
        let mut appender = self.lock_appender();
        if self.is_in(Phase::Deleted) {
            return Ok(None);
        }
        self.health.check()?;
        self.phase.store(Phase::Closed as u8, Ordering::Release);
        let ends = *self.ends.read();
        let written = self
            .active_segment()
            .and_then(|active| self.write_last(&mut appender, &active, ends));
        drop(appender);
        drop(flushing);
        written.inspect_err(|error| self.health.fail(error))?;
        Ok(Some(SharedFlush {
            target: ends.log_end,
            cuts: ends.cuts,
            names: self.names.count(),
            health: self.health.get(),
        }))
    }

    /// The part behind a sync that has succeeded: the log is flushed, and its recovery point at its
    /// end. Errors: `LogDirOffline`, also of a log that was cut meanwhile.
    pub fn finish_shared_close(&self, shared: SharedFlush) -> Result<()> {
        self.health.check()?;
        self.names.note_synced(shared.names);
        let mut ends = self.ends.write();
        if ends.cuts != shared.cuts {
            let (path, reason) = (
                self.directory(),
                "it was cut while it was closed".to_owned(),
            );
            return Err(Error::LogDirOffline { path, reason });
        }
        ends.recovery_point = ends.recovery_point.max(shared.target.offset);
        self.publish_flushed(ends, shared.target);
        Ok(())
    }
}
