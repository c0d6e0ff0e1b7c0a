//! Holding index entries against the batches that they speak of, when they are first used.
//!
//! No start reads the segments below the recovery point, and after a clean stop none at all. Their
//! indexes were synced before the recovery point passed them, so a crash leaves them whole; a bad
//! disk, a copy or a stray hand may not. Whoever trusts an entry pays one look-up for it:
//!
//! ```text
//! .index      look_up.rs: the batch at the position must be the one that the entry names
//! .timeindex  the batch at the offset has the timestamp; behind the last entry none is later
//! ```
//! An index that is found wrong is made anew from the records. Kafka looks at the size of these
//! files, and that no marker lies before its segment (`TransactionIndex.sanityCheck`); its
//! `TimeIndex.sanityCheck` is called by nobody (`LogSegment.sanityCheck` says why).

use crate::error::{Error, Result};
use crate::limits::{LOOK_UP_BYTES_MAX, TIMESTAMP_PROOF_BYTES_MAX};
use crate::log::names::TIME_INDEX;
use crate::log::segment::rebuild::RebuiltIndexes;
use crate::log::segment::scan::BatchScanner;
use crate::log::segment::time_index::{LargestTimestamp, TimestampOffset};
use crate::log::segment::{LocatedBatch, Segment};

impl Segment {
    /// The largest timestamp and the last offset of its batch; timestamp -1 if there is none.
    ///
    /// For a closed segment it is the last entry of its time index, proved at the first call by the
    /// batch it names, up to `TIMESTAMP_PROOF_BYTES_MAX` behind it, and the last batch. Errors:
    /// `Io`, also if an index that is wrong cannot be replaced.
    pub fn largest_timestamp(&self) -> Result<TimestampOffset> {
        self.largest_timestamp_within(TIMESTAMP_PROOF_BYTES_MAX)
    }

    /// As `largest_timestamp`, but every batch behind the last entry has been looked at: for
    /// whoever deletes a segment because it is old.
    pub fn largest_timestamp_of_all(&self) -> Result<TimestampOffset> {
        self.largest_timestamp_within(u64::MAX)
    }

    fn largest_timestamp_within(&self, proof_bytes: u64) -> Result<TimestampOffset> {
        let known = *self.largest_timestamp.lock();
        if let Some(known) = known.filter(|known| known.is_of_all || proof_bytes < u64::MAX) {
            return Ok(known.top);
        }
        match self.prove_largest_timestamp(proof_bytes) {
            Ok(proved) => {
                *self.largest_timestamp.lock() = Some(proved);
                Ok(proved.top)
            }
            Err(Error::CorruptFile { .. }) => self.mend_time_index(),
            Err(error) => Err(error),
        }
    }

    /// Says whether `entry`, the last of the time index, is that of the segment's last batch, which
    /// proves it without another look at the file. Of an empty segment: whether there is none.
    pub(in crate::log) fn is_proved_by(
        &self,
        entry: Option<TimestampOffset>,
        last: Option<LocatedBatch>,
    ) -> bool {
        let top = match (entry, last.map(|batch| batch.header)) {
            (None, None) => TimestampOffset::none(self.base_offset),
            (Some(entry), Some(last))
                if entry.timestamp == last.max_timestamp
                    && (last.base_offset..=last.last_offset()).contains(&entry.offset) =>
            {
                entry
            }
            _ => return false,
        };
        *self.largest_timestamp.lock() = Some(LargestTimestamp::known(top));
        true
    }

    /// Errors: `CorruptFile` if the last entry is not what the batches say.
    fn prove_largest_timestamp(&self, proof_bytes: u64) -> Result<LargestTimestamp> {
        let (last, count) = self.with_time_index(|index| (index.last(), index.len()))?;
        let refuse = |reason: &str| {
            let at = count.saturating_sub(1) * crate::log::segment::time_index::ENTRY_BYTES;
            let path = self.files.path(TIME_INDEX);
            Err(Error::corrupt_file(&path, at as u64, reason))
        };
        let (top, start) = match last {
            None => (TimestampOffset::none(self.base_offset), 0),
            Some(entry) => match self.batch_of(entry)? {
                Some(batch) => (entry, batch.position_byte),
                None => return refuse("no batch has the timestamp and offset of the last entry"),
            },
        };
        let end = self.size_bytes();
        let stop = start.saturating_add(proof_bytes).min(end);
        let behind = self.latest_header(start, stop, end)?;
        let mut is_later = behind.timestamp > top.timestamp;
        if !is_later && stop < end {
            let last = self.last_batch()?;
            is_later = last.is_some_and(|last| last.header.max_timestamp > top.timestamp);
        }
        if is_later {
            return refuse("a batch is later than the last entry");
        }
        Ok(LargestTimestamp {
            top,
            is_of_all: stop == end,
        })
    }

    /// The batch that a time index entry speaks of, if it is there and has that timestamp.
    fn batch_of(&self, entry: TimestampOffset) -> Result<Option<LocatedBatch>> {
        if entry.offset < self.base_offset || entry.offset >= self.end().next_offset {
            return Ok(None);
        }
        let batch = self.locate(entry.offset)?;
        Ok(batch.filter(|batch| {
            batch.header.max_timestamp == entry.timestamp
                && batch.header.base_offset <= entry.offset
        }))
    }

    /// The largest timestamp among the batches that begin in `start .. stop`.
    fn latest_header(&self, start: u64, stop: u64, end: u64) -> Result<TimestampOffset> {
        let file = self.file()?;
        let scanner = BatchScanner::of_segment(&*file, &self.files, start, end);
        let mut scanner = scanner.with_chunk_bytes(LOOK_UP_BYTES_MAX as usize);
        let mut top = TimestampOffset::none(self.base_offset);
        while scanner.position_byte() < stop
            && let Some((_, header)) = scanner.next_header()?
        {
            if header.max_timestamp > top.timestamp {
                top = TimestampOffset {
                    timestamp: header.max_timestamp,
                    offset: header.last_offset(),
                };
            }
        }
        Ok(top)
    }

    /// From the time index and the batches behind its last entry (`readLargestTimestamp`): of a
    /// segment that was closed with more than it now has.
    pub(in crate::log) fn read_largest_timestamp(&self) -> Result<TimestampOffset> {
        let last = self.with_time_index(|index| index.last())?;
        let proved = match last {
            Some(entry) => self.batch_of(entry)?.map(|batch| (entry, batch)),
            None => None,
        };
        let end = self.size_bytes();
        let start = proved.map_or(0, |(_, batch)| batch.position_byte);
        let behind = self.latest_header(start, end, end)?;
        Ok(match proved {
            Some((entry, _)) if entry.timestamp >= behind.timestamp => entry,
            _ => behind,
        })
    }

    /// Says whether no transactional records lie in `from .. to`, as far as
    /// `TIMESTAMP_PROOF_BYTES_MAX` and the segment go; `false` too if `to` lies beyond. A follower
    /// of Kafka's may note a last stable offset behind the marker: what came with it in the same
    /// append is in its state already.
    pub(in crate::log) fn begins_no_transaction(&self, from: i64, to: i64) -> Result<bool> {
        let file = self.file()?;
        let (start, end) = (self.position_of(from)?, self.size_bytes());
        let stop = start.saturating_add(TIMESTAMP_PROOF_BYTES_MAX);
        let scanner = BatchScanner::of_segment(&*file, &self.files, start, end);
        let mut scanner = scanner.with_chunk_bytes(LOOK_UP_BYTES_MAX as usize);
        while scanner.position_byte() < stop
            && let Some((_, header)) = scanner.next_header()?
        {
            if header.base_offset >= to {
                return Ok(true);
            }
            if header.is_transactional() && !header.is_control() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Makes the indexes of a closed segment anew from the headers of its batches, as far as these
    /// can be read. Returns the largest timestamp.
    fn mend_time_index(&self) -> Result<TimestampOffset> {
        let (end, pin, file) = self.pinned_file()?;
        let mut scanner = BatchScanner::of_segment(&*file, &self.files, 0, end.size_bytes);
        let mut rebuilt = RebuiltIndexes::new(self.base_offset, self.index_interval_bytes);
        loop {
            match scanner.next_header() {
                Ok(Some((position_byte, header))) => {
                    rebuilt.add(position_byte, header.last_offset(), header.max_timestamp);
                }
                Ok(None) | Err(Error::CorruptFile { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        rebuilt.finish();
        let active = self.indexes.write();
        // One that was cut meanwhile has others, and may be closed again.
        if active.is_none() && self.is_current(&pin) {
            self.replace_indexes(&rebuilt)?;
        }
        Ok(rebuilt.largest_timestamp)
    }

    /// Where the search for a record at or after `timestamp` begins. No record before it is at or
    /// after the timestamp and `starting_offset`.
    pub fn search_start(&self, timestamp: i64, starting_offset: i64) -> Result<u64> {
        let mut from = self.latest_before(timestamp)?;
        // The active segment's index is in memory: there the walk begins at the first byte.
        if from.is_err() && self.indexes.read().is_none() {
            self.mend_time_index()?;
            from = self.latest_before(timestamp)?;
        }
        let found = from.unwrap_or(None);
        if starting_offset <= found.map_or(self.base_offset, |batch| batch.header.last_offset()) {
            return Ok(found.map_or(0, |batch| batch.position_byte));
        }
        self.position_of(starting_offset)
    }

    /// The batch of the time index entry for `timestamp`. `Ok(Err(()))`: the entry is wrong.
    fn latest_before(
        &self,
        timestamp: i64,
    ) -> Result<std::result::Result<Option<LocatedBatch>, ()>> {
        let Some(entry) = self.with_time_index(|index| index.lookup(timestamp))? else {
            return Ok(Ok(None));
        };
        let batch = self.batch_of(entry)?;
        let batch = batch.filter(|_| entry.timestamp <= timestamp);
        Ok(batch.map(Some).ok_or(()))
    }
}
