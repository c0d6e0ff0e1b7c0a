//! What moves with the records: producers and their transactions, where the log
//! starts, how far it is clean.

use std::fmt::{Debug, Formatter};
use std::path::Path;

use kafkalite::batch::EndTransactionMarker;
use kafkalite::batch::build::{BatchBuilder, BatchOptions, end_transaction_marker};
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::log::append::{AppendInfo, AppendRequest};
use kafkalite::log::compact::cleaner_checkpoint;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use kafkalite::log::log::Log;
use kafkalite::log::names;
use kafkalite::replica::moves::Copying;
use kafkalite::uuid::Uuid;

use super::{PIECE_BYTES, RECORDS, TWO, World, bytes_of, config, copy_all};
use crate::log::{append, batch};
use crate::log_directory::NOW_MS;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault};

const IDEMPOTENT: i64 = 1;
const ABORTS: i64 = 2;
const IS_OPEN: i64 = 3;
/// Records below were deleted.
const START: i64 = 7;

/// Of which a failed test shows the length alone.
#[derive(PartialEq)]
struct Bytes(Vec<u8>);

impl Debug for Bytes {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.0.len())
    }
}

/// All that a reader or a producer can tell of a log.
#[derive(Debug, PartialEq)]
struct Facts {
    bytes: Bytes,
    log_start_offset: i64,
    last_stable_offset: i64,
    /// Producer and first offset.
    aborted: Vec<(i64, i64)>,
    /// Id and last sequence number.
    producers: Vec<(i64, i32)>,
}

impl Facts {
    fn of(log: &Log) -> Facts {
        let offsets = log.offsets();
        let (start, end) = (offsets.log_start_offset, offsets.log_end_offset);
        let aborted = log.aborted_transactions(start, end).unwrap();
        let producers = log.producers();
        let mut known: Vec<(i64, i32)> = producers
            .producers()
            .map(|(id, entry)| (id, entry.last_sequence()))
            .collect();
        known.sort_unstable();
        Facts {
            bytes: Bytes(bytes_of(log)),
            log_start_offset: start,
            last_stable_offset: offsets.last_stable_offset,
            aborted: aborted
                .iter()
                .map(|each| (each.producer_id, each.first_offset))
                .collect(),
            producers: known,
        }
    }
}

/// Three records of a producer.
fn send(log: &Log, producer_id: i64, base_sequence: i32) -> AppendInfo {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence,
        transactional: producer_id != IDEMPOTENT,
        ..BatchOptions::default()
    });
    for number in 0..3 {
        let value = format!("of-{producer_id}-{number}");
        let value = Some(value.as_bytes());
        builder.append(NOW_MS, None, value, &[]).unwrap();
    }
    let mut records = builder.finish().unwrap();
    append(log, &mut records).unwrap()
}

fn end_transaction(log: &Log, producer_id: i64, is_commit: bool) {
    let marker = EndTransactionMarker {
        is_commit,
        coordinator_epoch: 0,
    };
    let mut records = end_transaction_marker(NOW_MS, producer_id, 0, marker);
    let request = AppendRequest {
        records: &mut records,
        origin: AppendOrigin::Coordinator,
        leader_epoch: 3,
        transaction_version: Some(1),
        guard: None,
    };
    log.append(&mut [request], NOW_MS).remove(0).unwrap();
}

/// With an aborted transaction and an open one, and a start by DeleteRecords: all on disk.
fn world() -> World {
    let world = World::filled();
    let log = &world.log;
    send(log, IDEMPOTENT, 0);
    send(log, ABORTS, 0);
    end_transaction(log, ABORTS, false);
    send(log, IS_OPEN, 0);
    send(log, IDEMPOTENT, 3);
    for number in 0..4 {
        append(log, &mut batch(1_000 + number * 5, 5)).unwrap();
    }
    log.flush().unwrap();
    log.advance_log_start_offset(START).unwrap();
    world.directory(0).write_checkpoints().unwrap();
    world
}

fn move_it(world: &World, copying: &mut Copying) {
    copy_all(copying).unwrap();
    assert!(world.finish(copying).unwrap());
}

#[test]
fn transactions_and_producers_go_on_after_the_move() {
    let world = world();
    let before = Facts::of(&world.log);
    assert!(before.last_stable_offset < world.log.offsets().high_watermark);
    assert_eq!(before.aborted.len(), 1);
    let mut copying = world.begin().unwrap();
    move_it(&world, &mut copying);
    assert_eq!(Facts::of(&world.log), before);
    // What was sent twice is known, the next is taken, and the open transaction ends.
    assert!(send(&world.log, IDEMPOTENT, 3).is_duplicate);
    send(&world.log, IDEMPOTENT, 6);
    send(&world.log, IS_OPEN, 3);
    end_transaction(&world.log, IS_OPEN, false);
    world.log.flush().unwrap();
    let after = Facts::of(&world.log);
    let offsets = world.log.offsets();
    assert_eq!(after.last_stable_offset, offsets.log_end_offset);
    assert_eq!(after.aborted.len(), 2);
    for crash in [Crash::Kill, Crash::LoseUnsynced] {
        let again = World::open(world.storage.crash(crash), 1, 4);
        assert_eq!(Facts::of(&again.log), after, "{crash:?}");
    }
}

/// Wherever the machine goes down, the next process has all that the log was:
/// where the metadata has it.
#[test]
fn a_move_that_ends_at_any_call_loses_nothing() {
    let facts = Facts::of(&world().log);
    let (mut nth, mut promoted) = (1, 0);
    loop {
        let world = world();
        world
            .storage
            .inject(Fault::at_call(nth, Failure::Io).lasting());
        let mut is_assigned = false;
        let moved = world.begin().and_then(|mut copying| {
            copy_all(&mut copying)?;
            is_assigned = true;
            world.finish(&mut copying)
        });
        for crash in [Crash::Kill, Crash::LoseUnsynced, Crash::Seeded(nth)] {
            let case = format!("call {nth}, {crash:?}");
            let home = usize::from(is_assigned);
            let again = World::open(world.storage.crash(crash), home, 4);
            assert_eq!(Facts::of(&again.log), facts, "{case}");
            let lies_in_two = again.log.directory().starts_with("/two");
            promoted += usize::from(lies_in_two && moved.is_err());
            // What is left of the move goes on, or is not needed.
            if !lies_in_two {
                for future in again.directory(1).futures() {
                    let mut copying = again.copying(future);
                    move_it(&again, &mut copying);
                    assert_eq!(Facts::of(&again.log), facts, "{case}");
                }
            }
            assert!(again.node.close(1).is_empty(), "{case}");
        }
        if moved.is_ok() && !world.storage.has_struck() {
            break;
        }
        nth += 1;
    }
    assert!(promoted > 0, "it went down between the two names");
}

#[test]
fn what_retention_and_delete_records_take_meanwhile_does_not_come_back() {
    let world = World::filled();
    let mut copying = world.begin().unwrap();
    // About half of it is there.
    while copying.lag() > RECORDS / 2 {
        copying.step(PIECE_BYTES, NOW_MS).unwrap();
    }
    let bound = LogConfig {
        retention_bytes: 2_500,
        ..config()
    };
    world.log.set_config(bound);
    assert!(world.log.delete_old_segments(NOW_MS).unwrap() > 0);
    let kept = world.log.offsets().log_start_offset;
    assert!(kept > 0);
    copying.step(PIECE_BYTES, NOW_MS).unwrap();
    let start = kept + 3;
    world.log.advance_log_start_offset(start).unwrap();
    let bytes = bytes_of(&world.log);
    move_it(&world, &mut copying);
    assert_eq!(world.log.offsets().log_start_offset, start);
    assert!(bytes_of(&world.log) == bytes);
    let again = World::open(world.storage.crash(Crash::LoseUnsynced), 1, 4);
    assert_eq!(again.log.offsets().log_start_offset, start);
    assert!(bytes_of(&again.log) == bytes);
}

#[test]
fn a_log_is_as_clean_in_its_new_directory_as_it_was() {
    let world = World::filled();
    let [one, two] = [0, 1].map(|number| world.directory(number).clone());
    let truncations = world.log.truncations();
    cleaner_checkpoint::set(&one, &world.log, 20, truncations).unwrap();
    let mut copying = world.begin().unwrap();
    move_it(&world, &mut copying);
    let known = cleaner_checkpoint::read(&two).unwrap();
    assert_eq!(cleaner_checkpoint::get(&known, &world.log), Some(20));
    // A round of the cleaner that was under way there notes nothing any more.
    cleaner_checkpoint::set(&one, &world.log, 30, truncations).unwrap();
    let known = cleaner_checkpoint::read(&one).unwrap();
    assert_eq!(cleaner_checkpoint::get(&known, &world.log), None);
}

/// The file kept the offset of before the cut: a tombstone of what came in its
/// place could go too early.
#[test]
fn a_log_that_was_cut_since_it_moved_counts_as_dirty_in_its_new_directory() {
    let world = World::filled();
    let [one, two] = [0, 1].map(|number| world.directory(number).clone());
    let truncations = world.log.truncations();
    cleaner_checkpoint::set(&one, &world.log, 20, truncations).unwrap();
    assert!(world.log.truncate_to(10, NOW_MS).unwrap());
    cleaner_checkpoint::hand_over(&one, &two, &world.log, (truncations, Some(20))).unwrap();
    let known = cleaner_checkpoint::read(&two).unwrap();
    assert_eq!(cleaner_checkpoint::get(&known, &world.log), None);
}

/// They went on naming it: what was appended to the next one was taken for recovered, and
/// committed, by a start after a kill.
#[test]
fn a_log_that_is_deleted_as_its_move_ends_leaves_no_offsets_to_the_next_of_its_name() {
    let world = World::filled();
    let [one, two] = [0, 1].map(|number| world.directory(number).clone());
    let mut copying = world.begin().unwrap();
    copy_all(&mut copying).unwrap();
    copying.prepare().unwrap();
    two.note_futures().unwrap();
    let (future, aside) = (copying.future.clone(), one.aside_name(&world.log));
    let replaced = world.log.replace_by(&future, &aside, NOW_MS, || {
        copying.finish(PIECE_BYTES, NOW_MS)
    });
    let aside = replaced.unwrap().expect("it has all");
    let names_it = || {
        let named = |name: &str| {
            let path = Path::new(TWO).join(name);
            let known = OffsetCheckpoint::read(&world.storage, &path).unwrap();
            known.offsets.contains_key(&TopicPartition::of(&world.log))
        };
        [
            names::RECOVERY_POINT_CHECKPOINT,
            names::HIGH_WATERMARK_CHECKPOINT,
        ]
        .map(named)
    };
    assert_eq!(names_it(), [true, true]);
    one.forget("t", 0).unwrap();
    assert!(!one.hand_over(&world.log, &future, &two, aside, NOW_MS));
    one.delete_forgotten(&world.log, "unique", NOW_MS).unwrap();
    two.create_log("t", 0, Uuid([8; 16]), config(), NOW_MS)
        .unwrap();
    assert_eq!(names_it(), [false, false]);
}
