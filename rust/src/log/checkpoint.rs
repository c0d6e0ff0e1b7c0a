//! The small text files of a log directory and of a partition, read strictly and printed byte for
//! byte as Kafka prints them. All are replaced as a whole (`storage::replace_file`).
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
//!
//! partition.metadata                 version: 0⏎topic_id: <22 characters of base64>
//! .kafka_cleanshutdown               {"version":0,"brokerEpoch":7}
//! ```
//!
//! `meta.properties` is in `meta_properties.rs`, `leader-epoch-checkpoint` in `epochs.rs`. Kafka:
//! `CheckpointFile`, `OffsetCheckpointFile`, `PartitionMetadataFile`, `CleanShutdownFileHandler`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::storage::{self, Storage};
use crate::error::{Error, Result};
use crate::uuid::Uuid;

const CHECKPOINT_VERSION: i32 = 0;
const PARTITION_METADATA_VERSION: i32 = 0;
const CLEAN_SHUTDOWN_VERSION: i32 = 0;

/// A partition of a topic. Ordered by topic, then number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: String,
    pub partition: i32,
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
        let entries = parse_entries(text, path, |fields| match fields {
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
        print_entries(self.offsets.iter().map(|(partition, offset)| {
            format!("{} {} {offset}", partition.topic, partition.partition)
        }))
    }

    /// Reads `path`; a file that is not there holds nothing. Errors: as `parse`; `CorruptFile` for
    /// one that ends within a line; `Io`.
    pub fn read(storage: &dyn Storage, path: &Path) -> Result<OffsetCheckpoint> {
        match read(storage, path)? {
            Some(text) => {
                check_whole(&text, path)?;
                OffsetCheckpoint::parse(&text, path)
            }
            None => Ok(OffsetCheckpoint::default()),
        }
    }

    /// After it returns, the file holds these offsets, whatever happens.
    pub fn write(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        write(storage, path, self.print().as_bytes())
    }
}

/// The topic id of `partition.metadata`, which must be on disk before the partition's first
/// record: Kafka calls a directory without it stray.
pub mod partition_metadata {
    use super::{Error, PARTITION_METADATA_VERSION, Path, Result, Uuid, lines, text_of};

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
}

/// The mark of a clean stop, written last and removed at the next start. It carries the broker
/// epoch since Kafka 3.7 (KIP-966); before, it was empty.
pub mod clean_shutdown {
    use super::CLEAN_SHUTDOWN_VERSION;
    use super::json::{Json, parse_object};

    pub fn print(broker_epoch: i64) -> String {
        format!("{{\"version\":{CLEAN_SHUTDOWN_VERSION},\"brokerEpoch\":{broker_epoch}}}")
    }

    /// The broker epoch; `None` if the file says none or is no JSON. That is no error: Kafka then
    /// goes on without one, and the stop was clean all the same.
    pub fn parse(text: &[u8]) -> Option<i64> {
        let fields = parse_object(std::str::from_utf8(text).ok()?)?;
        let value = fields
            .into_iter()
            .rev()
            .find(|(name, _)| name == "brokerEpoch");
        match value {
            Some((_, Json::Number(number))) => number.parse().ok(),
            _ => None,
        }
    }
}

/// As much of JSON as `.kafka_cleanshutdown` needs: one flat object.
mod json {
    pub enum Json {
        /// The digits as they stand.
        Number(String),
        Other,
    }

    /// Fields in order. `None`: no flat JSON object.
    pub fn parse_object(text: &str) -> Option<Vec<(String, Json)>> {
        let mut rest = text.trim_ascii().strip_prefix('{')?.trim_ascii_start();
        let mut fields = Vec::new();
        if let Some(end) = rest.strip_prefix('}') {
            return end.is_empty().then_some(fields);
        }
        loop {
            let (name, after) = string(rest)?;
            let after = after.trim_ascii_start().strip_prefix(':')?;
            let (value, after) = scalar(after.trim_ascii_start())?;
            fields.push((name.to_owned(), value));
            let after = after.trim_ascii_start();
            if let Some(end) = after.strip_prefix('}') {
                return end.is_empty().then_some(fields);
            }
            rest = after.strip_prefix(',')?.trim_ascii_start();
        }
    }

    /// A string without escapes being resolved (no name we look for has one).
    fn string(text: &str) -> Option<(&str, &str)> {
        let body = text.strip_prefix('"')?;
        let mut escaped = false;
        for (at, character) in body.char_indices() {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Some((&body[..at], &body[at + 1..])),
                _ => {}
            }
        }
        None
    }

    fn scalar(text: &str) -> Option<(Json, &str)> {
        if text.starts_with('"') {
            return string(text).map(|(_, rest)| (Json::Other, rest));
        }
        let end = text.find([',', '}', ' ', '\n', '\r', '\t'])?;
        let (word, rest) = text.split_at(end);
        match word {
            "true" | "false" | "null" => Some((Json::Other, rest)),
            _ if word.parse::<f64>().is_ok() => Some((Json::Number(word.to_owned()), rest)),
            _ => None,
        }
    }
}

/// The lines of a checkpoint file below its version and count, each turned into an entry by
/// `entry` from its fields (separated by white space); `None` of `entry` is an error.
pub(super) fn parse_entries<T>(
    text: &[u8],
    path: &Path,
    entry: impl Fn(&[&str]) -> Option<T>,
) -> Result<Vec<T>> {
    let text = text_of(text, path)?;
    let mut lines = lines(text).enumerate();
    let malformed = |index: usize, line: &str| {
        let position = line.as_ptr() as usize - text.as_ptr() as usize;
        let reason = format!("line {} is malformed: {line:?}", index + 1);
        Error::corrupt_file(path, position as u64, reason)
    };
    let Some((index, line)) = lines.next() else {
        return Ok(Vec::new());
    };
    let version: i32 = line.parse().map_err(|_| malformed(index, line))?;
    if version != CHECKPOINT_VERSION {
        let reason = format!("version {version} is unknown, {CHECKPOINT_VERSION} expected");
        return Err(Error::corrupt_file(path, 0, reason));
    }
    let Some((index, line)) = lines.next() else {
        return Ok(Vec::new());
    };
    let count: usize = line.parse().map_err(|_| malformed(index, line))?;
    let mut entries = Vec::new();
    for (index, line) in lines {
        // A blank in front would be an empty first field to Kafka.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let starts_blank = line.starts_with(|first: char| first.is_ascii_whitespace());
        let parsed = if starts_blank { None } else { entry(&fields) };
        entries.push(parsed.ok_or_else(|| malformed(index, line))?);
    }
    if entries.len() != count {
        let reason = format!("line 2 announces {count} entries, {} follow", entries.len());
        return Err(Error::corrupt_file(path, text.len() as u64, reason));
    }
    Ok(entries)
}

pub(super) fn print_entries(entries: impl ExactSizeIterator<Item = String>) -> String {
    let mut text = format!("{CHECKPOINT_VERSION}\n{}\n", entries.len());
    for entry in entries {
        text.push_str(&entry);
        text.push('\n');
    }
    text
}

/// Refuses a file that ends within its lines: every one of Kafka's writers ends the last with LF.
/// A number that has lost its last digits would else be taken for a smaller one. An empty file is
/// whole: Kafka makes its checkpoints so, long before it first writes one.
pub(super) fn check_whole(text: &[u8], path: &Path) -> Result<()> {
    if text.is_empty()
        || text.ends_with(b"\n") && text.iter().filter(|byte| **byte == b'\n').count() >= 2
    {
        return Ok(());
    }
    let reason = "it ends within a line";
    Err(Error::corrupt_file(path, text.len() as u64, reason))
}

/// Reads a small file, `None` if it is not there.
pub fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>> {
    storage::read_file(storage, path).map_err(Error::io("read", path))
}

/// Replaces a small file: after a crash either the old or the new content is there.
pub fn write(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    storage::replace_file(storage, path, bytes).map_err(Error::io("replace", path))
}

pub(super) fn text_of<'a>(text: &'a [u8], path: &Path) -> Result<&'a str> {
    std::str::from_utf8(text).map_err(|error| {
        Error::corrupt_file(path, error.valid_up_to() as u64, "the text is not UTF-8")
    })
}

/// Lines as Java's `readLine` finds them: ended by LF, CR, CR LF or the end of the file.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(end) = rest.find(['\n', '\r']) else {
            return Some(std::mem::take(&mut rest));
        };
        let (line, after) = rest.split_at(end);
        let two = after.starts_with("\r\n");
        rest = &after[if two { 2 } else { 1 }..];
        Some(line)
    })
}
