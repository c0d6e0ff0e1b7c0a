//! `cleaner-offset-checkpoint` of a log directory: below its offset, a log holds no key twice.
//!
//! The file is read and written as a whole under one lock, by the cleaner and by whoever cuts a log
//! (`LogCleanerManager.updateCheckpoints`, `maybeTruncateCheckpoint`), for which Kafka stops the
//! cleaner (`LogManager.truncateTo`): here it learns that the log was cut when it has ended.

use crate::error::{Error, Result};
use crate::log::directory::LogDirectory;
use crate::log::directory::checkpoint_files::CheckpointFiles;
use crate::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use crate::log::log::Log;
use crate::log::names;

/// The offsets as the file has them now. One that cannot be read says nothing, and the next `set`
/// writes it anew: until then all is cleaned again, which is slow and right.
pub fn read(directory: &LogDirectory) -> Result<OffsetCheckpoint> {
    known_offsets(&mut directory.checkpoint_files())
}

/// Where the next round of `log` begins, if there was one before.
pub fn get(checkpoint: &OffsetCheckpoint, log: &Log) -> Option<i64> {
    checkpoint.offsets.get(&TopicPartition::of(log)).copied()
}

/// Notes that `log` is clean below `offset`, as it was when it had been truncated `truncations`
/// times: of one that was cut since then nothing is noted. Partitions that are no longer in the
/// directory leave the file; of one that was deleted meanwhile nothing is noted, since another
/// topic may have its name by now.
pub fn set(directory: &LogDirectory, log: &Log, offset: i64, truncations: u64) -> Result<()> {
    let mut files = directory.checkpoint_files();
    let mut checkpoint = known_offsets(&mut files)?;
    let known = |key: &TopicPartition| directory.log(&key.topic, key.partition).is_some();
    checkpoint.offsets.retain(|key, _| known(key));
    if !directory.has(log) || log.truncations() != truncations {
        return Ok(());
    }
    checkpoint.offsets.insert(TopicPartition::of(log), offset);
    files.write(names::CLEANER_OFFSET_CHECKPOINT, checkpoint)
}

/// Cuts `log` at `offset` (`Log::truncate_checked`): what is appended there from then on is dirty.
/// Else a tombstone of it could go before the cleaner has met the record that it deletes.
/// `directory()` says where the log lies: it may have moved while the cut waited.
pub fn truncate<'a>(
    directory: impl Fn() -> &'a LogDirectory,
    log: &Log,
    offset: i64,
    now_ms: i64,
    check: impl Fn() -> Result<()>,
) -> Result<bool> {
    lowering(directory, log, offset, || {
        log.truncate_checked(offset, now_ms, check)
    })
}

/// As `truncate`, for `Log::restart_checked`.
pub fn start_anew<'a>(
    directory: impl Fn() -> &'a LogDirectory,
    log: &Log,
    offset: i64,
    now_ms: i64,
    check: impl Fn() -> Result<()>,
) -> Result<()> {
    lowering(directory, log, offset, || {
        log.restart_checked(offset, now_ms, check)
    })
}

fn lowering<'a, T>(
    directory: impl Fn() -> &'a LogDirectory,
    log: &Log,
    offset: i64,
    cut: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // Before, since the process may be killed in between, and after, since a round of the cleaner
    // may have ended meanwhile.
    lower(directory(), log, offset)?;
    let cut = cut()?;
    // Of one that moves just now, `hand_over` and `LogDirectory::hand_over_offsets`
    // come later, or have been.
    let directory = directory();
    lower(directory, log, offset)?;
    directory.lower_checkpoints(log)?;
    Ok(cut)
}

fn lower(directory: &LogDirectory, log: &Log, offset: i64) -> Result<()> {
    let mut files = directory.checkpoint_files();
    files.lower(
        names::CLEANER_OFFSET_CHECKPOINT,
        &TopicPartition::of(log),
        offset,
    )
}

/// The offsets that the file names; none, if it cannot be read.
fn known_offsets(files: &mut CheckpointFiles<'_>) -> Result<OffsetCheckpoint> {
    match files.read(names::CLEANER_OFFSET_CHECKPOINT) {
        Err(Error::CorruptFile { .. }) => Ok(OffsetCheckpoint::default()),
        read => read.cloned(),
    }
}

/// A log has moved into another log directory. It is as clean there as it was when its copy began
/// (`clean_offset`), or less, if the file says so by now; and as it was when it had been truncated
/// `truncations` times, before it moved (`LogCleaner.alterCheckpointDir`).
pub fn hand_over(
    from: &LogDirectory,
    to: &LogDirectory,
    log: &Log,
    (truncations, clean_offset): (u64, Option<i64>),
) -> Result<()> {
    let known = get(&known_offsets(&mut from.checkpoint_files())?, log);
    match known.zip(clean_offset) {
        Some((known, copied)) => set(to, log, known.min(copied), truncations),
        None => Ok(()),
    }
}
