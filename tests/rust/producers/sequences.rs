//! Epochs and sequences: what is a duplicate, what is out of order, and for whom that counts.

use kafkalite::batch::AppendOrigin;
use kafkalite::error::Error;
use kafkalite::log::state::producers::BatchOutcome;

use super::partition::{APPENDED, DAY_MS, Partition, batch, transactional};

#[test]
fn a_batch_without_a_producer_id_is_appended_and_leaves_no_trace() {
    let mut partition = Partition::default();
    assert_eq!(partition.send(batch(-1, -1, -1, 0, 3)).unwrap(), APPENDED);
    assert!(partition.state.is_empty());
    assert_eq!(partition.state.map_end_offset(), 3);
}

#[test]
fn each_of_the_last_five_batches_sent_again_answers_the_numbers_of_the_first_time() {
    let mut partition = Partition::default();
    for index in 0..6 {
        partition
            .send(batch(7, 0, index * 3, 100 + i64::from(index) * 3, 3))
            .unwrap();
    }
    for index in 1..6 {
        let first = 100 + i64::from(index) * 3;
        assert_eq!(
            partition.send(batch(7, 0, index * 3, 500, 3)).unwrap(),
            BatchOutcome::Duplicate {
                base_offset: first,
                last_offset: first + 2,
                timestamp: first * 10
            }
        );
    }
    let sixth = partition.send(batch(7, 0, 0, 500, 3));
    assert!(
        matches!(sixth, Err(Error::OutOfOrderSequence(_))),
        "{sixth:?}"
    );
}

#[test]
fn a_batch_that_overlaps_a_remembered_one_without_being_it_is_out_of_order() {
    let mut partition = Partition::default();
    partition.send(batch(7, 0, 0, 0, 3)).unwrap();
    for (sequence, count) in [(0, 2), (1, 2), (2, 1), (0, 4)] {
        let overlap = partition.send(batch(7, 0, sequence, 3, count));
        assert!(
            matches!(overlap, Err(Error::OutOfOrderSequence(_))),
            "{overlap:?}"
        );
    }
}

#[test]
fn a_gap_in_the_sequence_is_out_of_order_and_changes_nothing() {
    let mut partition = Partition::default();
    partition.send(batch(7, 0, 0, 0, 3)).unwrap();
    let before = *partition.state.get(7).unwrap();
    assert!(matches!(
        partition.send(batch(7, 0, 4, 3, 1)),
        Err(Error::OutOfOrderSequence(_))
    ));
    assert_eq!(*partition.state.get(7).unwrap(), before);
    assert_eq!(partition.send(batch(7, 0, 3, 3, 1)).unwrap(), APPENDED);
}

#[test]
fn a_producer_without_state_may_start_with_any_sequence() {
    let mut partition = Partition::default();
    assert_eq!(partition.send(batch(7, 4, 1234, 0, 1)).unwrap(), APPENDED);
    assert_eq!(partition.state.get(7).unwrap().last_sequence(), 1234);
}

#[test]
fn a_new_epoch_must_start_at_sequence_zero_and_forgets_the_old_batches() {
    let mut partition = Partition::default();
    partition.send(batch(7, 0, 0, 0, 3)).unwrap();
    assert!(matches!(
        partition.send(batch(7, 1, 3, 3, 1)),
        Err(Error::OutOfOrderSequence(_))
    ));
    assert_eq!(partition.send(batch(7, 1, 0, 3, 1)).unwrap(), APPENDED);
    assert_eq!(partition.state.get(7).unwrap().batches().len(), 1);
    // The first batch of the new epoch has the range of none of the old: no duplicate.
    assert!(matches!(
        partition.send(batch(7, 0, 0, 4, 3)),
        Err(Error::InvalidProducerEpoch(_))
    ));
}

#[test]
fn an_older_epoch_is_refused_to_clients_and_coordinators_but_replicated() {
    let mut partition = Partition::default();
    partition.send(batch(7, 5, 0, 0, 1)).unwrap();
    for origin in [AppendOrigin::Client, AppendOrigin::Coordinator] {
        let older = partition.append(batch(7, 4, 0, 1, 1), origin, None, None);
        assert!(
            matches!(older, Err(Error::InvalidProducerEpoch(_))),
            "{older:?}"
        );
    }
    let replicated = partition.append(batch(7, 4, 9, 1, 1), AppendOrigin::Replication, None, None);
    assert_eq!(replicated.unwrap(), APPENDED);
    assert_eq!(partition.state.get(7).unwrap().producer_epoch, 4);
}

#[test]
fn coordinators_and_replication_skip_the_sequence_check() {
    let mut partition = Partition::default();
    partition.send(batch(7, 0, 0, 0, 1)).unwrap();
    for (offset, origin) in [
        (1, AppendOrigin::Coordinator),
        (2, AppendOrigin::Replication),
    ] {
        let gap = partition.append(batch(7, 0, 50, offset, 1), origin, None, None);
        assert_eq!(gap.unwrap(), APPENDED);
    }
}

#[test]
fn the_sequence_wraps_after_two_to_the_31_minus_one_to_zero() {
    let mut partition = Partition::default();
    partition.send(batch(7, 0, i32::MAX - 1, 0, 2)).unwrap();
    assert_eq!(partition.state.get(7).unwrap().last_sequence(), i32::MAX);
    assert_eq!(partition.send(batch(7, 0, 0, 2, 1)).unwrap(), APPENDED);
    // A batch over the wrap is found again by its whole range.
    let mut partition = Partition::default();
    partition.send(batch(8, 0, i32::MAX - 1, 10, 4)).unwrap();
    assert_eq!(partition.state.get(8).unwrap().last_sequence(), 1);
    assert_eq!(
        partition.state.get(8).unwrap().batches()[0].first_sequence(),
        i32::MAX - 1
    );
    assert_eq!(
        partition.send(batch(8, 0, i32::MAX - 1, 14, 4)).unwrap(),
        BatchOutcome::Duplicate {
            base_offset: 10,
            last_offset: 13,
            timestamp: 100
        }
    );
    assert_eq!(partition.send(batch(8, 0, 2, 14, 1)).unwrap(), APPENDED);
}

#[test]
fn silent_producers_expire_but_not_those_with_an_open_transaction() {
    let mut partition = Partition::default();
    partition.send(batch(7, 0, 0, 0, 1)).unwrap();
    partition.send(transactional(batch(8, 0, 0, 1, 1))).unwrap();
    assert_eq!(partition.state.remove_expired(DAY_MS - 1, DAY_MS), 0);
    assert_eq!(partition.state.remove_expired(DAY_MS + 10, DAY_MS), 1);
    assert!(partition.state.get(7).is_none() && partition.state.get(8).is_some());
}
