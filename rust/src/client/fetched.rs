//! The batches of a fetch's answer, one by one, as a consumer may see them.
//!
//! ```text
//! bytes    │ batch with the fetch offset in its middle │ batch │ batch │ … │ batch, cut off │
//! shown      from the fetch offset on                     unless aborted       the next fetch
//! ```
//!
//! With `isolation.level=read_committed` the response names, for each aborted transaction in it,
//! the producer and its first offset; the transaction ends with the producer's abort marker.
//! Control batches are never shown (`CompletedFetch`).

use std::collections::{HashSet, VecDeque};

use crate::batch::header::BatchHeader;
use crate::batch::{ControlRecord, RecordReader};
use crate::error::{Error, Result};

/// A walk over the batches of one partition in one fetch response. The bytes stay with the caller,
/// who gives the same ones to every call.
#[derive(Debug)]
pub struct FetchedBatches {
    at: usize,
    next_offset: i64,
    /// First offset and producer of aborted transactions that begin further on, by offset.
    aborted: VecDeque<(i64, i64)>,
    /// Producers whose aborted transaction is under way.
    dropped: HashSet<i64>,
    reader: RecordReader,
}

impl FetchedBatches {
    /// `start`: the fetch offset. `aborted`: producer and first offset of each aborted transaction,
    /// none unless committed records alone are wanted.
    pub fn new(start: i64, aborted: &[(i64, i64)]) -> FetchedBatches {
        let mut aborted: Vec<(i64, i64)> = aborted
            .iter()
            .map(|(producer_id, first_offset)| (*first_offset, *producer_id))
            .collect();
        aborted.sort_unstable();
        FetchedBatches {
            at: 0,
            next_offset: start,
            aborted: aborted.into(),
            dropped: HashSet::new(),
            reader: RecordReader::new(),
        }
    }

    /// Where the next fetch begins, once the walk is over; before that, where the batch begins that
    /// was given last, or the fetch offset within it.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Where in the bytes the batch ends that was given last.
    pub fn position_byte(&self) -> usize {
        self.at
    }

    /// The next batch with records to show, its CRC checked; `None` if no whole one is left. Its
    /// records below [`next_offset`](Self::next_offset) are not to be shown.
    ///
    /// Errors: `CorruptMessage`; `InvalidRecord` for a control record that cannot be read.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(BatchHeader, &'a [u8])>> {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(header) = BatchHeader::parse(rest)? else {
                return Ok(None);
            };
            let Some(batch) = rest.get(..header.size_bytes) else {
                return Ok(None);
            };
            if !header.crc_matches(batch) {
                return Err(Error::CorruptMessage(format!(
                    "the CRC of the batch at offset {} is wrong",
                    header.base_offset
                )));
            }
            self.at += header.size_bytes;
            let is_old = header.last_offset() < self.next_offset;
            if !is_old && self.is_shown(&header, batch)? {
                return Ok(Some((header, batch)));
            }
            self.pass(&header);
        }
    }

    /// The batch has been dealt with; its records do not come again.
    pub fn pass(&mut self, header: &BatchHeader) {
        self.next_offset = self.next_offset.max(header.next_offset());
    }

    fn is_shown(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<bool> {
        while let Some((first_offset, producer_id)) = self.aborted.front().copied()
            && first_offset <= header.last_offset()
        {
            self.aborted.pop_front();
            self.dropped.insert(producer_id);
        }
        if header.is_control() {
            if self.dropped.contains(&header.producer_id) && self.is_abort_marker(batch)? {
                self.dropped.remove(&header.producer_id);
            }
            return Ok(false);
        }
        Ok(!(header.is_transactional() && self.dropped.contains(&header.producer_id)))
    }

    fn is_abort_marker(&mut self, batch: &[u8]) -> Result<bool> {
        for record in self.reader.read(batch)? {
            let record = record?;
            if let ControlRecord::EndTransaction(marker) =
                ControlRecord::parse(record.key, record.value)?
            {
                return Ok(!marker.is_commit);
            }
        }
        Ok(false)
    }
}

/// Where the fetch after this one begins, by the headers alone: what a client needs to ask for the
/// next bytes before it has looked at these. Damage is left to whoever looks.
pub fn fetched_end(bytes: &[u8], start: i64) -> i64 {
    fetched_tail(bytes, start).0
}

/// Returns also the leader epoch of the last batch, -1 where there is none: whether a log still has
/// what was read is asked with it (KIP-320).
pub fn fetched_tail(bytes: &[u8], start: i64) -> (i64, i32) {
    let mut at = 0;
    let (mut next_offset, mut leader_epoch) = (start, -1);
    while let Some(rest) = bytes.get(at..)
        && let Ok(Some(header)) = BatchHeader::parse(rest)
        && header.size_bytes <= rest.len()
    {
        next_offset = next_offset.max(header.next_offset());
        leader_epoch = header.partition_leader_epoch;
        at += header.size_bytes;
    }
    (next_offset, leader_epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::EndTransactionMarker;
    use crate::batch::build::{BatchBuilder, BatchOptions, end_transaction_marker};
    use crate::batch::header::patch_offset_and_epoch;

    fn batch(base_offset: i64, values: &[&str], producer: Option<i64>) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            producer_id: producer.unwrap_or(-1),
            producer_epoch: if producer.is_some() { 0 } else { -1 },
            transactional: producer.is_some(),
            ..BatchOptions::default()
        });
        for value in values {
            builder
                .append(1, None, Some(value.as_bytes()), &[])
                .expect("it fits");
        }
        builder.finish().expect("it is built")
    }

    fn marker(offset: i64, producer_id: i64, is_commit: bool) -> Vec<u8> {
        let marker = EndTransactionMarker {
            is_commit,
            coordinator_epoch: 0,
        };
        let mut batch = end_transaction_marker(1, producer_id, 0, marker);
        patch_offset_and_epoch(&mut batch, offset, 0);
        batch
    }

    /// Offsets of the batches shown, and where the next fetch begins.
    fn shown(bytes: &[u8], start: i64, aborted: &[(i64, i64)]) -> (Vec<i64>, i64) {
        let mut batches = FetchedBatches::new(start, aborted);
        let mut offsets = Vec::new();
        while let Some((header, _)) = batches.next(bytes).expect("good batches") {
            offsets.push(header.base_offset);
            batches.pass(&header);
        }
        assert_eq!(batches.next_offset(), fetched_end(bytes, start));
        (offsets, batches.next_offset())
    }

    #[test]
    fn a_cut_batch_at_the_end_is_left_to_the_next_fetch() {
        let mut bytes = batch(0, &["a", "b"], None);
        bytes.extend(batch(2, &["c"], None));
        bytes.extend(&batch(3, &["d"], None)[..40]);
        assert_eq!(shown(&bytes, 1, &[]), (vec![0, 2], 3));
    }

    #[test]
    fn the_tail_has_the_leader_epoch_of_the_last_whole_batch() {
        let (mut first, mut second) = (batch(0, &["a"], None), batch(1, &["b"], None));
        patch_offset_and_epoch(&mut first, 0, 3);
        patch_offset_and_epoch(&mut second, 1, 4);
        let bytes = [first, second].concat();
        assert_eq!(fetched_tail(&bytes, 0), (2, 4));
        assert_eq!(fetched_tail(&bytes[..bytes.len() - 1], 0), (1, 3));
        assert_eq!(fetched_tail(&[], 7), (7, -1));
    }

    #[test]
    fn batches_below_the_fetch_offset_are_passed_over() {
        let mut bytes = batch(0, &["a", "b"], None);
        bytes.extend(batch(2, &["c"], None));
        assert_eq!(shown(&bytes, 2, &[]), (vec![2], 3));
    }

    #[test]
    fn an_aborted_transaction_ends_with_its_marker_and_other_producers_are_shown() {
        let mut bytes = batch(0, &["committed"], Some(7));
        bytes.extend(marker(1, 7, true));
        bytes.extend(batch(2, &["aborted"], Some(7)));
        bytes.extend(batch(3, &["other"], Some(8)));
        bytes.extend(marker(4, 7, false));
        bytes.extend(batch(5, &["again"], Some(7)));
        assert_eq!(shown(&bytes, 0, &[(7, 2)]), (vec![0, 3, 5], 6));
        assert_eq!(shown(&bytes, 0, &[]), (vec![0, 2, 3, 5], 6));
    }

    #[test]
    fn control_batches_at_the_end_move_the_next_fetch_on() {
        let mut bytes = batch(0, &["a"], Some(7));
        bytes.extend(marker(1, 7, true));
        assert_eq!(shown(&bytes, 0, &[]), (vec![0], 2));
    }

    #[test]
    fn a_flipped_bit_is_an_error() {
        let mut bytes = batch(0, &["abcdef"], None);
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        let result = FetchedBatches::new(0, &[]).next(&bytes);
        assert!(matches!(result, Err(Error::CorruptMessage(_))));
    }
}
