//! The indexes of the active segment, in memory in the format of their files. The files get what
//! they lack when the segment is flushed or closed.

use crate::error::{Error, Result};
use crate::log::names::{OFFSET_INDEX, TIME_INDEX};
use crate::log::segment::offset_index::{self, OffsetIndex, OffsetPosition};
use crate::log::segment::open_segments::SegmentFiles;
use crate::log::segment::time_index::{self, TimeIndex, TimestampOffset};
use crate::log::storage::{OpenMode, Storage, replace_file, write_all_at};

#[derive(Default)]
pub(in crate::log) struct ActiveIndexes {
    pub offset: Vec<u8>,
    pub time: Vec<u8>,
    offset_bytes_written: usize,
    time_bytes_written: usize,
    bytes_since_entry: u64,
    /// The last entry that this process has made.
    added: Option<OffsetPosition>,
}

impl ActiveIndexes {
    /// Indexes of a segment of `size_bytes`, of which the files hold the first `written` bytes.
    pub fn new(
        base_offset: i64,
        size_bytes: u64,
        offset: Vec<u8>,
        time: Vec<u8>,
        written: (usize, usize),
    ) -> ActiveIndexes {
        let last = OffsetIndex::new(base_offset, &offset).last();
        ActiveIndexes {
            offset,
            time,
            offset_bytes_written: written.0,
            time_bytes_written: written.1,
            bytes_since_entry: size_bytes
                - last.map_or(0, |last| last.position_byte.min(size_bytes)),
            added: None,
        }
    }

    /// Notes a batch of `size_bytes` whose last offset and place are `batch`; `top` is the largest
    /// timestamp up to and with it.
    pub fn add(
        &mut self,
        base_offset: i64,
        interval_bytes: u64,
        batch: OffsetPosition,
        size_bytes: u64,
        top: TimestampOffset,
    ) {
        if self.bytes_since_entry > interval_bytes {
            let ascends = |last: OffsetPosition| {
                last.offset < batch.offset && last.position_byte < batch.position_byte
            };
            assert!(self.added.is_none_or(ascends), "index entries ascend");
            self.added = Some(batch);
            offset_index::push_entry(&mut self.offset, base_offset, batch);
            time_index::push_entry(&mut self.time, base_offset, top);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += size_bytes;
    }

    /// No entry has room any more within `segment.index.bytes`.
    pub fn are_full(&self, segment_index_bytes: u64) -> bool {
        let bytes = segment_index_bytes as usize;
        let offset_max = bytes / offset_index::ENTRY_BYTES;
        let time_max = bytes / time_index::ENTRY_BYTES;
        self.offset.len() / offset_index::ENTRY_BYTES >= offset_max
            || self.time.len() / time_index::ENTRY_BYTES + 1 >= time_max
    }

    /// Writes what the files lack. Nothing is synced.
    pub fn write(&mut self, storage: &dyn Storage, files: &SegmentFiles) -> Result<()> {
        let parts = [
            (OFFSET_INDEX, &self.offset, &mut self.offset_bytes_written),
            (TIME_INDEX, &self.time, &mut self.time_bytes_written),
        ];
        for (kind, bytes, written) in parts {
            if *written == bytes.len() {
                continue;
            }
            let path = files.path(kind);
            let file = storage.open(&path, OpenMode::CreateOrOpen);
            let file = file.map_err(Error::io("open", &path))?;
            write_all_at(&*file, &bytes[*written..], *written as u64)
                .map_err(Error::io("pwrite", &path))?;
            *written = bytes.len();
        }
        Ok(())
    }

    /// The files hold all that is known here.
    pub fn are_written(&self) -> bool {
        self.offset_bytes_written == self.offset.len() && self.time_bytes_written == self.time.len()
    }

    /// Forgets what lies at the cut or behind it. The files are replaced, not cut: someone may have
    /// the old ones mapped.
    pub fn truncate(
        &mut self,
        storage: &dyn Storage,
        files: &SegmentFiles,
        position_byte: u64,
        next_offset: i64,
    ) -> Result<()> {
        let base_offset = files.base_offset();
        let index = OffsetIndex::new(base_offset, &self.offset);
        let is_kept = |entry: OffsetPosition| entry.position_byte < position_byte;
        let kept = kept_entries(index.len(), |at| index.entry(at).is_some_and(is_kept));
        self.offset.truncate(kept * offset_index::ENTRY_BYTES);
        let index = TimeIndex::new(base_offset, &self.time);
        let is_kept = |entry: TimestampOffset| entry.offset < next_offset;
        let kept = kept_entries(index.len(), |at| index.entry(at).is_some_and(is_kept));
        self.time.truncate(kept * time_index::ENTRY_BYTES);
        for (kind, bytes) in [(OFFSET_INDEX, &self.offset), (TIME_INDEX, &self.time)] {
            let path = files.path(kind);
            replace_file(storage, &path, bytes).map_err(Error::io("replace", &path))?;
        }
        self.offset_bytes_written = self.offset.len();
        self.time_bytes_written = self.time.len();
        self.bytes_since_entry = 0;
        self.added = None;
        Ok(())
    }
}

/// The number of entries without those at the end that are not kept.
fn kept_entries(count: usize, is_kept: impl Fn(usize) -> bool) -> usize {
    let last = (0..count).rev().find(|at| is_kept(*at));
    last.map_or(0, |last| last + 1)
}
