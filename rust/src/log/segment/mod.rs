//! One segment: a `.log` file with its indexes, and where it ends.
//!
//! The active segment keeps its indexes in memory and writes them when it is flushed or closed: a
//! mapped, sparse file on a full disk would be SIGBUS. A closed segment's indexes are mapped and
//! immutable; whoever changes one writes a new file and renames it over the old.
//!
//! Contract. One writer at a time (the log's append lock) calls `write`, `note_written`,
//! `truncate` and `close`.
//! Readers call everything else at any time: they see the end as it was published, after the bytes
//! were written. A reader pins the segment and then takes its file: where there are pins `truncate`
//! leaves them the file that they read, and waits for nobody.

mod active_indexes;
mod counted_file;
pub(super) mod delayed_deletion;
mod index_check;
mod look_up;
pub(super) mod map;
pub mod offset_index;
pub mod open_segments;
pub(super) mod rebuild;
pub(super) mod replay;
pub mod room;
pub mod scan;
mod search;
pub mod time_index;
pub mod transaction_index;

use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use self::active_indexes::ActiveIndexes;
use self::offset_index::OffsetPosition;
use self::open_segments::{OpenSegments, SegmentFiles};
use self::room::{Room, can_hold};
use self::time_index::{LargestTimestamp, TimestampOffset};
use self::transaction_index::{AbortedIndex, AbortedProof};
use crate::batch::BatchHeader;
use crate::error::{Error, Result};
use crate::limits::COPY_BYTES;
use crate::log::config::LogConfig;
use crate::log::names::{LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX};
use crate::log::state::producers::AbortedTransaction;
use crate::log::storage::{
    OpenMode, StorageFile, read_exact_at, replace_file, replace_file_by, write_all_at,
    write_all_vectored_at,
};

/// Where a segment ends, as readers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    pub size_bytes: u64,
    /// Offset that follows the last record. Of a closed segment found on disk: the next segment's
    /// base offset, which compaction may have left above the last record.
    pub next_offset: i64,
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
    pub(super) base_offset: i64,
    pub(super) files: Arc<SegmentFiles>,
    pub(super) open_segments: Arc<OpenSegments>,
    pub(super) index_interval_bytes: u64,
    pub(super) segment_index_bytes: u64,
    roll_jitter_ms: i64,
    end: RwLock<EndAndPin>,
    /// The indexes in memory; the active segment alone has them.
    pub(super) indexes: RwLock<Option<ActiveIndexes>>,
    /// `None` until it is first asked for; of the active segment always known.
    pub(super) largest_timestamp: Mutex<Option<LargestTimestamp>>,
    /// The `.txnindex`; `None` until it is first asked for.
    pub(super) aborted: Mutex<Option<AbortedIndex>>,
    pub(super) aborted_proof: Mutex<AbortedProof>,
    /// Largest timestamp of the first batch: rolling by time counts from it. `UNKNOWN` until read.
    pub(super) first_timestamp: AtomicI64,
    created_ms: AtomicI64,
}

pub(super) const UNKNOWN: i64 = i64::MIN;

struct EndAndPin {
    end: SegmentEnd,
    pin: Arc<Pin>,
}

/// Held by a reader of the file as it is; `truncate` puts another pin in its place.
pub struct Pin;

/// A segment as it was at one moment: whoever rewrites it learns whether it has been cut since.
pub struct SegmentVersion {
    pub segment: Arc<Segment>,
    pin: Weak<Pin>,
}

impl SegmentVersion {
    /// Says whether nothing has been cut off since `Segment::version`. Appends do not count.
    pub fn is_current(&self) -> bool {
        std::ptr::eq(self.pin.as_ptr(), Arc::as_ptr(&self.segment.end.read().pin))
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
        let largest = Some(LargestTimestamp::known(TimestampOffset::none(base_offset)));
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
        files: Arc<SegmentFiles>,
        end: SegmentEnd,
        config: &LogConfig,
        roll_jitter_ms: i64,
        now_ms: i64,
    ) -> Arc<Segment> {
        Self::new(
            open_segments,
            files,
            end,
            None,
            None,
            config,
            roll_jitter_ms,
            now_ms,
        )
    }

    #[expect(clippy::too_many_arguments, reason = "the one constructor, private")]
    fn new(
        open_segments: &Arc<OpenSegments>,
        files: Arc<SegmentFiles>,
        end: SegmentEnd,
        indexes: Option<ActiveIndexes>,
        largest_timestamp: Option<LargestTimestamp>,
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
                pin: Arc::new(Pin),
            }),
            indexes: RwLock::new(indexes),
            largest_timestamp: Mutex::new(largest_timestamp),
            aborted: Mutex::new(None),
            aborted_proof: Mutex::default(),
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

    /// The end, and the file, in which bytes below it stay as they are while the pin is held.
    pub fn pinned_file(&self) -> Result<(SegmentEnd, Arc<Pin>, Arc<dyn StorageFile>)> {
        loop {
            let (end, pin) = self.pin();
            let file = self.file()?;
            if self.is_current(&pin) {
                return Ok((end, pin, file));
            }
        }
    }

    /// Nothing has been cut off since the pin was taken.
    pub fn is_current(&self, pin: &Arc<Pin>) -> bool {
        Arc::ptr_eq(pin, &self.end.read().pin)
    }

    /// The end, and a pin. A file that is taken afterwards is that of the pin
    /// if it `is_current` still.
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

    /// Says whether the offset can stand in this segment's indexes (31 bits above the base offset).
    pub fn can_hold(&self, offset: i64) -> bool {
        can_hold(self.base_offset, offset)
    }

    // --- writing, under the log's append lock ------------------------------------------------

    /// Writes bytes at the end of `file`, which is this segment's, by as few calls as the system
    /// takes. Nothing is published: the end is what it was until `note_written`, and after an error
    /// `cut_back` brings the file to it.
    pub fn write(&self, file: &dyn StorageFile, buffers: &mut [IoSlice<'_>]) -> Result<()> {
        write_all_vectored_at(file, buffers, self.size_bytes())
            .map_err(|error| Error::io("pwrite", &self.files.path(LOG))(error))
    }

    /// Cuts off what a failed `write` may have left behind the end.
    pub fn cut_back(&self, file: &dyn StorageFile) -> Result<()> {
        file.set_size(self.size_bytes())
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
        let mut top = largest.map_or(TimestampOffset::none(self.base_offset), |known| known.top);
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
                let place = OffsetPosition {
                    offset: batch.last_offset,
                    position_byte: position,
                };
                let interval_bytes = self.index_interval_bytes;
                indexes.add(
                    self.base_offset,
                    interval_bytes,
                    place,
                    batch.size_bytes,
                    top,
                );
            }
            position += batch.size_bytes;
            next_offset = batch.last_offset + 1;
        }
        *largest = Some(LargestTimestamp::known(top));
        drop(largest);
        drop(indexes);
        self.end.write().end = SegmentEnd {
            size_bytes: position,
            next_offset,
        };
    }

    /// Measures the room that the segment still has. Errors: `Io` where the file has to say what
    /// its first batch is.
    pub fn room(&self, config: &LogConfig, now_ms: i64) -> Result<Room> {
        let size_bytes = self.size_bytes();
        let first = self.first_batch_timestamp()?;
        let ms_max = config.segment_ms_max() - self.roll_jitter_ms;
        // A first batch without a timestamp leaves the age of the segment to go by.
        let is_old = first < 0 && now_ms - self.created_ms.load(Ordering::Relaxed) > ms_max;
        // As it was when the segment was opened, as Kafka maps its indexes then.
        let index_bytes = self.segment_index_bytes;
        let indexes = self.indexes.read();
        let is_full = (indexes.as_ref()).is_some_and(|indexes| indexes.are_full(index_bytes));
        drop(indexes);
        Ok(Room {
            base_offset: self.base_offset,
            size_bytes,
            // Positions in the index are 32 bits, signed in Kafka, whatever segment.bytes says.
            size_bytes_max: config.segment_bytes.min(i32::MAX as u64),
            ms_max,
            timestamp_max: if size_bytes > 0 && first >= 0 {
                first.saturating_add(ms_max)
            } else {
                i64::MAX
            },
            is_over: size_bytes > 0 && (is_full || is_old),
        })
    }

    /// Writes what the index files lack. With `closing`, the time index gets its last entry first
    /// (`onBecomeInactiveSegment`). Nothing is synced.
    pub fn write_indexes(&self, closing: bool) -> Result<()> {
        let mut guard = self.indexes.write();
        let Some(indexes) = guard.as_mut() else {
            return Ok(());
        };
        if closing && let Some(known) = *self.largest_timestamp.lock() {
            time_index::push_entry(&mut indexes.time, self.base_offset, known.top);
        }
        indexes.write(&*self.open_segments.storage, &self.files)
    }

    /// Adds aborted transactions to the `.txnindex`; on an error it is cut back to what it was.
    pub fn append_aborted(&self, transactions: &[AbortedTransaction]) -> Result<()> {
        let start = {
            let index = self.aborted()?;
            index.check_next(transactions)?;
            index.size_bytes() as u64
        };
        let bytes: Vec<u8> = transactions.iter().flat_map(|each| each.encode()).collect();
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
        self.aborted()?.extend(transactions);
        let mut proof = self.aborted_proof.lock();
        proof.note(transactions);
        Ok(())
    }

    /// Forgets aborted transactions whose marker is at `offset` or behind it.
    pub fn truncate_aborted(&self, offset: i64) -> Result<()> {
        let mut index = self.aborted()?.clone();
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
        *self.aborted.lock() = Some(index);
        *self.aborted_proof.lock() = AbortedProof::default();
        Ok(())
    }

    /// Makes the segment immutable: its indexes are written out and dropped from memory.
    pub fn close(&self) -> Result<()> {
        self.write_indexes(true)?;
        let indexes = self.indexes.write().take();
        assert!(
            indexes.is_none_or(|indexes| indexes.are_written()),
            "lost index entries"
        );
        self.files.forget_indexes();
        Ok(())
    }

    /// Makes the last segment found on disk the active one: its indexes come into memory.
    pub fn activate(&self) -> Result<()> {
        if self.is_active() {
            return Ok(());
        }
        let offset = self.open_segments.offset_index(&self.files)?.to_vec();
        let time = self.open_segments.time_index(&self.files)?.to_vec();
        self.activate_with(offset, time);
        Ok(())
    }

    /// Makes the segment the active one, with the contents of its index files.
    pub(super) fn activate_with(&self, offset: Vec<u8>, time: Vec<u8>) {
        let written = (offset.len(), time.len());
        self.put_indexes(offset, time, written);
    }

    fn put_indexes(&self, offset: Vec<u8>, time: Vec<u8>, written: (usize, usize)) {
        let size_bytes = self.size_bytes();
        let indexes = ActiveIndexes::new(self.base_offset, size_bytes, offset, time, written);
        *self.indexes.write() = Some(indexes);
    }

    /// Its indexes are in memory.
    pub fn is_active(&self) -> bool {
        self.indexes.read().is_some()
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
    /// the active one. Readers that were here before keep their file, of which a copy is cut: they
    /// may be clients that read slowly.
    pub fn truncate(&self, position_byte: u64, next_offset: i64, now_ms: i64) -> Result<()> {
        let old_pin = {
            let mut end = self.end.write();
            assert!(position_byte <= end.end.size_bytes, "a cut beyond the end");
            end.end = SegmentEnd {
                size_bytes: position_byte,
                next_offset,
            };
            std::mem::replace(&mut end.pin, Arc::new(Pin))
        };
        match Arc::into_inner(old_pin) {
            Some(Pin) => self
                .file()?
                .set_size(position_byte)
                .map_err(Error::io("ftruncate", &self.files.path(LOG)))?,
            None => self.replace_log(position_byte)?,
        }
        self.activate()?;
        let mut guard = self.indexes.write();
        let indexes = guard.get_or_insert_default();
        let storage = &*self.open_segments.storage;
        indexes.truncate(storage, &self.files, position_byte, next_offset)?;
        drop(guard);
        self.files.forget_indexes();
        if position_byte == 0 {
            self.first_timestamp.store(UNKNOWN, Ordering::Relaxed);
            self.created_ms.store(now_ms, Ordering::Relaxed);
        }
        let largest = self.read_largest_timestamp()?;
        *self.largest_timestamp.lock() = Some(LargestTimestamp::known(largest));
        Ok(())
    }

    /// Puts a copy of the first `size_bytes` in the place of the `.log`.
    fn replace_log(&self, size_bytes: u64) -> Result<()> {
        let (path, old) = (self.files.path(LOG), self.file()?);
        let copy = |new: &dyn StorageFile| {
            let mut buffer = vec![0; size_bytes.min(COPY_BYTES) as usize];
            let mut done = 0;
            while done < size_bytes {
                let part = &mut buffer[..(size_bytes - done).min(COPY_BYTES) as usize];
                read_exact_at(&*old, part, done)?;
                write_all_at(new, part, done)?;
                done += part.len() as u64;
            }
            Ok(())
        };
        let replaced = replace_file_by(&*self.open_segments.storage, &path, copy);
        self.files.forget_log();
        replaced.map_err(Error::io("replace", &path))
    }

    /// Publishes an end found by recovery.
    pub fn set_end(&self, end: SegmentEnd) {
        let mut known = self.end.write();
        assert!(
            end.size_bytes <= known.end.size_bytes,
            "recovery adds no bytes"
        );
        known.end = end;
    }
}
