//! The aborted transactions of a fetch, out of `.txnindex` files. Their entries are held against
//! the records when they are first used, as `segment/index_check.rs` does with the other indexes:
//!
//! ```text
//! the batch at last_offset         an abort marker of the producer, or gone
//! the batch at first_offset        its first in the transaction
//! the batch at last_stable_offset  begins another's
//! ```
//! An index that is found wrong is made anew from the records. Kafka checks that no marker lies
//! before its segment (`TransactionIndex.sanityCheck`).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::batch::RecordReader;
use crate::error::{Error, Result};

use super::log::Log;
use super::names::LOG;
use super::read::{FetchedRange, ReadIsolation};
use super::segment::replay::{aborted_in, marker_of, producers_before};
use super::segment::transaction_index::AbortedIndex;
use super::segment::{LocatedBatch, Segment};
use super::state::producers::AbortedTransaction;
use super::state::snapshots::ProducerSnapshots;
use super::storage::read_exact_at;

impl Log {
    /// Reads as `read` does, up to the last stable offset, with the aborted transactions of what
    /// it has found. Errors: as `read`.
    pub fn read_committed(
        &self,
        offset: i64,
        max_bytes: u64,
        min_one_batch: bool,
    ) -> Result<(FetchedRange, Vec<AbortedTransaction>)> {
        loop {
            let range = self.read(offset, max_bytes, min_one_batch, ReadIsolation::LastStable)?;
            if let Some(aborted) = self.aborted_of(&range)? {
                return Ok((range, aborted));
            }
        }
    }

    /// The aborted transactions of a range that was read at `ReadIsolation::LastStable`. `None`:
    /// the log has lost records since then or has others in their place, and with them perhaps the
    /// entries that the reader of this range must know. Kafka starts at the segment that was read
    /// (`LocalLog.addAbortedTransactions`), and misses those of later ones that were cleaned.
    pub fn aborted_of(&self, range: &FetchedRange) -> Result<Option<Vec<AbortedTransaction>>> {
        if range.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let aborted = self
            .upper_bound_offset(range)
            .and_then(|end| self.aborted_transactions(range.offset, end));
        // Whatever takes an entry away says so before, in the ends.
        let ends = *self.ends.read();
        if ends.cuts != range.cuts || ends.log_start_offset > range.offset {
            return Ok(None);
        }
        aborted.map(Some)
    }

    /// The first offset behind a range: aborted transactions up to there concern its reader
    /// (`LogSegment.fetchUpperBoundOffset`).
    fn upper_bound_offset(&self, range: &FetchedRange) -> Result<i64> {
        let end = range.position_byte + range.length_bytes;
        let segments = self.segments.read();
        let segment = segments.get(range.segment_base_offset).cloned();
        drop(segments);
        let Some(segment) = segment else {
            return Ok(self.offsets().log_end_offset);
        };
        let beyond = segment.with_offset_index(|index| index.first_from_position(end))?;
        Ok(beyond.map(|entry| entry.offset).unwrap_or_else(|| {
            let next = self.segment_after(range.segment_base_offset);
            next.map_or(self.offsets().log_end_offset, |next| next.base_offset())
        }))
    }

    /// The aborted transactions that a reader of `fetch_offset .. upper_bound_offset` must know,
    /// sorted by first offset (`LocalLog.collectAbortedTransactions`).
    pub fn aborted_transactions(
        &self,
        fetch_offset: i64,
        upper_bound_offset: i64,
    ) -> Result<Vec<AbortedTransaction>> {
        let mut found = Vec::new();
        let mut segment = self.segment_at(fetch_offset);
        while let Some(candidate) = segment {
            let before = found.len();
            match self.collect_aborted(&candidate, fetch_offset, upper_bound_offset, &mut found) {
                Ok(true) => break,
                Ok(false) => {}
                // As in `read`: its files are gone since we looked, and another may be in the map.
                Err(_) if self.has_gone(&candidate) => {
                    found.truncate(before);
                    segment = self.segment_at(candidate.base_offset().max(fetch_offset));
                    continue;
                }
                Err(error) => return Err(error),
            }
            segment = self.segment_after(candidate.base_offset());
        }
        found.sort_by_key(|transaction| transaction.first_offset);
        Ok(found)
    }

    /// The entries of `segment`'s transaction index that concern `fetch_offset ..
    /// upper_bound_offset`, each proved at its first use. Returns whether the search is complete.
    fn collect_aborted(
        &self,
        segment: &Arc<Segment>,
        fetch_offset: i64,
        upper_bound_offset: i64,
        found: &mut Vec<AbortedTransaction>,
    ) -> Result<bool> {
        // A copy, so that no marker waits for the proof.
        let relevant = || -> Result<AbortedIndex> {
            let index = segment.aborted()?;
            Ok(index.relevant(fetch_offset, upper_bound_offset))
        };
        let mut index = match relevant() {
            Err(Error::CorruptFile { .. }) => {
                self.mend_aborted(segment)?;
                relevant()?
            }
            read => read?,
        };
        let mut entries = index.entries().iter();
        let is_good = entries.try_fold(true, |good, entry| {
            Ok(good && self.is_proved(segment, entry)?)
        })?;
        if !is_good {
            self.mend_aborted(segment)?;
            index = relevant()?;
        }
        Ok(index.collect(fetch_offset, upper_bound_offset, found))
    }

    fn is_proved(&self, segment: &Segment, entry: &AbortedTransaction) -> Result<bool> {
        {
            let proof = segment.aborted_proof.lock();
            if proof.is_mended || proof.good.contains(&entry.last_offset) {
                return Ok(true);
            }
        }
        let is_good = match self.prove_aborted(segment, entry) {
            Err(Error::CorruptFile { .. }) => false,
            answer => answer?,
        };
        if is_good {
            segment.aborted_proof.lock().note(&[*entry]);
        }
        Ok(is_good)
    }

    fn prove_aborted(&self, segment: &Segment, entry: &AbortedTransaction) -> Result<bool> {
        if entry.last_offset >= segment.end().next_offset {
            return Ok(false);
        }
        // Compaction removes batches and keeps what is said of them: a gap contradicts nothing.
        if let Some(batch) = batch_holding(segment, entry.last_offset)? {
            let header = &batch.header;
            if !header.is_control() || header.producer_id != entry.producer_id {
                return Ok(false);
            }
            let mut bytes = vec![0; header.size_bytes];
            read_exact_at(&*segment.file()?, &mut bytes, batch.position_byte)
                .map_err(|error| Error::io("pread", &segment.files().path(LOG))(error))?;
            if marker_of(header, &bytes, &mut RecordReader::new())
                .is_some_and(|marker| marker.is_commit)
            {
                return Ok(false);
            }
        }
        let starts = |offset: i64, is_right: &dyn Fn(i64) -> bool| -> Result<bool> {
            if offset < self.offsets().log_start_offset {
                return Ok(true);
            }
            let Some(home) = self.segment_at(offset) else {
                return Ok(true);
            };
            Ok(batch_holding(&home, offset)?.is_none_or(|batch| {
                let header = &batch.header;
                header.base_offset == offset
                    && header.is_transactional()
                    && !header.is_control()
                    && is_right(header.producer_id)
            }))
        };
        if !starts(entry.first_offset, &|producer| {
            producer == entry.producer_id
        })? {
            return Ok(false);
        }
        let behind = entry.last_offset + 1;
        match entry.last_stable_offset.cmp(&behind) {
            Ordering::Equal => Ok(true),
            Ordering::Less => starts(entry.last_stable_offset, &|producer| {
                producer != entry.producer_id
            }),
            Ordering::Greater => segment.begins_no_transaction(behind, entry.last_stable_offset),
        }
    }

    /// Makes a segment's transaction index anew: the producers before it, and the batches in it.
    fn mend_aborted(&self, segment: &Arc<Segment>) -> Result<()> {
        // Nothing is cut, removed, replaced or appended meanwhile.
        let _flushing = self.flushing.lock();
        let _appender = self.lock_appender();
        let (base, directory) = (segment.base_offset(), self.directory());
        let segments = self.segments.read().clone();
        let is_here = segments
            .get(base)
            .is_some_and(|known| Arc::ptr_eq(known, segment));
        if segment.aborted_proof.lock().is_mended || !is_here {
            return segment.aborted().map(drop);
        }
        let snapshots = ProducerSnapshots::list(self.storage(), &directory)?;
        let start = self.ends.read().log_start_offset;
        let mut producers = producers_before(self.storage(), &segments, &snapshots, start, base)?;
        let index = aborted_in(segment, &mut producers)?;
        segment.replace_aborted(index)?;
        segment.aborted_proof.lock().is_mended = true;
        Ok(())
    }
}

/// The batch that holds `offset`; `None` if the offset falls into a gap.
fn batch_holding(segment: &Segment, offset: i64) -> Result<Option<LocatedBatch>> {
    let batch = segment.locate(offset)?;
    Ok(batch.filter(|batch| batch.header.base_offset <= offset))
}
