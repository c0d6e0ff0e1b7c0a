//! Finding batches in a segment: by offset, by position, by timestamp. At any time, beside the writer.
//!
//! An index is a hint. Whatever it names is held against the batch that lies there before anything
//! is concluded from it; `prove.rs` does so for timestamps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::BatchHeader;
use crate::batch::header::RECORD_BATCH_OVERHEAD;
use crate::error::{Error, Result};
use crate::limits::LOOK_UP_BYTES_MAX;

use super::aborted::AbortedIndex;
use super::names::{LOG, TRANSACTION_INDEX};
use super::offset_index::{OffsetIndex, OffsetPosition};
use super::scan::BatchScanner;
use super::segment::{LocatedBatch, Segment, UNKNOWN};
use super::storage::{StorageFile, read_file, read_full_at};
use super::time_index::TimeIndex;

impl Segment {
    /// The first batch whose last offset is at least `offset`, looked for between the two index
    /// entries around it. `None`: all batches end below. Cost with the index mapped: one `pread`,
    /// two if the index ends below the offset. Errors: `CorruptFile` if the bytes on the way are no
    /// batches, also when the walk starts at the first byte.
    pub fn locate(&self, offset: i64) -> Result<Option<LocatedBatch>> {
        let end = self.end().size_bytes;
        let (below, above) = self.with_offset_index(|index| index.around(offset))?;
        let below = below.filter(|entry| entry.position_byte < end);
        let start = below.map_or(0, |entry| entry.position_byte);
        let interval = self.index_interval_bytes.clamp(512, LOOK_UP_BYTES_MAX / 2);
        let gap = above.map_or(interval, |above| above.position_byte.saturating_sub(start));
        let file = self.file()?;
        // Batches larger than the interval have an entry each, and it is the upper one's.
        if let Some(above) = above.filter(|_| gap > 2 * interval)
            && let Some(found) = self.batch_at(&*file, above, end, offset)?
        {
            return Ok(Some(found));
        }
        let bytes = (gap + RECORD_BATCH_OVERHEAD as u64).min(LOOK_UP_BYTES_MAX) as usize;
        if let Some(entry) = below {
            // An index is a hint. What it points at must be the batch it names, or the walk starts
            // at the first byte.
            match self.locate_from(&*file, bytes, start, end, offset, Some(entry.offset)) {
                Ok(found) => return Ok(found),
                Err(Error::CorruptFile { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.locate_from(&*file, bytes, 0, end, offset, None)
    }

    /// The batch that an index entry names, if it is there and holds `offset`. Errors: `Io`.
    fn batch_at(
        &self,
        file: &dyn StorageFile,
        entry: OffsetPosition,
        end: u64,
        offset: i64,
    ) -> Result<Option<LocatedBatch>> {
        let mut bytes = [0; RECORD_BATCH_OVERHEAD];
        let position_byte = entry.position_byte;
        if position_byte + bytes.len() as u64 > end {
            return Ok(None);
        }
        let read = read_full_at(file, &mut bytes, position_byte);
        let read = read.map_err(|error| Error::io("pread", &self.files.path(LOG))(error))?;
        let Ok(Some(header)) = BatchHeader::parse(&bytes[..read]) else {
            return Ok(None);
        };
        let is_named = header.magic == 2
            && header.last_offset() == entry.offset
            && header.size_bytes as u64 <= end - position_byte;
        let holds = (header.base_offset..=header.last_offset()).contains(&offset);
        Ok((is_named && holds).then_some(LocatedBatch {
            position_byte,
            header,
        }))
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
        let end = self.end().size_bytes;
        let start = self.with_offset_index(|index| index.last())?;
        let start = start.map_or(0, |entry| entry.position_byte);
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

    /// The aborted transactions whose markers stand in this segment.
    pub fn aborted(&self) -> Result<Arc<AbortedIndex>> {
        let mut aborted = self.aborted.lock();
        if let Some(index) = &*aborted {
            return Ok(index.clone());
        }
        let path = self.files.path(TRANSACTION_INDEX);
        let bytes = read_file(&*self.open_segments.storage, &path);
        let bytes = bytes.map_err(Error::io("read", &path))?.unwrap_or_default();
        let index = Arc::new(AbortedIndex::parse(&bytes, self.base_offset, &path)?);
        *aborted = Some(index.clone());
        Ok(index)
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
