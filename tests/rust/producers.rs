//! Producer state: each of Kafka's rules by name, then every sequence of events against a slow
//! model that keeps the whole history and looks everything up in it.

use std::path::Path;

use kafkalite::batch::BatchHeader;
use kafkalite::batch::header::increment_sequence;
use kafkalite::error::{Error, Result};
use kafkalite::log::producers::{
    AppendOrigin, BatchMetadata, BatchOutcome, CompletedTransaction, EndTransactionMarker,
    PendingUpdates, ProducerState, SegmentPosition,
};
use kafkalite::log::snapshots::{self, ProducerSnapshots};
use kafkalite::log::storage::{DiskStorage, OpenMode, Storage, write_all_at};
use proptest::prelude::*;

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DAY_MS: i64 = 86_400_000;

fn batch(producer_id: i64, epoch: i16, sequence: i32, offset: i64, count: i32) -> BatchHeader {
    BatchHeader {
        base_offset: offset,
        size_bytes: 100,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: count - 1,
        base_timestamp: offset * 10,
        max_timestamp: offset * 10,
        producer_id,
        producer_epoch: epoch,
        base_sequence: sequence,
        records_count: count,
    }
}

fn transactional(mut header: BatchHeader) -> BatchHeader {
    header.attributes |= TRANSACTIONAL;
    header
}

fn marker(producer_id: i64, epoch: i16, offset: i64) -> BatchHeader {
    let mut header = transactional(batch(producer_id, epoch, -1, offset, 1));
    header.attributes |= CONTROL;
    header
}

const COMMIT: EndTransactionMarker = EndTransactionMarker {
    is_commit: true,
    coordinator_epoch: 0,
};
const ABORT: EndTransactionMarker = EndTransactionMarker {
    is_commit: false,
    coordinator_epoch: 0,
};

/// A state with the calls of one append in one.
#[derive(Default)]
struct Partition {
    state: ProducerState,
}

impl Partition {
    fn send(&mut self, header: BatchHeader) -> Result<BatchOutcome> {
        self.append(header, AppendOrigin::Client, None, None)
    }

    fn end(
        &mut self,
        header: BatchHeader,
        version: i16,
        marker: EndTransactionMarker,
    ) -> Result<Option<CompletedTransaction>> {
        let origin = AppendOrigin::Coordinator;
        match self.append(header, origin, Some(version), Some(marker))? {
            BatchOutcome::Append { completed } => Ok(completed),
            duplicate => panic!("a marker is no duplicate: {duplicate:?}"),
        }
    }

    fn append(
        &mut self,
        header: BatchHeader,
        origin: AppendOrigin,
        version: Option<i16>,
        marker: Option<EndTransactionMarker>,
    ) -> Result<BatchOutcome> {
        let mut pending = self.state.prepare();
        let outcome =
            self.state
                .prepare_batch(&mut pending, &header, origin, version, marker, None)?;
        if let BatchOutcome::Append { .. } = outcome {
            self.state.commit(pending, header.next_offset());
        }
        Ok(outcome)
    }

    fn unstable(&self) -> Option<i64> {
        self.state
            .first_unstable_offset()
            .map(|unstable| unstable.offset)
    }
}

const APPENDED: BatchOutcome = BatchOutcome::Append { completed: None };

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
    assert_eq!(partition.state.first_undecided_offset(), None);
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
    assert_eq!(partition.state.last_stable_offset(0, 12), 10);
    partition.state.on_high_watermark(13);
    assert_eq!(partition.unstable(), None);
    assert_eq!(partition.state.last_stable_offset(0, 13), 13);
}

#[test]
fn the_last_stable_offset_is_bounded_by_the_high_watermark_and_the_log_start() {
    let mut partition = Partition::default();
    partition
        .send(transactional(batch(7, 0, 0, 10, 2)))
        .unwrap();
    assert_eq!(partition.state.last_stable_offset(0, 5), 5);
    assert_eq!(partition.state.last_stable_offset(0, 12), 10);
    assert_eq!(partition.state.last_stable_offset(11, 12), 11);
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

#[test]
fn a_later_batch_of_one_write_sees_the_earlier_ones_and_a_refused_one_leaves_them() {
    let state = ProducerState::default();
    let mut pending = state.prepare();
    let prepare = |pending: &mut PendingUpdates, header| {
        let client = AppendOrigin::Client;
        state.prepare_batch(pending, &header, client, None, None, None)
    };
    assert_eq!(
        prepare(&mut pending, batch(7, 0, 0, 0, 2)).unwrap(),
        APPENDED
    );
    assert!(prepare(&mut pending, batch(7, 0, 5, 2, 1)).is_err());
    assert_eq!(
        prepare(&mut pending, batch(7, 0, 2, 2, 1)).unwrap(),
        APPENDED
    );
    let again = prepare(&mut pending, batch(7, 0, 0, 3, 2)).unwrap();
    assert!(matches!(
        again,
        BatchOutcome::Duplicate {
            base_offset: 0,
            last_offset: 1,
            ..
        }
    ));
}

#[test]
fn a_failed_write_drops_its_overlay_and_nothing_has_changed() {
    let mut partition = Partition::default();
    partition.send(transactional(batch(7, 0, 0, 0, 1))).unwrap();
    let state = &mut partition.state;
    let mut pending = state.prepare();
    let end = marker(7, 0, 1);
    let origin = AppendOrigin::Coordinator;
    state
        .prepare_batch(&mut pending, &end, origin, Some(1), Some(ABORT), None)
        .unwrap();
    drop(pending);
    assert_eq!(partition.unstable(), Some(0));
    assert_eq!(partition.state.map_end_offset(), 1);
    assert!(partition.end(end, 1, ABORT).unwrap().is_some());
}

#[test]
fn the_first_unstable_offset_knows_where_its_batch_lies_in_the_segment() {
    let mut state = ProducerState::default();
    let mut pending = state.prepare();
    let at = SegmentPosition {
        segment_base_offset: 0,
        position_byte: 4242,
    };
    let header = transactional(batch(7, 0, 0, 10, 1));
    let client = AppendOrigin::Client;
    state
        .prepare_batch(&mut pending, &header, client, None, None, Some(at))
        .unwrap();
    state.commit(pending, 11);
    assert_eq!(state.first_unstable_offset().unwrap().position, Some(at));
    let mut pending = state.prepare();
    let (end, origin) = (marker(7, 0, 11), AppendOrigin::Coordinator);
    state
        .prepare_batch(&mut pending, &end, origin, Some(1), Some(ABORT), None)
        .unwrap();
    state.commit(pending, 12);
    assert_eq!(state.first_unstable_offset().unwrap().position, Some(at));
}

#[test]
#[should_panic(expected = "prepared on")]
fn an_overlay_made_for_another_state_is_not_committed() {
    let mut partition = Partition::default();
    let stale = partition.state.prepare();
    partition.send(batch(7, 0, 0, 0, 1)).unwrap();
    partition.state.commit(stale, 5);
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

fn sample() -> ProducerState {
    let mut partition = Partition::default();
    partition.send(batch(9, 0, i32::MAX, 0, 2)).unwrap();
    partition.send(transactional(batch(7, 3, 0, 2, 5))).unwrap();
    partition
        .end(
            marker(11, 2, 7),
            2,
            EndTransactionMarker {
                coordinator_epoch: 6,
                ..ABORT
            },
        )
        .unwrap();
    partition.state
}

#[test]
fn a_snapshot_gives_back_the_last_batch_of_each_producer_and_the_open_transactions() {
    let state = sample();
    let bytes = snapshots::encode(&state);
    assert_eq!(bytes.len(), 10 + 3 * 46);
    let mut loaded = ProducerState::default();
    for (producer_id, entry) in snapshots::decode(&bytes, Path::new("x")).unwrap() {
        loaded.load(producer_id, entry);
    }
    assert_eq!(loaded.producers().len(), 3);
    assert_eq!(loaded.get(9), state.get(9));
    assert_eq!(loaded.get(7), state.get(7));
    assert_eq!(loaded.get(11), state.get(11));
    assert_eq!(loaded.first_undecided_offset(), Some(2));
    assert_eq!(snapshots::encode(&loaded), bytes);
}

#[test]
fn a_snapshot_is_byte_for_byte_what_kafka_writes() {
    // `ProducerStateManager.writeSnapshot` of Kafka 4.3.1, for the same three producers.
    let kafkas = [
        "00014292328000000003",
        "0000000000000007000300000004000000000000000600\
         0000040000000000000014ffffffff0000000000000002",
        "0000000000000009000000000000000000000000000100\
         0000010000000000000000ffffffffffffffffffffffff",
        "000000000000000b0002ffffffffffffffffffffffff00\
         000000000000000000004600000006ffffffffffffffff",
    ];
    let bytes = snapshots::encode(&sample());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, kafkas.concat());
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_snapshot_is_refused() {
    let bytes = snapshots::encode(&sample());
    for end in 0..bytes.len() {
        assert!(
            snapshots::decode(&bytes[..end], Path::new("x")).is_err(),
            "cut at {end}"
        );
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(
            snapshots::decode(&flipped, Path::new("x")).is_err(),
            "bit {bit}"
        );
    }
}

#[test]
fn a_snapshot_that_lies_about_its_count_or_an_offset_delta_is_refused_with_a_right_crc() {
    let good = snapshots::encode(&sample());
    let reseal = |mut bytes: Vec<u8>| {
        let crc = crc32c::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
        snapshots::decode(&bytes, Path::new("x"))
    };
    assert!(reseal(good.clone()).is_ok());
    for count in [-1, 0, 2, 4, i32::MAX] {
        let mut bytes = good.clone();
        bytes[6..10].copy_from_slice(&i32::to_be_bytes(count));
        assert!(reseal(bytes).is_err(), "count {count}");
    }
    let mut bytes = good;
    bytes[32..36].copy_from_slice(&i32::to_be_bytes(-5));
    assert!(reseal(bytes).is_err());
}

fn write_snapshot(directory: &Path, offset: i64, bytes: &[u8]) {
    let path = directory.join(format!("{offset:020}.snapshot"));
    let file = DiskStorage.open(&path, OpenMode::CreateOrTruncate).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
}

#[test]
fn reload_takes_the_newest_valid_snapshot_within_the_log_and_deletes_the_rest_above() {
    let directory = tempfile::tempdir().unwrap();
    let good = snapshots::encode(&sample());
    for offset in [0, 10, 20] {
        write_snapshot(directory.path(), offset, &good);
    }
    write_snapshot(directory.path(), 30, &good[..good.len() - 1]);
    write_snapshot(directory.path(), 90, &good);
    let mut files = ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    let mut state = ProducerState::default();
    files
        .truncate_and_reload(&DiskStorage, &mut state, 5, 50, 0, DAY_MS)
        .unwrap();
    assert_eq!(state.map_end_offset(), 20);
    assert_eq!(state.producers().len(), 3);
    let left = ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    assert_eq!((left.oldest(), left.latest()), (Some(10), Some(20)));
}

#[test]
fn reload_leaves_out_expired_producers_and_starts_at_the_log_start_without_snapshots() {
    let directory = tempfile::tempdir().unwrap();
    write_snapshot(directory.path(), 10, &snapshots::encode(&sample()));
    let mut files = ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    let mut state = ProducerState::default();
    files
        .truncate_and_reload(&DiskStorage, &mut state, 0, 50, 2 * DAY_MS, DAY_MS)
        .unwrap();
    let kept: Vec<i64> = state.producers().map(|(id, _)| id).collect();
    assert_eq!(kept, [7], "only the producer with an open transaction");
    files
        .truncate_and_reload(&DiskStorage, &mut state, 10, 60, 0, DAY_MS)
        .unwrap();
    assert!(state.is_empty());
    assert_eq!(state.map_end_offset(), 10);
}

#[test]
fn a_snapshot_is_taken_once_per_offset_and_found_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    let mut state = sample();
    assert_eq!(files.take(&DiskStorage, &state, true).unwrap(), Some(8));
    assert_eq!(files.take(&DiskStorage, &state, false).unwrap(), None);
    state.set_map_end_offset(9);
    assert_eq!(files.take(&DiskStorage, &state, false).unwrap(), Some(9));
    files.sync(&DiskStorage, 9).unwrap();
    let mut again = ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    assert_eq!((again.oldest(), again.latest()), (Some(8), Some(9)));
    again.delete_before(&DiskStorage, 9).unwrap();
    assert_eq!(again.oldest(), Some(9));
}

#[test]
fn stray_snapshots_go_at_start_but_the_one_of_the_log_end_stays() {
    let directory = tempfile::tempdir().unwrap();
    for offset in [5, 10, 15, 20, 27] {
        write_snapshot(directory.path(), offset, b"");
    }
    let mut files = ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    files
        .remove_stray(&DiskStorage, &[0, 10, 20].into())
        .unwrap();
    let left = ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    let kept: Vec<i64> = (0..30).filter(|offset| left.contains(*offset)).collect();
    assert_eq!(kept, [10, 20, 27]);
}

/// The second implementation: all accepted batches, looked through from the start each time.
#[derive(Default)]
struct History {
    accepted: Vec<(BatchHeader, Option<EndTransactionMarker>)>,
    high_watermark: i64,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Appended(Option<(i64, bool, i64)>),
    Duplicate(i64, i64),
    Refused(i16),
}

impl History {
    fn of(
        &self,
        producer_id: i64,
    ) -> impl Iterator<Item = &(BatchHeader, Option<EndTransactionMarker>)> {
        self.accepted
            .iter()
            .filter(move |(header, _)| header.producer_id == producer_id)
    }

    fn epoch(&self, producer_id: i64) -> i16 {
        self.of(producer_id)
            .last()
            .map_or(-1, |(header, _)| header.producer_epoch)
    }

    /// The batches since the epoch last changed.
    fn window(&self, producer_id: i64) -> Vec<BatchHeader> {
        let mut window: Vec<BatchHeader> = Vec::new();
        let mut epoch = -1;
        for (header, marker) in self.of(producer_id) {
            if header.producer_epoch != epoch {
                window.clear();
                epoch = header.producer_epoch;
            }
            if marker.is_none() {
                window.push(*header);
            }
        }
        window.split_off(window.len().saturating_sub(5))
    }

    fn coordinator_epoch(&self, producer_id: i64) -> i32 {
        let last = self
            .of(producer_id)
            .filter_map(|(_, marker)| *marker)
            .last();
        last.map_or(-1, |marker| marker.coordinator_epoch)
    }

    fn open_since(&self, producer_id: i64) -> Option<i64> {
        let mut open = None;
        for (header, marker) in self.of(producer_id) {
            open = match marker {
                Some(_) => None,
                None if header.is_transactional() => open.or(Some(header.base_offset)),
                None => open,
            };
        }
        open
    }

    fn unstable(&self) -> Option<i64> {
        let mut open = std::collections::HashMap::new();
        let mut unstable: Vec<i64> = Vec::new();
        for (header, marker) in &self.accepted {
            match marker {
                Some(_) => {
                    let first = open.remove(&header.producer_id);
                    unstable.extend(first.filter(|_| header.base_offset >= self.high_watermark));
                }
                None if header.is_transactional() => {
                    open.entry(header.producer_id).or_insert(header.base_offset);
                }
                None => {}
            }
        }
        unstable.extend(open.values());
        unstable.into_iter().min()
    }

    fn judge(
        &self,
        header: &BatchHeader,
        origin: AppendOrigin,
        version: i16,
        marker: Option<EndTransactionMarker>,
    ) -> Verdict {
        let (id, epoch) = (header.producer_id, header.producer_epoch);
        let seen = self.epoch(id);
        let trusted = origin == AppendOrigin::Replication;
        let open = self.open_since(id);
        if let Some(marker) = marker {
            if !trusted {
                let repeats = epoch == seen && (open.is_none() || epoch == i16::MAX);
                if epoch < seen || (version >= 2 && epoch == seen && !repeats) {
                    return Verdict::Refused(47);
                }
                if marker.coordinator_epoch < self.coordinator_epoch(id) {
                    return Verdict::Refused(52);
                }
            }
            let others = (0..4)
                .filter(|other| *other != id)
                .filter_map(|other| self.open_since(other));
            let stable = others.min().unwrap_or(header.base_offset + 1);
            return Verdict::Appended(open.map(|first| (first, !marker.is_commit, stable)));
        }
        let window = self.window(id);
        if origin == AppendOrigin::Client && epoch == seen {
            for old in &window {
                if (old.base_sequence, old.records_count)
                    == (header.base_sequence, header.records_count)
                {
                    return Verdict::Duplicate(old.base_offset, old.last_offset());
                }
            }
        }
        if !trusted && epoch < seen {
            return Verdict::Refused(47);
        }
        if origin == AppendOrigin::Client && seen != -1 {
            let expected = match window.last() {
                Some(last) if epoch == seen => {
                    increment_sequence(last.base_sequence, last.records_count)
                }
                _ => 0,
            };
            if header.base_sequence != expected {
                return Verdict::Refused(45);
            }
        }
        if open.is_some() && !header.is_transactional() {
            return Verdict::Refused(48);
        }
        Verdict::Appended(None)
    }
}

#[derive(Clone, Debug)]
enum Event {
    Data {
        id: i64,
        epoch: i16,
        sequence: Choice,
        count: i32,
        transactional: bool,
        origin: u8,
    },
    Marker {
        id: i64,
        epoch: i16,
        commit: bool,
        coordinator_epoch: i32,
        version: i16,
        origin: u8,
    },
    HighWatermark(u8),
    Flush {
        fails: bool,
    },
}

#[derive(Clone, Debug)]
enum Choice {
    Next,
    Repeat(usize),
    Any(i32),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let choice = prop_oneof![
        6 => Just(Choice::Next),
        2 => (0..7usize).prop_map(Choice::Repeat),
        1 => prop_oneof![0..4, Just(i32::MAX - 2), Just(i32::MAX)].prop_map(Choice::Any),
    ];
    let epoch = prop_oneof![6 => 0..3i16, 1 => Just(i16::MAX)];
    let data = (
        0..4i64,
        epoch.clone(),
        choice,
        1..4i32,
        any::<bool>(),
        0..6u8,
    );
    let data = data.prop_map(
        |(id, epoch, sequence, count, transactional, origin)| Event::Data {
            id,
            epoch,
            sequence,
            count,
            transactional,
            origin,
        },
    );
    let end = (0..4i64, epoch, any::<bool>(), 0..3i32, 0..3i16, 1..3u8);
    let end =
        end.prop_map(
            |(id, epoch, commit, coordinator_epoch, version, origin)| Event::Marker {
                id,
                epoch,
                commit,
                coordinator_epoch,
                version,
                origin,
            },
        );
    let flush = any::<u8>().prop_map(|byte| Event::Flush { fails: byte < 40 });
    let event =
        prop_oneof![8 => data, 4 => end, 1 => (0..4u8).prop_map(Event::HighWatermark), 3 => flush];
    prop::collection::vec(event, 1..80)
}

fn origin_of(number: u8) -> AppendOrigin {
    match number {
        1 => AppendOrigin::Coordinator,
        2 => AppendOrigin::Replication,
        _ => AppendOrigin::Client,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_of_events_ends_as_in_the_slow_model(events in events()) {
        let mut state = ProducerState::default();
        let mut pending = state.prepare();
        let mut history = History::default();
        let mut flushed = (0, 0i64);
        let mut end_offset = 0i64;
        for event in events {
            let (header, origin, version, end) = match event {
                Event::Data { id, epoch, sequence, count, transactional: is_transactional, origin } => {
                    let window = history.window(id);
                    let old = |index: usize| window.iter().rev().nth(index).copied();
                    let (sequence, count) = match sequence {
                        Choice::Any(sequence) => (sequence, count),
                        Choice::Next => match old(0) {
                            Some(last) if history.epoch(id) == epoch => {
                                (increment_sequence(last.base_sequence, last.records_count), count)
                            }
                            _ => (0, count),
                        },
                        Choice::Repeat(index) => old(index)
                            .map_or((0, count), |old| (old.base_sequence, old.records_count)),
                    };
                    let header = batch(id, epoch, sequence, end_offset, count);
                    let header = if is_transactional { transactional(header) } else { header };
                    (header, origin_of(origin), 0, None)
                }
                Event::Marker { id, epoch, commit, coordinator_epoch, version, origin } => {
                    let end = EndTransactionMarker { is_commit: commit, coordinator_epoch };
                    (marker(id, epoch, end_offset), origin_of(origin), version, Some(end))
                }
                Event::HighWatermark(step) => {
                    history.high_watermark = (history.high_watermark + i64::from(step)).min(flushed.1);
                    state.on_high_watermark(history.high_watermark);
                    continue;
                }
                Event::Flush { fails } => {
                    if fails {
                        history.accepted.truncate(flushed.0);
                        end_offset = flushed.1;
                    } else {
                        state.commit(pending, end_offset);
                        flushed = (history.accepted.len(), end_offset);
                        // Markers may have been ended below the high watermark that is known.
                        state.on_high_watermark(history.high_watermark);
                        let unstable = state.first_unstable_offset().map(|unstable| unstable.offset);
                        prop_assert_eq!(unstable, history.unstable());
                    }
                    pending = state.prepare();
                    continue;
                }
            };
            let expected = history.judge(&header, origin, version, end);
            let found = match state.prepare_batch(&mut pending, &header, origin, Some(version), end, None) {
                Ok(BatchOutcome::Append { completed }) => Verdict::Appended(
                    completed.map(|done| (done.first_offset, done.is_aborted, done.last_stable_offset)),
                ),
                Ok(BatchOutcome::Duplicate { base_offset, last_offset, .. }) => {
                    Verdict::Duplicate(base_offset, last_offset)
                }
                Err(error) => Verdict::Refused(error.kafka_code()),
            };
            prop_assert_eq!(&found, &expected, "{:?} {:?}", header, origin);
            if let Verdict::Appended(_) = found {
                history.accepted.push((header, end));
                end_offset = header.next_offset();
            }
        }
        state.commit(pending, end_offset);
        for id in 0..4 {
            let window: Vec<BatchMetadata> = state.get(id).map_or(Vec::new(), |entry| entry.batches().to_vec());
            let expected: Vec<BatchMetadata> = history.window(id).iter().map(|old| BatchMetadata {
                last_sequence: old.last_sequence(),
                last_offset: old.last_offset(),
                offset_delta: old.last_offset_delta,
                timestamp: old.max_timestamp,
            }).collect();
            prop_assert_eq!(window, expected);
            prop_assert_eq!(state.get(id).and_then(|entry| entry.current_transaction_first_offset), history.open_since(id));
        }
    }
}
