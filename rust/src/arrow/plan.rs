//! Which rows a read delivers: fixed once, when it is asked for, as offsets of partitions. Streams
//! made from it later, one after the other or at once, all deliver these rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::columns::BatchBounds;
use super::isolation::{AbortedRanges, committed_view};
use super::segments::{LogExtent, Partition};
use super::shape::Shape;
use super::times::offset_of_time;
use crate::error::{Error, Result};
use crate::limits::{ARROW_BATCH_BYTES_MAX, ARROW_BATCH_ROWS_MAX};
use crate::log::directory::meta_properties::META_PROPERTIES_FILE;
use crate::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use crate::log::names::{
    LEADER_EPOCH_CHECKPOINT, LOG, LOG_START_OFFSET_CHECKPOINT, PARTITION_METADATA, base_offset_of,
    parse_partition_directory,
};
use crate::log::storage::{DirectoryEntry, Storage};

/// Topics that Kafka keeps for itself: read only if they are named.
const INTERNAL_TOPICS: [&str; 4] = [
    "__cluster_metadata",
    "__consumer_offsets",
    "__share_group_state",
    "__transaction_state",
];

/// Consumers' `isolation.level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    #[default]
    ReadUncommitted,
    ReadCommitted,
}

impl Isolation {
    /// Errors: `InvalidArgument` for any but Kafka's two names.
    pub fn from_name(name: &str) -> Result<Isolation> {
        match name {
            "read_uncommitted" => Ok(Isolation::ReadUncommitted),
            "read_committed" => Ok(Isolation::ReadCommitted),
            _ => Err(Error::InvalidArgument(format!(
                "unknown isolation '{name}': it is read_uncommitted or read_committed"
            ))),
        }
    }
}

/// Where a range begins or ends (`OffsetSpec` of Kafka's Admin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    Offset(i64),
    /// The first record at or after a time, in ms since 1970; the log's end, if there is none.
    Time(i64),
}

impl fmt::Display for OffsetSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OffsetSpec::Offset(offset) => write!(out, "{offset}"),
            OffsetSpec::Time(timestamp) => write!(out, "{timestamp} ms since 1970"),
        }
    }
}

/// An offset for all partitions, or one each: by directory name (`orders-0`), or by number where
/// all are of one topic. A partition that is not named is read from its start, or to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    pub for_all: Option<OffsetSpec>,
    pub by_partition: BTreeMap<String, OffsetSpec>,
}

/// The read that is asked for.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Reads only the partitions of this topic, where a path has several.
    pub topic: Option<String>,
    pub start: Offsets,
    /// Exclusive; behind the log's end it means the end.
    pub stop: Offsets,
    pub shape: Shape,
    pub isolation: Isolation,
    pub bounds: BatchBounds,
}

/// Rows of one partition: offsets `start .. stop`, less control records and aborted ones.
pub struct PartitionRange {
    pub partition: Partition,
    pub start: i64,
    pub stop: i64,
    pub aborted: Option<Arc<AbortedRanges>>,
}

/// A read: what its rows look like, and its ranges, by topic and partition.
pub struct LogRead {
    pub shape: Shape,
    pub bounds: BatchBounds,
    pub ranges: Vec<PartitionRange>,
}

impl LogRead {
    /// `paths`: directories of partitions, or of logs, which stand for all partitions in them
    /// (Kafka's internal topics only if named by `topic`).
    ///
    /// Errors: `LogDirRefused` for a path that is neither; `InvalidArgument` for offsets that are
    /// not those of the log; `CorruptFile` and `Io`.
    pub fn open(
        storage: &Arc<dyn Storage>,
        paths: &[PathBuf],
        options: ReadOptions,
    ) -> Result<LogRead> {
        let bounds = options.bounds;
        check_bounds(bounds)?;
        let partitions = find_partitions(storage, paths, options.topic.as_deref())?;
        let mut start = Requested::new("start", &options.start, &partitions)?;
        let mut stop = Requested::new("stop", &options.stop, &partitions)?;
        let mut ranges = Vec::with_capacity(partitions.len());
        for (name, partition) in partitions {
            let (start, stop) = (start.of(&name), stop.of(&name));
            ranges.push(range(partition, &name, start, stop, options.isolation)?);
        }
        Ok(LogRead {
            shape: options.shape,
            bounds,
            ranges,
        })
    }
}

/// Errors: `InvalidArgument` for bounds beyond those of the engine.
pub fn check_bounds(bounds: BatchBounds) -> Result<()> {
    let BatchBounds { rows, bytes } = bounds;
    if !(1..=ARROW_BATCH_ROWS_MAX).contains(&rows) {
        return Err(Error::InvalidArgument(format!(
            "batch_rows={rows} is not within 1 to {ARROW_BATCH_ROWS_MAX}"
        )));
    }
    if !(1..=ARROW_BATCH_BYTES_MAX).contains(&bytes) {
        return Err(Error::InvalidArgument(format!(
            "batch_bytes={bytes} is not within 1 to {ARROW_BATCH_BYTES_MAX}"
        )));
    }
    Ok(())
}

fn range(
    partition: Partition,
    name: &TopicPartition,
    start: Option<OffsetSpec>,
    stop: Option<OffsetSpec>,
    isolation: Isolation,
) -> Result<PartitionRange> {
    let refuse = |reason: String| Err(Error::InvalidArgument(reason));
    if let (Some(first), Some(last)) = (start, stop) {
        let is_reversed = match (first, last) {
            (OffsetSpec::Offset(first), OffsetSpec::Offset(last))
            | (OffsetSpec::Time(first), OffsetSpec::Time(last)) => first > last,
            // An offset and a time have no order: where they are reversed, there are no rows.
            _ => false,
        };
        if is_reversed {
            return refuse(format!("start={first} is after stop={last} ({name})"));
        }
    }
    let extent = partition.extent()?;
    let start = offset_of(&partition, extent, start)?;
    let stop = offset_of(&partition, extent, stop)?;
    let LogExtent {
        log_start_offset,
        log_end_offset,
    } = extent;
    let start = start.unwrap_or(log_start_offset);
    if start < log_start_offset {
        return refuse(format!(
            "start={start} is before the log start offset {log_start_offset} of {name}"
        ));
    }
    if start > log_end_offset {
        return refuse(format!(
            "start={start} is after the log end offset {log_end_offset} of {name}"
        ));
    }
    let mut stop = stop.unwrap_or(log_end_offset).min(log_end_offset);
    if stop < log_start_offset {
        return refuse(format!(
            "stop={stop} is before the log start offset {log_start_offset} of {name}"
        ));
    }
    let mut aborted = None;
    if isolation == Isolation::ReadCommitted {
        let view = committed_view(&partition, extent, start)?;
        stop = stop.min(view.last_stable_offset);
        aborted = Some(view.aborted);
    }
    Ok(PartitionRange {
        partition,
        start,
        stop: stop.max(start),
        aborted,
    })
}

fn offset_of(
    partition: &Partition,
    extent: LogExtent,
    spec: Option<OffsetSpec>,
) -> Result<Option<i64>> {
    Ok(match spec {
        None => None,
        Some(OffsetSpec::Offset(offset)) => Some(offset),
        Some(OffsetSpec::Time(timestamp)) => Some(offset_of_time(partition, extent, timestamp)?),
    })
}

/// The offsets given by a caller, with the names they were given under made out.
struct Requested {
    for_all: Option<OffsetSpec>,
    by_partition: BTreeMap<TopicPartition, OffsetSpec>,
}

impl Requested {
    fn new(
        argument: &str,
        offsets: &Offsets,
        partitions: &BTreeMap<TopicPartition, Partition>,
    ) -> Result<Requested> {
        let mut by_partition = BTreeMap::new();
        let given = offsets.by_partition.values().chain(&offsets.for_all);
        let is_negative = |spec: &OffsetSpec| matches!(spec, OffsetSpec::Offset(..0));
        if let Some(negative) = given.copied().find(is_negative) {
            return Err(Error::InvalidArgument(format!(
                "{argument}={negative} is no offset"
            )));
        }
        for (key, offset) in &offsets.by_partition {
            let mut named = partitions
                .keys()
                .filter(|name| name.to_string() == *key || name.partition.to_string() == *key);
            let found = named.next();
            let ambiguous = named.next().is_some();
            match found {
                Some(name) if !ambiguous => by_partition.insert(name.clone(), *offset),
                Some(_) => {
                    return Err(Error::InvalidArgument(format!(
                        "{argument} names partition {key} of several topics: name it as topic-{key}"
                    )));
                }
                None => {
                    return Err(Error::InvalidArgument(format!(
                        "{argument} names partition '{key}', which is not among those to be read"
                    )));
                }
            };
        }
        Ok(Requested {
            for_all: offsets.for_all,
            by_partition,
        })
    }

    fn of(&mut self, name: &TopicPartition) -> Option<OffsetSpec> {
        self.by_partition.remove(name).or(self.for_all)
    }
}

/// The partitions that the paths stand for, each once.
fn find_partitions(
    storage: &Arc<dyn Storage>,
    paths: &[PathBuf],
    topic: Option<&str>,
) -> Result<BTreeMap<TopicPartition, Partition>> {
    let mut found = BTreeMap::new();
    let mut topics = BTreeSet::new();
    for path in paths {
        for directory in partition_directories(storage, path, topic)? {
            let (name, partition) = partition_at(storage, directory)?;
            topics.insert(name.topic.clone());
            if topic.is_none_or(|topic| topic == name.topic) {
                found.insert(name, partition);
            }
        }
    }
    match topic {
        Some(topic) if found.is_empty() => {
            let topics: Vec<String> = topics.into_iter().take(10).collect();
            Err(Error::InvalidArgument(format!(
                "no partition of topic '{topic}' is there; topics found: {}",
                if topics.is_empty() {
                    "none".to_owned()
                } else {
                    topics.join(", ")
                }
            )))
        }
        _ => Ok(found),
    }
}

/// `path` itself, or the partitions in it.
fn partition_directories(
    storage: &Arc<dyn Storage>,
    path: &Path,
    topic: Option<&str>,
) -> Result<Vec<PathBuf>> {
    let refuse = |reason: &str| {
        Err(Error::LogDirRefused {
            path: path.to_path_buf(),
            reason: reason.to_owned(),
        })
    };
    let entries = match storage.read_directory(path) {
        Ok(entries) => entries,
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound => return refuse("it does not exist"),
            std::io::ErrorKind::NotADirectory => return refuse("it is not a directory"),
            _ => return Err(Error::io("readdir", path)(error)),
        },
    };
    if entries.iter().any(is_partition_file) {
        return Ok(vec![path.to_path_buf()]);
    }
    let is_wanted = |name: &str| match (parse_partition_directory(name), topic) {
        (Some((found, _)), None) => !INTERNAL_TOPICS.contains(&found),
        (Some(_), Some(_)) => true,
        (None, _) => false,
    };
    let mut directories = Vec::new();
    let mut is_log_directory = false;
    for entry in &entries {
        is_log_directory |= entry.name == META_PROPERTIES_FILE;
        if entry.is_directory && parse_partition_directory(&entry.name).is_some() {
            is_log_directory = true;
            if is_wanted(&entry.name) {
                directories.push(path.join(&entry.name));
            }
        }
    }
    if !is_log_directory {
        return refuse(
            "it holds neither segments (<20 digits>.log) nor partitions (<topic>-<number>)",
        );
    }
    Ok(directories)
}

fn is_partition_file(entry: &DirectoryEntry) -> bool {
    let name = entry.name.as_str();
    !entry.is_directory
        && (base_offset_of(name, LOG, "").is_some()
            || name == PARTITION_METADATA
            || name == LEADER_EPOCH_CHECKPOINT)
}

fn partition_at(
    storage: &Arc<dyn Storage>,
    directory: PathBuf,
) -> Result<(TopicPartition, Partition)> {
    let name = directory.file_name().and_then(|name| name.to_str());
    let Some((topic, partition)) = name.and_then(parse_partition_directory) else {
        return Err(Error::LogDirRefused {
            path: directory,
            reason: "it holds segments, but its name is not <topic>-<number>".to_owned(),
        });
    };
    let name = TopicPartition {
        topic: topic.to_owned(),
        partition,
    };
    let log_start_checkpoint = match directory.parent() {
        Some(parent) => {
            let path = parent.join(LOG_START_OFFSET_CHECKPOINT);
            let checkpoint = OffsetCheckpoint::read(&**storage, &path)?;
            checkpoint.offsets.get(&name).copied().unwrap_or(0).max(0)
        }
        None => 0,
    };
    let partition = Partition {
        storage: Arc::clone(storage),
        topic: name.topic.clone(),
        partition: name.partition,
        log_start_checkpoint,
        directory,
    };
    Ok((name, partition))
}
