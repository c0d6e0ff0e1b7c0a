//! `cleaner-offset-checkpoint` of a log directory: below its offset, a log holds no key twice.
//!
//! The file is read and written as a whole under one lock, by the cleaner and by whoever cuts a
//! log (`LogCleanerManager.updateCheckpoints`, `maybeTruncateCheckpoint`).

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::log::checkpoint::{OffsetCheckpoint, TopicPartition};
use crate::log::directory::LogDirectory;
use crate::log::log::Log;
use crate::log::names;

/// The offsets as the file has them now. One that cannot be read says nothing, and the next `set` writes
/// it anew: until then all is cleaned again, which is slow and right.
pub fn read(directory: &LogDirectory) -> Result<OffsetCheckpoint> {
    match OffsetCheckpoint::read(directory.storage(), &path_of(directory)) {
        Err(Error::CorruptFile { .. }) => Ok(OffsetCheckpoint::default()),
        read => read,
    }
}

/// Where the next round of `log` begins, if there was one before.
pub fn get(checkpoint: &OffsetCheckpoint, log: &Log) -> Option<i64> {
    checkpoint.offsets.get(&key_of(log)).copied()
}

/// Notes that `log` is clean below `offset`, at most up to where it ends by now. Partitions that
/// are no longer in the directory leave the file; of one that was deleted meanwhile nothing is noted,
/// since another topic may have its name by now.
pub fn set(directory: &LogDirectory, log: &Log, offset: i64) -> Result<()> {
    let _lock = directory.checkpoint_lock();
    let mut checkpoint = read(directory)?;
    let known = |key: &TopicPartition| directory.log(&key.topic, key.partition).is_some();
    checkpoint.offsets.retain(|key, _| known(key));
    if !directory.has(log) {
        return Ok(());
    }
    let offset = offset.min(log.offsets().log_end_offset);
    checkpoint.offsets.insert(key_of(log), offset);
    checkpoint.write(directory.storage(), &path_of(directory))
}

/// To be called after `log` was cut at `offset`: what is appended there from now on is dirty.
pub fn lower(directory: &LogDirectory, log: &Log, offset: i64) -> Result<()> {
    let _lock = directory.checkpoint_lock();
    let mut checkpoint = read(directory)?;
    match checkpoint.offsets.get_mut(&key_of(log)) {
        Some(known) if *known > offset => *known = offset,
        _ => return Ok(()),
    }
    checkpoint.write(directory.storage(), &path_of(directory))
}

fn path_of(directory: &LogDirectory) -> PathBuf {
    directory.path().join(names::CLEANER_OFFSET_CHECKPOINT)
}

fn key_of(log: &Log) -> TopicPartition {
    TopicPartition {
        topic: log.topic().to_owned(),
        partition: log.partition(),
    }
}
