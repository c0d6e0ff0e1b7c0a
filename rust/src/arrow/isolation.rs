//! The view of a reader of committed records: up to the last stable offset, without the batches of
//! aborted transactions. The same rows as a Java consumer with `isolation.level=read_committed`.
//!
//! ```text
//!  log start        newest snapshot            first open transaction            log end
//!  │   .txnindex of these segments │  batch headers scanned   ▼                        │
//!  ├───────────────────────────────┼──────────────────────────┬────────────────────────┤
//!  │ committed rows, aborted ones left out                    │ not shown
//!                                                 last stable offset
//! ```
//!
//! Which transactions are open is not written anywhere but in the producer snapshots, one per
//! segment; what came after the newest is found by walking headers. Aborts before it are read from
//! the transaction indexes, those after it are seen on the way. Without a snapshot the whole log is
//! walked, headers only. (The high watermark is known to the broker alone: records that a replica
//! has but that are not replicated count as written.)

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::batches::BatchWalk;
use super::segments::{LogExtent, Partition};
use crate::batch::{ControlRecord, RecordReader};
use crate::error::{Error, Result};
use crate::limits::ARROW_LIST_ATTEMPTS_MAX;
use crate::log::names::{PRODUCER_SNAPSHOT, SWAP, TRANSACTION_INDEX, base_offset_of, segment_path};
use crate::log::segment::transaction_index::{ABORTED_ENTRY_BYTES, AbortedIndex};
use crate::log::state::snapshots;
use crate::log::storage;

/// Bytes read at once where only headers are wanted.
const HEADER_READ_BYTES: usize = 4096;

/// Offsets of aborted transactions by producer, from the first record to the marker.
#[derive(Debug, Default)]
pub struct AbortedRanges {
    by_producer: HashMap<i64, BTreeSet<(i64, i64)>>,
}

impl AbortedRanges {
    fn insert(&mut self, producer_id: i64, first_offset: i64, marker_offset: i64) {
        let ranges = self.by_producer.entry(producer_id).or_default();
        ranges.insert((first_offset, marker_offset));
    }

    /// True if a transactional batch of the producer, with this base offset, was aborted.
    pub fn contains(&self, producer_id: i64, offset: i64) -> bool {
        let Some(ranges) = self.by_producer.get(&producer_id) else {
            return false;
        };
        // Transactions of one producer do not overlap: only the nearest can hold the offset.
        let nearest = ranges.range(..=(offset, i64::MAX)).next_back();
        nearest.is_some_and(|(_, marker_offset)| offset <= *marker_offset)
    }
}

/// The committed rows of a partition.
pub struct CommittedView {
    pub last_stable_offset: i64,
    pub aborted: Arc<AbortedRanges>,
}

/// The view of a log as it was at `extent`, for rows from `start` on.
pub fn committed_view(
    partition: &Partition,
    extent: LogExtent,
    start: i64,
) -> Result<CommittedView> {
    let LogExtent {
        log_start_offset,
        log_end_offset,
    } = extent;
    let (scan_start, mut open) = newest_snapshot(partition, log_start_offset, log_end_offset)?;
    let mut aborted = AbortedRanges::default();
    collect_indexed(partition, start, scan_start, &mut aborted)?;

    let mut walk = BatchWalk::new(
        partition.clone(),
        scan_start,
        log_end_offset,
        HEADER_READ_BYTES,
    );
    let mut reader = RecordReader::new();
    while let Some(header) = walk.next_header()? {
        if header.is_transactional() && header.is_control() {
            walk.load(&header)?;
            let first = open.remove(&header.producer_id);
            let is_abort = is_abort_marker(&mut reader, walk.loaded(&header))
                .map_err(|error| walk.corrupt(&header, &error.to_string()))?;
            if let Some(first) = first
                && is_abort
            {
                aborted.insert(header.producer_id, first, header.base_offset);
            }
        } else if header.is_transactional() {
            open.entry(header.producer_id).or_insert(header.base_offset);
        }
        walk.pass(&header);
    }
    let first_open = open.values().copied().min();
    Ok(CommittedView {
        last_stable_offset: first_open.unwrap_or(i64::MAX).min(log_end_offset),
        aborted: Arc::new(aborted),
    })
}

fn is_abort_marker(reader: &mut RecordReader, batch: &[u8]) -> Result<bool> {
    for record in reader.read(batch)? {
        let record = record?;
        if let ControlRecord::EndTransaction(marker) =
            ControlRecord::parse(record.key, record.value)?
        {
            return Ok(!marker.is_commit);
        }
    }
    // The cleaner leaves the emptied batch of a marker that no aborted record needs any more.
    Ok(false)
}

/// Offset of the newest good snapshot and the transactions open there (producer id → first offset);
/// the log's start and none, if there is no snapshot.
fn newest_snapshot(
    partition: &Partition,
    log_start_offset: i64,
    log_end_offset: i64,
) -> Result<(i64, HashMap<i64, i64>)> {
    let directory = &partition.directory;
    let mut offsets: Vec<i64> = partition
        .storage
        .read_directory(directory)
        .map_err(Error::io("readdir", directory))?
        .iter()
        .filter_map(|entry| base_offset_of(&entry.name, PRODUCER_SNAPSHOT, ""))
        .filter(|offset| (log_start_offset..=log_end_offset).contains(offset))
        .collect();
    offsets.sort_unstable();
    for offset in offsets.into_iter().rev() {
        let path = segment_path(directory, offset, PRODUCER_SNAPSHOT, "");
        let bytes = storage::read_file(&*partition.storage, &path)
            .map_err(Error::io("read", &path))?
            .unwrap_or_default();
        // A torn or deleted one is no loss: the one before it means more to scan.
        if let Ok(producers) = snapshots::decode(&bytes, &path) {
            let open = producers
                .into_iter()
                .filter_map(|(id, entry)| Some((id, entry.current_transaction_first_offset?)))
                .collect();
            return Ok((offset, open));
        }
    }
    Ok((log_start_offset, HashMap::new()))
}

/// Aborted transactions that end at `start` or later, out of the indexes of the segments below
/// `scan_start`.
fn collect_indexed(
    partition: &Partition,
    start: i64,
    scan_start: i64,
    aborted: &mut AbortedRanges,
) -> Result<()> {
    for _ in 0..ARROW_LIST_ATTEMPTS_MAX {
        let names = index_names(partition)?;
        let mut found = Vec::new();
        for (base_offset, suffix) in &names {
            if *base_offset >= scan_start {
                continue;
            }
            let path = segment_path(
                &partition.directory,
                *base_offset,
                TRANSACTION_INDEX,
                suffix,
            );
            let bytes = storage::read_file(&*partition.storage, &path)
                .map_err(Error::io("read", &path))?
                .unwrap_or_default();
            // A live broker may be about to write the last entry.
            let whole = bytes.len() - bytes.len() % ABORTED_ENTRY_BYTES;
            let index = AbortedIndex::parse(&bytes[..whole], *base_offset, &path)?;
            found.extend_from_slice(index.entries());
        }
        // An index that was renamed meanwhile may have been missed.
        if index_names(partition)? == names {
            for entry in found.iter().filter(|entry| entry.last_offset >= start) {
                aborted.insert(entry.producer_id, entry.first_offset, entry.last_offset);
            }
            return Ok(());
        }
    }
    Err(partition.keeps_changing())
}

fn index_names(partition: &Partition) -> Result<BTreeSet<(i64, &'static str)>> {
    let entries = partition
        .storage
        .read_directory(&partition.directory)
        .map_err(Error::io("readdir", &partition.directory))?;
    let names = entries.iter().filter_map(|entry| {
        ["", SWAP].into_iter().find_map(|suffix| {
            let base_offset = base_offset_of(&entry.name, TRANSACTION_INDEX, suffix)?;
            Some((base_offset, suffix))
        })
    });
    Ok(names.collect())
}
