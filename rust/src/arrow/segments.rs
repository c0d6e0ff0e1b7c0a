//! The files of a partition as a reader without a lock finds them, beside a live broker or a
//! stopped one.
//!
//! A listing of a directory is not a moment in time: while it is read a broker rolls, deletes old
//! segments and swaps compacted ones in. So segments are listed, opened, and listed again; only if
//! nothing changed among those that are wanted do they count as one view. Opened files stay
//! readable whatever becomes of their names. Further segments than `ARROW_OPEN_SEGMENTS_MAX` are
//! looked up later, by the offset that is due next, never by the name that was seen before:
//! compaction may have merged them into an earlier file.
//!
//! A `.log.swap` is a cleaner's finished output on its way in; the files it replaces may be gone
//! before it has its name, so it is read in place of the `.log` of the same offset.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::{Next, SegmentReader};
use crate::batch::BatchHeader;
use crate::batch::header::{LENGTH_AT, MAGIC_AT, RECORD_BATCH_OVERHEAD};
use crate::error::{Error, Result};
use crate::limits::{
    ARROW_LIST_ATTEMPTS_MAX, ARROW_OPEN_SEGMENTS_MAX, ARROW_READ_BYTES, ARROW_TAIL_SEARCH_BYTES,
};
use crate::log::names::{LOG, OFFSET_INDEX, SWAP, base_offset_of, segment_path};
use crate::log::segment::offset_index::OffsetIndex;
use crate::log::storage::{self, OpenMode, Storage, StorageFile};

/// A partition's directory, read only.
#[derive(Clone)]
pub struct Partition {
    pub storage: Arc<dyn Storage>,
    pub directory: PathBuf,
    pub topic: String,
    pub partition: i32,
    /// Below it nothing is read, although the first segment may hold it (`DeleteRecords`).
    pub log_start_checkpoint: i64,
}

/// First offset of a log and the one after its last, as they were at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExtent {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
}

/// A segment whose file is open.
pub struct OpenSegment {
    pub base_offset: i64,
    pub is_swap: bool,
    pub path: PathBuf,
    pub file: Arc<dyn StorageFile>,
    /// Base offset of the segment behind, unless this is the last one, or one being swapped in.
    pub next_base_offset: Option<i64>,
}

/// Base offset → whether the file is a `.log.swap`.
pub(super) type Listing = BTreeMap<i64, bool>;

impl Partition {
    /// Base offsets of the segments, in order.
    pub(super) fn list(&self) -> Result<Listing> {
        let entries = self
            .storage
            .read_directory(&self.directory)
            .map_err(Error::io("readdir", &self.directory))?;
        let mut listing = Listing::new();
        for entry in entries.iter().filter(|entry| !entry.is_directory) {
            if let Some(base_offset) = base_offset_of(&entry.name, LOG, "") {
                listing.entry(base_offset).or_insert(false);
            } else if let Some(base_offset) = base_offset_of(&entry.name, LOG, SWAP) {
                listing.insert(base_offset, true);
            }
        }
        Ok(listing)
    }

    pub fn segment_path(&self, base_offset: i64, is_swap: bool) -> PathBuf {
        let suffix = if is_swap { SWAP } else { "" };
        segment_path(&self.directory, base_offset, LOG, suffix)
    }

    /// Where the log starts and ends now. A torn batch at the end is not part of it.
    pub fn extent(&self) -> Result<LogExtent> {
        for _ in 0..ARROW_LIST_ATTEMPTS_MAX {
            let listing = self.list()?;
            let (Some((&first, _)), Some((&last, &is_swap))) =
                (listing.first_key_value(), listing.last_key_value())
            else {
                return Ok(LogExtent {
                    log_start_offset: self.log_start_checkpoint,
                    log_end_offset: self.log_start_checkpoint,
                });
            };
            let Some(file) = self.open(&self.segment_path(last, is_swap))? else {
                continue;
            };
            let log_end_offset = self.find_end(last, is_swap, file)?;
            let log_start_offset = first.max(self.log_start_checkpoint).min(log_end_offset);
            return Ok(LogExtent {
                log_start_offset,
                log_end_offset,
            });
        }
        Err(self.keeps_changing())
    }

    /// Opens the segments that hold offsets in `from .. stop`, the first of them at least and
    /// `ARROW_OPEN_SEGMENTS_MAX` at most, as they were at one moment. Empty: there is none.
    pub fn open_segments(&self, from: i64, stop: i64) -> Result<Vec<OpenSegment>> {
        'attempt: for _ in 0..ARROW_LIST_ATTEMPTS_MAX {
            let listing = self.list()?;
            let wanted = select(&listing, from, stop);
            let mut segments = Vec::with_capacity(wanted.len());
            for &(base_offset, is_swap, next_base_offset) in &wanted {
                let path = self.segment_path(base_offset, is_swap);
                let Some(file) = self.open(&path)? else {
                    continue 'attempt;
                };
                segments.push(OpenSegment {
                    base_offset,
                    is_swap,
                    path,
                    file,
                    next_base_offset: next_base_offset.filter(|_| !is_swap),
                });
            }
            let again = self.list()?;
            let unchanged = wanted
                .iter()
                .all(|(base_offset, is_swap, _)| again.get(base_offset) == Some(is_swap));
            if unchanged {
                return Ok(segments);
            }
        }
        Err(self.keeps_changing())
    }

    /// A position in the segment at or before the batch that holds `offset`, from the offset index
    /// if that is there and leads to a batch; else 0.
    pub fn seek_hint(&self, segment: &OpenSegment, offset: i64) -> Result<u64> {
        if offset <= segment.base_offset {
            return Ok(0);
        }
        self.hint(segment.base_offset, segment.is_swap, &segment.file, offset)
    }

    fn hint(
        &self,
        base_offset: i64,
        is_swap: bool,
        file: &Arc<dyn StorageFile>,
        offset: i64,
    ) -> Result<u64> {
        let suffix = if is_swap { SWAP } else { "" };
        let path = segment_path(&self.directory, base_offset, OFFSET_INDEX, suffix);
        let Some(bytes) =
            storage::read_file(&*self.storage, &path).map_err(Error::io("read", &path))?
        else {
            return Ok(0);
        };
        // Kafka's active index is a sparse file: its unused entries are
        // zeros, which ascend no more.
        let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
        let used = used.next_multiple_of(8).min(bytes.len());
        let index = OffsetIndex::new(base_offset, &bytes[..used]);
        let Some(entry) = index.lookup(offset) else {
            return Ok(0);
        };
        let path = self.segment_path(base_offset, is_swap);
        let mut reader = SegmentReader::new(
            Arc::clone(file),
            &path,
            entry.position_byte,
            4096,
            Vec::new(),
        );
        let Next::Batch(header) = reader.peek()? else {
            return Ok(0);
        };
        let plausible = (base_offset..=entry.offset).contains(&header.base_offset);
        let whole = reader
            .load(header.size_bytes)?
            .is_some_and(|batch| header.crc_matches(batch));
        Ok(if plausible && whole {
            entry.position_byte
        } else {
            0
        })
    }

    /// The offset after the last whole batch of the last segment.
    fn find_end(&self, base_offset: i64, is_swap: bool, file: Arc<dyn StorageFile>) -> Result<i64> {
        let path = self.segment_path(base_offset, is_swap);
        let position = self.hint(base_offset, is_swap, &file, i64::MAX)?;
        let mut reader = SegmentReader::new(file, &path, position, ARROW_READ_BYTES, Vec::new());
        let mut end = base_offset;
        let mut end_position = position;
        loop {
            if let Next::Batch(header) = reader.peek()?
                && let Some(batch) = reader.load(header.size_bytes)?
            {
                let whole = header.crc_matches(batch);
                reader.skip(header.size_bytes);
                if whole {
                    // A base offset that is wrong must not hide what is before it.
                    end = end.max(header.next_offset());
                    end_position = reader.position_byte();
                }
                continue;
            }
            // No batch here. If one follows, this is damage, and whoever reads it will be told.
            match find_batch(&mut reader, end_position, end)? {
                Some(position) => reader.seek(position),
                None => return Ok(end),
            }
        }
    }

    /// `None`: there is no such file any more.
    fn open(&self, path: &Path) -> Result<Option<Arc<dyn StorageFile>>> {
        match self.storage.open(path, OpenMode::Read) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open", path)(error)),
        }
    }

    pub fn keeps_changing(&self) -> Error {
        let reason = format!("its segments changed {ARROW_LIST_ATTEMPTS_MAX} times while listed");
        Error::io("readdir", &self.directory)(io::Error::other(reason))
    }
}

/// The segments from the one that holds `offset` on; from the first, if all begin behind it.
pub(super) fn from_floor(listing: &Listing, offset: i64) -> impl Iterator<Item = (i64, bool)> {
    let floor = listing.range(..=offset).next_back().map(|(base, _)| *base);
    listing
        .range(floor.unwrap_or(i64::MIN)..)
        .map(|(base, is_swap)| (*base, *is_swap))
}

/// Base offset, kind and follower of the segments to open.
fn select(listing: &Listing, from: i64, stop: i64) -> Vec<(i64, bool, Option<i64>)> {
    let mut wanted = Vec::new();
    let mut segments = from_floor(listing, from).peekable();
    while let Some((base_offset, is_swap)) = segments.next() {
        let is_first = wanted.is_empty();
        if (base_offset >= stop && !is_first) || wanted.len() == ARROW_OPEN_SEGMENTS_MAX {
            break;
        }
        wanted.push((base_offset, is_swap, segments.peek().map(|next| next.0)));
    }
    wanted
}

/// Position of a whole batch with an offset of at least `offset` somewhere behind `position`.
fn find_batch(reader: &mut SegmentReader, position: u64, offset: i64) -> Result<Option<u64>> {
    const WINDOW_BYTES: usize = 64 * 1024;
    let mut window_position = position + 1;
    while window_position < position + ARROW_TAIL_SEARCH_BYTES {
        reader.seek(window_position);
        reader.load(WINDOW_BYTES)?;
        let window = reader.buffered().to_vec();
        for at in 0..window
            .len()
            .min(WINDOW_BYTES)
            .saturating_sub(RECORD_BATCH_OVERHEAD - 1)
        {
            // Zeros, of which there may be many, and most of the rest end here.
            if window[at + MAGIC_AT] > 2 || window[at + LENGTH_AT..][..4] == [0; 4] {
                continue;
            }
            let Ok(Some(header)) = BatchHeader::parse(&window[at..]) else {
                continue;
            };
            if header.base_offset < offset {
                continue;
            }
            reader.seek(window_position + at as u64);
            let loaded = reader.load(header.size_bytes)?;
            if loaded.is_some_and(|batch| header.crc_matches(batch)) {
                return Ok(Some(window_position + at as u64));
            }
        }
        if window.len() < WINDOW_BYTES {
            return Ok(None);
        }
        window_position += (WINDOW_BYTES - RECORD_BATCH_OVERHEAD) as u64;
    }
    Ok(None)
}
