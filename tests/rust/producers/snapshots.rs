//! Snapshots: their bytes, which one a start takes, and which ones go.

use std::path::Path;

use kafkalite::batch::EndTransactionMarker;
use kafkalite::log::state::producers::ProducerState;
use kafkalite::log::state::snapshots::{self, ProducerSnapshots};
use kafkalite::log::storage::{DiskStorage, OpenMode, Storage, write_all_at};

use super::partition::{ABORT, DAY_MS, Partition, batch, marker, transactional};

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
    let unstable = loaded.first_unstable_offset();
    assert_eq!(unstable.map(|unstable| unstable.offset), Some(2));
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
    again.delete(&DiskStorage, 8).unwrap();
    assert_eq!(again.oldest(), Some(9));
}

#[test]
fn stray_snapshots_go_after_the_start_but_the_one_of_the_log_end_stays() {
    let directory = tempfile::tempdir().unwrap();
    for offset in [5, 10, 15, 20, 27] {
        write_snapshot(directory.path(), offset, b"");
    }
    let mut files = ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    files.give_up_stray(&[0, 10, 20].into());
    let kept: Vec<i64> = (0..30).filter(|offset| files.contains(*offset)).collect();
    assert_eq!(kept, [10, 20, 27]);
    let given_up = [5, 15].map(|offset| directory.path().join(format!("{offset:020}.snapshot")));
    assert_eq!(files.take_given_up(), given_up);
    assert!(files.take_given_up().is_empty());
}

/// Of records that are cut off: once others have their offsets, it would be
/// taken for the state of these.
#[test]
fn a_snapshot_that_was_given_up_goes_when_the_log_is_cut_and_stays_when_it_is_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    for offset in [5, 15, 20] {
        write_snapshot(directory.path(), offset, b"");
    }
    let list = || ProducerSnapshots::list(&DiskStorage, directory.path()).unwrap();
    let (mut files, mut state) = (list(), ProducerState::default());
    files.give_up_stray(&[0, 20].into());
    files
        .truncate_and_reload(&DiskStorage, &mut state, 0, 3, DAY_MS, DAY_MS)
        .unwrap();
    assert!(!list().contains(5) && !list().contains(15));
    write_snapshot(directory.path(), 5, b"");
    write_snapshot(directory.path(), 8, b"");
    let mut files = list();
    files.give_up_stray(&[0].into());
    state.set_map_end_offset(5);
    files.take(&DiskStorage, &state, false).unwrap();
    assert!(files.take_given_up().is_empty());
}
