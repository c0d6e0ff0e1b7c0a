//! What a step of a move copies and cuts, and what the last one leaves.

use std::path::PathBuf;

use kafkalite::batch::header::patch_offset_and_epoch;
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::log::append::AppendRequest;
use kafkalite::log::read::ReadIsolation;

use super::{PIECE_BYTES, RECORDS, World, bytes_of, copy_all};
use crate::log::{append, batch};
use crate::log_directory::NOW_MS;
use crate::memory_storage::crash::Crash;

#[test]
fn the_log_is_the_same_to_who_has_it_and_lies_elsewhere() {
    let world = World::filled();
    let (before, offsets) = (bytes_of(&world.log), world.log.offsets());
    let reader = world.log.read(7, 1, true, ReadIsolation::LogEnd).unwrap();
    let mut copying = world.begin().unwrap();
    copy_all(&mut copying).unwrap();
    append(&world.log, &mut batch(RECORDS, 5)).unwrap();
    assert!(world.finish(&mut copying).unwrap());
    assert_eq!(world.log.directory(), PathBuf::from("/two/t-0"));
    assert_eq!(world.directory(0).logs().len(), 0);
    assert_eq!(world.directory(1).logs().len(), 1);
    assert_eq!(world.directory(1).futures().len(), 0);
    let after = world.log.offsets();
    assert_eq!(after.log_end_offset, RECORDS + 5);
    assert!(after.high_watermark >= offsets.high_watermark);
    assert!(bytes_of(&world.log).starts_with(&before));
    // Who reads the old file reads on.
    assert!(!reader.to_vec().unwrap().is_empty());
    append(&world.log, &mut batch(RECORDS + 5, 5)).unwrap();
    world.log.flush().unwrap();
    let bytes = bytes_of(&world.log);
    for crash in [Crash::Kill, Crash::LoseUnsynced] {
        let again = World::open(world.storage.crash(crash), 1, 1);
        assert_eq!(again.log.directory(), PathBuf::from("/two/t-0"));
        assert_eq!(bytes_of(&again.log), bytes, "{crash:?}");
    }
    assert!(world.node.close(1).is_empty());
}

#[test]
fn what_the_log_loses_the_future_replica_loses_too() {
    let world = World::filled();
    let mut copying = world.begin().unwrap();
    copy_all(&mut copying).unwrap();
    assert_eq!(copying.lag(), 0);
    let cut_at = RECORDS - 13;
    world.log.truncate_to(cut_at, NOW_MS).unwrap();
    let end = world.log.offsets().log_end_offset;
    // Another leader's records in their place.
    let mut records = batch(900, 15);
    patch_offset_and_epoch(&mut records, end, 8);
    let request = AppendRequest {
        records: &mut records,
        origin: AppendOrigin::Replication,
        leader_epoch: 8,
        transaction_version: None,
        guard: None,
    };
    world.log.append(&mut [request], NOW_MS).remove(0).unwrap();
    assert!(!world.finish(&mut copying).unwrap(), "it knows of the cut");
    copy_all(&mut copying).unwrap();
    assert_eq!(bytes_of(&copying.future), bytes_of(&world.log));
    assert!(world.finish(&mut copying).unwrap());
    assert_eq!(world.log.latest_epoch(), Some(8));
}

#[test]
fn a_log_whose_start_has_moved_is_copied_from_there() {
    let world = World::filled();
    let mut copying = world.begin().unwrap();
    copying.step(PIECE_BYTES, NOW_MS).unwrap();
    let start = RECORDS - 8;
    world.log.advance_log_start_offset(start).unwrap();
    copy_all(&mut copying).unwrap();
    assert!(world.finish(&mut copying).unwrap());
    let offsets = world.log.offsets();
    assert_eq!(
        (offsets.log_start_offset, offsets.log_end_offset),
        (start, RECORDS)
    );
    let again = World::open(world.storage.crash(Crash::LoseUnsynced), 1, 1);
    assert_eq!(again.log.offsets().log_start_offset, start);
}
