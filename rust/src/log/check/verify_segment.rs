//! Checks one segment: its batches, their records, and its indexes against them.
//!
//! The indexes are held against the batches in one pass, as both ascend. What must be true:
//!
//! ```text
//! .index      (offset, position)   a batch starts at the position; the offset is its last one. A
//!                                  broker before Kafka 4 indexed an append of several batches by
//!                                  the first one's position and the last one's last offset.
//! .timeindex  (timestamp, offset)  the batch with the offset has it as its max_timestamp, and no
//!                                  batch before is later. The last entry of a closed segment has
//!                                  the largest timestamp of the segment.
//! .txnindex   (…, last_offset, …)  the batch at last_offset, if compaction left it, is a control
//!                                  batch of that producer
//! ```

use std::path::{Path, PathBuf};

use crate::batch::header::{BatchHeader, MAGIC_PREFIX, NO_LEADER_EPOCH, batch_size};
use crate::batch::{ControlRecord, RecordReader};
use crate::error::{Error, Result};
use crate::log::check::findings::Findings;
use crate::log::check::inspect::{Tail, offset_entries, time_entries};
use crate::log::names;
use crate::log::segment::offset_index::OffsetPosition;
use crate::log::segment::scan::BatchScanner;
use crate::log::segment::time_index::TimestampOffset;
use crate::log::segment::transaction_index::AbortedIndex;
use crate::log::state::epochs::LeaderEpochs;
use crate::log::state::producers::AbortedTransaction;
use crate::log::storage::{OpenMode, Storage, StorageFile, read_file, read_full_at};

/// A segment and what is known around it.
pub struct SegmentTask<'a> {
    pub storage: &'a dyn Storage,
    pub directory: &'a Path,
    pub base_offset: i64,
    /// `None`: this is the active segment.
    pub next_base_offset: Option<i64>,
    pub is_in_use: bool,
    pub epochs: &'a LeaderEpochs,
    pub log_start_offset: i64,
}

/// The chain of the batches so far, in which the next one has its place.
#[derive(Debug)]
pub struct Chain {
    pub next_offset: i64,
    leader_epoch: i32,
    /// A segment could not be read to its end, so that the log end offset is not known.
    pub is_broken: bool,
}

impl Chain {
    pub fn starting_at(offset: i64) -> Chain {
        Chain {
            next_offset: offset,
            leader_epoch: NO_LEADER_EPOCH,
            is_broken: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
}

/// Reads the segment whole. Errors: none of the files' own, which are findings.
pub fn verify_segment(
    task: &SegmentTask<'_>,
    chain: &mut Chain,
    findings: &mut Findings,
) -> Result<Counts> {
    let mut counts = Counts::default();
    // Before the segment: a broker that is at work writes a batch first and its entries then.
    let mut indexes = Indexes::read(task, findings)?;
    let path = names::segment_path(task.directory, task.base_offset, names::LOG, "");
    let (file, end) = match open(task.storage, &path) {
        Ok(opened) => opened,
        Err(Error::Io { source, .. })
            if task.is_in_use && source.kind() == std::io::ErrorKind::NotFound =>
        {
            return Ok(counts); // retention was faster
        }
        Err(error) => {
            chain.is_broken = true;
            findings.add_error(&path, error)?;
            return Ok(counts);
        }
    };
    counts.bytes = end;
    if task.base_offset < chain.next_offset {
        let sentence = format!(
            "the segment before ends at offset {}, in the middle of this one",
            chain.next_offset
        );
        findings.add(&path, None, sentence);
    }
    chain.next_offset = chain.next_offset.max(task.base_offset);
    let mut scanner = BatchScanner::new(&*file, &path, 0, end);
    let mut reader = RecordReader::new();
    loop {
        let at = scanner.position_byte();
        match scanner.next_batch() {
            Ok(Some((position, header, bytes))) => {
                let batch = Batch {
                    position,
                    header: &header,
                    bytes,
                };
                let verdict = verify_batch(&batch, &mut reader);
                let first_offset = verdict.first_offset.unwrap_or(header.base_offset);
                for sentence in &verdict.troubles {
                    findings.add(&path, Some(position), sentence);
                }
                follow(task, &path, &batch, first_offset, chain, findings);
                indexes.meet(&batch, findings);
                counts.batches += 1;
                counts.records += verdict.records;
            }
            Ok(None) => break,
            Err(error) => {
                let is_under_way = task.is_in_use && task.next_base_offset.is_none();
                if !(is_under_way && is_torn(&*file, at, end)) {
                    let left = end - at;
                    findings.add_error(&path, error)?;
                    let sentence = format!("{left} bytes from here to the end are not readable");
                    findings.add(&path, Some(at), sentence);
                    chain.is_broken = true;
                }
                break;
            }
        }
    }
    indexes.finish(task, chain, findings);
    Ok(counts)
}

/// Reads a file of batches that stands alone, a snapshot of the metadata log.
pub fn verify_batches(
    storage: &dyn Storage,
    path: &Path,
    findings: &mut Findings,
) -> Result<Counts> {
    let mut counts = Counts::default();
    let (file, end) = match open(storage, path) {
        Ok(opened) => opened,
        Err(error) => {
            findings.add_error(path, error)?;
            return Ok(counts);
        }
    };
    counts.bytes = end;
    let mut scanner = BatchScanner::new(&*file, path, 0, end);
    let mut reader = RecordReader::new();
    loop {
        match scanner.next_batch() {
            Ok(Some((position, header, bytes))) => {
                let batch = Batch {
                    position,
                    header: &header,
                    bytes,
                };
                let verdict = verify_batch(&batch, &mut reader);
                for sentence in &verdict.troubles {
                    findings.add(path, Some(position), sentence);
                }
                counts.batches += 1;
                counts.records += verdict.records;
            }
            Ok(None) => return Ok(counts),
            Err(error) => {
                findings.add_error(path, error)?;
                return Ok(counts);
            }
        }
    }
}

fn open(storage: &dyn Storage, path: &Path) -> Result<(std::sync::Arc<dyn StorageFile>, u64)> {
    let file = storage
        .open(path, OpenMode::Read)
        .map_err(Error::io("open", path))?;
    let end = file.size().map_err(Error::io("stat", path))?;
    Ok((file, end))
}

/// Says whether the bytes at `at` may be the beginning of a batch that is still being written.
fn is_torn(file: &dyn StorageFile, at: u64, end: u64) -> bool {
    let mut prefix = [0; MAGIC_PREFIX];
    let read = read_full_at(file, &mut prefix, at).unwrap_or(0);
    match batch_size(&prefix[..read]) {
        Ok(None) => true,
        Ok(Some(size)) => size as u64 > end - at,
        Err(_) => false,
    }
}

/// A batch where it lies.
struct Batch<'a> {
    position: u64,
    header: &'a BatchHeader,
    bytes: &'a [u8],
}

#[derive(Default)]
struct BatchVerdict {
    troubles: Vec<String>,
    /// The first offset of the records; a compressed legacy set does not say it in its header.
    first_offset: Option<i64>,
    records: u64,
}

/// The batch by itself: CRC, then every record.
fn verify_batch(batch: &Batch<'_>, reader: &mut RecordReader) -> BatchVerdict {
    let mut verdict = BatchVerdict::default();
    if !batch.header.crc_matches(batch.bytes) {
        let crc = batch.header.crc;
        verdict
            .troubles
            .push(format!("the CRC is not {crc:08x}, as the batch says"));
        return verdict; // what is in it is anyone's guess
    }
    if let Err(error) = walk_records(batch, reader, &mut verdict) {
        verdict.troubles.push(error.to_string());
    }
    let wanted = batch.header.records_count;
    if verdict.troubles.is_empty() && wanted >= 0 && verdict.records != wanted as u64 {
        let found = verdict.records;
        verdict
            .troubles
            .push(format!("{found} records, the header says {wanted}"));
    }
    verdict
}

fn walk_records(
    batch: &Batch<'_>,
    reader: &mut RecordReader,
    verdict: &mut BatchVerdict,
) -> Result<()> {
    let header = batch.header;
    let mut previous = None;
    for record in reader.read(batch.bytes)? {
        let record = record?;
        let offset = record.offset;
        if previous.is_some_and(|previous| offset <= previous) {
            verdict
                .troubles
                .push(format!("the record at offset {offset} is out of order"));
        }
        let is_before = header.magic == 2 && offset < header.base_offset;
        if is_before || offset > header.last_offset() {
            verdict.troubles.push(format!(
                "the record at offset {offset} is not of this batch"
            ));
        }
        if header.is_control() {
            ControlRecord::parse(record.key, record.value)?;
        }
        verdict.first_offset.get_or_insert(offset);
        verdict.records += 1;
        previous = Some(offset);
    }
    Ok(())
}

/// The batch behind those before it: offsets and leader epochs.
fn follow(
    task: &SegmentTask<'_>,
    path: &Path,
    batch: &Batch<'_>,
    first_offset: i64,
    chain: &mut Chain,
    findings: &mut Findings,
) {
    let header = batch.header;
    let at = Some(batch.position);
    let last_offset = header.last_offset();
    if first_offset < chain.next_offset {
        let expected = chain.next_offset;
        let sentence =
            format!("the batch starts at offset {first_offset}, not at {expected} or later");
        findings.add(path, at, sentence);
    }
    if let Some(next) = task.next_base_offset.filter(|next| last_offset >= *next) {
        let sentence =
            format!("the batch ends at offset {last_offset}, the next segment starts at {next}");
        findings.add(path, at, sentence);
    }
    chain.next_offset = chain.next_offset.max(last_offset.saturating_add(1));
    let epoch = header.partition_leader_epoch;
    if header.magic < 2 || epoch == NO_LEADER_EPOCH {
        return;
    }
    if epoch < chain.leader_epoch {
        let before = chain.leader_epoch;
        findings.add(path, at, format!("leader epoch {epoch} after {before}"));
    }
    chain.leader_epoch = chain.leader_epoch.max(epoch);
    let known = task.epochs.epoch_for_offset(last_offset);
    let is_newer = task
        .epochs
        .latest_epoch()
        .is_none_or(|latest| epoch > latest);
    // Epochs of records below the log start offset are forgotten with them.
    let is_forgotten = known.is_none() && (task.is_in_use || last_offset < task.log_start_offset);
    if known != Some(epoch) && !is_forgotten && !(is_newer && task.is_in_use) {
        let told = known.map_or(String::from("no epoch"), |known| format!("epoch {known}"));
        let sentence =
            format!("leader epoch {epoch}, the checkpoint has {told} for offset {last_offset}");
        findings.add(path, at, sentence);
    }
}

/// The three indexes of a segment, and how far the batches have come in them.
struct Indexes {
    offset_path: PathBuf,
    offsets: Vec<OffsetPosition>,
    offsets_met: usize,
    /// Last offset of an append of several batches, not yet reached.
    awaited: Option<i64>,
    time_path: PathBuf,
    times: Vec<TimestampOffset>,
    times_met: usize,
    largest_timestamp: i64,
    aborted_path: PathBuf,
    aborted: Vec<AbortedTransaction>,
    aborted_met: usize,
}

impl Indexes {
    fn read(task: &SegmentTask<'_>, findings: &mut Findings) -> Result<Indexes> {
        let path = |kind| names::segment_path(task.directory, task.base_offset, kind, "");
        let mut indexes = Indexes {
            offset_path: path(names::OFFSET_INDEX),
            offsets: Vec::new(),
            offsets_met: 0,
            awaited: None,
            time_path: path(names::TIME_INDEX),
            times: Vec::new(),
            times_met: 0,
            largest_timestamp: -1,
            aborted_path: path(names::TRANSACTION_INDEX),
            aborted: Vec::new(),
            aborted_met: 0,
        };
        if let Some(bytes) = read_index(task, &indexes.offset_path, true, findings)? {
            let tail = offset_entries(task.base_offset, &bytes);
            check_tail(task, &indexes.offset_path, &tail, findings);
            let ascends = |a: &OffsetPosition, b: &OffsetPosition| {
                a.offset < b.offset && a.position_byte < b.position_byte
            };
            check_ascending(&indexes.offset_path, &tail.entries, 8, ascends, findings);
            indexes.offsets = tail.entries;
        }
        if let Some(bytes) = read_index(task, &indexes.time_path, true, findings)? {
            let tail = time_entries(task.base_offset, &bytes);
            check_tail(task, &indexes.time_path, &tail, findings);
            let ascends = |a: &TimestampOffset, b: &TimestampOffset| {
                a.timestamp < b.timestamp && a.offset < b.offset
            };
            check_ascending(&indexes.time_path, &tail.entries, 12, ascends, findings);
            indexes.times = tail.entries;
        }
        if let Some(bytes) = read_index(task, &indexes.aborted_path, false, findings)? {
            match AbortedIndex::parse(&bytes, task.base_offset, &indexes.aborted_path) {
                Ok(index) => indexes.aborted = index.entries().to_vec(),
                Err(error) => findings.add_error(&indexes.aborted_path, error)?,
            }
        }
        Ok(indexes)
    }

    /// Holds the entries that speak of this batch, or should have spoken before, against it.
    fn meet(&mut self, batch: &Batch<'_>, findings: &mut Findings) {
        let header = batch.header;
        let last_offset = header.last_offset();
        while let Some(entry) = self.offsets.get(self.offsets_met) {
            if entry.position_byte > batch.position {
                break;
            }
            let at = Some(self.offsets_met as u64 * 8);
            self.offsets_met += 1;
            if entry.position_byte < batch.position {
                let sentence = format!("no batch starts at byte {}", entry.position_byte);
                findings.add(&self.offset_path, at, sentence);
            } else if entry.offset < last_offset {
                let sentence = format!(
                    "offset {} at byte {}, where the batch ends at offset {last_offset}",
                    entry.offset, entry.position_byte
                );
                findings.add(&self.offset_path, at, sentence);
            } else {
                // The entry before must have been reached by the batch before.
                let unmet = self.awaited.replace(entry.offset);
                self.miss(unmet, findings);
            }
        }
        if self.awaited.is_some_and(|offset| offset <= last_offset) {
            let met = self.awaited.take().filter(|offset| *offset != last_offset);
            self.miss(met, findings);
        }
        let before = self.largest_timestamp;
        self.largest_timestamp = before.max(header.max_timestamp);
        while let Some(entry) = self.times.get(self.times_met) {
            if entry.offset > last_offset {
                break;
            }
            let at = Some(self.times_met as u64 * 12);
            self.times_met += 1;
            if entry.timestamp != header.max_timestamp || entry.timestamp < before {
                let sentence = format!(
                    "timestamp {} for offset {}, whose batch has {}, after {before}",
                    entry.timestamp, entry.offset, header.max_timestamp
                );
                findings.add(&self.time_path, at, sentence);
            }
        }
        while let Some(entry) = self.aborted.get(self.aborted_met) {
            if entry.last_offset > last_offset {
                break;
            }
            self.aborted_met += 1;
            let is_here = entry.last_offset >= header.base_offset;
            if is_here && !(header.is_control() && header.producer_id == entry.producer_id) {
                let sentence = format!(
                    "offset {} is no marker of producer {}",
                    entry.last_offset, entry.producer_id
                );
                findings.add(&self.aborted_path, None, sentence);
            }
        }
    }

    /// The offset of an index entry that no batch ends with.
    fn miss(&self, offset: Option<i64>, findings: &mut Findings) {
        if let Some(offset) = offset {
            let sentence = format!("no batch ends at offset {offset}");
            findings.add(&self.offset_path, None, sentence);
        }
    }

    /// Adds the findings that are left once the segment has been read to its end.
    fn finish(&self, task: &SegmentTask<'_>, chain: &Chain, findings: &mut Findings) {
        if chain.is_broken {
            return; // entries for what could not be read say nothing
        }
        if let Some(entry) = self.offsets.get(self.offsets_met) {
            let at = Some(self.offsets_met as u64 * 8);
            let sentence = format!("byte {} is behind the last batch", entry.position_byte);
            findings.add(&self.offset_path, at, sentence);
        }
        self.miss(self.awaited, findings);
        if let Some(entry) = self.times.get(self.times_met) {
            let at = Some(self.times_met as u64 * 12);
            let sentence = format!("offset {} is behind the last batch", entry.offset);
            findings.add(&self.time_path, at, sentence);
        }
        let last = self.times.last().map_or(-1, |entry| entry.timestamp);
        let is_closed = task.next_base_offset.is_some();
        if is_closed && last < self.largest_timestamp && !self.time_path_is_gone(task) {
            let largest = self.largest_timestamp;
            let sentence = format!(
                "the segment is closed with timestamp {largest}, the index ends with {last}"
            );
            findings.add(&self.time_path, None, sentence);
        }
        if let Some(entry) = self
            .aborted
            .last()
            .filter(|entry| entry.last_offset >= chain.next_offset)
        {
            let sentence = format!("offset {} is behind the last batch", entry.last_offset);
            findings.add(&self.aborted_path, None, sentence);
        }
    }

    /// Missing, which has been said, or deleted by retention.
    fn time_path_is_gone(&self, task: &SegmentTask<'_>) -> bool {
        !matches!(task.storage.file_size(&self.time_path), Ok(Some(_)))
    }
}

fn read_index(
    task: &SegmentTask<'_>,
    path: &Path,
    must_exist: bool,
    findings: &mut Findings,
) -> Result<Option<Vec<u8>>> {
    match read_file(task.storage, path).map_err(Error::io("read", path)) {
        Ok(None) if must_exist && !task.is_in_use => {
            findings.add(
                path,
                None,
                "the file is missing: the next start rebuilds it",
            );
            Ok(None)
        }
        Ok(bytes) => Ok(bytes),
        Err(error) => {
            findings.add_error(path, error)?;
            Ok(None)
        }
    }
}

/// Zeros behind the entries belong to the index of an active segment only.
fn check_tail<E>(task: &SegmentTask<'_>, path: &Path, tail: &Tail<E>, findings: &mut Findings) {
    if tail.odd_bytes > 0 && !task.is_in_use {
        findings.add(
            path,
            None,
            format!("{} bytes are no whole entry", tail.odd_bytes),
        );
    }
    if tail.unused_bytes > 0 && task.next_base_offset.is_some() && !task.is_in_use {
        let sentence = format!("{} bytes behind the last entry in use", tail.unused_bytes);
        findings.add(path, None, sentence);
    }
}

fn check_ascending<E>(
    path: &Path,
    entries: &[E],
    entry_bytes: u64,
    ascends: impl Fn(&E, &E) -> bool,
    findings: &mut Findings,
) {
    for (slot, pair) in entries.windows(2).enumerate() {
        if let [a, b] = pair
            && !ascends(a, b)
        {
            let at = (slot as u64 + 1) * entry_bytes;
            findings.add(
                path,
                Some(at),
                "the entry does not ascend from the one before",
            );
        }
    }
}
