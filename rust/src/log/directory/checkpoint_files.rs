//! The checkpoint files of a log directory under their lock, each as it was read or written last:
//! a follower that cuts ten thousand logs looks at what the files say of each, and must not read
//! ten thousand lines for it.
//!
//! They are forgotten when all files are written anew (`LogDirectory::write_checkpoints`), so that
//! they take no memory for long. Nobody but the broker writes the files meanwhile.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use parking_lot::MutexGuard;

use crate::error::{Error, Result};
use crate::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use crate::log::health::Health;
use crate::log::storage::Storage;

/// The offsets in the files of these names.
pub(super) type KnownCheckpoints = HashMap<&'static str, OffsetCheckpoint>;

/// Nobody else reads or writes a checkpoint file before this is dropped.
pub struct CheckpointFiles<'a> {
    pub(super) storage: &'a dyn Storage,
    /// The log directory, and its health.
    pub(super) folder: &'a Path,
    pub(super) health: &'a Health,
    pub(super) known: MutexGuard<'a, KnownCheckpoints>,
}

impl CheckpointFiles<'_> {
    /// Errors: those of `OffsetCheckpoint::read`.
    pub fn read(&mut self, file: &'static str) -> Result<&OffsetCheckpoint> {
        if !self.known.contains_key(file) {
            let path = self.folder.join(file);
            let read = OffsetCheckpoint::read(self.storage, &path)?;
            self.known.insert(file, read);
        }
        Ok(self.known.entry(file).or_default())
    }

    /// After it returns, the file holds these offsets, whatever happens.
    pub fn write(&mut self, file: &'static str, checkpoint: OffsetCheckpoint) -> Result<()> {
        // Of a write that fails nobody knows what it has left.
        self.known.remove(file);
        let path = self.folder.join(file);
        checkpoint
            .write(self.storage, &path)
            .inspect_err(|error| self.health.fail_unless_short(error))?;
        self.known.insert(file, checkpoint);
        Ok(())
    }

    /// Has the file say no more than `offset` of a log of which it says anything. One that cannot
    /// be read names no offset that is too high.
    pub fn lower(&mut self, file: &'static str, key: &TopicPartition, offset: i64) -> Result<()> {
        let checkpoint = match self.read(file) {
            Err(Error::CorruptFile { .. }) => return Ok(()),
            read => read?,
        };
        let known = checkpoint.offsets.get(key);
        if known.is_none_or(|known| *known <= offset) {
            return Ok(());
        }
        let mut lowered = self.known.remove(file).unwrap_or_default();
        lowered.offsets.insert(key.clone(), offset);
        self.write(file, lowered)
    }

    /// Takes names out of the file, durably. Nobody takes offsets out of one that cannot be read.
    pub fn take_out(&mut self, file: &'static str, names: &HashSet<TopicPartition>) -> Result<()> {
        let checkpoint = match self.read(file) {
            Err(Error::CorruptFile { .. }) => return Ok(()),
            read => read?,
        };
        if !names
            .iter()
            .any(|name| checkpoint.offsets.contains_key(name))
        {
            return Ok(());
        }
        let mut left = self.known.remove(file).unwrap_or_default();
        left.offsets.retain(|name, _| !names.contains(name));
        self.write(file, left)
    }

    /// The next look is at the files.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}
