//! What a log must hold, said plainly: a list of batches, and which of them are promised.

use std::collections::BTreeMap;

use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;

use super::plain::PlainBatch;
use super::workbench::serve;

/// A batch by base offset: last offset and content.
type Batches = BTreeMap<i64, (i64, Vec<u8>)>;

#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Acknowledged and not taken away since.
    pub batches: Batches,
    pub log_end: i64,
    /// Everything below was acknowledged as being on disk.
    pub flushed: i64,
    pub log_start: i64,
    /// How far the start may have moved in a step that failed.
    pub log_start_max: i64,
    /// Batches that may be there or not: of failed steps, and those that the cleaner takes.
    pub doubtful: Vec<(i64, i64, Vec<u8>)>,
    /// A step has failed half-way: what is not flushed may be anything that was ever appended.
    pub holes: Vec<i64>,
}

impl Model {
    pub fn appended(&mut self, base_offset: i64, last_offset: i64, bytes: &[u8]) {
        assert_eq!(base_offset, self.log_end, "offsets follow each other");
        self.batches
            .insert(base_offset, (last_offset, bytes[17..].to_vec()));
        self.log_end = last_offset + 1;
    }

    /// An append has failed: nothing of it may be seen, but a power cut may bring it back.
    pub fn append_failed(&mut self, count: i64, bytes: &[u8]) {
        let last_offset = self.log_end + count - 1;
        self.doubtful
            .push((self.log_end, last_offset, bytes[17..].to_vec()));
    }

    pub fn truncated(&mut self, offset: i64, has_failed: bool) {
        let gone = self.batches.split_off(&offset);
        if has_failed {
            let gone = gone.into_iter();
            self.doubtful
                .extend(gone.map(|(base, (last, content))| (base, last, content)));
        }
        self.holes.retain(|hole| *hole < offset);
        self.flushed = self.flushed.min(offset);
        self.log_end = offset;
    }

    /// The next process goes on with what it has found.
    pub fn goes_on(&mut self, log: &Log) {
        let offsets = log.offsets();
        self.batches.split_off(&offsets.log_end_offset);
        self.holes.retain(|hole| *hole < offsets.log_end_offset);
        // A segment may be back that was cleaned or deleted: then all of it is.
        let served = serve(log, ReadIsolation::LogEnd, 700);
        self.holes
            .retain(|hole| served.iter().all(|batch| batch.base_offset != *hole));
        self.log_end = offsets.log_end_offset;
        self.flushed = offsets.flushed_offset;
        self.log_start = offsets.log_start_offset;
        self.log_start_max = self.log_start;
        self.doubtful.clear();
    }

    /// From `offset` over what was cleaned away, at most to `end`.
    fn over_holes(&self, mut offset: i64, end: i64) -> i64 {
        while offset < end && self.holes.contains(&offset) {
            match self.batches.get(&offset) {
                Some((last, _)) => offset = last + 1,
                None => break,
            }
        }
        offset
    }

    /// The log as the process that wrote it sees it.
    pub fn check_live(&self, log: &Log, case: &str) {
        let offsets = log.offsets();
        assert_eq!(offsets.log_end_offset, self.log_end, "{case}: log end");
        assert_eq!(
            offsets.log_start_offset, self.log_start,
            "{case}: log start"
        );
        assert_eq!(
            offsets.flushed_offset, self.flushed,
            "{case}: flushed offset"
        );
        assert_eq!(
            offsets.high_watermark, self.flushed,
            "{case}: high watermark"
        );
        assert!(
            offsets.last_stable_offset <= offsets.high_watermark,
            "{case}"
        );
        let served = serve(log, ReadIsolation::LogEnd, 700);
        let found: Vec<_> = served
            .iter()
            .map(|batch| (batch.base_offset, batch.last_offset, batch.content()))
            .collect();
        let expected: Vec<_> = self
            .batches
            .iter()
            .filter(|(_, (last, _))| *last >= self.log_start)
            .filter(|(base, _)| !self.holes.contains(base))
            .map(|(base, (last, content))| (*base, *last, content.as_slice()))
            .collect();
        assert_eq!(found, expected, "{case}: records");
        check_producers(log, &served, case);
    }

    /// The log as the next process finds it.
    pub fn check_reopened(&self, log: &Log, case: &str) {
        let offsets = log.offsets();
        let start = offsets.log_start_offset;
        assert!(
            start <= self.log_start_max.max(self.log_start),
            "{case}: starts at {start}"
        );
        let served = serve(log, ReadIsolation::HighWatermark, 700);
        let found: Batches = served
            .iter()
            .map(|batch| {
                (
                    batch.base_offset,
                    (batch.last_offset, batch.content().to_vec()),
                )
            })
            .collect();
        for (base, (last, content)) in self.batches.range(..self.flushed) {
            if *last < start || self.holes.contains(base) && !found.contains_key(base) {
                continue;
            }
            let there = found.get(base);
            assert_eq!(
                there,
                Some(&(*last, content.clone())),
                "{case}: flushed offset {base}"
            );
        }
        let mut next_offset = None;
        for (base, (last, content)) in &found {
            let acknowledged = self.batches.get(base) == Some(&(*last, content.clone()));
            let attempted = self.doubtful.contains(&(*base, *last, content.clone()));
            assert!(
                acknowledged || attempted,
                "{case}: nobody wrote what is at offset {base}"
            );
            let expected = next_offset.unwrap_or(*base);
            let reached = self.over_holes(expected, *base);
            assert_eq!(reached, *base, "{case}: a hole from {expected} on");
            next_offset = Some(last + 1);
        }
        let end = offsets.log_end_offset;
        assert!(
            end >= self.flushed,
            "{case}: {end} is below the flushed {}",
            self.flushed
        );
        check_producers(log, &served, case);
    }
}

/// Producers and aborted transactions are what a plain walk over the served batches makes of them.
fn check_producers(log: &Log, served: &[PlainBatch], case: &str) {
    let mut sequences: BTreeMap<i64, (i16, i32)> = BTreeMap::new();
    let mut open: BTreeMap<i64, i64> = BTreeMap::new();
    let mut aborted = Vec::new();
    for batch in served.iter().filter(|batch| batch.producer_id() >= 0) {
        let id = batch.producer_id();
        if batch.is_control() {
            // The type is the last two bytes of the key: 61 bytes of header, 5 of the record's own.
            let is_abort = batch.bytes[61 + 5 + 3] == 0;
            if let Some(first) = open.remove(&id)
                && is_abort
            {
                aborted.push((id, first, batch.base_offset));
            }
            continue;
        }
        let count = (batch.last_offset - batch.base_offset) as i32;
        let (epoch, first) = (batch.producer_epoch(), batch.base_sequence());
        if let Some((known_epoch, last)) = sequences.insert(id, (epoch, first + count))
            && known_epoch == epoch
        {
            assert_eq!(
                first,
                last + 1,
                "{case}: sequence of {id} at {}",
                batch.base_offset
            );
        }
        if batch.is_transactional() {
            open.entry(id).or_insert(batch.base_offset);
        }
    }
    let producers = log.producers();
    for (id, (epoch, last_sequence)) in sequences {
        let entry = producers.get(id);
        let known = entry.map(|entry| (entry.producer_epoch, entry.last_sequence()));
        assert_eq!(known, Some((epoch, last_sequence)), "{case}: producer {id}");
        let transaction = entry.and_then(|entry| entry.current_transaction_first_offset);
        assert_eq!(
            log.has_open_transaction(id),
            transaction.is_some(),
            "{case}: {id}"
        );
        let start = start_of(log, served);
        if transaction.is_none_or(|first| first >= start) {
            assert_eq!(
                transaction,
                open.get(&id).copied(),
                "{case}: transaction of {id}"
            );
        }
    }
    let start = start_of(log, served);
    let end = log.offsets().log_end_offset;
    let listed = log.aborted_transactions(start, end).unwrap();
    // Of one that began before the first record that is left, the plain
    // walk has not seen the start.
    aborted.retain(|(_, _, marker)| {
        let known = listed.iter().find(|one| one.last_offset == *marker);
        known.is_none_or(|one| one.first_offset >= start)
    });
    let mut listed: Vec<_> = listed
        .iter()
        .filter(|one| one.first_offset >= start)
        .map(|one| (one.producer_id, one.first_offset, one.last_offset))
        .collect();
    listed.sort();
    aborted.sort();
    assert_eq!(listed, aborted, "{case}: aborted transactions");
}

/// The first offset that is left.
fn start_of(log: &Log, served: &[PlainBatch]) -> i64 {
    let first = served.first().map(|first| first.base_offset);
    first.unwrap_or(log.offsets().log_start_offset)
}
