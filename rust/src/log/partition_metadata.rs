//! The topic id of `partition.metadata`, which must be on disk before the partition's first
//! record: Kafka calls a directory without it stray (`PartitionMetadataFile`).
//!
//! ```text
//! version: 0⏎topic_id: <22 characters of base64>
//! ```

use std::path::Path;

use super::checkpoint_file::{self, lines, text_of};
use super::names::PARTITION_METADATA;
use super::storage::{Storage, replace_file_unnamed};
use crate::error::{Error, Result};
use crate::uuid::Uuid;

const PARTITION_METADATA_VERSION: i32 = 0;

/// Errors: `CorruptFile` with the line; a negative version; the zero id. A version of the
/// future is read as version 0 is, as Kafka does.
pub fn parse(text: &[u8], path: &Path) -> Result<Uuid> {
    let text = text_of(text, path)?;
    let mut lines = lines(text);
    let mut field = |number: usize, name: &str| {
        let line = lines.next().unwrap_or_default();
        let value = line.strip_prefix(name).and_then(|rest| {
            let value = rest.strip_prefix(':')?;
            (value.starts_with(char::is_whitespace)).then(|| value.trim())
        });
        value.ok_or_else(|| {
            let reason = format!("line {number} is not \"{name}: …\": {line:?}");
            Error::corrupt_file(path, 0, reason)
        })
    };
    let version = field(1, "version")?;
    if !version
        .parse::<i32>()
        .is_ok_and(|version| version >= PARTITION_METADATA_VERSION)
    {
        let reason = format!("line 1: version {version:?} is unknown");
        return Err(Error::corrupt_file(path, 0, reason));
    }
    let topic_id = field(2, "topic_id")?;
    match Uuid::parse(topic_id) {
        Some(id) if id != Uuid::ZERO => Ok(id),
        _ => {
            let reason = format!("line 2: {topic_id:?} is no topic id");
            Err(Error::corrupt_file(path, 0, reason))
        }
    }
}

/// Without a line end behind the second line, as Kafka writes it.
pub fn print(topic_id: Uuid) -> String {
    format!("version: {PARTITION_METADATA_VERSION}\ntopic_id: {topic_id}")
}

/// The id in the `partition.metadata` of a partition's directory. Errors: `Io`, `CorruptFile`.
pub fn read(storage: &dyn Storage, directory: &Path) -> Result<Option<Uuid>> {
    let path = directory.join(PARTITION_METADATA);
    match checkpoint_file::read(storage, &path)? {
        Some(text) => Ok(Some(parse(&text, &path)?)),
        None => Ok(None),
    }
}

/// Makes the directory of a new partition: `partition.metadata` is on disk before the first record
/// can be, else Kafka calls the log stray.
pub fn create_directory(storage: &dyn Storage, directory: &Path, topic_id: Uuid) -> Result<()> {
    begin_directory(storage, directory, topic_id)?;
    for named in [Some(directory), directory.parent()].into_iter().flatten() {
        storage
            .sync_directory(named)
            .map_err(Error::io("fsync", named))?;
    }
    Ok(())
}

/// `create_directory` without the two fsyncs of directories: `load` makes that of the partition's
/// own, and that of the parent is the caller's.
pub(super) fn begin_directory(
    storage: &dyn Storage,
    directory: &Path,
    topic_id: Uuid,
) -> Result<()> {
    storage
        .create_directory_all(directory)
        .map_err(Error::io("mkdir", directory))?;
    let path = directory.join(PARTITION_METADATA);
    let text = print(topic_id);
    replace_file_unnamed(storage, &path, text.as_bytes()).map_err(Error::io("replace", &path))
}
