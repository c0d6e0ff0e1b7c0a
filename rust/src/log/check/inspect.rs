//! Files of a log as they lie on disk, for `kafkalite log dump`: nothing is opened for writing,
//! nothing is repaired, and a file may be growing while it is read. Kafka: `DumpLogSegments`.

use std::path::Path;
use std::sync::Arc;

use crate::batch::{BatchHeader, header};
use crate::batch::{ControlRecord, RecordReader};
use crate::error::{Error, Result};
use crate::log::directory::meta_properties::{META_PROPERTIES_FILE, MetaProperties};
use crate::log::directory::offset_checkpoint::OffsetCheckpoint;
use crate::log::names;
use crate::log::partition_metadata;
use crate::log::segment::offset_index::{self, OffsetIndex, OffsetPosition};
use crate::log::segment::scan::BatchScanner;
use crate::log::segment::time_index::{self, TimeIndex, TimestampOffset};
use crate::log::segment::transaction_index::AbortedIndex;
use crate::log::state::epochs::{EpochEntry, LeaderEpochs};
use crate::log::state::producer_entry::ProducerEntry;
use crate::log::state::producers::AbortedTransaction;
use crate::log::state::snapshots;
use crate::log::storage::{OpenMode, Storage, StorageFile, read_file};
use crate::uuid::Uuid;

/// A batch as it lies in a segment.
#[derive(Debug)]
pub struct InspectedBatch {
    pub position_byte: u64,
    pub header: BatchHeader,
    pub crc_is_valid: bool,
    /// Empty if records were not asked for, or none could be had.
    pub records: Vec<InspectedRecord>,
    /// Why the walk over the records ended before their end.
    pub trouble: Option<String>,
}

/// A record with its own copies of everything, for printing.
#[derive(Debug)]
pub struct InspectedRecord {
    pub offset: i64,
    /// Milliseconds since 1970; -1 for none.
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The meaning of the record, in a control batch.
    pub control: Option<ControlRecord>,
}

/// Reads the batches of a `.log` (or of a metadata snapshot, `.checkpoint`) in order, up to where
/// the file ended when it was opened.
pub struct SegmentReader {
    file: Arc<dyn StorageFile>,
    path: Arc<Path>,
    position: u64,
    end: u64,
}

impl SegmentReader {
    pub fn open(storage: &dyn Storage, path: &Path) -> Result<SegmentReader> {
        let file = storage
            .open(path, OpenMode::Read)
            .map_err(Error::io("open", path))?;
        let end = file.size().map_err(Error::io("stat", path))?;
        Ok(SegmentReader {
            file,
            path: path.into(),
            position: 0,
            end,
        })
    }

    /// Where the next batch starts, bytes.
    pub fn position_byte(&self) -> u64 {
        self.position
    }

    /// Where the first batch starts that holds `offset` or what follows it; what cannot be read
    /// ends the search. Reads headers only, through one buffer.
    pub fn position_of(&self, offset: i64) -> u64 {
        let mut scanner = BatchScanner::new(&*self.file, &self.path, 0, self.end);
        loop {
            match scanner.next_header() {
                Ok(Some((at, header))) if header.last_offset() >= offset => return at,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return scanner.position_byte(),
            }
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.end
    }

    /// The next batches, of about `max_bytes` on disk but at least one; none at the end.
    ///
    /// Errors: `CorruptFile` where no batch starts; the batches before it came with earlier calls.
    /// After an error there is nothing more.
    pub fn next_batches(
        &mut self,
        max_bytes: usize,
        with_records: bool,
    ) -> Result<Vec<InspectedBatch>> {
        let from = self.position;
        let mut scanner = BatchScanner::new(&*self.file, &self.path, from, self.end);
        let mut reader = RecordReader::new();
        let mut batches = Vec::new();
        while scanner.position_byte() - from < max_bytes as u64 {
            match scanner.next_batch() {
                Ok(Some((position, header, bytes))) => {
                    batches.push(inspect_batch(
                        position,
                        header,
                        bytes,
                        with_records,
                        &mut reader,
                    ));
                    self.position = position + header.size_bytes as u64;
                }
                Ok(None) => break,
                // What is whole comes first; the next call meets the same error at once.
                Err(_) if !batches.is_empty() => break,
                Err(error) => {
                    self.end = self.position;
                    return Err(error);
                }
            }
        }
        Ok(batches)
    }
}

fn inspect_batch(
    position_byte: u64,
    header: BatchHeader,
    bytes: &[u8],
    with_records: bool,
    reader: &mut RecordReader,
) -> InspectedBatch {
    let mut batch = InspectedBatch {
        position_byte,
        header,
        crc_is_valid: header.crc_matches(bytes),
        records: Vec::new(),
        trouble: None,
    };
    if with_records && let Err(error) = copy_records(bytes, &mut batch, reader) {
        batch.trouble = Some(error.to_string());
    }
    batch
}

fn copy_records(bytes: &[u8], batch: &mut InspectedBatch, reader: &mut RecordReader) -> Result<()> {
    let is_control = batch.header.is_control();
    for record in reader.read(bytes)? {
        let record = record?;
        let control = if is_control {
            Some(ControlRecord::parse(record.key, record.value)?)
        } else {
            None
        };
        batch.records.push(InspectedRecord {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                .collect(),
            control,
        });
    }
    Ok(())
}

/// The kind of a file, by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Segment,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    ProducerSnapshot,
    LeaderEpochCheckpoint,
    PartitionMetadata,
    OffsetCheckpoint,
    MetaProperties,
    /// A snapshot of `__cluster_metadata`: batches, as in a segment.
    MetadataSnapshot,
}

/// The kind and, if the name carries one, the base offset; `None`: not a file that can be shown.
/// A suffix of what is under way (`.deleted`, `.swap`, `.cleaned`) does not change the kind.
pub fn kind_of(name: &str) -> Option<(FileKind, i64)> {
    let by_name = match name {
        names::LEADER_EPOCH_CHECKPOINT => Some(FileKind::LeaderEpochCheckpoint),
        names::PARTITION_METADATA => Some(FileKind::PartitionMetadata),
        META_PROPERTIES_FILE => Some(FileKind::MetaProperties),
        name if names::OFFSET_CHECKPOINTS.contains(&name) => Some(FileKind::OffsetCheckpoint),
        _ => None,
    };
    if let Some(kind) = by_name {
        return Some((kind, 0));
    }
    const KINDS: [(&str, FileKind); 5] = [
        (names::LOG, FileKind::Segment),
        (names::OFFSET_INDEX, FileKind::OffsetIndex),
        (names::TIME_INDEX, FileKind::TimeIndex),
        (names::TRANSACTION_INDEX, FileKind::TransactionIndex),
        (names::PRODUCER_SNAPSHOT, FileKind::ProducerSnapshot),
    ];
    for suffix in ["", names::DELETED, names::SWAP, names::CLEANED] {
        for (extension, kind) in KINDS {
            if let Some(base_offset) = names::base_offset_of(name, extension, suffix) {
                return Some((kind, base_offset));
            }
        }
    }
    metadata_snapshot_offset(name).map(|offset| (FileKind::MetadataSnapshot, offset))
}

/// The offset of `<20 digits>-<10 digits>.checkpoint` (end offset and epoch of the snapshot).
fn metadata_snapshot_offset(name: &str) -> Option<i64> {
    let (offset, epoch) = name.strip_suffix(".checkpoint")?.split_once('-')?;
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(offset, 20) && digits(epoch, 10) {
        offset.parse().ok()
    } else {
        None
    }
}

/// The contents of a file that is no segment.
#[derive(Debug)]
pub enum Inspected {
    OffsetIndex(Tail<OffsetPosition>),
    TimeIndex(Tail<TimestampOffset>),
    TransactionIndex(Vec<AbortedTransaction>),
    ProducerSnapshot(Vec<(i64, ProducerEntry)>),
    LeaderEpochCheckpoint(Vec<EpochEntry>),
    OffsetCheckpoint(OffsetCheckpoint),
    PartitionMetadata(Uuid),
    MetaProperties(MetaProperties),
}

/// The entries of an index file. Kafka makes the index of its active segment full size and trims
/// it at the roll, so that a living or killed broker leaves zeros behind the last entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Tail<E> {
    pub entries: Vec<E>,
    /// Zeros behind the entries, bytes.
    pub unused_bytes: usize,
    /// Bytes at the end that are no whole entry.
    pub odd_bytes: usize,
}

/// Reads a file of any kind but the two that hold batches.
///
/// Errors: `Io`; `CorruptFile` with the byte; `InvalidArgument` for a name that says nothing.
pub fn inspect_file(storage: &dyn Storage, path: &Path) -> Result<Inspected> {
    let name = path.file_name().and_then(|name| name.to_str());
    let (kind, base_offset) = name.and_then(kind_of).ok_or_else(|| {
        Error::InvalidArgument(format!("{} is not a file of a Kafka log", path.display()))
    })?;
    let bytes = read_file(storage, path)
        .map_err(Error::io("read", path))?
        .ok_or_else(|| Error::io("open", path)(std::io::ErrorKind::NotFound.into()))?;
    Ok(match kind {
        FileKind::OffsetIndex => Inspected::OffsetIndex(offset_entries(base_offset, &bytes)),
        FileKind::TimeIndex => Inspected::TimeIndex(time_entries(base_offset, &bytes)),
        FileKind::TransactionIndex => {
            let index = AbortedIndex::parse(&bytes, base_offset, path)?;
            Inspected::TransactionIndex(index.entries().to_vec())
        }
        FileKind::ProducerSnapshot => Inspected::ProducerSnapshot(snapshots::decode(&bytes, path)?),
        FileKind::LeaderEpochCheckpoint => {
            let epochs = LeaderEpochs::parse(&bytes, path)?;
            Inspected::LeaderEpochCheckpoint(epochs.entries().to_vec())
        }
        FileKind::OffsetCheckpoint => {
            Inspected::OffsetCheckpoint(OffsetCheckpoint::parse(&bytes, path)?)
        }
        FileKind::PartitionMetadata => {
            Inspected::PartitionMetadata(partition_metadata::parse(&bytes, path)?)
        }
        FileKind::MetaProperties => Inspected::MetaProperties(MetaProperties::parse(&bytes, path)?),
        FileKind::Segment | FileKind::MetadataSnapshot => {
            return Err(Error::InvalidArgument(format!(
                "{} holds batches: read it as a segment",
                path.display()
            )));
        }
    })
}

/// Entries of an offset index up to the first one of zeros that is not the first of all.
pub fn offset_entries(base_offset: i64, bytes: &[u8]) -> Tail<OffsetPosition> {
    let index = OffsetIndex::new(base_offset, bytes);
    let entries = (0..index.len()).filter_map(|slot| index.entry(slot));
    let entries: Vec<OffsetPosition> = entries
        .enumerate()
        .take_while(|(slot, entry)| *slot == 0 || entry.offset != base_offset)
        .map(|(_, entry)| entry)
        .collect();
    cut_tail(entries, bytes, offset_index::ENTRY_BYTES)
}

/// Entries of a time index up to the first one of zeros.
pub fn time_entries(base_offset: i64, bytes: &[u8]) -> Tail<TimestampOffset> {
    let index = TimeIndex::new(base_offset, bytes);
    let entries = (0..index.len()).filter_map(|slot| index.entry(slot));
    let entries: Vec<TimestampOffset> = entries
        .enumerate()
        .take_while(|(slot, entry)| {
            *slot == 0 || entry.offset != base_offset || entry.timestamp != 0
        })
        .map(|(_, entry)| entry)
        .collect();
    cut_tail(entries, bytes, time_index::ENTRY_BYTES)
}

fn cut_tail<E>(mut entries: Vec<E>, bytes: &[u8], entry_bytes: usize) -> Tail<E> {
    // An index of nothing but zeros has no entry: the first one looks like one at byte 0.
    if entries.len() == 1 && bytes.len() > entry_bytes && bytes.iter().all(|byte| *byte == 0) {
        entries.clear();
    }
    let used = entries.len() * entry_bytes;
    let odd_bytes = bytes.len() % entry_bytes;
    let rest = bytes.get(used..bytes.len() - odd_bytes).unwrap_or_default();
    Tail {
        entries,
        unused_bytes: rest.len(),
        odd_bytes,
    }
}

/// The name of what a control record says, as Kafka's enum has it.
pub fn control_name(control: ControlRecord) -> String {
    match control {
        ControlRecord::EndTransaction(marker) if marker.is_commit => String::from("COMMIT"),
        ControlRecord::EndTransaction(_) => String::from("ABORT"),
        ControlRecord::LeaderChange => String::from("LEADER_CHANGE"),
        ControlRecord::SnapshotHeader => String::from("SNAPSHOT_HEADER"),
        ControlRecord::SnapshotFooter => String::from("SNAPSHOT_FOOTER"),
        ControlRecord::KraftVersion => String::from("KRAFT_VERSION"),
        ControlRecord::KraftVoters => String::from("KRAFT_VOTERS"),
        ControlRecord::Unknown { type_id } => format!("UNKNOWN({type_id})"),
    }
}

/// Names whether a header's timestamps are the record's own (`CreateTime`) or the broker's.
pub fn timestamp_type_name(header: &BatchHeader) -> &'static str {
    match (header.magic, header.timestamp_type()) {
        (0, _) => "NoTimestampType",
        (_, header::TimestampType::CreateTime) => "CreateTime",
        (_, header::TimestampType::LogAppendTime) => "LogAppendTime",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preallocated_index_ends_at_its_first_entry_of_zeros() {
        let mut bytes = Vec::new();
        for (offset, position_byte) in [(107, 0), (115, 4200)] {
            let entry = OffsetPosition {
                offset,
                position_byte,
            };
            offset_index::push_entry(&mut bytes, 100, entry);
        }
        bytes.resize(80 + 3, 0);
        let tail = offset_entries(100, &bytes);
        assert_eq!(tail.entries.len(), 2);
        assert_eq!((tail.unused_bytes, tail.odd_bytes), (64, 3));
        assert_eq!(offset_entries(100, &[0; 80]).entries, []);
    }

    #[test]
    fn a_file_is_known_by_its_name_whatever_happens_to_it() {
        let known = |name| kind_of(name).map(|(kind, _)| kind);
        assert_eq!(
            kind_of("00000000000000000042.log.deleted"),
            Some((FileKind::Segment, 42))
        );
        assert_eq!(
            kind_of("00000000000000000107-0000000003.checkpoint"),
            Some((FileKind::MetadataSnapshot, 107))
        );
        assert_eq!(known("meta.properties"), Some(FileKind::MetaProperties));
        assert_eq!(known("42.log"), None);
        assert_eq!(known("quorum-state"), None);
    }
}
