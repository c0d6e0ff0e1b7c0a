//! One segment: a `.log` file with its indexes, and where it ends.
//!
//! The active segment keeps its indexes in memory and writes them when it is flushed or closed: a
//! mapped, sparse file on a full disk would be SIGBUS. A closed segment's indexes are mapped and
//! immutable; whoever changes one writes a new file and renames it over the old.
//!
//! Contract. One writer at a time (the log's append lock) calls `write`, `note_written`,
//! `truncate` and `close`.
//! Readers call everything else at any time: they see the end as it was published, after the bytes
//! were written. A reader pins the segment; `truncate` waits for the pins taken before it.

use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::batch::BatchHeader;
use crate::batch::header::RECORD_BATCH_OVERHEAD;
use crate::error::{Error, Result};
use crate::limits::LOOK_UP_BYTES_MAX;

use super::aborted::{AbortedIndex, AbortedTransaction};
use super::config::LogConfig;
use super::names::{LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX};
use super::offset_index::{self, OffsetIndex, OffsetPosition};
use super::open_segments::{OpenSegments, SegmentFiles};
use super::scan::BatchScanner;
use super::storage::{
    OpenMode, StorageFile, read_file, read_full_at, replace_file, write_all_at,
    write_all_vectored_at,
};
use super::time_index::{self, TimeIndex, TimestampOffset};

/// Where a segment ends, as readers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    pub size_bytes: u64,
    /// Offset that follows the last record. Of a closed segment found on disk: the next segment's
    /// base offset, which compaction may have left above the last record.
    pub next_offset: i64,
}

/// A place in the log: an offset, and the byte at which its batch starts or will start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    pub offset: i64,
    pub segment_base_offset: i64,
    pub position_byte: u64,
}

/// A batch that has been or is to be written: what the segment must know of it.
#[derive(Clone, Copy, Debug)]
pub struct WrittenBatch {
    pub last_offset: i64,
    pub size_bytes: u64,
    pub max_timestamp: i64,
}

/// Found by `Segment::locate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocatedBatch {
    pub position_byte: u64,
    pub header: BatchHeader,
}

pub struct Segment {
    base_offset: i64,
    files: Arc<SegmentFiles>,
    open_segments: Arc<OpenSegments>,
    index_interval_bytes: u64,
    segment_index_bytes: u64,
    roll_jitter_ms: i64,
    end: RwLock<EndAndPin>,
    /// Of the active segment only.
    indexes: RwLock<Option<ActiveIndexes>>,
    largest_timestamp: Mutex<Option<TimestampOffset>>,
    /// The `.txnindex`; `None` until it is first asked for.
    aborted: Mutex<Option<Arc<AbortedIndex>>>,
    /// Largest timestamp of the first batch: rolling by time counts from it. `UNKNOWN` until read.
    first_timestamp: AtomicI64,
    created_ms: AtomicI64,
}

const UNKNOWN: i64 = i64::MIN;

struct EndAndPin {
    end: SegmentEnd,
    pin: Arc<Pin>,
}

/// Indexes of the active segment, in the format of their files.
#[derive(Default)]
struct ActiveIndexes {
    offset: Vec<u8>,
    time: Vec<u8>,
    offset_bytes_written: usize,
    time_bytes_written: usize,
    bytes_since_entry: u64,
}

/// Held by a reader; `truncate` waits until all taken before it are dropped.
#[derive(Default)]
pub struct Pin {
    released: Arc<(Mutex<bool>, Condvar)>,
}

/// A segment as it was at one moment: whoever rewrites it learns whether it has been cut since.
pub struct SegmentVersion {
    pub segment: Arc<Segment>,
    pin: Weak<Pin>,
}

impl SegmentVersion {
    /// Whether nothing has been cut off since `Segment::version`. Appends do not count.
    pub fn is_current(&self) -> bool {
        std::ptr::eq(self.pin.as_ptr(), Arc::as_ptr(&self.segment.end.read().pin))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        *self.released.0.lock() = true;
        self.released.1.notify_all();
    }
}

impl Segment {
    /// Makes the files of a new, empty, active segment. Leftovers of the same name are emptied. The
    /// names are durable after the caller has synced the directory.
    pub fn create(
        open_segments: &Arc<OpenSegments>,
        directory: &Path,
        base_offset: i64,
        suffix: &'static str,
        config: &LogConfig,
        roll_jitter_ms: i64,
        now_ms: i64,
    ) -> Result<Arc<Segment>> {
        let files = open_segments.segment(directory, base_offset, suffix);
        for kind in [LOG, OFFSET_INDEX, TIME_INDEX] {
            let path = files.path(kind);
            let file = open_segments
                .storage
                .open(&path, OpenMode::CreateOrTruncate)
                .map_err(Error::io("open", &path))?;
            if kind == LOG && config.preallocate {
                file.preallocate(config.segment_bytes)
                    .map_err(Error::io("fallocate", &path))?;
            }
        }
        let transactions = files.path(TRANSACTION_INDEX);
        let leftover = open_segments.storage.file_size(&transactions);
        if leftover
            .map_err(Error::io("stat", &transactions))?
            .is_some()
        {
            let removed = open_segments.storage.remove_file(&transactions);
            removed.map_err(Error::io("unlink", &transactions))?;
        }
        let end = SegmentEnd {
            size_bytes: 0,
            next_offset: base_offset,
        };
        let indexes = Some(ActiveIndexes::default());
        let largest = Some(TimestampOffset {
            timestamp: -1,
            offset: base_offset,
        });
        Ok(Self::new(
            open_segments,
            files,
            end,
            indexes,
            largest,
            config,
            roll_jitter_ms,
            now_ms,
        ))
    }

    /// A segment found on disk, closed: nothing is read until it is needed.
    pub fn open_closed(
        open_segments: &Arc<OpenSegments>,
        directory: &Path,
        suffix: &'static str,
        base_offset: i64,
        end: SegmentEnd,
        config: &LogConfig,
        now_ms: i64,
    ) -> Arc<Segment> {
        let files = open_segments.segment(directory, base_offset, suffix);
        Self::new(open_segments, files, end, None, None, config, 0, now_ms)
    }

    #[expect(clippy::too_many_arguments, reason = "the one constructor, private")]
    fn new(
        open_segments: &Arc<OpenSegments>,
        files: Arc<SegmentFiles>,
        end: SegmentEnd,
        indexes: Option<ActiveIndexes>,
        largest_timestamp: Option<TimestampOffset>,
        config: &LogConfig,
        roll_jitter_ms: i64,
        now_ms: i64,
    ) -> Arc<Segment> {
        Arc::new(Segment {
            base_offset: files.base_offset(),
            files,
            open_segments: open_segments.clone(),
            index_interval_bytes: config.index_interval_bytes,
            segment_index_bytes: config.segment_index_bytes,
            roll_jitter_ms,
            end: RwLock::new(EndAndPin {
                end,
                pin: Arc::new(Pin::default()),
            }),
            indexes: RwLock::new(indexes),
            largest_timestamp: Mutex::new(largest_timestamp),
            aborted: Mutex::new(None),
            first_timestamp: AtomicI64::new(UNKNOWN),
            created_ms: AtomicI64::new(now_ms),
        })
    }

    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    pub fn end(&self) -> SegmentEnd {
        self.end.read().end
    }

    pub fn size_bytes(&self) -> u64 {
        self.end().size_bytes
    }

    /// The end, and a pin under which bytes below it stay as they are.
    pub fn pin(&self) -> (SegmentEnd, Arc<Pin>) {
        let end = self.end.read();
        (end.end, end.pin.clone())
    }

    /// Notes the segment as it is now; keeps nobody waiting.
    pub fn version(self: &Arc<Self>) -> SegmentVersion {
        SegmentVersion {
            segment: self.clone(),
            pin: Arc::downgrade(&self.end.read().pin),
        }
    }

    pub fn files(&self) -> &Arc<SegmentFiles> {
        &self.files
    }

    pub fn file(&self) -> Result<Arc<dyn StorageFile>> {
        self.open_segments.log_file(&self.files)
    }

    /// Whether the offset can stand in this segment's indexes (31 bits above the base offset).
    pub fn can_hold(&self, offset: i64) -> bool {
        (0..=i64::from(i32::MAX)).contains(&(offset - self.base_offset))
    }

    // --- writing, under the log's append lock ------------------------------------------------

    /// Writes bytes at the end by as few calls as the system takes. Nothing is published: the end is
    /// what it was until `note_written`, and after an error `cut_back` brings the file to it.
    pub fn write(&self, buffers: &mut [IoSlice<'_>]) -> Result<()> {
        let start = self.size_bytes();
        write_all_vectored_at(&*self.file()?, buffers, start)
            .map_err(|error| Error::io("pwrite", &self.files.path(LOG))(error))
    }

    /// Cuts off what a failed `write` may have left behind the end.
    pub fn cut_back(&self) -> Result<()> {
        let size = self.size_bytes();
        self.file()?
            .set_size(size)
            .map_err(Error::io("ftruncate", &self.files.path(LOG)))
    }

    /// Index entries, largest timestamp and the published end of batches that stand in the file.
    pub fn note_written(&self, batches: impl Iterator<Item = WrittenBatch>) {
        let SegmentEnd {
            size_bytes: mut position,
            mut next_offset,
        } = self.end();
        let mut indexes = self.indexes.write();
        let mut largest = self.largest_timestamp.lock();
        let mut top = largest.unwrap_or(TimestampOffset {
            timestamp: -1,
            offset: self.base_offset,
        });
        for batch in batches {
            if position == 0 {
                self.first_timestamp
                    .store(batch.max_timestamp, Ordering::Relaxed);
            }
            if batch.max_timestamp > top.timestamp {
                top = TimestampOffset {
                    timestamp: batch.max_timestamp,
                    offset: batch.last_offset,
                };
            }
            if let Some(indexes) = indexes.as_mut() {
                if indexes.bytes_since_entry > self.index_interval_bytes {
                    let entry = OffsetPosition {
                        offset: batch.last_offset,
                        position_byte: position,
                    };
                    offset_index::push_entry(&mut indexes.offset, self.base_offset, entry);
                    time_index::push_entry(&mut indexes.time, self.base_offset, top);
                    indexes.bytes_since_entry = 0;
                }
                indexes.bytes_since_entry += batch.size_bytes;
            }
            position += batch.size_bytes;
            next_offset = batch.last_offset + 1;
        }
        *largest = Some(top);
        drop(largest);
        drop(indexes);
        self.end.write().end = SegmentEnd {
            size_bytes: position,
            next_offset,
        };
    }

    /// Whether the next append of `append_bytes` up to `max_offset` needs a new segment
    /// (`LogSegment.shouldRoll`). `max_timestamp` is that of the append.
    pub fn should_roll(
        &self,
        append_bytes: u64,
        max_offset: i64,
        max_timestamp: i64,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<bool> {
        let size = self.size_bytes();
        // Positions in the index are 32 bits, signed in Kafka, whatever segment.bytes says.
        let limit = config.segment_bytes.min(i32::MAX as u64);
        if size > 0 && size + append_bytes > limit || !self.can_hold(max_offset) {
            return Ok(true);
        }
        let (offset_full, time_full) = match self.indexes.read().as_ref() {
            Some(indexes) => {
                let bytes = config.segment_index_bytes as usize;
                let offset_max = bytes / offset_index::ENTRY_BYTES;
                let time_max = bytes / time_index::ENTRY_BYTES;
                (
                    indexes.offset.len() / offset_index::ENTRY_BYTES >= offset_max,
                    indexes.time.len() / time_index::ENTRY_BYTES + 1 >= time_max,
                )
            }
            None => (false, false),
        };
        if size > 0 && (offset_full || time_full) {
            return Ok(true);
        }
        let first = self.first_batch_timestamp()?;
        let waited_ms = if first >= 0 {
            max_timestamp.saturating_sub(first)
        } else {
            now_ms - self.created_ms.load(Ordering::Relaxed)
        };
        Ok(size > 0 && waited_ms > config.segment_ms - self.roll_jitter_ms)
    }

    /// Writes what the index files lack. With `closing`, the time index gets its last entry first
    /// (`onBecomeInactiveSegment`). Nothing is synced.
    pub fn write_indexes(&self, closing: bool) -> Result<()> {
        let mut guard = self.indexes.write();
        let Some(indexes) = guard.as_mut() else {
            return Ok(());
        };
        if closing && let Some(top) = *self.largest_timestamp.lock() {
            time_index::push_entry(&mut indexes.time, self.base_offset, top);
        }
        let parts = [
            (
                OFFSET_INDEX,
                &indexes.offset,
                &mut indexes.offset_bytes_written,
            ),
            (TIME_INDEX, &indexes.time, &mut indexes.time_bytes_written),
        ];
        for (kind, bytes, written) in parts {
            if *written == bytes.len() {
                continue;
            }
            let path = self.files.path(kind);
            let file = self
                .open_segments
                .storage
                .open(&path, OpenMode::CreateOrOpen);
            let file = file.map_err(Error::io("open", &path))?;
            write_all_at(&*file, &bytes[*written..], *written as u64)
                .map_err(Error::io("pwrite", &path))?;
            *written = bytes.len();
        }
        Ok(())
    }

    /// Adds aborted transactions to the `.txnindex`; on an error it is cut back to what it was.
    pub fn append_aborted(&self, transactions: &[AbortedTransaction]) -> Result<()> {
        let mut index = AbortedIndex::clone(&*self.aborted()?);
        let start = index.size_bytes() as u64;
        let mut bytes = Vec::new();
        for transaction in transactions {
            bytes.extend_from_slice(&index.append(*transaction)?);
        }
        let path = self.files.path(TRANSACTION_INDEX);
        let file = self
            .open_segments
            .storage
            .open(&path, OpenMode::CreateOrOpen);
        let file = file.map_err(Error::io("open", &path))?;
        if let Err(error) = write_all_at(&*file, &bytes, start) {
            // Best effort: recovery makes this file anew, and the next append writes over it.
            let _ = file.set_size(start);
            return Err(Error::io("pwrite", &path)(error));
        }
        *self.aborted.lock() = Some(Arc::new(index));
        Ok(())
    }

    /// Forgets aborted transactions whose marker is at `offset` or behind it.
    pub fn truncate_aborted(&self, offset: i64) -> Result<()> {
        let mut index = AbortedIndex::clone(&*self.aborted()?);
        let before = index.size_bytes();
        index.truncate_to(offset);
        if index.size_bytes() != before {
            self.replace_aborted(index)?;
        }
        Ok(())
    }

    /// Puts an index in place of the `.txnindex`; an empty one removes the file.
    pub fn replace_aborted(&self, index: AbortedIndex) -> Result<()> {
        let storage = &*self.open_segments.storage;
        let path = self.files.path(TRANSACTION_INDEX);
        if !index.is_empty() {
            let bytes = index.encode();
            replace_file(storage, &path, &bytes).map_err(Error::io("replace", &path))?;
        } else if storage
            .file_size(&path)
            .map_err(Error::io("stat", &path))?
            .is_some()
        {
            storage
                .remove_file(&path)
                .map_err(Error::io("unlink", &path))?;
        }
        *self.aborted.lock() = Some(Arc::new(index));
        Ok(())
    }

    /// Makes the segment immutable: its indexes are written out and dropped from memory.
    pub fn close(&self) -> Result<()> {
        self.write_indexes(true)?;
        *self.indexes.write() = None;
        self.files.forget_indexes();
        Ok(())
    }

    /// Makes the last segment found on disk the active one: its indexes come into memory.
    pub fn activate(&self) -> Result<()> {
        let mut guard = self.indexes.write();
        if guard.is_some() {
            return Ok(());
        }
        let offset = self.open_segments.offset_index(&self.files)?.to_vec();
        let time = self.open_segments.time_index(&self.files)?.to_vec();
        let last = OffsetIndex::new(self.base_offset, &offset).last();
        let size = self.size_bytes();
        *guard = Some(ActiveIndexes {
            offset_bytes_written: offset.len(),
            time_bytes_written: time.len(),
            offset,
            time,
            bytes_since_entry: size - last.map_or(0, |last| last.position_byte.min(size)),
        });
        Ok(())
    }

    /// Fsyncs the `.log` file.
    pub fn sync_log(&self) -> Result<()> {
        self.file()?
            .sync_data()
            .map_err(Error::io("fsync", &self.files.path(LOG)))
    }

    /// Fsyncs the index files, as far as they are there.
    pub fn sync_indexes(&self) -> Result<()> {
        for kind in [OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX] {
            let path = self.files.path(kind);
            match self.open_segments.storage.open(&path, OpenMode::ReadWrite) {
                Ok(file) => file.sync_data().map_err(Error::io("fsync", &path))?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("open", &path)(error)),
            }
        }
        Ok(())
    }

    /// Cuts the segment at `position_byte`, which starts the batch of `next_offset`, and makes it
    /// the active one. Waits for readers that were here before. Indexes are replaced, not cut:
    /// someone may have the old ones mapped.
    pub fn truncate(&self, position_byte: u64, next_offset: i64, now_ms: i64) -> Result<()> {
        let old_pin = {
            let mut end = self.end.write();
            end.end = SegmentEnd {
                size_bytes: position_byte,
                next_offset,
            };
            std::mem::replace(&mut end.pin, Arc::new(Pin::default()))
        };
        let released = old_pin.released.clone();
        drop(old_pin);
        let mut done = released.0.lock();
        while !*done {
            released.1.wait(&mut done);
        }
        drop(done);

        let path = self.files.path(LOG);
        self.file()?
            .set_size(position_byte)
            .map_err(Error::io("ftruncate", &path))?;
        self.activate()?;
        let mut guard = self.indexes.write();
        let indexes = guard.get_or_insert_default();
        truncate_offset_index(&mut indexes.offset, self.base_offset, position_byte);
        truncate_time_index(&mut indexes.time, self.base_offset, next_offset);
        for (kind, bytes) in [(OFFSET_INDEX, &indexes.offset), (TIME_INDEX, &indexes.time)] {
            let path = self.files.path(kind);
            replace_file(&*self.open_segments.storage, &path, bytes)
                .map_err(Error::io("replace", &path))?;
        }
        indexes.offset_bytes_written = indexes.offset.len();
        indexes.time_bytes_written = indexes.time.len();
        indexes.bytes_since_entry = 0;
        drop(guard);
        self.files.forget_indexes();
        if position_byte == 0 {
            self.first_timestamp.store(UNKNOWN, Ordering::Relaxed);
            self.created_ms.store(now_ms, Ordering::Relaxed);
        }
        let largest = self.read_largest_timestamp()?;
        *self.largest_timestamp.lock() = Some(largest);
        Ok(())
    }

    /// Takes over indexes and timestamps that a scan of the whole file has made (recovery), as the
    /// files of a closed segment.
    pub fn adopt_indexes(&self, rebuilt: &RebuiltIndexes) -> Result<()> {
        *self.indexes.write() = None;
        for (kind, bytes) in [(OFFSET_INDEX, &rebuilt.offset), (TIME_INDEX, &rebuilt.time)] {
            let path = self.files.path(kind);
            replace_file(&*self.open_segments.storage, &path, bytes)
                .map_err(Error::io("replace", &path))?;
        }
        self.files.forget_indexes();
        *self.largest_timestamp.lock() = Some(rebuilt.largest_timestamp);
        Ok(())
    }

    /// Publishes an end found by recovery.
    pub fn set_end(&self, end: SegmentEnd) {
        self.end.write().end = end;
    }

    // --- reading, at any time ---------------------------------------------------------------

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

    /// The largest timestamp and the last offset of its batch; timestamp -1 if there is none.
    pub fn largest_timestamp(&self) -> Result<TimestampOffset> {
        if let Some(known) = *self.largest_timestamp.lock() {
            return Ok(known);
        }
        let found = self.with_time_index(|index| index.last())?;
        let found = found.unwrap_or(TimestampOffset {
            timestamp: -1,
            offset: self.base_offset,
        });
        *self.largest_timestamp.lock() = Some(found);
        Ok(found)
    }

    /// From the time index and the batches behind its last entry (`readLargestTimestamp`).
    pub fn read_largest_timestamp(&self) -> Result<TimestampOffset> {
        let indexed = self.with_time_index(|index| index.last())?;
        let mut top = indexed.unwrap_or(TimestampOffset {
            timestamp: -1,
            offset: self.base_offset,
        });
        let entry = self.with_offset_index(|index| index.lookup(top.offset))?;
        let start = entry.map_or(0, |entry| entry.position_byte);
        let file = self.file()?;
        let path = self.files.path(LOG);
        let mut scanner = BatchScanner::new(&*file, &path, start, self.size_bytes());
        while let Some((_, header)) = scanner.next_header()? {
            if header.max_timestamp > top.timestamp {
                let offset = header.last_offset();
                top = TimestampOffset {
                    timestamp: header.max_timestamp,
                    offset,
                };
            }
        }
        Ok(top)
    }

    /// Where the search for a record at or after `timestamp` begins.
    pub fn search_start(&self, timestamp: i64, starting_offset: i64) -> Result<u64> {
        let from = self.with_time_index(|index| index.lookup(timestamp))?;
        let offset = from
            .map_or(self.base_offset, |entry| entry.offset)
            .max(starting_offset);
        let entry = self.with_offset_index(|index| index.lookup(offset))?;
        Ok(entry.map_or(0, |entry| entry.position_byte))
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
            largest_timestamp: TimestampOffset {
                timestamp: -1,
                offset: base_offset,
            },
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

fn truncate_offset_index(bytes: &mut Vec<u8>, base_offset: i64, position_byte: u64) {
    let index = OffsetIndex::new(base_offset, bytes);
    let mut count = index.len();
    while count > 0
        && index
            .entry(count - 1)
            .is_none_or(|e| e.position_byte >= position_byte)
    {
        count -= 1;
    }
    bytes.truncate(count * offset_index::ENTRY_BYTES);
}

fn truncate_time_index(bytes: &mut Vec<u8>, base_offset: i64, next_offset: i64) {
    let index = TimeIndex::new(base_offset, bytes);
    let mut count = index.len();
    while count > 0
        && index
            .entry(count - 1)
            .is_none_or(|e| e.offset >= next_offset)
    {
        count -= 1;
    }
    bytes.truncate(count * time_index::ENTRY_BYTES);
}
