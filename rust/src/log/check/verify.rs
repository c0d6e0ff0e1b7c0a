//! Checks a whole log directory for `kafkalite log verify`, and changes nothing in it.
//!
//! A directory may be in use while it is read. Then what is under way is no finding: the torn end
//! of an active segment, files that come and go, epochs newer than the checkpoint that was read.
//! Small files are therefore read before the segments that they speak of.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};

use crate::log::check::findings::{Finding, Findings};
use crate::log::check::inspect::{FileKind, kind_of};
use crate::log::check::verify_segment::{Chain, SegmentTask, verify_batches, verify_segment};
use crate::log::directory::meta_properties::{META_PROPERTIES_FILE, MetaProperties};
use crate::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use crate::log::names;
use crate::log::state::epochs::LeaderEpochs;
use crate::log::state::snapshots;
use crate::log::storage::{DirectoryEntry, Storage, read_file};
use crate::log::{checkpoint_file, partition_metadata};

/// How much was read, and how the directory was found.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub partitions: usize,
    pub segments: usize,
    pub batches: u64,
    pub records: u64,
    pub findings: usize,
    /// Bytes of segments read, and those there were at the start.
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Another process held the lock when this one began.
    pub is_in_use: bool,
    /// The last stop left its mark; without it the next start recovers.
    pub was_clean: bool,
}

/// A check under way. `open`, then `step` until it gives `None`.
pub struct Verification {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    todo: VecDeque<PathBuf>,
    current: Option<Partition>,
    high_watermarks: OffsetCheckpoint,
    log_start_offsets: OffsetCheckpoint,
    /// Since Kafka 2.8 every partition has its topic id on disk.
    wants_partition_metadata: bool,
    findings: Findings,
    summary: Summary,
}

/// A partition whose segments are being read.
struct Partition {
    directory: PathBuf,
    segments: VecDeque<i64>,
    epochs: LeaderEpochs,
    log_start_offset: i64,
    high_watermark: Option<i64>,
    snapshots: Vec<i64>,
    chain: Chain,
}

impl Verification {
    /// Looks at the directory itself; `path` may also be the directory of one partition.
    ///
    /// Errors: `LogDirRefused` for what is no directory, none of Kafka's, or of a future version;
    /// `Io` if it cannot be listed.
    pub fn open(storage: Arc<dyn Storage>, path: &Path, is_in_use: bool) -> Result<Verification> {
        let mut entries = storage
            .read_directory(path)
            .map_err(|error| refuse(path, error))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut verification = Verification {
            storage,
            directory: path.to_path_buf(),
            todo: VecDeque::new(),
            current: None,
            high_watermarks: OffsetCheckpoint::default(),
            log_start_offsets: OffsetCheckpoint::default(),
            wants_partition_metadata: false,
            findings: Findings::default(),
            summary: Summary {
                is_in_use,
                ..Summary::default()
            },
        };
        if is_partition(path, &entries) {
            verification.todo.push_back(path.to_path_buf());
        } else {
            verification.look_at_directory(&entries)?;
        }
        verification.count_bytes()?;
        Ok(verification)
    }

    /// Checks the next segment; its findings, or `None` when all is done.
    ///
    /// Errors: only what makes going on pointless. Unreadable files are findings.
    pub fn step(&mut self) -> Result<Option<Vec<Finding>>> {
        let has_more = match &self.current {
            Some(_) => self.next_segment()?,
            None => self.next_partition()?,
        };
        let findings = self.findings.take();
        self.summary.findings += findings.len();
        if !has_more && findings.is_empty() {
            return Ok(None);
        }
        Ok(Some(findings))
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn look_at_directory(&mut self, entries: &[DirectoryEntry]) -> Result<()> {
        let has_meta_properties = entries
            .iter()
            .any(|entry| entry.name == META_PROPERTIES_FILE && !entry.is_directory);
        let has_partition = entries.iter().any(|entry| {
            entry.is_directory && names::parse_partition_directory(&entry.name).is_some()
        });
        if !has_meta_properties && !has_partition {
            return Err(Error::LogDirRefused {
                path: self.directory.clone(),
                reason: String::from(
                    "it holds neither meta.properties nor a partition's directory",
                ),
            });
        }
        self.summary.was_clean = entries
            .iter()
            .any(|entry| entry.name == names::CLEAN_SHUTDOWN);
        if has_meta_properties {
            self.look_at_meta_properties()?;
        } else {
            let path = self.directory.join(META_PROPERTIES_FILE);
            self.findings.add(&path, None, "the file is missing");
        }
        self.high_watermarks = self.read_checkpoint(names::HIGH_WATERMARK_CHECKPOINT)?;
        self.log_start_offsets = self.read_checkpoint(names::LOG_START_OFFSET_CHECKPOINT)?;
        self.read_checkpoint(names::RECOVERY_POINT_CHECKPOINT)?;
        self.read_checkpoint(names::CLEANER_OFFSET_CHECKPOINT)?;
        for entry in entries {
            self.look_at_entry(entry);
        }
        Ok(())
    }

    fn look_at_meta_properties(&mut self) -> Result<()> {
        let path = self.directory.join(META_PROPERTIES_FILE);
        let text = checkpoint_file::read(&*self.storage, &path)?.unwrap_or_default();
        match MetaProperties::parse(&text, &path) {
            Ok(properties) => self.wants_partition_metadata = properties.version >= 1,
            Err(error) => self.findings.add_error(&path, error)?,
        }
        Ok(())
    }

    fn read_checkpoint(&mut self, name: &str) -> Result<OffsetCheckpoint> {
        let path = self.directory.join(name);
        if self.is_empty_file(&path) {
            return Ok(OffsetCheckpoint::default());
        }
        match OffsetCheckpoint::read(&*self.storage, &path) {
            Ok(offsets) => {
                for (partition, offset) in &offsets.offsets {
                    if *offset < 0 {
                        let sentence = format!("{partition} has the negative offset {offset}");
                        self.findings.add(&path, None, sentence);
                    }
                }
                Ok(offsets)
            }
            Err(error) => {
                self.findings.add_error(&path, error)?;
                Ok(OffsetCheckpoint::default())
            }
        }
    }

    fn read_epochs(&mut self, directory: &Path) -> Result<LeaderEpochs> {
        let path = directory.join(names::LEADER_EPOCH_CHECKPOINT);
        if self.is_empty_file(&path) {
            return Ok(LeaderEpochs::default());
        }
        match LeaderEpochs::read(&*self.storage, directory) {
            Ok(epochs) => Ok(epochs),
            Err(error) => {
                self.findings.add_error(&path, error)?;
                Ok(LeaderEpochs::default())
            }
        }
    }

    /// Kafka makes its checkpoint files at its start and fills them minutes later, so that one
    /// without a byte holds nothing and is whole.
    fn is_empty_file(&self, path: &Path) -> bool {
        matches!(self.storage.file_size(path), Ok(Some(0)))
    }

    fn look_at_entry(&mut self, entry: &DirectoryEntry) {
        const FILES: [&str; 6] = [
            META_PROPERTIES_FILE,
            names::LOCK,
            names::CLEAN_SHUTDOWN,
            names::BROKER_EPOCH,
            names::CANCELLED_MOVES,
            "bootstrap.checkpoint",
        ];
        let name = entry.name.as_str();
        let path = self.directory.join(name);
        if !entry.is_directory {
            let settled = name.strip_suffix(".tmp").unwrap_or(name);
            if !FILES.contains(&settled) && !names::OFFSET_CHECKPOINTS.contains(&settled) {
                self.findings.add(&path, None, "not a file of Kafka's");
            }
            return;
        }
        let is_suffixed = |suffix| names::parse_suffixed_directory(name, suffix).is_some();
        // A future replica moves here from another directory.
        if names::parse_partition_directory(name).is_some() || is_suffixed(names::FUTURE_DIRECTORY)
        {
            self.todo.push_back(path);
        } else if is_suffixed(names::STRAY_DIRECTORY) {
            self.findings.add(&path, None, STRAY);
        } else if !is_suffixed(names::DELETE_DIRECTORY) && !names::OTHER_DIRECTORIES.contains(&name)
        {
            self.findings.add(&path, None, FOREIGN_DIRECTORY);
        }
    }

    /// Counts the bytes that there will be to read; files that go meanwhile do not matter.
    fn count_bytes(&mut self) -> Result<()> {
        for directory in &self.todo {
            for entry in self.storage.read_directory(directory).unwrap_or_default() {
                if let Some((FileKind::Segment | FileKind::MetadataSnapshot, _)) =
                    kind_of(&entry.name)
                {
                    let path = directory.join(&entry.name);
                    let size = self
                        .storage
                        .file_size(&path)
                        .map_err(Error::io("stat", &path))?;
                    self.summary.total_bytes += size.unwrap_or(0);
                }
            }
        }
        Ok(())
    }

    /// Opens the next partition; false if there is none.
    fn next_partition(&mut self) -> Result<bool> {
        let Some(directory) = self.todo.pop_front() else {
            return Ok(false);
        };
        let entries = match self.storage.read_directory(&directory) {
            Ok(entries) => entries,
            Err(error) => {
                let gone = error.kind() == std::io::ErrorKind::NotFound && self.summary.is_in_use;
                if !gone {
                    let sentence = format!("readdir failed: {error}");
                    self.findings.add(&directory, None, sentence);
                }
                return Ok(true);
            }
        };
        self.summary.partitions += 1;
        let key = directory
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(names::parse_partition_directory)
            .map(|(topic, partition)| TopicPartition {
                topic: topic.to_owned(),
                partition,
            });
        let offset_of = |offsets: &OffsetCheckpoint| {
            let key = key.as_ref()?;
            offsets.offsets.get(key).copied()
        };
        let high_watermark = offset_of(&self.high_watermarks);
        let log_start_offset = offset_of(&self.log_start_offsets).unwrap_or(0);
        let files = self.sort_files(&directory, &entries);
        self.look_at_partition_metadata(&directory)?;
        let epochs = self.read_epochs(&directory)?;
        for name in &files.metadata_snapshots {
            let path = directory.join(name);
            let counts = verify_batches(&*self.storage, &path, &mut self.findings)?;
            self.summary.done_bytes += counts.bytes;
        }
        self.current = Some(Partition {
            chain: Chain::starting_at(files.segments.first().copied().unwrap_or(0)),
            directory,
            segments: files.segments.into(),
            epochs,
            log_start_offset,
            high_watermark,
            snapshots: files.snapshots,
        });
        Ok(true)
    }

    fn sort_files(&mut self, directory: &Path, entries: &[DirectoryEntry]) -> PartitionFiles {
        let mut files = PartitionFiles::default();
        let mut beside: BTreeMap<i64, BTreeSet<&str>> = BTreeMap::new();
        for entry in entries {
            let name = entry.name.as_str();
            let is_settled = ![names::DELETED, names::SWAP, names::CLEANED]
                .iter()
                .any(|s| name.ends_with(s));
            match kind_of(name) {
                Some(_) if entry.is_directory => {
                    self.findings
                        .add(&directory.join(name), None, "a directory, not a file");
                }
                Some(_) if !is_settled => {}
                Some((FileKind::Segment, offset)) => files.segments.push(offset),
                Some((FileKind::ProducerSnapshot, offset)) => files.snapshots.push(offset),
                Some((FileKind::MetadataSnapshot, _)) => {
                    files.metadata_snapshots.push(name.to_owned());
                }
                Some((kind, offset)) if is_index(kind) => {
                    beside.entry(offset).or_default().insert(name);
                }
                Some((FileKind::LeaderEpochCheckpoint | FileKind::PartitionMetadata, _)) => {}
                _ if is_passing(name) => {}
                _ => self
                    .findings
                    .add(&directory.join(name), None, "not a file of Kafka's"),
            }
        }
        files.segments.sort_unstable();
        files.snapshots.sort_unstable();
        for (offset, names) in beside {
            if files.segments.binary_search(&offset).is_err() && !self.summary.is_in_use {
                for name in names {
                    let path = directory.join(name);
                    self.findings
                        .add(&path, None, "an index without its segment");
                }
            }
        }
        files
    }

    fn look_at_partition_metadata(&mut self, directory: &Path) -> Result<()> {
        let path = directory.join(names::PARTITION_METADATA);
        match checkpoint_file::read(&*self.storage, &path)? {
            Some(text) => {
                if let Err(error) = partition_metadata::parse(&text, &path) {
                    self.findings.add_error(&path, error)?;
                }
            }
            None if self.wants_partition_metadata => {
                let sentence = "the file is missing: Kafka would call this log stray";
                self.findings.add(&path, None, sentence);
            }
            None => {}
        }
        Ok(())
    }

    /// Checks the next segment of the partition, or what is left when there is none.
    fn next_segment(&mut self) -> Result<bool> {
        let Some(partition) = &mut self.current else {
            return Ok(false);
        };
        if let Some(base_offset) = partition.segments.pop_front() {
            let task = SegmentTask {
                storage: &*self.storage,
                directory: &partition.directory,
                base_offset,
                next_base_offset: partition.segments.front().copied(),
                is_in_use: self.summary.is_in_use,
                epochs: &partition.epochs,
                log_start_offset: partition.log_start_offset,
            };
            let counts = verify_segment(&task, &mut partition.chain, &mut self.findings)?;
            self.summary.segments += 1;
            self.summary.batches += counts.batches;
            self.summary.records += counts.records;
            self.summary.done_bytes += counts.bytes;
            return Ok(true);
        }
        if let Some(partition) = self.current.take() {
            self.look_at_the_end(&partition)?;
        }
        Ok(true)
    }

    /// Judges the files that can be judged only once the log end offset is known.
    fn look_at_the_end(&mut self, partition: &Partition) -> Result<()> {
        let end = partition.chain.next_offset;
        if partition.chain.is_broken {
            return Ok(()); // said already; the rest would be echoes
        }
        if let Some(high_watermark) = partition.high_watermark.filter(|offset| *offset > end) {
            let sentence = format!(
                "the checkpointed high watermark is {high_watermark}, the log ends at {end}: \
                 records that were visible are gone"
            );
            self.findings.add(&partition.directory, None, sentence);
        }
        if partition.log_start_offset > end {
            let sentence = format!(
                "the checkpointed log start offset is {}, the log ends at {end}",
                partition.log_start_offset
            );
            self.findings.add(&partition.directory, None, sentence);
        }
        if let Some(entry) = partition
            .epochs
            .latest()
            .filter(|entry| entry.start_offset > end)
        {
            let path = partition.directory.join(names::LEADER_EPOCH_CHECKPOINT);
            let sentence = format!(
                "epoch {} starts at offset {}, the log ends at {end}",
                entry.epoch, entry.start_offset
            );
            self.findings.add(&path, None, sentence);
        }
        for offset in &partition.snapshots {
            self.look_at_snapshot(partition, *offset, end)?;
        }
        Ok(())
    }

    fn look_at_snapshot(&mut self, partition: &Partition, offset: i64, end: i64) -> Result<()> {
        let path = names::segment_path(&partition.directory, offset, names::PRODUCER_SNAPSHOT, "");
        let Some(bytes) = read_file(&*self.storage, &path).map_err(Error::io("read", &path))?
        else {
            return Ok(()); // deleted since the directory was listed
        };
        match snapshots::decode(&bytes, &path) {
            Ok(producers) => {
                for (producer_id, entry) in producers {
                    let last = entry.last_batch().map_or(-1, |batch| batch.last_offset);
                    if last >= offset {
                        let sentence = format!(
                            "producer {producer_id} has offset {last}, which the snapshot is before"
                        );
                        self.findings.add(&path, None, sentence);
                    }
                }
            }
            Err(error) => self.findings.add_error(&path, error)?,
        }
        if offset > end && !self.summary.is_in_use {
            let sentence = format!("a snapshot beyond the log end offset {end}");
            self.findings.add(&path, None, sentence);
        }
        Ok(())
    }
}

const STRAY: &str = "a stray partition: no topic of the cluster owns it any more";
const FOREIGN_DIRECTORY: &str = "not a partition's directory: Kafka would refuse to start";

/// The files of a partition's directory, by kind.
#[derive(Default)]
struct PartitionFiles {
    segments: Vec<i64>,
    snapshots: Vec<i64>,
    metadata_snapshots: Vec<String>,
}

fn is_index(kind: FileKind) -> bool {
    matches!(
        kind,
        FileKind::OffsetIndex | FileKind::TimeIndex | FileKind::TransactionIndex
    )
}

/// Files that come and go, and those of `__cluster_metadata` that hold no batches.
fn is_passing(name: &str) -> bool {
    let settled = name.strip_suffix(".tmp").unwrap_or(name);
    let is_snapshot_on_its_way = [".part", names::DELETED]
        .iter()
        .filter_map(|suffix| name.strip_suffix(suffix))
        .any(|rest| rest.contains(".checkpoint"));
    is_snapshot_on_its_way
        || matches!(
            settled,
            names::LEADER_EPOCH_CHECKPOINT | names::PARTITION_METADATA | "quorum-state"
        )
}

/// Says whether the path is a partition's directory and not one of several.
fn is_partition(path: &Path, entries: &[DirectoryEntry]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(names::parse_partition_directory).is_some()
        && entries
            .iter()
            .any(|entry| matches!(kind_of(&entry.name), Some((FileKind::Segment, _))))
}

/// Why the directory cannot be listed, said for whoever named it.
fn refuse(path: &Path, error: std::io::Error) -> Error {
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such directory",
        std::io::ErrorKind::NotADirectory => "it is not a directory",
        _ => return Error::io("readdir", path)(error),
    };
    Error::LogDirRefused {
        path: path.to_path_buf(),
        reason: String::from(reason),
    }
}
