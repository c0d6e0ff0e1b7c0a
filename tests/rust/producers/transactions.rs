//! Open transactions, the markers that end them, and the last stable offset between the two.

use kafkalite::batch::{AppendOrigin, EndTransactionMarker};
use kafkalite::error::Error;
use kafkalite::log::state::producers::{BatchOutcome, ProducerState};

use super::partition::{ABORT, APPENDED, COMMIT, Partition, batch, marker, transactional};

#[test]
fn a_transaction_is_open_from_its_first_record_to_its_marker() {
    let mut partition = Partition::default();
    partition
        .send(transactional(batch(7, 0, 0, 10, 2)))
        .unwrap();
    partition
        .send(transactional(batch(7, 0, 2, 12, 2)))
        .unwrap();
    assert_eq!(partition.unstable(), Some(10));
    assert_eq!(
        partition
            .state
            .get(7)
            .unwrap()
            .current_transaction_first_offset,
        Some(10)
    );
    let completed = partition.end(marker(7, 0, 14), 1, COMMIT).unwrap().unwrap();
    assert_eq!((completed.first_offset, completed.last_offset), (10, 14));
    assert_eq!(completed.aborted(), None);
    assert_eq!(
        partition
            .state
            .get(7)
            .unwrap()
            .current_transaction_first_offset,
        None
    );
}

#[test]
fn an_ended_transaction_stays_unstable_until_the_high_watermark_passes_its_marker() {
    let mut partition = Partition::default();
    partition
        .send(transactional(batch(7, 0, 0, 10, 2)))
        .unwrap();
    partition.end(marker(7, 0, 12), 1, COMMIT).unwrap();
    partition.state.on_high_watermark(12);
    assert_eq!(partition.unstable(), Some(10));
    partition.state.on_high_watermark(13);
    assert_eq!(partition.unstable(), None);
}

#[test]
fn an_aborted_transaction_carries_the_offset_below_which_all_is_decided() {
    let mut partition = Partition::default();
    partition
        .send(transactional(batch(7, 0, 0, 10, 1)))
        .unwrap();
    partition
        .send(transactional(batch(8, 0, 0, 11, 1)))
        .unwrap();
    let first = partition.end(marker(7, 0, 12), 1, ABORT).unwrap().unwrap();
    assert_eq!(first.aborted().unwrap().last_stable_offset, 11);
    let second = partition.end(marker(8, 0, 13), 1, ABORT).unwrap().unwrap();
    assert_eq!(second.aborted().unwrap().last_stable_offset, 14);
}

#[test]
fn in_a_group_a_transaction_that_begins_behind_a_marker_does_not_raise_its_stable_offset() {
    let state = ProducerState::default();
    let mut pending = state.prepare();
    let mut prepare = |header, origin, marker| {
        state.prepare_batch(&mut pending, &header, origin, Some(1), marker, None)
    };
    let client = AppendOrigin::Client;
    prepare(transactional(batch(7, 0, 0, 0, 1)), client, None).unwrap();
    let end = prepare(marker(7, 0, 1), AppendOrigin::Coordinator, Some(ABORT)).unwrap();
    prepare(transactional(batch(8, 0, 0, 5, 1)), client, None).unwrap();
    let BatchOutcome::Append {
        completed: Some(completed),
    } = end
    else {
        panic!("{end:?}");
    };
    assert_eq!(completed.last_stable_offset, 2);
}

#[test]
fn a_marker_without_a_transaction_completes_nothing() {
    let mut partition = Partition::default();
    assert_eq!(partition.end(marker(7, 3, 0), 1, ABORT).unwrap(), None);
    assert_eq!(partition.state.get(7).unwrap().producer_epoch, 3);
    assert_eq!(partition.unstable(), None);
}

#[test]
fn a_plain_record_amid_an_open_transaction_is_an_invalid_state_for_every_origin() {
    let mut partition = Partition::default();
    partition.send(transactional(batch(7, 0, 0, 0, 1))).unwrap();
    for origin in [
        AppendOrigin::Client,
        AppendOrigin::Coordinator,
        AppendOrigin::Replication,
    ] {
        let plain = partition.append(batch(7, 0, 1, 1, 1), origin, None, None);
        assert!(matches!(plain, Err(Error::InvalidTxnState(_))), "{plain:?}");
    }
    assert_eq!(
        partition.send(transactional(batch(7, 0, 1, 1, 1))).unwrap(),
        APPENDED
    );
}

#[test]
fn a_marker_of_an_older_coordinator_is_fenced_except_when_replicated() {
    let mut partition = Partition::default();
    let newer = EndTransactionMarker {
        coordinator_epoch: 9,
        ..COMMIT
    };
    partition.end(marker(7, 0, 0), 1, newer).unwrap();
    let fenced = partition.end(marker(7, 0, 1), 1, COMMIT);
    assert!(
        matches!(fenced, Err(Error::TransactionCoordinatorFenced(_))),
        "{fenced:?}"
    );
    let origin = AppendOrigin::Replication;
    partition
        .append(marker(7, 0, 1), origin, None, Some(COMMIT))
        .unwrap();
    assert_eq!(partition.state.get(7).unwrap().coordinator_epoch, 0);
}

#[test]
fn a_coordinators_marker_without_a_transaction_version_is_refused() {
    let mut partition = Partition::default();
    let unknown = partition.append(
        marker(7, 0, 0),
        AppendOrigin::Coordinator,
        None,
        Some(COMMIT),
    );
    assert!(
        matches!(unknown, Err(Error::InvalidArgument(_))),
        "{unknown:?}"
    );
}

#[test]
fn before_version_2_a_marker_may_bear_the_epoch_of_its_records() {
    for version in [0, 1] {
        let mut partition = Partition::default();
        partition.send(transactional(batch(7, 3, 0, 0, 1))).unwrap();
        assert!(
            partition
                .end(marker(7, 3, 1), version, COMMIT)
                .unwrap()
                .is_some()
        );
    }
}

#[test]
fn from_version_2_on_a_marker_must_bear_a_newer_epoch_than_its_records() {
    let mut partition = Partition::default();
    partition.send(transactional(batch(7, 3, 0, 0, 1))).unwrap();
    for epoch in [2, 3] {
        let old = partition.end(marker(7, epoch, 1), 2, COMMIT);
        assert!(
            matches!(old, Err(Error::InvalidProducerEpoch(_))),
            "{old:?}"
        );
    }
    assert!(partition.end(marker(7, 4, 1), 2, COMMIT).unwrap().is_some());
    // The producer goes on in the epoch of the marker, from sequence 0.
    assert!(matches!(
        partition.send(transactional(batch(7, 4, 1, 2, 1))),
        Err(Error::OutOfOrderSequence(_))
    ));
    partition.send(transactional(batch(7, 4, 0, 2, 1))).unwrap();
}

#[test]
fn a_version_2_marker_written_again_is_taken_as_the_retry_it_is() {
    let mut partition = Partition::default();
    partition.send(transactional(batch(7, 3, 0, 0, 1))).unwrap();
    partition.end(marker(7, 4, 1), 2, COMMIT).unwrap();
    assert_eq!(partition.end(marker(7, 4, 2), 2, COMMIT).unwrap(), None);
    let older = partition.end(marker(7, 3, 3), 2, COMMIT);
    assert!(
        matches!(older, Err(Error::InvalidProducerEpoch(_))),
        "{older:?}"
    );
}

#[test]
fn at_the_last_epoch_a_version_2_marker_may_repeat_it_even_for_an_open_transaction() {
    let mut partition = Partition::default();
    partition
        .send(transactional(batch(7, i16::MAX, 0, 0, 1)))
        .unwrap();
    assert!(
        partition
            .end(marker(7, i16::MAX, 1), 2, ABORT)
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_marker_that_the_cleaner_emptied_changes_no_known_producer() {
    let mut partition = Partition::default();
    partition.send(batch(7, 3, 0, 0, 1)).unwrap();
    let before = *partition.state.get(7).unwrap();
    let origin = AppendOrigin::Replication;
    partition
        .append(marker(7, 9, 1), origin, None, None)
        .unwrap();
    assert_eq!(*partition.state.get(7).unwrap(), before);
}
