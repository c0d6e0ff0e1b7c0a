//! A compacted log moves while the cleaner is at it: a key that was deleted does not come back.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kafkalite::log::compact::{Cleaner, cleaner_checkpoint, plan_of};
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::storage::DiskStorage;
use kafkalite::replica::moves::Copying;

use super::{World, copy_all};
use crate::compact::partition::{self, MAP_BYTES, NOW_MS, Partition, RETENTION_MS};
use crate::memory_storage::crash::Crash;

/// Any dirty byte is reason enough for a round.
fn config() -> LogConfig {
    LogConfig {
        min_cleanable_dirty_ratio: 0.0,
        ..partition::config()
    }
}

/// One that was set, and deleted behind that.
fn with_a_deleted_key() -> (World, Partition) {
    let world = World::empty();
    let mut partition = Partition::of(world.log.clone(), config(), Arc::new(DiskStorage));
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", None)]);
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    (world, partition)
}

fn clean(directory: &LogDirectory, now_ms: i64) {
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let cleaned = cleaner.clean_dirtiest(directory, now_ms, &stop).unwrap();
    assert!(cleaned.is_some(), "nothing was due");
}

/// Finishes the move, and has the log cleaned until its tombstones are gone.
fn go_on(world: &World, partition: &mut Partition, copying: &mut Copying) {
    copy_all(copying).unwrap();
    assert!(world.finish(copying).unwrap());
    assert_eq!(partition.records()[0], "0 a=1", "it was copied before");
    let two = world.directory(1);
    let known = cleaner_checkpoint::read(two).unwrap();
    assert_eq!(cleaner_checkpoint::get(&known, &world.log), None);
    for round in 0..2 {
        partition.roll();
        partition.send(&[("roll", Some("roll"))]);
        clean(two, NOW_MS + round * (RETENTION_MS + 1));
    }
    let none: [String; 0] = [];
    assert_eq!(partition.records(), none);
}

/// It had been chosen before the move began. Its records were copied as they were, and counted as
/// clean then: the tombstone went in time, and what it had deleted was there again.
#[test]
fn a_round_that_ends_during_the_copy_does_not_bring_deleted_keys_back() {
    let (world, mut partition) = with_a_deleted_key();
    let mut copying = world.begin().unwrap();
    copy_all(&mut copying).unwrap();
    clean(world.directory(0), NOW_MS);
    assert_eq!(partition.records(), ["1 a=(null)"]);
    go_on(&world, &mut partition, &mut copying);
}

/// A part had been copied when the process ended. The move went on much later, since the other disk
/// had not been there: the tombstone was gone from the log by then, and the copy had what it had
/// deleted.
#[test]
fn a_move_that_goes_on_does_not_bring_back_keys_deleted_before() {
    let (world, _) = with_a_deleted_key();
    let mut copying = world.begin().unwrap();
    assert!(!copying.step(1, NOW_MS).unwrap().is_near_the_end);
    let again = World::open(world.storage.crash(Crash::Kill), 0, 0);
    again.log.set_config(config());
    let mut partition = Partition::of(again.log.clone(), config(), Arc::new(DiskStorage));
    let (one, two) = (again.directory(0), again.directory(1));
    clean(one, NOW_MS);
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    clean(one, NOW_MS + RETENTION_MS + 1);
    let none: [String; 0] = [];
    assert_eq!(partition.records(), none);
    let future = two.futures().remove(0);
    assert!(future.size_bytes() > 0);
    let mut copying = again.copying(future);
    copy_all(&mut copying).unwrap();
    assert!(again.finish(&mut copying).unwrap());
    assert_eq!(partition.records(), none);
    let known = cleaner_checkpoint::read(two).unwrap();
    assert!(cleaner_checkpoint::get(&known, &again.log).is_some());
}

/// A tombstone of magic 1 goes in the round that it is met in: its record could have been
/// copied before, and it not.
#[test]
fn a_round_replaces_no_segment_of_a_log_that_moves() {
    let (world, partition) = with_a_deleted_key();
    let plan = plan_of(&world.log, None, NOW_MS).unwrap();
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    let mut round = || {
        let stop = AtomicBool::new(false);
        cleaner.clean(&world.log, &plan, NOW_MS, &stop).unwrap()
    };
    world.log.set_moving(true);
    assert_eq!(round(), None);
    assert_eq!(partition.records(), ["0 a=1", "1 a=(null)"]);
    world.log.set_moving(false);
    assert!(round().is_some());
    assert_eq!(partition.records(), ["1 a=(null)"]);
}
