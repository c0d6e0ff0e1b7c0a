//! Where a log that is being loaded ends: its last segment is read and becomes the active one.
//!
//! After a clean stop this is all that a start reads of a log's segments, so it costs few system
//! calls: an index file is read once, and the last batch most often proves the last entry of the
//! time index. A segment that recovery has read is active already.

use crate::error::{Error, Result};
use crate::log::names::{self, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX};
use crate::log::recover::Loader;
use crate::log::segment::offset_index::{self, OffsetIndex};
use crate::log::segment::time_index::{self, TimeIndex};
use crate::log::segment::{LocatedBatch, Segment, SegmentEnd};
use crate::log::state::snapshots::ProducerSnapshots;
use crate::log::storage::read_file;

/// The contents of a segment's index files.
struct IndexBytes {
    offset: Vec<u8>,
    time: Vec<u8>,
}

impl Loader<'_> {
    /// Where the log ends, with a last segment that is active. A tail that is no batch although the
    /// stop was clean is recovered like any other.
    pub(in crate::log) fn find_end(&mut self, snapshots: &mut ProducerSnapshots) -> Result<i64> {
        let start = self.parameters.log_start_offset;
        let mut end_offset = None;
        if let Some(last) = self.segments.last().cloned() {
            if !last.is_active() {
                self.read_end(&last, snapshots)?;
            }
            end_offset = Some(last.end().next_offset);
        }
        if end_offset.is_some_and(|end| end < start) {
            for segment in self.segments.values().cloned().collect::<Vec<_>>() {
                self.discard(&segment, "the log starts behind it")?;
            }
            self.epochs.clear();
            end_offset = None;
        }
        if self.segments.last().is_none() {
            let first = Segment::create(
                self.open_segments,
                &self.parameters.directory,
                start,
                "",
                &self.parameters.config,
                self.roll_jitter_ms,
                self.parameters.now_ms,
            )?;
            self.segments.insert(first);
            self.sync_directory()?;
        }
        Ok(end_offset.unwrap_or(start))
    }

    /// Finds the end of the last segment and makes it the active one.
    fn read_end(&mut self, last: &Segment, snapshots: &ProducerSnapshots) -> Result<()> {
        match self.read_whole(last) {
            Ok(None) => Ok(()),
            Ok(Some(fault)) => self.recover_last(last, snapshots, &fault),
            Err(Error::CorruptFile { .. }) => {
                self.recover_last(last, snapshots, "its end is no batch")
            }
            Err(error) => Err(error),
        }
    }

    /// As `read_end`; returns what is wrong with the index files, and then nothing is done. Errors:
    /// `CorruptFile` if the end is no batch.
    fn read_whole(&self, last: &Segment) -> Result<Option<String>> {
        let (base, size_bytes) = (last.base_offset(), last.size_bytes());
        let mut indexes = match self.index_bytes(last)? {
            Ok(indexes) => indexes,
            Err(fault) => return Ok(Some(fault)),
        };
        if let Some(fault) = self.aborted_fault(last)? {
            return Ok(Some(fault));
        }
        let batch = last.last_batch_behind(OffsetIndex::new(base, &indexes.offset).last())?;
        let next_offset = batch.map_or(base, |batch: LocatedBatch| batch.header.next_offset());
        // An entry of the time index is judged by where the segment ends.
        last.set_end(SegmentEnd {
            size_bytes,
            next_offset,
        });
        if !last.is_proved_by(TimeIndex::new(base, &indexes.time).last(), batch) {
            // It is proved in the files, which are replaced if they are wrong.
            last.largest_timestamp()?;
            indexes = match self.index_bytes(last)? {
                Ok(indexes) => indexes,
                Err(fault) => return Ok(Some(fault)),
            };
        }
        last.activate_with(indexes.offset, indexes.time);
        Ok(None)
    }

    /// The index files of a segment, or what is wrong with them as far as their sizes tell.
    fn index_bytes(&self, segment: &Segment) -> Result<std::result::Result<IndexBytes, String>> {
        let read = |kind: &str, entry_bytes: usize| {
            let path = segment.files().path(kind);
            let bytes = read_file(self.storage, &path).map_err(Error::io("read", &path))?;
            let fault = size_fault(
                kind,
                entry_bytes,
                bytes.as_ref().map(|bytes| bytes.len() as u64),
            );
            Ok::<_, Error>((bytes.unwrap_or_default(), fault))
        };
        let (offset, fault) = read(OFFSET_INDEX, offset_index::ENTRY_BYTES)?;
        if let Some(fault) = fault {
            return Ok(Err(fault));
        }
        let (time, fault) = read(TIME_INDEX, time_index::ENTRY_BYTES)?;
        Ok(fault.map_or(Ok(IndexBytes { offset, time }), Err))
    }

    /// Reads the last segment like one behind the recovery point.
    fn recover_last(
        &mut self,
        last: &Segment,
        snapshots: &ProducerSnapshots,
        why: &str,
    ) -> Result<()> {
        let (base, size) = (last.base_offset(), last.size_bytes());
        self.report.note(format!("recovered segment {base}: {why}"));
        let mut producers = self.producers_at(snapshots, base)?;
        let rebuilt = self.scan(last, &mut producers, base, i64::MAX)?;
        self.report.truncated_bytes += size - rebuilt.end.size_bytes;
        self.adopt(last, rebuilt, true)
    }

    /// The fault of a segment's index files, as far as their sizes and ends tell.
    pub(in crate::log) fn index_fault(&self, segment: &Segment) -> Result<Option<String>> {
        let kinds = [
            (OFFSET_INDEX, offset_index::ENTRY_BYTES),
            (TIME_INDEX, time_index::ENTRY_BYTES),
        ];
        for (kind, entry_bytes) in kinds {
            let path = segment.files().path(kind);
            let size = self.storage.file_size(&path);
            let size = size.map_err(Error::io("stat", &path))?;
            let fault = size_fault(kind, entry_bytes, size);
            if fault.is_some() {
                return Ok(fault);
            }
        }
        self.aborted_fault(segment)
    }

    /// The fault of a segment's transaction index.
    fn aborted_fault(&self, segment: &Segment) -> Result<Option<String>> {
        if !self.is_there(&names::segment_name(
            segment.base_offset(),
            TRANSACTION_INDEX,
        )) {
            return Ok(None);
        }
        match segment.aborted() {
            Err(Error::CorruptFile { reason, .. }) => Ok(Some(reason)),
            Err(error) => Err(error),
            // It is made with its first entry, so it had one.
            Ok(index) if index.is_empty() => Ok(Some(format!("{TRANSACTION_INDEX} is empty"))),
            Ok(_) => Ok(None),
        }
    }
}

/// The fault of an index file of this size; a size of `None`: it is not there.
fn size_fault(kind: &str, entry_bytes: usize, size: Option<u64>) -> Option<String> {
    match size {
        None => Some(format!("{kind} is missing")),
        Some(size) if size % entry_bytes as u64 != 0 => {
            Some(format!("{kind} of {size} bytes ends within an entry"))
        }
        Some(_) => None,
    }
}
