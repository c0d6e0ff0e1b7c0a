//! What a step of a move copies and cuts, and what the last one leaves.

use std::path::PathBuf;

use kafkalite::batch::header::patch_offset_and_epoch;
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::log::append::AppendRequest;
use kafkalite::log::config::LogConfig;
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;

use super::{PIECE_BYTES, RECORDS, World, bytes_of, config, copy_all};
use crate::log::{append, batch};
use crate::log_directory::NOW_MS;
use crate::memory_storage::crash::Crash;

/// Records of another leader, in epoch 8.
fn append_of_leader(log: &Log, offset: i64, count: i64) {
    let mut records = batch(900, count);
    patch_offset_and_epoch(&mut records, offset, 8);
    let request = AppendRequest {
        records: &mut records,
        origin: AppendOrigin::Replication,
        leader_epoch: 8,
        transaction_version: None,
        guard: None,
    };
    log.append(&mut [request], NOW_MS).remove(0).unwrap();
}

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
    append_of_leader(&world.log, end, 15);
    assert!(!world.finish(&mut copying).unwrap(), "it knows of the cut");
    copy_all(&mut copying).unwrap();
    assert_eq!(bytes_of(&copying.future), bytes_of(&world.log));
    assert!(world.finish(&mut copying).unwrap());
    assert_eq!(world.log.latest_epoch(), Some(8));
}

/// The file kept the recovery point of before the cut: what a power cut tore of the records that
/// were copied below it was not looked at by a start.
#[test]
fn a_power_cut_behind_a_cut_leaves_a_future_replica_whole() {
    let is_torn = |power_cut: u64| {
        let world = World::filled();
        let without_flushes = LogConfig {
            acks_fsync: false,
            ..config()
        };
        let mut copying = world.begin().unwrap();
        for log in [&world.log, &copying.future] {
            log.set_config(without_flushes.clone());
        }
        copy_all(&mut copying).unwrap();
        world.directory(1).write_checkpoints().unwrap();
        let recovery_point = copying.future.offsets().recovery_point;
        world.log.truncate_to(10, NOW_MS).unwrap();
        while world.log.offsets().log_end_offset < recovery_point + 20 {
            append_of_leader(&world.log, world.log.offsets().log_end_offset, 5);
        }
        copy_all(&mut copying).unwrap();
        let again = World::open(world.storage.crash(Crash::Seeded(power_cut)), 0, 1);
        let future = again.directory(1).futures().remove(0);
        let end = future.offsets().log_end_offset;
        let reads = |offset| future.read(offset, 1, true, ReadIsolation::LogEnd);
        let is_there = |offset| reads(offset).and_then(|range| range.to_vec());
        (0..end).any(|offset| is_there(offset).is_err())
    };
    assert_eq!((0..100).find(|power_cut| is_torn(*power_cut)), None);
}

/// A crash had taken the log start and the high watermark of the log back, whose
/// future replica knew the start.
#[test]
fn a_future_replica_may_begin_above_what_the_log_knows_to_be_replicated() {
    let world = World::empty();
    world.log.set_replicated_offset(0);
    append(&world.log, &mut batch(0, 5)).unwrap();
    world.log.flush().unwrap();
    let mut copying = world.begin().unwrap();
    copy_all(&mut copying).unwrap();
    copying.future.flush().unwrap();
    copying.future.set_replicated_offset(i64::MAX);
    copying.future.advance_log_start_offset(3).unwrap();
    assert_eq!(world.log.offsets().high_watermark, 0);
    assert!(world.finish(&mut copying).unwrap());
    let offsets = world.log.offsets();
    assert_eq!((offsets.log_start_offset, offsets.high_watermark), (3, 3));
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
