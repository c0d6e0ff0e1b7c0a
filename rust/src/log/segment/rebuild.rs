//! Reads a segment's `.log` from its first byte and makes everything anew that follows
//! from it: both indexes, aborted transactions, leader epochs, producer state, and
//! where the valid part ends.
//!
//! The base offset lies outside a batch's CRC. A batch therefore counts once the one behind it, or
//! the end, has confirmed its place in the chain of offsets.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::batch::BatchHeader;
use crate::batch::EndTransactionMarker;
use crate::batch::RecordReader;
use crate::error::{Error, Result};
use crate::log::names::{LOG, OFFSET_INDEX, TIME_INDEX};
use crate::log::segment::offset_index::{self, OffsetPosition};
use crate::log::segment::replay::{marker_of, replay};
use crate::log::segment::scan::BatchScanner;
use crate::log::segment::time_index::{self, LargestTimestamp, TimestampOffset};
use crate::log::segment::transaction_index::AbortedIndex;
use crate::log::segment::{Segment, SegmentEnd};
use crate::log::state::epochs::LeaderEpochs;
use crate::log::state::producers::ProducerState;
use crate::log::storage::{Storage, read_file, replace_file, replace_file_unsynced};

/// The state that the scans of a log's segments carry from one to the next.
pub struct SegmentScan<'a> {
    /// Stands for the log before the segment, and after `run` for the log up to its valid end.
    pub producers: &'a mut ProducerState,
    pub epochs: &'a mut LeaderEpochs,
    /// One sentence for each contradiction.
    pub notes: &'a mut Vec<String>,
    pub index_interval_bytes: u64,
    /// Set from elsewhere: the scan is given up.
    pub stop: &'a AtomicBool,
}

/// The result of the scan of one segment.
pub struct Rebuilt {
    pub indexes: RebuiltIndexes,
    pub aborted: AbortedIndex,
    pub end: SegmentEnd,
    /// Why the scan ended before the file did.
    pub cut: Option<String>,
}

impl Rebuilt {
    fn empty(base_offset: i64, index_interval_bytes: u64) -> Rebuilt {
        Rebuilt {
            indexes: RebuiltIndexes::new(base_offset, index_interval_bytes),
            aborted: AbortedIndex::default(),
            end: SegmentEnd {
                size_bytes: 0,
                next_offset: base_offset,
            },
            cut: None,
        }
    }
}

/// A whole batch. It counts once the next one, or the end, has confirmed its place in the chain.
struct ScannedBatch {
    position_byte: u64,
    header: BatchHeader,
    marker: Option<EndTransactionMarker>,
}

impl SegmentScan<'_> {
    /// Reads the segment whole; its records must not lie below `expected_offset`, and a gap must
    /// not lead to `limit_offset`, where the next segment's begin. Errors: `Io`; `LoadStopped`.
    pub fn run(
        &mut self,
        segment: &Segment,
        expected_offset: i64,
        limit_offset: i64,
    ) -> Result<Rebuilt> {
        let base = segment.base_offset();
        let file = segment.file()?;
        let path = segment.files().path(LOG);
        let size = segment.size_bytes();
        let mut rebuilt = Rebuilt::empty(base, self.index_interval_bytes);
        let mut scanner = BatchScanner::new(&*file, &path, 0, size);
        let mut reader = RecordReader::new();
        let mut confirmed_end = expected_offset;
        let mut pending: Option<ScannedBatch> = None;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::LoadStopped);
            }
            let next = match next_whole(&mut scanner, &mut reader)? {
                ControlFlow::Continue(next) => next,
                ControlFlow::Break(cut) => {
                    rebuilt.cut = cut;
                    break;
                }
            };
            let header = &next.header;
            let expected = pending
                .as_ref()
                .map_or(confirmed_end, |one| one.header.next_offset());
            if header.base_offset < expected || !segment.can_hold(header.last_offset()) {
                let (offset, position) = (header.base_offset, next.position_byte);
                rebuilt.cut = Some(format!("offset {offset} out of order at byte {position}"));
                // The base offset is outside the CRC. If the batch before has left a gap into which
                // this one fits, it is that one's offset that is wrong.
                let liar = pending.as_ref().is_some_and(|one| {
                    one.header.base_offset > confirmed_end && offset >= confirmed_end
                });
                if liar {
                    pending = None;
                }
                break;
            }
            if let Some(one) = pending.replace(next) {
                confirmed_end = one.header.next_offset();
                self.confirm(&one, &mut rebuilt)?;
            }
        }
        // As above, with the next segment's first batch for the next one.
        let liar = pending.take_if(|one| {
            one.header.base_offset > confirmed_end && one.header.last_offset() >= limit_offset
        });
        if let Some(liar) = liar {
            let (offset, position) = (liar.header.base_offset, liar.position_byte);
            rebuilt.cut = Some(format!("offset {offset} out of order at byte {position}"));
        }
        if let Some(one) = pending {
            self.confirm(&one, &mut rebuilt)?;
        }
        rebuilt.indexes.finish();
        self.producers
            .set_map_end_offset(rebuilt.end.next_offset.max(expected_offset));
        Ok(rebuilt)
    }

    fn confirm(&mut self, batch: &ScannedBatch, rebuilt: &mut Rebuilt) -> Result<()> {
        let header = &batch.header;
        rebuilt.indexes.add(
            batch.position_byte,
            header.last_offset(),
            header.max_timestamp,
        );
        rebuilt.end = SegmentEnd {
            size_bytes: batch.position_byte + header.size_bytes as u64,
            next_offset: header.next_offset(),
        };
        note_epoch(self.epochs, header)?;
        match replay(self.producers, header, batch.marker) {
            Ok(Some(aborted)) => {
                rebuilt.aborted.append(aborted)?;
            }
            Ok(None) => {}
            Err(error) => self.notes.push(format!(
                "the batch at offset {} contradicts its producer's state: {error}",
                header.base_offset
            )),
        }
        Ok(())
    }
}

/// Reads the next batch, whose CRC is right; else says why the segment ends
/// here, if it is not its end.
fn next_whole(
    scanner: &mut BatchScanner<'_>,
    reader: &mut RecordReader,
) -> Result<ControlFlow<Option<String>, ScannedBatch>> {
    let (position_byte, header, bytes) = match scanner.next_batch() {
        Ok(Some(next)) => next,
        Ok(None) => return Ok(ControlFlow::Break(None)),
        Err(Error::CorruptFile {
            reason,
            position_byte,
            ..
        }) => {
            let cut = format!("{reason} at byte {position_byte}");
            return Ok(ControlFlow::Break(Some(cut)));
        }
        Err(error) => return Err(error),
    };
    if !header.crc_matches(bytes) {
        let cut = format!("wrong CRC at byte {position_byte}");
        return Ok(ControlFlow::Break(Some(cut)));
    }
    Ok(ControlFlow::Continue(ScannedBatch {
        position_byte,
        header,
        marker: marker_of(&header, bytes, reader),
    }))
}

/// A batch of a newer epoch than any before starts it.
pub fn note_epoch(epochs: &mut LeaderEpochs, header: &BatchHeader) -> Result<()> {
    let epoch = header.partition_leader_epoch;
    if header.magic >= 2 && epoch >= 0 && epochs.latest_epoch().is_none_or(|latest| epoch > latest)
    {
        epochs.assign(epoch, header.base_offset)?;
    }
    Ok(())
}

/// Indexes made anew by a scan of the whole `.log` file.
pub struct RebuiltIndexes {
    base_offset: i64,
    index_interval_bytes: u64,
    last_entry_position: u64,
    pub offset: Vec<u8>,
    pub time: Vec<u8>,
    pub largest_timestamp: TimestampOffset,
}

impl RebuiltIndexes {
    pub fn new(base_offset: i64, index_interval_bytes: u64) -> RebuiltIndexes {
        RebuiltIndexes {
            base_offset,
            index_interval_bytes,
            last_entry_position: 0,
            offset: Vec::new(),
            time: Vec::new(),
            largest_timestamp: TimestampOffset::none(base_offset),
        }
    }

    /// In the order of the file (`LogSegment.recover`).
    pub fn add(&mut self, position_byte: u64, last_offset: i64, max_timestamp: i64) {
        if max_timestamp > self.largest_timestamp.timestamp {
            self.largest_timestamp = TimestampOffset {
                timestamp: max_timestamp,
                offset: last_offset,
            };
        }
        if position_byte - self.last_entry_position > self.index_interval_bytes {
            let entry = OffsetPosition {
                offset: last_offset,
                position_byte,
            };
            offset_index::push_entry(&mut self.offset, self.base_offset, entry);
            time_index::push_entry(&mut self.time, self.base_offset, self.largest_timestamp);
            self.last_entry_position = position_byte;
        }
    }

    /// The last entry of the time index, as a segment gets it that was closed normally.
    pub fn finish(&mut self) {
        time_index::push_entry(&mut self.time, self.base_offset, self.largest_timestamp);
    }
}

/// How a small file is replaced.
type Replace = fn(&dyn Storage, &Path, &[u8]) -> std::io::Result<()>;

impl Segment {
    /// Takes over what a scan of the whole file has made (recovery), as the active segment.
    /// Its index files are written when it is closed, from where they differ, like those of
    /// any active segment; longer ones are replaced, and not synced: the recovery point lies
    /// before or in this segment.
    pub fn activate_recovered(&self, rebuilt: RebuiltIndexes) -> Result<()> {
        let written = |kind: &str, bytes: &[u8]| {
            let (storage, path) = (&*self.open_segments.storage, self.files.path(kind));
            match read_file(storage, &path).map_err(Error::io("read", &path))? {
                Some(found) if bytes.starts_with(&found) => Ok(found.len()),
                Some(found) if found.len() <= bytes.len() => Ok(0),
                _ => {
                    let replaced = replace_file_unsynced(storage, &path, bytes);
                    replaced.map_err(Error::io("replace", &path))?;
                    Ok(bytes.len())
                }
            }
        };
        let offset_bytes = written(OFFSET_INDEX, &rebuilt.offset)?;
        let time_bytes = written(TIME_INDEX, &rebuilt.time)?;
        *self.largest_timestamp.lock() = Some(LargestTimestamp::known(rebuilt.largest_timestamp));
        self.put_indexes(rebuilt.offset, rebuilt.time, (offset_bytes, time_bytes));
        Ok(())
    }

    /// Puts rebuilt index files in the place of a closed segment's, durably. May run beside a
    /// rename of the segment: they get its present name.
    pub(in crate::log) fn replace_indexes(&self, rebuilt: &RebuiltIndexes) -> Result<()> {
        self.put_index_files(rebuilt, replace_file)
    }

    /// Puts them there without a sync, for a segment at or above the recovery point.
    pub(in crate::log) fn replace_indexes_unsynced(&self, rebuilt: &RebuiltIndexes) -> Result<()> {
        self.put_index_files(rebuilt, replace_file_unsynced)
    }

    fn put_index_files(&self, rebuilt: &RebuiltIndexes, replace: Replace) -> Result<()> {
        let storage = &*self.open_segments.storage;
        self.files.hold_name(|path_of| {
            for (kind, bytes) in [(OFFSET_INDEX, &rebuilt.offset), (TIME_INDEX, &rebuilt.time)] {
                let path = path_of(kind);
                replace(storage, &path, bytes).map_err(Error::io("replace", &path))?;
            }
            Ok(())
        })?;
        self.files.forget_indexes();
        let known = LargestTimestamp::known(rebuilt.largest_timestamp);
        *self.largest_timestamp.lock() = Some(known);
        Ok(())
    }
}
