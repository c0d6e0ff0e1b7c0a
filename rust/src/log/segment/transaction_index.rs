//! The aborted transactions of a segment, in `<base offset>.txnindex`. A consumer that reads
//! committed records only is told of those that overlap its fetch, and skips their records itself.
//!
//! One entry, 34 bytes, big-endian, in the order of the abort markers (so `last_offset` ascends):
//!
//! ```text
//!  0 version            i16   0
//!  2 producer_id        i64
//! 10 first_offset       i64   of the transaction's first record
//! 18 last_offset        i64   of the abort marker
//! 26 last_stable_offset i64   when the marker was written: every transaction that is aborted
//!                             later begins at this offset or behind it, so a search for aborted
//!                             transactions below it may end here
//! ```
//!
//! The file is made with the first entry. Kafka: `TransactionIndex`, `AbortedTxn`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::log::state::producers::AbortedTransaction;

/// Bytes of an entry.
pub const ABORTED_ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

impl AbortedTransaction {
    pub fn encode(&self) -> [u8; ABORTED_ENTRY_BYTES] {
        let mut bytes = [0; ABORTED_ENTRY_BYTES];
        bytes[0..2].copy_from_slice(&VERSION.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.producer_id.to_be_bytes());
        bytes[10..18].copy_from_slice(&self.first_offset.to_be_bytes());
        bytes[18..26].copy_from_slice(&self.last_offset.to_be_bytes());
        bytes[26..34].copy_from_slice(&self.last_stable_offset.to_be_bytes());
        bytes
    }

    fn decode(entry: &[u8; ABORTED_ENTRY_BYTES]) -> (i16, AbortedTransaction) {
        let field = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&entry[at..at + 8]);
            i64::from_be_bytes(bytes)
        };
        let transaction = AbortedTransaction {
            producer_id: field(2),
            first_offset: field(10),
            last_offset: field(18),
            last_stable_offset: field(26),
        };
        (i16::from_be_bytes([entry[0], entry[1]]), transaction)
    }
}

/// The entries of one segment's `.txnindex`, in memory. The owner of the segment writes what
/// `append` returns to the file, and cuts the file to `size_bytes` after `truncate_to`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortedIndex {
    entries: Vec<AbortedTransaction>,
}

impl AbortedIndex {
    /// Reads the bytes of a `.txnindex` of the segment at `base_offset`.
    ///
    /// Errors: `CorruptFile` with the position for half an entry at the end, an unknown version,
    /// a marker before its transaction or before the segment, markers that do not ascend.
    pub fn parse(bytes: &[u8], base_offset: i64, path: &Path) -> Result<AbortedIndex> {
        let (entries, rest) = bytes.as_chunks::<ABORTED_ENTRY_BYTES>();
        let mut index = AbortedIndex::default();
        for entry in entries {
            let refuse =
                |reason: String| Err(Error::corrupt_file(path, index.size_bytes() as u64, reason));
            let (version, transaction) = AbortedTransaction::decode(entry);
            if version != VERSION {
                return refuse(format!("version {version} of an aborted transaction"));
            }
            if transaction.last_offset < base_offset {
                return refuse(format!(
                    "an abort marker at offset {} lies before the segment",
                    transaction.last_offset
                ));
            }
            if transaction.first_offset < 0
                || transaction.first_offset >= transaction.last_offset
                || transaction.last_offset == i64::MAX
            {
                return refuse(format!(
                    "a transaction from offset {} to its marker at {}",
                    transaction.first_offset, transaction.last_offset
                ));
            }
            if transaction.producer_id < 0 || transaction.last_stable_offset < 0 {
                return refuse(format!(
                    "producer {} and last stable offset {} with a marker at offset {}",
                    transaction.producer_id,
                    transaction.last_stable_offset,
                    transaction.last_offset
                ));
            }
            if index
                .last_offset()
                .is_some_and(|last| last >= transaction.last_offset)
            {
                return refuse(format!(
                    "the marker at offset {} does not follow the one before",
                    transaction.last_offset
                ));
            }
            index.entries.push(transaction);
        }
        if !rest.is_empty() {
            return Err(Error::corrupt_file(
                path,
                index.size_bytes() as u64,
                format!("{} bytes are no whole entry", rest.len()),
            ));
        }
        Ok(index)
    }

    /// Adds a transaction and returns the bytes that belong at the end of the file.
    ///
    /// Errors: `InvalidArgument` if its marker does not lie behind that of the last entry.
    pub fn append(&mut self, transaction: AbortedTransaction) -> Result<[u8; ABORTED_ENTRY_BYTES]> {
        self.check_next(&[transaction])?;
        self.extend(&[transaction]);
        Ok(transaction.encode())
    }

    /// Errors: `InvalidArgument` if a marker does not lie behind the one before it.
    pub fn check_next(&self, transactions: &[AbortedTransaction]) -> Result<()> {
        let mut last_offset = self.last_offset();
        for transaction in transactions {
            if let Some(last_offset) = last_offset
                && last_offset >= transaction.last_offset
            {
                return Err(Error::InvalidArgument(format!(
                    "the abort marker at offset {} does not follow the last one at {last_offset}",
                    transaction.last_offset
                )));
            }
            last_offset = Some(transaction.last_offset);
        }
        Ok(())
    }

    /// Adds what `check_next` has let through.
    pub fn extend(&mut self, transactions: &[AbortedTransaction]) {
        assert!(
            self.check_next(transactions).is_ok(),
            "abort markers ascend"
        );
        self.entries.extend_from_slice(transactions);
    }

    /// Adds to `found` the transactions with a record or marker in `fetch_offset ..
    /// upper_bound_offset`. Returns whether the search is complete: if not, transactions of the
    /// range may have their entry in the index of a later segment.
    pub fn collect(
        &self,
        fetch_offset: i64,
        upper_bound_offset: i64,
        found: &mut Vec<AbortedTransaction>,
    ) -> bool {
        let before = self
            .entries
            .partition_point(|entry| entry.last_offset < fetch_offset);
        // The last stable offset never falls, so the nearest entry before the range speaks for all.
        let nearest = self.entries[..before].last();
        if nearest.is_some_and(|entry| entry.last_stable_offset >= upper_bound_offset) {
            return true;
        }
        for entry in &self.entries[before..] {
            if entry.first_offset < upper_bound_offset {
                found.push(*entry);
            }
            if entry.last_stable_offset >= upper_bound_offset {
                return true;
            }
        }
        false
    }

    /// The entries on which the answer of `collect` rests, as an index that gives the same.
    pub fn relevant(&self, fetch_offset: i64, upper_bound_offset: i64) -> AbortedIndex {
        let start = self
            .entries
            .partition_point(|entry| entry.last_offset < fetch_offset)
            .saturating_sub(1);
        let rest = &self.entries[start..];
        let stop = rest
            .iter()
            .position(|entry| entry.last_stable_offset >= upper_bound_offset);
        AbortedIndex {
            entries: rest[..stop.map_or(rest.len(), |stop| stop + 1)].to_vec(),
        }
    }

    /// Forgets the transactions whose marker lies at `offset` or behind it.
    pub fn truncate_to(&mut self, offset: i64) {
        let kept = self
            .entries
            .partition_point(|entry| entry.last_offset < offset);
        self.entries.truncate(kept);
    }

    pub fn entries(&self) -> &[AbortedTransaction] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The size of the file.
    pub fn size_bytes(&self) -> usize {
        self.entries.len() * ABORTED_ENTRY_BYTES
    }

    /// The bytes of the whole file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size_bytes());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.encode());
        }
        bytes
    }

    fn last_offset(&self) -> Option<i64> {
        self.entries.last().map(|entry| entry.last_offset)
    }
}

/// The entries of a `.txnindex` that have been held against the records, by their last offset.
#[derive(Default)]
pub struct AbortedProof {
    pub good: BTreeSet<i64>,
    /// The index was made from the records by this process.
    pub is_mended: bool,
}

impl AbortedProof {
    pub fn note(&mut self, entries: &[AbortedTransaction]) {
        self.good
            .extend(entries.iter().map(|entry| entry.last_offset));
    }
}
