//! Verification of transactions: a transactional batch of a client is appended only
//! if its transaction is open in this log, or the coordinator was asked after the
//! last one ended (KIP-890).
//!
//! ```text
//! begin ──► a guard ──► the coordinator is asked ──► the append brings the guard
//!             └── a batch of the producer, or its marker, is written meanwhile: the guard is void
//! ```
//!
//! A guard is a number that is never given twice: one of an earlier transaction says nothing about
//! a later one (KAFKA-14884). Nothing of this is on disk: after a start each partition is asked for
//! once more.
//!
//! Kafka: `ProducerStateManager`, `VerificationStateEntry`.

use std::collections::HashMap;

use ahash::RandomState;
use parking_lot::Mutex;

use crate::batch::BatchHeader;
use crate::error::{Error, Result};

/// The guard of who has not asked.
pub const NO_GUARD: u64 = 0;
/// From this version of transactions on each has an epoch of its own.
const EPOCH_BUMPS_SINCE: i16 = 2;

/// A batch for which the coordinator may have to be asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// The client's transactions have an epoch each.
    pub bumps_epochs: bool,
}

#[derive(Clone, Copy, Debug)]
struct Verification {
    guard: u64,
    /// How many have this guard and were not refused: the refusal of one does not void the others'.
    askers: usize,
    producer_epoch: i16,
    lowest_sequence: i32,
    bumps_epochs: bool,
    since_ms: u64,
}

#[derive(Debug, Default)]
struct State {
    by_producer: HashMap<i64, Verification, RandomState>,
    /// Producers with an open transaction that this process has seen begin, and its epoch.
    open: HashMap<i64, i16, RandomState>,
    last_guard: u64,
}

/// The verifications of one partition. Network threads begin them, beside the append lock.
#[derive(Debug, Default)]
pub struct Verifications {
    state: Mutex<State>,
}

impl Verifications {
    /// The guard with which the batch is to be appended once the coordinator has agreed. `None`:
    /// its transaction is open here, nobody need be asked. Who asks with an older epoch than
    /// another has gets a guard that is void already.
    pub fn begin(&self, question: Question, now_ms: u64) -> Option<u64> {
        let mut state = self.state.lock();
        if state.open.get(&question.producer_id) == Some(&question.producer_epoch) {
            return None;
        }
        match state.by_producer.get_mut(&question.producer_id) {
            Some(present) if present.producer_epoch == question.producer_epoch => {
                present.askers += 1;
                present.lowest_sequence = present.lowest_sequence.min(question.base_sequence);
                present.bumps_epochs |= question.bumps_epochs;
                return Some(present.guard);
            }
            Some(present) if present.producer_epoch > question.producer_epoch => {}
            _ => {
                let verification = Verification {
                    guard: state.last_guard + 1,
                    askers: 1,
                    producer_epoch: question.producer_epoch,
                    lowest_sequence: question.base_sequence,
                    bumps_epochs: question.bumps_epochs,
                    since_ms: now_ms,
                };
                state.by_producer.insert(question.producer_id, verification);
            }
        }
        state.last_guard += 1;
        Some(state.last_guard)
    }

    /// The coordinator has refused, or not been asked: nothing will be appended for who began this.
    pub fn forget(&self, producer_id: i64, guard: u64) {
        let mut state = self.state.lock();
        let Some(present) = state.by_producer.get_mut(&producer_id) else {
            return;
        };
        if present.guard == guard {
            present.askers -= 1;
            if present.askers == 0 {
                state.by_producer.remove(&producer_id);
            }
        }
    }

    /// Checks a transactional batch that has no open transaction of its epoch. `is_known`: the
    /// log knows something of the producer.
    ///
    /// Errors: `InvalidTxnState`, nobody was asked since the last transaction ended;
    /// `OutOfOrderSequence`, an earlier batch is still to come.
    pub fn check(&self, header: &BatchHeader, guard: u64, is_known: bool) -> Result<()> {
        let state = self.state.lock();
        let found = state.by_producer.get(&header.producer_id);
        let Some(verification) = found.filter(|present| present.guard == guard) else {
            return Err(Error::InvalidTxnState(format!(
                "producer {} writes outside of a transaction that its coordinator knows",
                header.producer_id
            )));
        };
        let (first, lowest) = (header.base_sequence, verification.lowest_sequence);
        let lacks_the_first = verification.bumps_epochs && first != 0 && !is_known;
        if lacks_the_first || first > lowest {
            return Err(Error::OutOfOrderSequence(format!(
                "producer {} begins its transaction with sequence {first}, an earlier one is to come",
                header.producer_id
            )));
        }
        Ok(())
    }

    /// A transactional batch or a marker was written. The marker of a transaction with an epoch of
    /// its own may come after the next one was asked for, whose epoch it bears (KAFKA-18575).
    pub fn note_written(&self, header: &BatchHeader, transaction_version: Option<i16>) {
        let mut state = self.state.lock();
        let producer_id = header.producer_id;
        if !header.is_control() {
            state.by_producer.remove(&producer_id);
            state.open.insert(producer_id, header.producer_epoch);
            return;
        }
        state.open.remove(&producer_id);
        let is_of_next = transaction_version.is_some_and(|version| version >= EPOCH_BUMPS_SINCE)
            && state
                .by_producer
                .get(&producer_id)
                .is_some_and(|present| present.producer_epoch == header.producer_epoch);
        if !is_of_next {
            state.by_producer.remove(&producer_id);
        }
    }

    /// The log was cut back: which transactions are open is for the coordinator to say.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.by_producer.clear();
        state.open.clear();
    }

    /// Forgets what was begun so long ago.
    pub fn remove_expired(&self, now_ms: u64, expiration_ms: u64) {
        let is_young = |present: &Verification| now_ms < present.since_ms + expiration_ms;
        self.state
            .lock()
            .by_producer
            .retain(|_, present| is_young(present));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::build::end_transaction_marker;
    use crate::batch::{BatchBuilder, BatchOptions, EndTransactionMarker};

    fn header(bytes: &[u8]) -> BatchHeader {
        BatchHeader::parse(bytes)
            .expect("a header")
            .expect("a whole one")
    }

    fn data(producer_epoch: i16, base_sequence: i32) -> BatchHeader {
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id: 7,
            producer_epoch,
            base_sequence,
            transactional: true,
            ..BatchOptions::default()
        });
        builder.append(0, None, Some(b"x"), &[]).expect("a record");
        header(&builder.finish().expect("a batch"))
    }

    fn marker(producer_epoch: i16) -> BatchHeader {
        let marker = EndTransactionMarker {
            is_commit: true,
            coordinator_epoch: 1,
        };
        header(&end_transaction_marker(0, 7, producer_epoch, marker))
    }

    fn question(producer_epoch: i16, base_sequence: i32) -> Question {
        Question {
            producer_id: 7,
            producer_epoch,
            base_sequence,
            bumps_epochs: true,
        }
    }

    /// KAFKA-14884: verified, ended, and then appended.
    #[test]
    fn a_guard_is_void_once_the_transaction_has_ended() {
        let all = Verifications::default();
        let guard = all.begin(question(0, 0), 0).expect("it is not open");
        assert!(all.check(&data(0, 0), guard, false).is_ok());
        all.note_written(&marker(0), Some(0));
        let later = all.begin(question(0, 0), 0).expect("it has ended");
        assert_ne!(guard, later);
        assert!(all.check(&data(0, 0), guard, true).is_err());
        assert!(all.check(&data(0, 0), later, true).is_ok());
        assert!(all.check(&data(0, 0), NO_GUARD, true).is_err());
    }

    /// KAFKA-18575: the marker of the last transaction comes after the next one has begun.
    #[test]
    fn the_marker_of_the_last_transaction_leaves_the_guard_of_the_next() {
        let all = Verifications::default();
        all.note_written(&data(4, 0), None);
        assert!(all.begin(question(4, 1), 0).is_none(), "it is open");
        let guard = all.begin(question(5, 0), 0).expect("it is another");
        all.note_written(&marker(5), Some(2));
        assert!(all.check(&data(5, 0), guard, true).is_ok());
        all.note_written(&marker(5), Some(1));
        assert!(all.check(&data(5, 0), guard, true).is_err());
    }

    #[test]
    fn the_first_batch_of_a_transaction_has_the_lowest_sequence_that_was_asked_for() {
        let all = Verifications::default();
        let guard = all.begin(question(0, 3), 0).expect("it is not open");
        assert_eq!(all.begin(question(0, 0), 0), Some(guard));
        assert!(all.check(&data(0, 3), guard, true).is_err());
        assert!(all.check(&data(0, 0), guard, true).is_ok());
    }

    #[test]
    fn who_knows_nothing_of_a_producer_takes_only_its_first_batch() {
        let all = Verifications::default();
        let guard = all.begin(question(0, 3), 0).expect("it is not open");
        assert!(all.check(&data(0, 3), guard, false).is_err());
        assert!(all.check(&data(0, 3), guard, true).is_ok());
        all.forget(7, guard);
        assert!(all.check(&data(0, 3), guard, true).is_err());
    }

    /// A producer with an older epoch, or with another transactional id and this producer's id,
    /// voided the guard of the rightful producer when it was refused.
    #[test]
    fn who_is_refused_voids_no_other_guard() {
        for zombie_is_first in [true, false] {
            let all = Verifications::default();
            let begin = |epoch| all.begin(question(epoch, 0), 0).expect("it is not open");
            let (zombie, guard) = if zombie_is_first {
                (begin(4), begin(5))
            } else {
                let guard = begin(5);
                (begin(4), guard)
            };
            assert_ne!(zombie, guard);
            all.forget(7, zombie);
            assert!(all.check(&data(5, 0), guard, false).is_ok());
            assert!(all.check(&data(4, 0), zombie, false).is_err());
            assert_eq!(begin(5), guard, "a stranger's question");
            all.forget(7, guard);
            assert!(all.check(&data(5, 0), guard, false).is_ok());
            all.forget(7, guard);
            assert!(all.check(&data(5, 0), guard, false).is_err());
        }
    }

    #[test]
    fn what_was_begun_long_ago_is_forgotten() {
        let all = Verifications::default();
        let guard = all.begin(question(0, 0), 10).expect("it is not open");
        all.remove_expired(109, 100);
        assert!(all.check(&data(0, 0), guard, false).is_ok());
        all.remove_expired(110, 100);
        assert!(all.check(&data(0, 0), guard, false).is_err());
    }
}
