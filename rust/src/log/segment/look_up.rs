//! Finding batches in a segment: by offset, by position, by timestamp. At any
//! time, beside the writer.
//!
//! An index is a hint. Whatever it names is held against the batch that lies there before anything
//! is concluded from it; `index_check.rs` does so for timestamps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{MappedMutexGuard, MutexGuard};

use crate::batch::BatchHeader;
use crate::batch::header::RECORD_BATCH_OVERHEAD;
use crate::error::{Error, Result};
use crate::limits::LOOK_UP_BYTES_MAX;
use crate::log::names::{LOG, TRANSACTION_INDEX};
use crate::log::segment::offset_index::{OffsetIndex, OffsetPosition};
use crate::log::segment::scan::BatchScanner;
use crate::log::segment::time_index::TimeIndex;
use crate::log::segment::transaction_index::AbortedIndex;
use crate::log::segment::{LocatedBatch, Segment, UNKNOWN};
use crate::log::storage::{StorageFile, read_file, read_full_at};

/// The index entries around an offset: the last not above it, the first above it.
type Neighbours = (Option<OffsetPosition>, Option<OffsetPosition>);

/// Batches of at least so many bytes are hopped over, a `pread` for each header; smaller ones are
/// read all at once.
const HOP_BYTES_MIN: u64 = 1024;
const HOPS_MAX: u64 = 4;

/// The bounds that two neighbouring index entries set to the batches between them.
///
/// ```text
///   below             between      above
///   ├────────┬─ ··· ─┬────────────├────
///   start             ≥ bytes − interval: else the batch before had brought an entry
/// ```
#[derive(Clone, Copy)]
struct Gap {
    /// `None`: the gap begins with the segment.
    below: Option<OffsetPosition>,
    above: OffsetPosition,
    /// How many batches may hold an offset that is looked for here, if all are of one size.
    candidates: u64,
}

impl Gap {
    /// `None`: the batches are small, as far as the entries tell.
    fn of_large_batches(
        below: Option<OffsetPosition>,
        above: OffsetPosition,
        index_interval_bytes: u64,
    ) -> Option<Gap> {
        let start = below.map_or(0, |entry| entry.position_byte);
        let bytes = above.position_byte.checked_sub(start)?;
        let batch_bytes = bytes.checked_sub(index_interval_bytes)?;
        if batch_bytes < HOP_BYTES_MIN {
            return None;
        }
        // The lower entry's own batch ends with that entry's offset, so it is none of them.
        let candidates = (bytes + batch_bytes / 2) / batch_bytes + u64::from(below.is_none());
        (candidates <= HOPS_MAX).then_some(Gap {
            below,
            above,
            candidates,
        })
    }

    /// Says whether the upper entry's batch holds the offset, if all hold as many.
    fn ends_with(&self, offset: i64, base_offset: i64) -> bool {
        let below = self.below.map_or(base_offset - 1, |entry| entry.offset);
        let left = self.above.offset.saturating_sub(offset);
        left.saturating_mul(self.candidates as i64) < self.above.offset - below
    }
}

impl Segment {
    /// The first batch whose last offset is at least `offset`, looked for between the two index
    /// entries around it. `None`: all batches end below. Cost with the index mapped: one `pread`,
    /// of a header alone where batches are large, two if the index ends below the offset or its
    /// entries leave a choice. Errors: `CorruptFile` if the bytes on the way are no batches, also
    /// when the walk starts at the first byte.
    pub fn locate(&self, offset: i64) -> Result<Option<LocatedBatch>> {
        let (_, found) = self.locate_below(offset, self.size_bytes())?;
        Ok(found)
    }

    /// As `locate`, among the batches below byte `end`; with the file that they are in.
    pub(in crate::log) fn locate_below(
        &self,
        offset: i64,
        end: u64,
    ) -> Result<(Arc<dyn StorageFile>, Option<LocatedBatch>)> {
        let (file, (below, above)) = self.file_and_entries_around(offset)?;
        let below = below.filter(|entry| entry.position_byte < end);
        let interval = self.index_interval_bytes.clamp(512, LOOK_UP_BYTES_MAX / 2);
        if let Some(above) = above
            && let Some(gap) = Gap::of_large_batches(below, above, self.index_interval_bytes)
            && let Some(found) = self.locate_in_gap(&*file, gap, end, offset)?
        {
            return Ok((file, Some(found)));
        }
        let start = below.map_or(0, |entry| entry.position_byte);
        let gap = above.map_or(interval, |above| above.position_byte.saturating_sub(start));
        let bytes = (gap + RECORD_BATCH_OVERHEAD as u64).min(LOOK_UP_BYTES_MAX) as usize;
        if let Some(entry) = below {
            // An index is a hint. What it points at must be the batch it names, or the walk starts
            // at the first byte.
            match self.locate_from(&*file, bytes, start, end, offset, Some(entry.offset)) {
                Ok(found) => return Ok((file, found)),
                Err(Error::CorruptFile { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let found = self.locate_from(&*file, bytes, 0, end, offset, None)?;
        Ok((file, found))
    }

    fn file_and_entries_around(&self, offset: i64) -> Result<(Arc<dyn StorageFile>, Neighbours)> {
        let look = |bytes: &[u8]| OffsetIndex::new(self.base_offset, bytes).around(offset);
        let active = self.indexes.read();
        if let Some(entries) = active.as_ref().map(|indexes| look(&indexes.offset)) {
            drop(active);
            return Ok((self.file()?, entries));
        }
        drop(active);
        let (file, mapping) = self.open_segments.log_and_offset_index(&self.files)?;
        Ok((file, look(&mapping)))
    }

    /// Reads headers alone: the upper entry's if it is likely to hold the offset, else from the
    /// lower entry on. `None`: not found that way, which says nothing of the offset. Errors: `Io`.
    fn locate_in_gap(
        &self,
        file: &dyn StorageFile,
        gap: Gap,
        end: u64,
        offset: i64,
    ) -> Result<Option<LocatedBatch>> {
        let above = gap.above.position_byte;
        if gap.ends_with(offset, self.base_offset)
            && let Some(header) = self.header_at(file, above, end)?
            && header.last_offset() == gap.above.offset
            && header.base_offset <= offset
        {
            let position_byte = above;
            return Ok(Some(LocatedBatch {
                position_byte,
                header,
            }));
        }
        let mut position_byte = gap.below.map_or(0, |entry| entry.position_byte);
        let mut named = gap.below.map(|entry| entry.offset);
        while let Some(header) = self.header_at(file, position_byte, end)? {
            if named
                .take()
                .is_some_and(|last| last != header.last_offset())
            {
                return Ok(None);
            }
            if header.last_offset() >= offset {
                return Ok(Some(LocatedBatch {
                    position_byte,
                    header,
                }));
            }
            if (header.size_bytes as u64) < HOP_BYTES_MIN || position_byte >= above {
                return Ok(None);
            }
            position_byte += header.size_bytes as u64;
        }
        Ok(None)
    }

    /// The header of a batch of magic 2 that lies at a position and ends within `end`.
    fn header_at(
        &self,
        file: &dyn StorageFile,
        position_byte: u64,
        end: u64,
    ) -> Result<Option<BatchHeader>> {
        let mut bytes = [0; RECORD_BATCH_OVERHEAD];
        if position_byte + bytes.len() as u64 > end {
            return Ok(None);
        }
        let read = read_full_at(file, &mut bytes, position_byte);
        let read = read.map_err(|error| Error::io("pread", &self.files.path(LOG))(error))?;
        let header = BatchHeader::parse(&bytes[..read]).ok().flatten();
        Ok(header
            .filter(|header| header.magic == 2)
            .filter(|header| header.size_bytes as u64 <= end - position_byte))
    }

    fn locate_from(
        &self,
        file: &dyn StorageFile,
        chunk_bytes: usize,
        start: u64,
        end: u64,
        offset: i64,
        indexed_offset: Option<i64>,
    ) -> Result<Option<LocatedBatch>> {
        let scanner = BatchScanner::of_segment(file, &self.files, start, end);
        let mut scanner = scanner.with_chunk_bytes(chunk_bytes);
        let mut first = true;
        while let Some((position_byte, header)) = scanner.next_header()? {
            let misplaced = match indexed_offset {
                Some(indexed) if first => header.base_offset > indexed,
                _ => false,
            };
            if misplaced || header.last_offset() < self.base_offset {
                let reason = "the index points at another batch";
                let path = self.files.path(LOG);
                return Err(Error::corrupt_file(&path, position_byte, reason));
            }
            first = false;
            if header.last_offset() >= offset {
                return Ok(Some(LocatedBatch {
                    position_byte,
                    header,
                }));
            }
        }
        Ok(None)
    }

    /// Where readers that may see everything below `offset` must stop.
    pub fn position_of(&self, offset: i64) -> Result<u64> {
        let end = self.end();
        if offset >= end.next_offset {
            return Ok(end.size_bytes);
        }
        Ok(self
            .locate(offset)?
            .map_or(end.size_bytes, |batch| batch.position_byte))
    }

    /// The last batch that the indexes and a walk behind them find; `None` if there is none.
    pub fn last_batch(&self) -> Result<Option<LocatedBatch>> {
        let last = self.with_offset_index(|index| index.last())?;
        self.last_batch_behind(last)
    }

    /// As `last_batch`, with the last entry of the offset index at hand.
    pub(in crate::log) fn last_batch_behind(
        &self,
        entry: Option<OffsetPosition>,
    ) -> Result<Option<LocatedBatch>> {
        let end = self.end().size_bytes;
        if end == 0 {
            return Ok(None);
        }
        let start = entry.map_or(0, |entry| entry.position_byte);
        let file = self.file()?;
        let path = self.files.path(LOG);
        let walk = |start: u64| -> Result<Option<LocatedBatch>> {
            let mut scanner = BatchScanner::new(&*file, &path, start, end);
            let mut last = None;
            while let Some((position_byte, header)) = scanner.next_header()? {
                last = Some(LocatedBatch {
                    position_byte,
                    header,
                });
            }
            Ok(last)
        };
        match walk(if start < end { start } else { 0 }) {
            Err(Error::CorruptFile { .. }) if start > 0 => walk(0),
            other => other,
        }
    }

    /// The aborted transactions whose markers stand in this segment, which the writer of the next
    /// one waits for as long as this is held.
    pub fn aborted(&self) -> Result<MappedMutexGuard<'_, AbortedIndex>> {
        let mut aborted = self.aborted.lock();
        if aborted.is_none() {
            let path = self.files.path(TRANSACTION_INDEX);
            let bytes = read_file(&*self.open_segments.storage, &path);
            let bytes = bytes.map_err(Error::io("read", &path))?.unwrap_or_default();
            *aborted = Some(AbortedIndex::parse(&bytes, self.base_offset, &path)?);
        }
        Ok(MutexGuard::map(aborted, Option::get_or_insert_default))
    }

    /// Largest timestamp of the first batch; -1 if there is none or it has none.
    pub fn first_batch_timestamp(&self) -> Result<i64> {
        let known = self.first_timestamp.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Ok(known);
        }
        if self.size_bytes() == 0 {
            return Ok(-1);
        }
        let file = self.file()?;
        let path = self.files.path(LOG);
        let mut scanner =
            BatchScanner::new(&*file, &path, 0, self.size_bytes()).with_chunk_bytes(512);
        let first = scanner
            .next_header()?
            .map_or(-1, |(_, header)| header.max_timestamp);
        self.first_timestamp.store(first, Ordering::Relaxed);
        Ok(first)
    }

    pub fn with_offset_index<T>(&self, look: impl Fn(OffsetIndex<'_>) -> T) -> Result<T> {
        if let Some(indexes) = self.indexes.read().as_ref() {
            return Ok(look(OffsetIndex::new(self.base_offset, &indexes.offset)));
        }
        let mapping = self.open_segments.offset_index(&self.files)?;
        Ok(look(OffsetIndex::new(self.base_offset, &mapping)))
    }

    pub fn with_time_index<T>(&self, look: impl Fn(TimeIndex<'_>) -> T) -> Result<T> {
        if let Some(indexes) = self.indexes.read().as_ref() {
            return Ok(look(TimeIndex::new(self.base_offset, &indexes.time)));
        }
        let mapping = self.open_segments.time_index(&self.files)?;
        Ok(look(TimeIndex::new(self.base_offset, &mapping)))
    }

    /// `segment.index.bytes` with which the segment was opened.
    pub fn segment_index_bytes(&self) -> u64 {
        self.segment_index_bytes
    }
}
