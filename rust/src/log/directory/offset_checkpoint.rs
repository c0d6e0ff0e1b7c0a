//! The files of a log directory that hold one offset for each partition.
//!
//! ```text
//! recovery-point-offset-checkpoint   everything below the offset is on disk
//! replication-offset-checkpoint      the high watermark
//! log-start-offset-checkpoint        where the log starts, if not at its first segment
//! cleaner-offset-checkpoint          everything below the offset is compacted
//!
//!     0                    version
//!     2                    count of the lines that follow
//!     orders 0 1500        topic, partition, offset
//!     orders 1 90
//! ```
//!
//! Kafka: `OffsetCheckpointFile`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::error::Result;
use crate::log::checkpoint_file;
use crate::log::log::Log;
use crate::log::storage::Storage;

/// A partition of a topic. Ordered by topic, then number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: String,
    pub partition: i32,
}

impl TopicPartition {
    pub fn of(log: &Log) -> TopicPartition {
        TopicPartition {
            topic: log.topic().to_owned(),
            partition: log.partition(),
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Offsets by partition, as one checkpoint file of a log directory holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCheckpoint {
    pub offsets: BTreeMap<TopicPartition, i64>,
}

impl OffsetCheckpoint {
    /// `path` is for errors only. An empty file holds nothing; a partition named twice has the
    /// later offset. Errors: `CorruptFile` with the line.
    pub fn parse(text: &[u8], path: &Path) -> Result<OffsetCheckpoint> {
        let entries = checkpoint_file::parse_entries(text, path, |fields| match fields {
            [topic, partition, offset] => {
                let partition: i32 = partition.parse().ok()?;
                let topic = (*topic).to_owned();
                Some((TopicPartition { topic, partition }, offset.parse().ok()?))
            }
            _ => None,
        })?;
        Ok(OffsetCheckpoint {
            offsets: entries.into_iter().collect(),
        })
    }

    pub fn print(&self) -> String {
        checkpoint_file::print_entries(self.offsets.iter().map(|(partition, offset)| {
            format!("{} {} {offset}", partition.topic, partition.partition)
        }))
    }

    /// Reads `path`; a file that is not there holds nothing. Errors: as `parse`; `CorruptFile` for
    /// one that ends within a line; `Io`.
    pub fn read(storage: &dyn Storage, path: &Path) -> Result<OffsetCheckpoint> {
        match checkpoint_file::read(storage, path)? {
            Some(text) => {
                checkpoint_file::check_whole(&text, path)?;
                OffsetCheckpoint::parse(&text, path)
            }
            None => Ok(OffsetCheckpoint::default()),
        }
    }

    /// After it returns, the file holds these offsets, whatever happens.
    pub fn write(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        checkpoint_file::write(storage, path, self.print().as_bytes())
    }
}
