//! The leader epochs of a log: which leader has written which records, where a log that has other
//! ones ceases to be this one, and the epoch in which this replica leads.

use std::sync::atomic::Ordering;

use parking_lot::RwLockUpgradableReadGuard;

use crate::error::Result;

use super::log::Log;
use super::state::epochs::{EpochEndOffset, LeaderEpochs};

impl Log {
    /// The epochs of the records, and behind them the one in which this replica leads: until it has
    /// a record it begins at the log end.
    pub fn leader_epochs(&self) -> LeaderEpochs {
        // Before the epochs: a record is published later than its epoch.
        let log_end_offset = self.ends.read().log_end.offset;
        let mut epochs = self.epochs.read().clone();
        epochs.lead(self.leading_epoch(), log_end_offset);
        epochs
    }

    /// The largest epoch at or below `epoch`, and the offset behind its last record: where
    /// the log of who has records up to `epoch` ceases to be this one (KIP-101, KIP-595).
    /// `None`: that cannot be said.
    pub fn end_of_epoch(&self, epoch: i32) -> Option<EpochEndOffset> {
        let log_end_offset = self.offsets().log_end_offset;
        let epochs = self.leader_epochs();
        epochs.end_offset_for(epoch, log_end_offset)
    }

    /// Where the records of the epoch begin in which this replica leads: the
    /// log end, until it has one.
    pub fn leading_epoch_start(&self) -> i64 {
        // Before the epochs, as in `leader_epochs`.
        let log_end_offset = self.ends.read().log_end.offset;
        let epochs = self.epochs.read();
        let latest = epochs.latest();
        let own = latest.filter(|latest| latest.epoch == self.leading_epoch());
        own.map_or(log_end_offset, |own| own.start_offset)
    }

    /// -1 where this replica does not lead.
    pub fn leading_epoch(&self) -> i32 {
        self.leading_epoch.load(Ordering::Acquire)
    }

    /// This replica leads in `epoch` from here on. Kafka notes the epoch in its file at once
    /// (`Partition.makeLeader`); a start takes it out again where it has no record
    /// (`LogLoader.load`), so that only the first record needs it there.
    pub fn lead(&self, epoch: i32) {
        let before = self.leading_epoch.swap(epoch, Ordering::AcqRel);
        assert!(epoch == -1 || epoch >= before, "{before} → {epoch}");
    }

    /// The largest epoch of which the log has noted a start; of a follower that of its last batch.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.read().latest_epoch()
    }

    pub(super) fn assign_epoch(&self, epoch: i32, start_offset: i64) -> Result<()> {
        let known = self.epochs.upgradable_read();
        let mut next = known.clone();
        if next.assign(epoch, start_offset)? {
            self.write_epochs(&next)?;
            *RwLockUpgradableReadGuard::upgrade(known) = next;
        }
        Ok(())
    }

    /// Forgets epochs, in memory even where the file cannot be written. Here as in `assign_epoch`
    /// readers of the epochs do not wait for the file, which may be on a frozen file system.
    pub(super) fn truncate_epochs(
        &self,
        truncate: impl FnOnce(&mut LeaderEpochs) -> bool,
    ) -> Result<()> {
        let known = self.epochs.upgradable_read();
        let mut next = known.clone();
        if !truncate(&mut next) {
            return Ok(());
        }
        let written = self.write_epochs(&next);
        *RwLockUpgradableReadGuard::upgrade(known) = next;
        written
    }

    /// Forgets epochs that lie below the log start. On a full disk the file goes on to name them,
    /// which each start puts right: what frees space must not fail for want of it.
    pub(super) fn forget_epochs_below(&self, log_start_offset: i64) -> Result<()> {
        match self.truncate_epochs(|epochs| epochs.truncate_from_start(log_start_offset)) {
            Err(error) if error.lacks_space() => Ok(()),
            written => written,
        }
    }

    /// A new leader's epoch starts at the log end, before its first record.
    pub fn start_leader_epoch(&self, epoch: i32) -> Result<()> {
        let _appends = self.lock_appender();
        let log_end_offset = self.ends.read().log_end.offset;
        self.assign_epoch(epoch, log_end_offset)
    }

    /// The epoch of the first leader of a log that was just made, on disk as Kafka has
    /// it there. The file is not synced: one that a power cut tears is made anew from
    /// the records (`recover/`).
    pub fn begin_first_epoch(&self, epoch: i32) -> Result<()> {
        let log_end_offset = self.ends.read().log_end.offset;
        let mut epochs = self.epochs.write();
        epochs.assign(epoch, log_end_offset)?;
        epochs.write_unsynced(self.storage(), &self.directory.read())
    }

    fn write_epochs(&self, epochs: &LeaderEpochs) -> Result<()> {
        epochs.write(self.storage(), &self.directory.read())
    }
}
