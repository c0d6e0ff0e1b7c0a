//! Produce requests with transactional batches: what their coordinator is asked before the records
//! are appended, and what becomes of its answers (KIP-890).
//!
//! Since version 12 Produce adds its partitions to the transaction itself; before, the producer has
//! done so, and whether it has is verified.
//!
//! Kafka: `ReplicaManager.handleProduceAppend`, `AddPartitionsToTxnManager`.

use std::sync::Arc;

use super::{Outcome, Produce, ProducePartition, refuse};
use crate::api::topic_ref::TopicRef;
use crate::batch::header::{BASE_SEQUENCE_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT};
use crate::clock::wall_ms;
use crate::codes;
use crate::log::state::verification::Question;
use crate::wire::Writer;

/// The first version that adds its partitions to the transaction.
const ADDS_SINCE: i16 = 12;
/// The first version that knows TRANSACTION_ABORTABLE.
const ABORTABLE_SINCE: i16 = 11;

/// The transaction that a request's batches belong to.
pub struct Transaction {
    pub transactional_id: Arc<str>,
    producer_id: i64,
    producer_epoch: i16,
    /// Partitions with such a batch, by their places in the request.
    places: Vec<usize>,
}

/// The question to a coordinator: AddPartitionsToTxn, and the partitions that it names in their
/// order, each with its guard.
pub struct Verification {
    pub body: Vec<u8>,
    pub asked: Vec<(usize, u64)>,
}

/// Producer id, epoch and base sequence of the first batch.
fn producer_of(records: &[u8]) -> Option<(i64, i16, i32)> {
    let id = records.get(PRODUCER_ID_AT..)?.first_chunk()?;
    let epoch = records.get(PRODUCER_EPOCH_AT..)?.first_chunk()?;
    let sequence = records.get(BASE_SEQUENCE_AT..)?.first_chunk()?;
    Some((
        i64::from_be_bytes(*id),
        i16::from_be_bytes(*epoch),
        i32::from_be_bytes(*sequence),
    ))
}

impl Transaction {
    /// Notes the partition that is the next of the request, with a transactional batch. Returns
    /// false if that is of another producer than those before.
    pub fn note(
        transaction: &mut Option<Box<Transaction>>,
        transactional_id: Option<&str>,
        place: usize,
        records: &[u8],
    ) -> bool {
        let Some((producer_id, producer_epoch, _)) = producer_of(records) else {
            return true;
        };
        if producer_id < 0 {
            return true; // of no producer, and so of no transaction
        }
        let known = transaction.get_or_insert_with(|| {
            Box::new(Transaction {
                transactional_id: transactional_id.unwrap_or_default().into(),
                producer_id,
                producer_epoch,
                places: Vec::new(),
            })
        });
        known.places.push(place);
        (known.producer_id, known.producer_epoch) == (producer_id, producer_epoch)
    }
}

impl Produce {
    /// Begins the verification of partitions whose transaction is not open yet; `content` is what
    /// the ranges of the records count from. `None`: there are none.
    pub fn begin_verification(&self, content: &[u8]) -> Option<Verification> {
        let transaction = self.transaction.as_ref()?;
        let now_ms = wall_ms().cast_unsigned();
        let mut asked = Vec::new();
        for &place in &transaction.places {
            let Some(ProducePartition {
                outcome: Outcome::Accepted(partition, _),
                records,
                ..
            }) = self.partitions.get(place)
            else {
                continue;
            };
            let records = content.get(records.clone()).unwrap_or_default();
            let (_, _, base_sequence) = producer_of(records)?;
            let question = Question {
                producer_id: transaction.producer_id,
                producer_epoch: transaction.producer_epoch,
                base_sequence,
                bumps_epochs: self.version >= ADDS_SINCE,
            };
            if let Some(guard) = partition.log.begin_verification(question, now_ms) {
                asked.push((place, guard));
            }
        }
        (!asked.is_empty()).then(|| Verification {
            body: self.question(transaction, &asked),
            asked,
        })
    }

    /// An AddPartitionsToTxn request of version 5, without its header: as one broker asks another.
    fn question(&self, transaction: &Transaction, asked: &[(usize, u64)]) -> Vec<u8> {
        let mut writer = Writer::with_capacity(64);
        writer.array_length(1, true);
        writer.string(&transaction.transactional_id, true);
        writer.i64(transaction.producer_id);
        writer.i16(transaction.producer_epoch);
        writer.bool(self.version < ADDS_SINCE);
        let mut topics: Vec<(&str, Vec<i32>)> = Vec::new();
        let mut end = 0;
        let mut places = asked.iter().map(|(place, _)| *place).peekable();
        for (topic, count) in &self.topics {
            end += count;
            let mut indexes = Vec::new();
            while let Some(place) = places.next_if(|place| *place < end) {
                indexes.extend(self.partitions.get(place).map(|each| each.index));
            }
            if let (TopicRef::Known(topic), false) = (topic, indexes.is_empty()) {
                topics.push((&topic.name, indexes));
            }
        }
        writer.array_length(topics.len(), true);
        for (name, indexes) in topics {
            writer.string(name, true);
            writer.array_length(indexes.len(), true);
            for index in indexes {
                writer.i32(index);
            }
            writer.no_tags(true);
        }
        writer.no_tags(true);
        writer.no_tags(true);
        writer.bytes
    }

    /// Ends a verification that was begun, and for which nobody was asked,
    /// or nobody waits any more.
    pub fn forget_verification(&self, asked: &[(usize, u64)]) {
        let Some(transaction) = &self.transaction else {
            return;
        };
        for (place, guard) in asked {
            if let Some(Outcome::Accepted(partition, _)) =
                self.partitions.get(*place).map(|each| &each.outcome)
            {
                let producer_id = transaction.producer_id;
                partition.log.forget_verification(producer_id, *guard);
            }
        }
    }

    /// Notes the coordinator's answer: a code for each partition that was asked for.
    pub fn verified(&mut self, asked: &[(usize, u64)], codes: &[i16]) {
        let producer_id = match &self.transaction {
            Some(transaction) => transaction.producer_id,
            None => return,
        };
        let version = self.version;
        for (at, (place, guard)) in asked.iter().enumerate() {
            let answer = codes
                .get(at)
                .copied()
                .unwrap_or(codes::UNKNOWN_SERVER_ERROR);
            let Some(each) = self.partitions.get_mut(*place) else {
                continue;
            };
            each.guard = *guard;
            let Outcome::Accepted(partition, _) = &each.outcome else {
                continue;
            };
            if answer == codes::NONE {
                continue;
            }
            // Nothing that clients name takes memory: who asks again begins another.
            partition.log.forget_verification(producer_id, *guard);
            each.outcome = refuse(client_code(answer, version), None);
        }
    }

    /// Bytes of memory that the transaction takes.
    pub(super) fn transaction_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| {
            transaction.transactional_id.len() + transaction.places.len() * size_of::<usize>()
        })
    }
}

/// The code that a client is told of a coordinator's refusal.
fn client_code(answer: i16, version: i16) -> i16 {
    match answer {
        codes::PRODUCER_FENCED => codes::INVALID_PRODUCER_EPOCH,
        codes::TRANSACTION_ABORTABLE if version < ABORTABLE_SINCE => codes::INVALID_TXN_STATE,
        codes::COORDINATOR_LOAD_IN_PROGRESS
        | codes::COORDINATOR_NOT_AVAILABLE
        | codes::NOT_COORDINATOR => codes::NOT_ENOUGH_REPLICAS,
        codes::CONCURRENT_TRANSACTIONS if version < ADDS_SINCE => codes::NOT_ENOUGH_REPLICAS,
        _ => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_what_their_version_knows() {
        for (answer, version, told) in [
            (codes::PRODUCER_FENCED, 9, codes::INVALID_PRODUCER_EPOCH),
            (codes::TRANSACTION_ABORTABLE, 10, codes::INVALID_TXN_STATE),
            (
                codes::TRANSACTION_ABORTABLE,
                11,
                codes::TRANSACTION_ABORTABLE,
            ),
            (
                codes::CONCURRENT_TRANSACTIONS,
                11,
                codes::NOT_ENOUGH_REPLICAS,
            ),
            (
                codes::CONCURRENT_TRANSACTIONS,
                12,
                codes::CONCURRENT_TRANSACTIONS,
            ),
            (codes::NOT_COORDINATOR, 13, codes::NOT_ENOUGH_REPLICAS),
            (
                codes::INVALID_PRODUCER_ID_MAPPING,
                9,
                codes::INVALID_PRODUCER_ID_MAPPING,
            ),
        ] {
            assert_eq!(client_code(answer, version), told);
        }
    }
}
