//! The checkpoint files of a log directory: written now and then, read at the start, and what
//! becomes of the lines of topics that are deleted.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use super::{LogDirectory, NewLog};
use crate::crash::or_error;
use crate::error::{Error, Result};
use crate::log::directory::checkpoint_files::CheckpointFiles;
use crate::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use crate::log::log::Log;
use crate::log::names;
use crate::log::storage::Storage;

impl LogDirectory {
    /// Waits for whoever holds them.
    pub fn checkpoint_files(&self) -> CheckpointFiles<'_> {
        CheckpointFiles {
            storage: self.storage(),
            folder: &self.path,
            health: &self.health,
            known: self.checkpointing.lock(),
        }
    }

    /// Moves recovery points up to the active segments and writes the checkpoint files. Costs
    /// fsyncs (`log.flush.offset.checkpoint.interval.ms`).
    pub fn write_checkpoints(&self) -> Result<()> {
        self.health.check()?;
        let mut moved = Ok(());
        for log in self.all_logs() {
            // One that stays where it is keeps no other from going on.
            let of_one = or_error(&log.directory(), || log.advance_recovery_point());
            moved = moved.and(of_one.map(drop));
        }
        self.health.check()?;
        self.write_checkpoint_files()?;
        moved
    }

    /// Writes how far each log is committed
    /// (`replica.high.watermark.checkpoint.interval.ms`), unless the file says so: a follower
    /// that starts again has no other witness of it than its leader.
    pub fn write_high_watermarks(&self) -> Result<()> {
        self.health.check()?;
        let mut files = self.checkpoint_files();
        let logs = self.all_logs().into_iter();
        let offsets = logs.map(|log| (TopicPartition::of(&log), log.high_watermark()));
        let now = OffsetCheckpoint {
            offsets: offsets.collect(),
        };
        let known = files.read(names::HIGH_WATERMARK_CHECKPOINT);
        if known.is_ok_and(|known| *known == now) {
            Ok(())
        } else {
            files.write(names::HIGH_WATERMARK_CHECKPOINT, now)
        }
    }

    pub(super) fn write_checkpoint_files(&self) -> Result<()> {
        let mut files = self.checkpoint_files();
        // Before the look at the logs: none of these is among them, nor made
        // anew while the lock is held.
        let gone = self.gone.lock().clone();
        let mut checkpoints = Checkpoints::default();
        for log in self.all_logs() {
            let key = TopicPartition::of(&log);
            let offsets = log.offsets();
            checkpoints
                .recovery_point
                .offsets
                .insert(key.clone(), offsets.recovery_point);
            checkpoints
                .high_watermark
                .offsets
                .insert(key.clone(), offsets.high_watermark);
            let first = log
                .segments()
                .first()
                .map_or(0, |segment| segment.base_offset());
            let starts = &mut checkpoints.log_start_offset.offsets;
            if offsets.log_start_offset > first {
                starts.insert(key, offsets.log_start_offset);
            } else {
                starts.remove(&key);
            }
        }
        for (file, checkpoint) in [
            (names::RECOVERY_POINT_CHECKPOINT, checkpoints.recovery_point),
            (names::HIGH_WATERMARK_CHECKPOINT, checkpoints.high_watermark),
            (
                names::LOG_START_OFFSET_CHECKPOINT,
                checkpoints.log_start_offset,
            ),
        ] {
            files.write(file, checkpoint)?;
        }
        if !gone.is_empty() {
            // Else each topic that ever was would be remembered until the next start.
            files.take_out(names::CLEANER_OFFSET_CHECKPOINT, &gone)?;
            self.gone.lock().retain(|name| !gone.contains(name));
        }
        files.forget();
        Ok(())
    }

    /// The checkpoint files name a partition that is not here, nor was
    /// found to be an older topic's.
    pub fn has_had(&self, key: &TopicPartition) -> bool {
        self.gone.lock().contains(key) && !self.strays.lock().contains(key)
    }

    /// After it returns, the directory has no broker epoch of a process that was killed.
    pub(super) fn forget_broker_epoch(&self) -> Result<()> {
        let path = self.path.join(names::BROKER_EPOCH);
        match self.storage().remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed
                .map_err(Error::io("unlink", &path))
                .and_then(|()| self.sync_names()),
        }
    }

    /// Takes new logs out of the checkpoint files, durably, where partitions of their names have
    /// left offsets: those of a topic that was deleted are nobody's (`LogManager.asyncDelete`).
    /// Done when the name is given again, so that it does not matter how the old one went.
    pub(super) fn forget_offsets(&self, new: &[NewLog]) -> Result<()> {
        let mut keys: HashSet<TopicPartition> = new.iter().map(NewLog::key).collect();
        keys.retain(|key| self.gone.lock().contains(key));
        if keys.is_empty() {
            return Ok(());
        }
        let mut files = self.checkpoint_files();
        for file in names::OFFSET_CHECKPOINTS {
            files.take_out(file, &keys)?;
        }
        self.gone.lock().retain(|name| !keys.contains(name));
        Ok(())
    }

    /// Has the files know that a log was cut (`LogManager.truncateTo` does so at once):
    /// below its recovery point, else a start would not look at what is appended there from
    /// now on, and is on disk in part; below its high watermark, else a start would miss
    /// records that nobody has lost.
    pub(in crate::log) fn lower_checkpoints(&self, log: &Log) -> Result<()> {
        let (mut files, offsets) = (self.checkpoint_files(), log.offsets());
        let key = TopicPartition::of(log);
        for (file, offset) in [
            (names::RECOVERY_POINT_CHECKPOINT, offsets.recovery_point),
            (names::HIGH_WATERMARK_CHECKPOINT, offsets.high_watermark),
        ] {
            files.lower(file, &key, offset)?;
        }
        Ok(())
    }
}

/// The offsets that the files hold.
#[derive(Default)]
pub(super) struct Checkpoints {
    pub(super) recovery_point: OffsetCheckpoint,
    pub(super) high_watermark: OffsetCheckpoint,
    pub(super) log_start_offset: OffsetCheckpoint,
    cleaner_offset: OffsetCheckpoint,
}

impl Checkpoints {
    pub(super) fn read(storage: &dyn Storage, path: &Path) -> Result<Checkpoints> {
        let read = |name: &str| match OffsetCheckpoint::read(storage, &path.join(name)) {
            // As Kafka does: without a checkpoint all is recovered, which is slow and right.
            Err(Error::CorruptFile { .. }) => Ok(OffsetCheckpoint::default()),
            other => other,
        };
        Ok(Checkpoints {
            recovery_point: read(names::RECOVERY_POINT_CHECKPOINT)?,
            high_watermark: read(names::HIGH_WATERMARK_CHECKPOINT)?,
            log_start_offset: read(names::LOG_START_OFFSET_CHECKPOINT)?,
            cleaner_offset: read(names::CLEANER_OFFSET_CHECKPOINT)?,
        })
    }

    /// The logs of which anything is said.
    pub(super) fn into_names(self) -> HashSet<TopicPartition> {
        let files = [
            self.recovery_point,
            self.high_watermark,
            self.log_start_offset,
            self.cleaner_offset,
        ];
        let names = files.into_iter().flat_map(|file| file.offsets);
        names.map(|(name, _)| name).collect()
    }
}
