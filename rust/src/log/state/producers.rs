//! The producers of a partition and their state: which batches are duplicates, which sequence
//! number is next, which transactions are open.
//!
//! A batch with a producer id is looked at before it is written:
//!
//! ```text
//!              prepare()         prepare_batch(&mut pending, …)           commit(pending, end)
//! committed ──────────────► overlay ── batch 1 ── batch 2 ── … ──► written ──► committed
//!   state                     (what the batches change; a later one sees   └─ failed: drop it,
//!                              the earlier ones; a refused one leaves it)     nothing has changed
//! ```
//!
//! This path, with the origin `Replication`, also replays batches that are on disk already. Nothing
//! here reads a clock or a file; `snapshots.rs` keeps the state in `<offset>.snapshot`.
//!
//! A transaction is *ongoing* from its first record to its marker, and *unreplicated* from there
//! until the high watermark has passed the marker. The first offset of the oldest of both kinds is
//! the first unstable offset; nothing at or above it is shown to `read_committed`.
//!
//! Kafka: `ProducerStateManager`, `ProducerAppendInfo`, `ProducerStateEntry` (KIP-98), with the
//! marker rules of transaction version 2 (KIP-890).

use std::collections::{BTreeMap, HashMap};

use ahash::RandomState;

use crate::batch::header::NO_PRODUCER_EPOCH;
use crate::batch::{AppendOrigin, BatchHeader, EndTransactionMarker};
use crate::error::{Error, Result};
use crate::log::state::producer_entry::{BatchMetadata, ProducerEntry};
use crate::log::state::verification::Verifications;

/// Where a batch begins in a segment, so that a reader bounded by the first unstable offset needs
/// no index (`LogOffsetMetadata`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPosition {
    pub segment_base_offset: i64,
    pub position_byte: u64,
}

/// The oldest offset that `read_committed` must not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnstableOffset {
    pub offset: i64,
    /// Unknown for a transaction that came from a snapshot.
    pub position: Option<SegmentPosition>,
}

/// A transaction that its marker has ended. The marker is at `last_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub is_aborted: bool,
    /// The last stable offset as it would be with the marker replicated: where the oldest
    /// transaction of another producer begins that is open at the marker, else behind the marker.
    pub last_stable_offset: i64,
}

impl CompletedTransaction {
    /// The entry of the `.txnindex`; `None` for a committed transaction.
    pub fn aborted(&self) -> Option<AbortedTransaction> {
        self.is_aborted.then_some(AbortedTransaction {
            producer_id: self.producer_id,
            first_offset: self.first_offset,
            last_offset: self.last_offset,
            last_stable_offset: self.last_stable_offset,
        })
    }
}

/// An aborted transaction, as the `.txnindex` holds it (`AbortedTxn`). The
/// marker is at `last_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_stable_offset: i64,
}

/// The verdict on a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// Write it. A marker may end a transaction with it.
    Append {
        completed: Option<CompletedTransaction>,
    },
    /// It lies in the log already: answer with the numbers of the first time.
    Duplicate {
        base_offset: i64,
        last_offset: i64,
        timestamp: i64,
    },
}

#[derive(Clone, Copy, Debug)]
struct OngoingTransaction {
    producer_id: i64,
    position: Option<SegmentPosition>,
}

#[derive(Clone, Copy, Debug)]
struct UnreplicatedTransaction {
    last_offset: i64,
    position: Option<SegmentPosition>,
}

/// The producers of one partition. Reads and writes are the caller's to order (the append lock).
#[derive(Clone, Debug, Default)]
pub struct ProducerState {
    producers: HashMap<i64, ProducerEntry, RandomState>,
    /// By first offset.
    ongoing: BTreeMap<i64, OngoingTransaction>,
    /// Ended, but the marker lies at or above the high watermark. By first offset.
    unreplicated: BTreeMap<i64, UnreplicatedTransaction>,
    /// The state reflects the log up to here.
    map_end_offset: i64,
    /// Counts the changes of what an overlay builds on, so that an overlay is not committed to a
    /// state it was not made for.
    generation: u64,
}

/// The changes that prepared batches make, once they are written. Dropping it changes nothing; a
/// clone is a point to go back to.
#[derive(Clone, Debug)]
pub struct PendingUpdates {
    generation: u64,
    producers: HashMap<i64, ProducerEntry, RandomState>,
    started: BTreeMap<i64, OngoingTransaction>,
    completed: BTreeMap<i64, UnreplicatedTransaction>,
}

impl ProducerState {
    /// An overlay for the batches of one write. Until it is committed or dropped, nothing may be
    /// committed, loaded or cleared; the high watermark may move and producers may expire.
    pub fn prepare(&self) -> PendingUpdates {
        PendingUpdates {
            generation: self.generation,
            producers: HashMap::default(),
            started: BTreeMap::new(),
            completed: BTreeMap::new(),
        }
    }

    /// Judges the next batch of the write, whose header carries its final offsets.
    ///
    /// `marker` is the first record of a control batch; `None` there is a control batch that the
    /// cleaner has emptied. `transaction_version` is needed for markers of a coordinator only
    /// (KIP-890: from version 2 on, a marker bears a newer epoch than the records before it).
    ///
    /// Refusals, in this order; each leaves `pending` as it was:
    /// `InvalidArgument`: a marker of a coordinator without a transaction version.
    /// `InvalidProducerEpoch`: older than the last seen epoch.
    /// `OutOfOrderSequence`: not behind the last sequence, or not 0 in a new epoch (client only).
    /// `TransactionCoordinatorFenced`: a marker of an older coordinator.
    /// `InvalidTxnState`: no transactional record, yet the producer has a transaction open.
    pub fn prepare_batch(
        &self,
        pending: &mut PendingUpdates,
        header: &BatchHeader,
        origin: AppendOrigin,
        transaction_version: Option<i16>,
        marker: Option<EndTransactionMarker>,
        position: Option<SegmentPosition>,
    ) -> Result<BatchOutcome> {
        if !header.has_producer_id() {
            return Ok(BatchOutcome::Append { completed: None });
        }
        let producer_id = header.producer_id;
        let known = pending
            .producers
            .get(&producer_id)
            .or_else(|| self.producers.get(&producer_id));
        let mut entry = known.copied().unwrap_or(ProducerEntry::EMPTY);
        if origin == AppendOrigin::Client
            && let Some(duplicate) = entry.find_duplicate(header)
        {
            return Ok(BatchOutcome::Duplicate {
                base_offset: duplicate.first_offset(),
                last_offset: duplicate.last_offset,
                timestamp: duplicate.timestamp,
            });
        }
        let mut completed = None;
        if !header.is_control() {
            let starts = append_data(&mut entry, header, origin)?;
            if starts {
                let transaction = OngoingTransaction {
                    producer_id,
                    position,
                };
                pending.started.insert(header.base_offset, transaction);
            }
        } else if let Some(marker) = marker {
            check_marker(&entry, header, marker, origin, transaction_version)?;
            completed = entry
                .current_transaction_first_offset
                .map(|first_offset| self.complete(pending, header, marker, first_offset));
            entry.enter_epoch(header.producer_epoch);
            entry.coordinator_epoch = marker.coordinator_epoch;
            entry.last_timestamp = header.max_timestamp;
            entry.current_transaction_first_offset = None;
        }
        pending.producers.insert(producer_id, entry);
        Ok(BatchOutcome::Append { completed })
    }

    /// Checks a client's batch of a transaction: it is open here, or its coordinator was asked
    /// since the last one ended. `guard` is that of the asking.
    ///
    /// Errors: `InvalidProducerEpoch`, before others, so that a producer that was fenced hears of
    /// that; as `Verifications::check`.
    pub fn check_verified(
        &self,
        pending: &PendingUpdates,
        header: &BatchHeader,
        guard: u64,
        verifications: &Verifications,
    ) -> Result<()> {
        if !header.is_transactional() || header.is_control() || !header.has_producer_id() {
            return Ok(());
        }
        let known = pending.producers.get(&header.producer_id);
        let known = known.or_else(|| self.producers.get(&header.producer_id));
        let entry = known.copied().unwrap_or(ProducerEntry::EMPTY);
        if header.producer_epoch < entry.producer_epoch {
            return Err(older_epoch(&entry, header, "older than"));
        }
        let is_open = entry.current_transaction_first_offset.is_some()
            && header.producer_epoch == entry.producer_epoch;
        if is_open || entry.find_duplicate(header).is_some() {
            return Ok(());
        }
        verifications.check(header, guard, known.is_some())
    }

    /// Makes the prepared updates the state; the log now ends at `end_offset`.
    ///
    /// Panics if the state has changed since `prepare`: the caller broke the contract.
    pub fn commit(&mut self, pending: PendingUpdates, end_offset: i64) {
        assert_eq!(
            pending.generation, self.generation,
            "an overlay is committed to the state it was prepared on"
        );
        self.generation += 1;
        self.producers.extend(pending.producers);
        self.ongoing.extend(pending.started);
        for (first_offset, transaction) in pending.completed {
            self.ongoing.remove(&first_offset);
            self.unreplicated.insert(first_offset, transaction);
        }
        self.map_end_offset = end_offset;
    }

    /// The state now stands for the log up to `offset` (recovery, a roll).
    pub fn set_map_end_offset(&mut self, offset: i64) {
        self.map_end_offset = offset;
    }

    pub fn map_end_offset(&self) -> i64 {
        self.map_end_offset
    }

    /// Transactions whose markers lie below are no longer unstable.
    pub fn on_high_watermark(&mut self, high_watermark: i64) {
        if !self.unreplicated.is_empty() {
            self.unreplicated
                .retain(|_, transaction| transaction.last_offset >= high_watermark);
        }
    }

    /// Transactions whose markers lie below are gone with their records.
    pub fn on_log_start_offset(&mut self, log_start_offset: i64) {
        self.on_high_watermark(log_start_offset);
        self.map_end_offset = self.map_end_offset.max(log_start_offset);
    }

    /// First offset of the oldest transaction that is open, or ended by a marker at or above the
    /// high watermark.
    pub fn first_unstable_offset(&self) -> Option<UnstableOffset> {
        let ongoing = self.ongoing.first_key_value();
        let undecided = ongoing.map(|(first, transaction)| (*first, transaction.position));
        let unreplicated = self.unreplicated.first_key_value();
        let unreplicated = unreplicated.map(|(first, transaction)| (*first, transaction.position));
        let oldest = match (undecided, unreplicated) {
            (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
            (one, other) => one.or(other),
        };
        oldest.map(|(offset, position)| UnstableOffset { offset, position })
    }

    pub fn get(&self, producer_id: i64) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id)
    }

    /// Producer ids and their entries, in no order.
    pub fn producers(&self) -> impl ExactSizeIterator<Item = (i64, &ProducerEntry)> {
        self.producers.iter().map(|(id, entry)| (*id, entry))
    }

    /// Says whether nothing is remembered at all.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.unreplicated.is_empty()
    }

    /// Adds a producer as a snapshot has it, with its open transaction.
    pub fn load(&mut self, producer_id: i64, entry: ProducerEntry) {
        self.generation += 1;
        self.producers.insert(producer_id, entry);
        if let Some(first_offset) = entry.current_transaction_first_offset {
            let transaction = OngoingTransaction {
                producer_id,
                position: None,
            };
            self.ongoing.insert(first_offset, transaction);
        }
    }

    /// Forgets the producers that have been silent for `expiration_ms`
    /// (`producer.id.expiration.ms`), but none with an open transaction. Returns how many.
    pub fn remove_expired(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        self.producers
            .retain(|_, entry| !entry.is_expired(now_ms, expiration_ms));
        before - self.producers.len()
    }

    /// Forgets everything; the state stands for a log that ends at `offset`.
    pub fn clear(&mut self, offset: i64) {
        self.generation += 1;
        self.producers.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        self.map_end_offset = offset;
    }

    /// Ends the transaction from `first_offset` in the overlay.
    fn complete(
        &self,
        pending: &mut PendingUpdates,
        header: &BatchHeader,
        marker: EndTransactionMarker,
        first_offset: i64,
    ) -> CompletedTransaction {
        let of_another =
            |transaction: &OngoingTransaction| transaction.producer_id != header.producer_id;
        let committed = self.ongoing.iter().find(|(first, transaction)| {
            of_another(transaction) && !pending.completed.contains_key(first)
        });
        let mut started = pending.started.iter();
        let started = started.find(|(_, transaction)| of_another(transaction));
        let next_open = committed
            .into_iter()
            .chain(started)
            .map(|(first, _)| *first);
        let last_stable_offset = next_open.min().unwrap_or(header.base_offset + 1);
        let ongoing = pending.started.remove(&first_offset);
        let ongoing = ongoing.or_else(|| self.ongoing.get(&first_offset).copied());
        let transaction = UnreplicatedTransaction {
            last_offset: header.base_offset,
            position: ongoing.and_then(|transaction| transaction.position),
        };
        pending.completed.insert(first_offset, transaction);
        CompletedTransaction {
            producer_id: header.producer_id,
            first_offset,
            last_offset: header.base_offset,
            is_aborted: !marker.is_commit,
            last_stable_offset,
        }
    }
}

/// Adds a batch of records to its producer. Returns whether it begins a transaction.
fn append_data(
    entry: &mut ProducerEntry,
    header: &BatchHeader,
    origin: AppendOrigin,
) -> Result<bool> {
    if origin != AppendOrigin::Replication && header.producer_epoch < entry.producer_epoch {
        return Err(older_epoch(entry, header, "older than"));
    }
    if origin == AppendOrigin::Client {
        check_sequence(entry, header)?;
    }
    let in_transaction = entry.current_transaction_first_offset.is_some();
    if in_transaction && !header.is_transactional() {
        return Err(Error::InvalidTxnState(format!(
            "producer {} writes outside of its open transaction at offset {}",
            header.producer_id, header.base_offset
        )));
    }
    entry.enter_epoch(header.producer_epoch);
    entry.push(BatchMetadata {
        last_sequence: header.last_sequence(),
        last_offset: header.last_offset(),
        offset_delta: header.last_offset_delta,
        timestamp: header.max_timestamp,
    });
    entry.last_timestamp = header.max_timestamp;
    let starts = header.is_transactional() && !in_transaction;
    if starts {
        entry.current_transaction_first_offset = Some(header.base_offset);
    }
    Ok(starts)
}

/// A producer without any state may start anywhere (its records may have been deleted); a new
/// epoch starts at 0; else the sequence follows the last one, 0 following 2³¹−1.
fn check_sequence(entry: &ProducerEntry, header: &BatchHeader) -> Result<()> {
    if entry.producer_epoch == NO_PRODUCER_EPOCH {
        return Ok(());
    }
    if header.producer_epoch != entry.producer_epoch {
        if header.base_sequence == 0 {
            return Ok(());
        }
        return Err(Error::OutOfOrderSequence(format!(
            "producer {} starts epoch {} with sequence {} instead of 0 (the last epoch was {})",
            header.producer_id, header.producer_epoch, header.base_sequence, entry.producer_epoch
        )));
    }
    let last = entry.last_sequence();
    let follows = i64::from(header.base_sequence) == i64::from(last) + 1;
    if follows || (header.base_sequence == 0 && last == i32::MAX) {
        return Ok(());
    }
    Err(Error::OutOfOrderSequence(format!(
        "producer {} sends sequence {} after {last}",
        header.producer_id, header.base_sequence
    )))
}

/// From transaction version 2 on, the marker's epoch must be newer than that of the records; the
/// same epoch is a coordinator's second attempt, as long as nothing is open, or the producer is at
/// the last epoch there is.
fn check_marker(
    entry: &ProducerEntry,
    header: &BatchHeader,
    marker: EndTransactionMarker,
    origin: AppendOrigin,
    transaction_version: Option<i16>,
) -> Result<()> {
    if origin == AppendOrigin::Replication {
        return Ok(());
    }
    let Some(transaction_version) = transaction_version else {
        return Err(Error::InvalidArgument(
            "a marker needs the transaction version".to_owned(),
        ));
    };
    let (epoch, seen) = (header.producer_epoch, entry.producer_epoch);
    if epoch < seen {
        return Err(older_epoch(entry, header, "older than"));
    }
    if transaction_version >= 2 && epoch == seen {
        let is_retry = entry.current_transaction_first_offset.is_none() || epoch == i16::MAX;
        if !is_retry {
            return Err(older_epoch(entry, header, "not newer than"));
        }
    }
    if marker.coordinator_epoch < entry.coordinator_epoch {
        return Err(Error::TransactionCoordinatorFenced(format!(
            "the marker of producer {} is of coordinator epoch {}, {} was seen before",
            header.producer_id, marker.coordinator_epoch, entry.coordinator_epoch
        )));
    }
    Ok(())
}

fn older_epoch(entry: &ProducerEntry, header: &BatchHeader, relation: &str) -> Error {
    Error::InvalidProducerEpoch(format!(
        "epoch {} of producer {} at offset {} is {relation} the last seen epoch {}",
        header.producer_epoch, header.producer_id, header.base_offset, entry.producer_epoch
    ))
}
