//! One producer of a partition: its epoch, its open transaction, and its last batches, by which a
//! duplicate is known (`ProducerStateEntry`).

use crate::batch::BatchHeader;
use crate::batch::header::{NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP};
use crate::limits::PRODUCER_BATCHES_MAX;

/// One batch of a producer, as the idempotence window remembers it (`BatchMetadata`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchMetadata {
    pub last_sequence: i32,
    pub last_offset: i64,
    pub offset_delta: i32,
    pub timestamp: i64,
}

impl BatchMetadata {
    pub fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }

    /// Counted back from the last, wrapping below 0 to 2³¹−1.
    pub fn first_sequence(&self) -> i32 {
        let first = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        (if first < 0 { first + (1 << 31) } else { first }) as i32
    }
}

/// The last batches of a producer in its current epoch, oldest first, at most
/// `PRODUCER_BATCHES_MAX`: a client has no more than five requests in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BatchWindow {
    batches: [BatchMetadata; PRODUCER_BATCHES_MAX],
    count: u8,
}

impl BatchWindow {
    fn as_slice(&self) -> &[BatchMetadata] {
        &self.batches[..usize::from(self.count)]
    }

    fn push(&mut self, batch: BatchMetadata) {
        if usize::from(self.count) == PRODUCER_BATCHES_MAX {
            self.batches.rotate_left(1);
            self.count -= 1;
        }
        self.batches[usize::from(self.count)] = batch;
        self.count += 1;
        debug_assert!(usize::from(self.count) <= PRODUCER_BATCHES_MAX);
    }
}

/// The state of one producer (`ProducerStateEntry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    pub producer_epoch: i16,
    /// The epoch of the last coordinator that ended a transaction here; -1 for none.
    pub coordinator_epoch: i32,
    /// Milliseconds; of the last batch or marker. Expiry counts from it.
    pub last_timestamp: i64,
    /// The first offset of the open transaction.
    pub current_transaction_first_offset: Option<i64>,
    window: BatchWindow,
}

impl ProducerEntry {
    pub(super) const EMPTY: ProducerEntry = ProducerEntry {
        producer_epoch: NO_PRODUCER_EPOCH,
        coordinator_epoch: -1,
        last_timestamp: NO_TIMESTAMP,
        current_transaction_first_offset: None,
        window: BatchWindow {
            batches: [BatchMetadata {
                last_sequence: 0,
                last_offset: 0,
                offset_delta: 0,
                timestamp: 0,
            }; PRODUCER_BATCHES_MAX],
            count: 0,
        },
    };

    /// As a snapshot tells it; `last_batch` is all that it keeps of the window.
    pub fn new(
        producer_epoch: i16,
        coordinator_epoch: i32,
        last_timestamp: i64,
        current_transaction_first_offset: Option<i64>,
        last_batch: Option<BatchMetadata>,
    ) -> ProducerEntry {
        let mut entry = ProducerEntry {
            producer_epoch,
            coordinator_epoch,
            last_timestamp,
            current_transaction_first_offset,
            ..ProducerEntry::EMPTY
        };
        if let Some(batch) = last_batch {
            entry.window.push(batch);
        }
        entry
    }

    /// The remembered batches, oldest first.
    pub fn batches(&self) -> &[BatchMetadata] {
        self.window.as_slice()
    }

    pub fn last_batch(&self) -> Option<&BatchMetadata> {
        self.batches().last()
    }

    /// -1 if no batch of the epoch is remembered.
    pub fn last_sequence(&self) -> i32 {
        self.last_batch()
            .map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    pub(super) fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        self.current_transaction_first_offset.is_none()
            && now_ms.saturating_sub(self.last_timestamp) >= expiration_ms
    }

    /// A new epoch starts with an empty window.
    pub(super) fn enter_epoch(&mut self, producer_epoch: i16) {
        if self.producer_epoch != producer_epoch {
            self.producer_epoch = producer_epoch;
            self.window.count = 0;
        }
    }

    /// Notes a batch; of the oldest, if there are as many as may be, nothing is known any more.
    pub(super) fn push(&mut self, batch: BatchMetadata) {
        self.window.push(batch);
    }

    pub(super) fn find_duplicate(&self, header: &BatchHeader) -> Option<BatchMetadata> {
        if header.producer_epoch != self.producer_epoch {
            return None;
        }
        let range = (header.base_sequence, header.last_sequence());
        let mut batches = self.batches().iter();
        batches
            .find(|batch| (batch.first_sequence(), batch.last_sequence) == range)
            .copied()
    }
}
