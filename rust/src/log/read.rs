//! Reading a log by offset and by timestamp. No append lock is taken.
//!
//! A read answers with a range of a file, whole batches as they lie on disk, from the batch that
//! holds the offset up to what the isolation allows; the first batch is included whole even if it
//! is larger than asked for, the last one may be cut, as in Kafka.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::batch::{BatchHeader, RecordReader};
use crate::error::{Error, Result};

use super::log::Log;
use super::names::LOG;
use super::segment::open_segments::SegmentFiles;
use super::segment::scan::BatchScanner;
use super::segment::{Pin, Segment};
use super::state::ends::LogPosition;
use super::storage::{StorageFile, read_exact_at};

/// How far a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadIsolation {
    /// A follower and the log itself: up to the log end.
    LogEnd,
    /// `read_uncommitted`: up to the high watermark.
    HighWatermark,
    /// `read_committed`: up to the last stable offset.
    LastStable,
}

/// Bytes of one segment's file. As long as it lives they stay what they are: a deleted or replaced
/// file is held open, and so is one of which a truncation has cut a copy; or they are in memory.
pub struct FetchedRange {
    /// Offset from which the reader asked; the first batch may begin below it.
    pub offset: i64,
    pub segment_base_offset: i64,
    pub position_byte: u64,
    pub length_bytes: u64,
    /// The range ends within its first batch, which did not fit.
    pub first_batch_is_cut: bool,
    /// There are segments behind this one that the reader may see.
    pub is_on_older_segment: bool,
    /// The log's `cuts` when the range was found.
    pub(super) cuts: u64,
    file: Option<Arc<dyn StorageFile>>,
    /// The bytes themselves, in place of the file.
    copy: Option<Vec<u8>>,
    /// Those of the segment, for its path in errors.
    files: Option<Arc<SegmentFiles>>,
    _pin: Option<Arc<Pin>>,
}

impl FetchedRange {
    /// A range at `offset` without bytes.
    pub fn empty(offset: i64) -> FetchedRange {
        FetchedRange {
            offset,
            segment_base_offset: offset,
            position_byte: 0,
            length_bytes: 0,
            first_batch_is_cut: false,
            is_on_older_segment: false,
            cuts: 0,
            file: None,
            copy: None,
            files: None,
            _pin: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }

    /// For `sendfile`; `None` if the range is empty, or in memory.
    pub fn file(&self) -> Option<&Arc<dyn StorageFile>> {
        self.file.as_ref()
    }

    /// Copies the bytes into memory, and lets go of the file. Errors: `Io`.
    pub fn release_file(&mut self) -> Result<()> {
        if self.file.is_some() {
            self.copy = Some(self.to_vec()?);
            self.forget_file();
        }
        Ok(())
    }

    /// Lets go of the file: no more is known than where the bytes were.
    pub fn forget_file(&mut self) {
        self.file = None;
        self._pin = None;
    }

    /// There are bytes, but neither the file nor a copy to read them from.
    pub fn is_forgotten(&self) -> bool {
        !self.is_empty() && self.file.is_none() && self.copy.is_none()
    }

    /// The bytes, if they are in memory; `self` if they are in the file.
    pub fn into_copy(mut self) -> std::result::Result<Vec<u8>, FetchedRange> {
        self.copy.take().ok_or(self)
    }

    /// Reads part of the range, `at` bytes from its start. Errors: `Io`.
    pub fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        if let Some(copy) = &self.copy {
            let part = copy
                .get(at as usize..)
                .and_then(|part| part.get(..buffer.len()));
            let part = part.ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
            buffer.copy_from_slice(part.map_err(Error::io("copy", Path::new("")))?);
            return Ok(());
        }
        let Some(file) = &self.file else {
            return Ok(());
        };
        read_exact_at(&**file, buffer, self.position_byte + at).map_err(|error| {
            let path = self.files.as_ref().map(|files| files.path(LOG));
            Error::io("pread", &path.unwrap_or_default())(error)
        })
    }

    /// The bytes of the range in memory.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.length_bytes as usize];
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// Found by `Log::offset_for_timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTimestamp {
    pub timestamp: i64,
    pub offset: i64,
    /// -1 in batches without one.
    pub leader_epoch: i32,
}

impl Log {
    /// Where the batch begins that holds `offset`; where none does, `offset`
    /// itself. Errors: as `read`.
    pub fn start_of_batch(&self, offset: i64) -> Result<i64> {
        let offsets = self.offsets();
        if !(offsets.log_start_offset..offsets.log_end_offset).contains(&offset) {
            return Ok(offset);
        }
        let batch = self
            .read(offset, 1, true, ReadIsolation::LogEnd)?
            .to_vec()?;
        let header = BatchHeader::parse(&batch)?;
        Ok(header.map_or(offset, |header| header.base_offset.min(offset)))
    }

    /// Batches from the one that holds `offset` on, within one segment.
    ///
    /// At most `max_bytes`, but the first batch whole if `min_one_batch`; empty at the end that
    /// `isolation` allows, and where `max_bytes` is 0. Errors: `OffsetOutOfRange` outside
    /// `log_start_offset ..= log_end_offset`; `LogDeleted`; `CorruptFile`; `Io`.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: u64,
        min_one_batch: bool,
        isolation: ReadIsolation,
    ) -> Result<FetchedRange> {
        self.check_not_deleted()?;
        // Before the ends: a position in files that were replaced means nothing in the others.
        let replacements = self.replacements();
        let ends = *self.ends.read();
        if offset < ends.log_start_offset || offset > ends.log_end.offset {
            return Err(Error::OffsetOutOfRange {
                offset,
                log_start_offset: ends.log_start_offset,
                log_end_offset: ends.log_end.offset,
            });
        }
        let bound = match isolation {
            ReadIsolation::LogEnd => ends.log_end,
            ReadIsolation::HighWatermark => ends.high_watermark,
            ReadIsolation::LastStable => {
                let last_stable = ends.last_stable_offset();
                if last_stable == ends.high_watermark.offset {
                    ends.high_watermark
                } else {
                    LogPosition::unresolved(last_stable)
                }
            }
        };
        if offset >= bound.offset {
            return Ok(FetchedRange::empty(offset));
        }
        let bound = self.resolve(bound)?;
        let mut segment = self.segment_at(offset);
        while let Some(candidate) = segment {
            if candidate.base_offset() > bound.segment_base_offset {
                break;
            }
            let version = candidate.version();
            match read_segment(&candidate, offset, max_bytes, min_one_batch, bound) {
                // It was cut between our look at its end and our open: end and file are of two.
                _ if !version.is_current() || self.replacements() != replacements => {
                    return self.read(offset, max_bytes, min_one_batch, isolation);
                }
                Ok(Some(range)) => {
                    return Ok(FetchedRange {
                        cuts: ends.cuts,
                        ..range
                    });
                }
                Ok(None) => segment = self.segment_after(candidate.base_offset()),
                // Between our look at the map and our open, retention or the cleaner
                // may have removed the file; the map then no longer has this segment,
                // and the read starts over.
                Err(error) if self.has_gone(&candidate) => {
                    drop(error);
                    return self.read(offset, max_bytes, min_one_batch, isolation);
                }
                Err(error) => return Err(error),
            }
        }
        if self.replacements() != replacements {
            return self.read(offset, max_bytes, min_one_batch, isolation);
        }
        Ok(FetchedRange::empty(offset))
    }

    pub(super) fn has_gone(&self, segment: &Arc<Segment>) -> bool {
        let segments = self.segments.read();
        !segments
            .get(segment.base_offset())
            .is_some_and(|known| Arc::ptr_eq(known, segment))
    }

    /// Finds segment and byte of a position of which only the offset is known.
    pub(super) fn resolve(&self, position: LogPosition) -> Result<LogPosition> {
        if position.is_resolved() {
            return Ok(position);
        }
        loop {
            let Some(segment) = self.segment_at(position.offset) else {
                return Ok(position);
            };
            match segment.position_of(position.offset) {
                // As in `read`: its files are gone since we looked, and another is in the map.
                Err(_) if self.has_gone(&segment) => {}
                position_byte => {
                    return Ok(LogPosition {
                        offset: position.offset,
                        segment_base_offset: segment.base_offset(),
                        position_byte: position_byte?,
                    });
                }
            }
        }
    }

    /// The first record at or after `timestamp` (ms) that is not below the log start
    /// (`UnifiedLog.fetchOffsetByTimestamp`). The caller compares the offset with what its
    /// reader may see. Errors: `CorruptFile`, `Io`.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<FoundTimestamp>> {
        let log_start_offset = self.ends.read().log_start_offset;
        for segment in self.segments() {
            if segment.end().next_offset <= log_start_offset {
                continue;
            }
            let found = segment.largest_timestamp().and_then(|largest| {
                if largest.timestamp < timestamp {
                    Ok(None)
                } else {
                    find_in_segment(&segment, timestamp, log_start_offset)
                }
            });
            match found {
                Ok(None) => {}
                // As in `read`: its files are gone since we looked.
                Err(_) if self.has_gone(&segment) => return self.offset_for_timestamp(timestamp),
                found => return found,
            }
        }
        Ok(None)
    }

    /// The record with the largest timestamp, the first of several (KIP-734).
    pub fn offset_of_max_timestamp(&self) -> Result<Option<FoundTimestamp>> {
        let mut latest: Option<(i64, Arc<Segment>)> = None;
        for segment in self.segments() {
            let timestamp = match segment.largest_timestamp() {
                Err(_) if self.has_gone(&segment) => continue,
                largest => largest?.timestamp,
            };
            if latest.as_ref().is_none_or(|(known, _)| timestamp > *known) {
                latest = Some((timestamp, segment));
            }
        }
        match latest {
            Some((timestamp, segment)) => {
                match find_in_segment(&segment, timestamp, segment.base_offset()) {
                    Err(_) if self.has_gone(&segment) => self.offset_of_max_timestamp(),
                    found => found,
                }
            }
            None => Ok(None),
        }
    }
}

fn read_segment(
    segment: &Arc<Segment>,
    offset: i64,
    max_bytes: u64,
    min_one_batch: bool,
    bound: LogPosition,
) -> Result<Option<FetchedRange>> {
    let (end, pin) = segment.pin();
    let (file, first) = segment.locate_below(offset, end.size_bytes)?;
    let Some(first) = first else {
        return Ok(None);
    };
    let max_position = if segment.base_offset() == bound.segment_base_offset {
        bound.position_byte.min(end.size_bytes)
    } else {
        end.size_bytes
    };
    let first_bytes = first.header.size_bytes as u64;
    let wanted = if min_one_batch {
        max_bytes.max(first_bytes)
    } else {
        max_bytes
    };
    Ok(Some(FetchedRange {
        offset,
        segment_base_offset: segment.base_offset(),
        position_byte: first.position_byte,
        length_bytes: wanted.min(max_position.saturating_sub(first.position_byte)),
        first_batch_is_cut: wanted < first_bytes,
        is_on_older_segment: segment.base_offset() < bound.segment_base_offset,
        cuts: 0,
        file: Some(file),
        copy: None,
        files: Some(Arc::clone(segment.files())),
        _pin: Some(pin),
    }))
}

fn find_in_segment(
    segment: &Segment,
    timestamp: i64,
    starting_offset: i64,
) -> Result<Option<FoundTimestamp>> {
    let start = segment.search_start(timestamp, starting_offset)?;
    let (end, _pin, file) = segment.pinned_file()?;
    let path = segment.files().path(LOG);
    let mut headers = BatchScanner::new(&*file, &path, start, end.size_bytes);
    let mut reader = RecordReader::new();
    let mut bytes = Vec::new();
    while let Some((position, header)) = headers.next_header()? {
        if header.max_timestamp < timestamp || header.last_offset() < starting_offset {
            continue;
        }
        bytes.resize(header.size_bytes, 0);
        read_exact_at(&*file, &mut bytes, position).map_err(Error::io("pread", &path))?;
        let mut records = reader.stream(&bytes)?;
        while let Some((offset, found)) = records.next_offset_and_timestamp()? {
            if found >= timestamp && offset >= starting_offset {
                return Ok(Some(FoundTimestamp {
                    timestamp: found,
                    offset,
                    leader_epoch: header.partition_leader_epoch,
                }));
            }
        }
    }
    Ok(None)
}
