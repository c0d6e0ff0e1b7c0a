//! The leader epochs of a partition: which leader wrote which offsets.
//!
//! A leader epoch is the number of a leadership; its start offset is the offset of its first
//! record. A replica that comes back asks the leader where its own latest epoch ended and cuts its
//! log there (KIP-101, KIP-279), a consumer checks its position the same way (KIP-320).
//!
//! ```text
//! epoch          3        5             8
//! start offset   0 ────── 40 ────────── 95 ──── log end 120
//! end_offset_for(3) = (3, 40)    end_offset_for(4) = (3, 40)   the floor epoch, the next start
//! end_offset_for(8) = (8, 120)   end_offset_for(9) = none      newer than all that is known
//! end_offset_for(1) = (1, 0)     older than all that is kept: where the log begins
//! ```
//!
//! On disk: `leader-epoch-checkpoint`, text, version 0 (see `checkpoint_file.rs` for the frame);
//! one line `<epoch> <start offset>` per entry, ascending. Every method that changes the entries
//! says whether it did: the caller then writes the file. Kafka: `LeaderEpochFileCache`.

use std::path::Path;

use crate::batch::header::NO_LEADER_EPOCH;
use crate::error::{Error, Result};
use crate::log::checkpoint_file;
use crate::log::names::LEADER_EPOCH_CHECKPOINT;
use crate::log::storage::{OpenMode, Storage, write_all_at};

/// One leadership: `start_offset` is the offset of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: i32,
    pub start_offset: i64,
}

/// The answer to OffsetsForLeaderEpoch: the largest epoch not above the one asked for, and the
/// first offset that is not of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    pub leader_epoch: i32,
    pub end_offset: i64,
}

/// Entries ascend strictly both in epoch and in start offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// Reads the text of `leader-epoch-checkpoint`; `path` is for errors only. Entries that are
    /// out of order displace those before them, as they do in `assign`.
    ///
    /// Errors: `CorruptFile` with the line for text that is not the format, or a negative number.
    pub fn parse(text: &[u8], path: &Path) -> Result<LeaderEpochs> {
        let mut epochs = LeaderEpochs::default();
        let entries = checkpoint_file::parse_entries(text, path, |fields| match fields {
            [epoch, start_offset] => {
                let entry = EpochEntry {
                    epoch: epoch.parse().ok()?,
                    start_offset: start_offset.parse().ok()?,
                };
                (entry.epoch >= 0 && entry.start_offset >= 0).then_some(entry)
            }
            _ => None,
        })?;
        for entry in entries {
            epochs.assign(entry.epoch, entry.start_offset)?;
        }
        Ok(epochs)
    }

    /// The text of `leader-epoch-checkpoint`.
    pub fn print(&self) -> String {
        checkpoint_file::print_entries(
            self.entries
                .iter()
                .map(|entry| format!("{} {}", entry.epoch, entry.start_offset)),
        )
    }

    /// Reads the file of a partition's directory; one that is not there holds nothing.
    /// Errors: as `parse`; `CorruptFile` for one that ends within a line; `Io`.
    pub fn read(storage: &dyn Storage, directory: &Path) -> Result<LeaderEpochs> {
        let path = directory.join(LEADER_EPOCH_CHECKPOINT);
        match checkpoint_file::read(storage, &path)? {
            Some(text) => {
                checkpoint_file::check_whole(&text, &path)?;
                LeaderEpochs::parse(&text, &path)
            }
            None => Ok(LeaderEpochs::default()),
        }
    }

    /// After it returns, the file holds these entries, whatever happens.
    pub fn write(&self, storage: &dyn Storage, directory: &Path) -> Result<()> {
        let path = directory.join(LEADER_EPOCH_CHECKPOINT);
        checkpoint_file::write(storage, &path, self.print().as_bytes())
    }

    /// Writes the file without a sync: a power cut may leave the file empty or torn. For a log that
    /// has no record.
    pub fn write_unsynced(&self, storage: &dyn Storage, directory: &Path) -> Result<()> {
        let path = directory.join(LEADER_EPOCH_CHECKPOINT);
        let write = || {
            let file = storage.open(&path, OpenMode::CreateOrTruncate)?;
            write_all_at(&*file, self.print().as_bytes(), 0)
        };
        write().map_err(Error::io("write", &path))
    }

    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    pub fn latest_epoch(&self) -> Option<i32> {
        self.latest().map(|entry| entry.epoch)
    }

    /// Says whether `assign` with these numbers would change anything: true on the first batch of a
    /// new leader. Cheap enough for every append.
    pub fn is_new(&self, epoch: i32, start_offset: i64) -> bool {
        match self.latest() {
            Some(latest) => epoch != latest.epoch || start_offset < latest.start_offset,
            None => true,
        }
    }

    /// Notes that `epoch` begins at `start_offset`. Entries that would then no longer ascend are
    /// forgotten: the newer statement wins. An epoch keeps its start offset once it has one,
    /// unless a lower start is told. Returns whether the entries changed.
    ///
    /// Errors: `InvalidArgument` for a negative number.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> Result<bool> {
        if epoch < 0 || start_offset < 0 {
            return Err(Error::InvalidArgument(format!(
                "leader epoch {epoch} at offset {start_offset} is negative"
            )));
        }
        if !self.is_new(epoch, start_offset) {
            return Ok(false);
        }
        while let Some(latest) = self.entries.last() {
            if latest.epoch < epoch && latest.start_offset < start_offset {
                break;
            }
            self.entries.pop();
        }
        self.entries.push(EpochEntry {
            epoch,
            start_offset,
        });
        self.check();
        Ok(true)
    }

    /// Notes the epoch of a leader that has written nothing yet, if it is
    /// newer than all known ones.
    pub fn lead(&mut self, epoch: i32, log_end_offset: i64) {
        if epoch > self.latest_epoch().unwrap_or(-1) {
            // Neither number is negative.
            let _ = self.assign(epoch, log_end_offset);
        }
    }

    /// Forgets the epochs that begin at `end_offset` or behind it: the log was cut there. Returns
    /// whether the entries changed.
    pub fn truncate_from_end(&mut self, end_offset: i64) -> bool {
        if end_offset < 0 {
            return false;
        }
        let kept = self
            .entries
            .partition_point(|entry| entry.start_offset < end_offset);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// Forgets what lies before `start_offset`, the new start of the log. The epoch that holds
    /// this offset is kept and begins there. Returns whether the entries changed.
    pub fn truncate_from_start(&mut self, start_offset: i64) -> bool {
        let begun = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        let Some(holder) = begun.checked_sub(1) else {
            return false;
        };
        let changed = holder > 0 || self.entries[holder].start_offset != start_offset;
        self.entries[holder].start_offset = start_offset;
        self.entries.drain(..holder);
        self.check();
        changed
    }

    fn check(&self) {
        let ends = [self.entries.first_chunk::<2>(), self.entries.last_chunk()];
        let ascend = |[one, next]: &[EpochEntry; 2]| {
            one.epoch < next.epoch && one.start_offset < next.start_offset
        };
        assert!(
            ends.into_iter().flatten().all(ascend),
            "leader epochs ascend"
        );
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Where `epoch` ended, for a log that ends at `log_end_offset`: see the picture above. `None`
    /// is Kafka's (-1, -1): nothing is known (no epoch asked for, or one newer than all known).
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> Option<EpochEndOffset> {
        if epoch == NO_LEADER_EPOCH {
            return None;
        }
        if self.latest_epoch() == Some(epoch) {
            return Some(EpochEndOffset {
                leader_epoch: epoch,
                end_offset: log_end_offset,
            });
        }
        let above = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let next = self.entries.get(above)?;
        let floor = above.checked_sub(1).and_then(|at| self.entries.get(at));
        Some(EpochEndOffset {
            leader_epoch: floor.map_or(epoch, |entry| entry.epoch),
            end_offset: next.start_offset,
        })
    }

    /// The epoch whose leader wrote `offset`; `None` before the first known one.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        let begun = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset);
        self.entries
            .get(begun.checked_sub(1)?)
            .map(|entry| entry.epoch)
    }
}
