//! Producer state out of records that are in the log: at a start, after a truncation, and where an
//! index has to be made anew.

use crate::batch::BatchHeader;
use crate::batch::{AppendOrigin, EndTransactionMarker};
use crate::batch::{ControlRecord, RecordReader};
use crate::error::{Error, Result};
use crate::log::names::LOG;
use crate::log::segment::Segment;
use crate::log::segment::map::SegmentMap;
use crate::log::segment::scan::BatchScanner;
use crate::log::segment::transaction_index::AbortedIndex;
use crate::log::state::producers::AbortedTransaction;
use crate::log::state::producers::{BatchOutcome, ProducerState};
use crate::log::state::snapshots::ProducerSnapshots;
use crate::log::storage::{Storage, read_exact_at};

/// Producer state of the log before `offset`, the base of one of its segments: the newest good
/// snapshot, and the batches behind it. `log_start_offset` may lie below the first segment.
pub fn producers_before(
    storage: &dyn Storage,
    segments: &SegmentMap,
    snapshots: &ProducerSnapshots,
    log_start_offset: i64,
    offset: i64,
) -> Result<ProducerState> {
    let mut producers = ProducerState::default();
    let first = segments.first().map_or(0, |first| first.base_offset());
    let start = log_start_offset.max(first);
    snapshots.load_latest(storage, &mut producers, start, offset)?;
    replay_segments(segments, &mut producers, offset)?;
    Ok(producers)
}

/// Replays the batches from the state's map end offset up to `end_offset`.
pub fn replay_segments(
    segments: &SegmentMap,
    producers: &mut ProducerState,
    end_offset: i64,
) -> Result<()> {
    let from = producers.map_end_offset();
    if from >= end_offset {
        return Ok(());
    }
    let start = segments.at(from).map_or(from, |one| one.base_offset());
    for segment in segments.range(start..end_offset) {
        let position = if from > segment.base_offset() {
            segment.position_of(from)?
        } else {
            0
        };
        replay_segment(segment, position, producers, end_offset, |_| Ok(()))?;
    }
    producers.set_map_end_offset(end_offset);
    Ok(())
}

/// The transactions whose abort markers stand in a segment; `producers` is the state before it.
pub fn aborted_in(segment: &Segment, producers: &mut ProducerState) -> Result<AbortedIndex> {
    let mut index = AbortedIndex::default();
    replay_segment(segment, 0, producers, i64::MAX, |aborted| {
        index.append(aborted).map(drop)
    })?;
    Ok(index)
}

fn replay_segment(
    segment: &Segment,
    position: u64,
    producers: &mut ProducerState,
    end_offset: i64,
    mut on_aborted: impl FnMut(AbortedTransaction) -> Result<()>,
) -> Result<()> {
    let file = segment.file()?;
    let path = segment.files().path(LOG);
    let mut reader = RecordReader::new();
    let mut scanner = BatchScanner::new(&*file, &path, position, segment.size_bytes());
    while let Some((position_byte, header)) = scanner.next_header()? {
        if header.base_offset >= end_offset {
            break;
        }
        if !header.has_producer_id() {
            continue;
        }
        let mut marker = None;
        if header.is_control() {
            let mut bytes = vec![0; header.size_bytes];
            read_exact_at(&*file, &mut bytes, position_byte).map_err(Error::io("pread", &path))?;
            marker = marker_of(&header, &bytes, &mut reader);
        }
        // A contradiction was told of when the segment was recovered; here the later batch wins.
        if let Ok(Some(aborted)) = replay(producers, &header, marker) {
            on_aborted(aborted)?;
        }
    }
    Ok(())
}

/// Brings a batch that is in the log into the state; returns the transaction that it aborts.
pub fn replay(
    producers: &mut ProducerState,
    header: &BatchHeader,
    marker: Option<EndTransactionMarker>,
) -> Result<Option<AbortedTransaction>> {
    if !header.has_producer_id() {
        return Ok(None);
    }
    let mut pending = producers.prepare();
    let origin = AppendOrigin::Replication;
    let outcome = producers.prepare_batch(&mut pending, header, origin, None, marker, None)?;
    producers.commit(pending, header.next_offset());
    // What is on disk at a start is replicated as far as this replica can know.
    producers.on_high_watermark(header.next_offset());
    match outcome {
        BatchOutcome::Append {
            completed: Some(completed),
        } => Ok(completed.aborted()),
        _ => Ok(None),
    }
}

/// The end of a transaction that a control batch tells; `None` for other batches, and for one
/// that the cleaner has emptied.
pub fn marker_of(
    header: &BatchHeader,
    bytes: &[u8],
    reader: &mut RecordReader,
) -> Option<EndTransactionMarker> {
    if !header.is_control() {
        return None;
    }
    let record = reader.read(bytes).ok()?.next()?.ok()?;
    match ControlRecord::parse(record.key, record.value).ok()? {
        ControlRecord::EndTransaction(marker) => Some(marker),
        _ => None,
    }
}
