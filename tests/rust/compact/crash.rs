//! The cleaner is killed, or the power goes, at each of its calls: the next start finds a log that
//! says the same, and the next round brings it to where an undisturbed one would have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kafkalite::log::compact::{Cleaner, plan_of};
use kafkalite::log::config::LogConfig;
use kafkalite::log::storage::{OpenMode, Storage};

use super::partition::{Batch, Found, MAP_BYTES, Partition, config, of_producer};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault};
use crate::random::is_long_run;

const HOME: &str = "/data";

/// Three groups of small segments, so that a round swaps three times.
fn small_groups() -> LogConfig {
    LogConfig {
        segment_bytes: 1500,
        ..config()
    }
}

/// Segments with overwritten keys, a tombstone, a committed and an aborted transaction, and an
/// idempotent producer whose records are all superseded. All of it is on disk.
fn dirty_log(storage: &MemoryStorage) -> Partition {
    storage.create_directory_all(Path::new(HOME)).unwrap();
    storage.sync_directory(Path::new("/")).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let mut partition = Partition::with_storage(Path::new(HOME), small_groups(), storage);
    for round in 0..3 {
        let value = format!("{round}-{}", "x".repeat(100));
        partition.roll();
        partition.send(&[("a", Some(&value)), ("b", Some(&value))]);
        partition.send_with(of_producer(9, round, false), &[("c", Some(&value))]);
        partition.roll();
        partition.send_in_transaction(5, round, &[("d", Some(&value))]);
        partition.send_in_transaction(6, round, &[("a", Some("aborted"))]);
        partition.end_transaction(6, false);
        partition.roll();
        partition.send(&[("b", None), ("e", Some(&value))]);
        partition.end_transaction(5, true);
    }
    partition.send(&[("c", Some("last"))]);
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    partition.log.advance_recovery_point().unwrap();
    partition
}

fn clean(partition: &mut Partition) -> bool {
    let Ok(plan) = plan_of(&partition.log, partition.checkpoint, partition.now_ms) else {
        return false;
    };
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    let stop = AtomicBool::new(false);
    let result = cleaner.clean(&partition.log, &plan, partition.now_ms, &stop);
    matches!(result, Ok(Some(_)))
}

fn records(batches: &[Batch]) -> BTreeMap<i64, Found> {
    let data = batches.iter().filter(|batch| !batch.header.is_control());
    let records = data.flat_map(|batch| batch.records.clone());
    records.map(|record| (record.offset, record)).collect()
}

/// What was in the log before, and what an undisturbed round leaves of it.
struct Expected {
    before: BTreeMap<i64, Found>,
    after: BTreeMap<i64, Found>,
    log_end_offset: i64,
}

impl Expected {
    fn new() -> Expected {
        let mut partition = dirty_log(&MemoryStorage::default());
        let before = records(&partition.batches());
        assert!(clean(&mut partition));
        let after = records(&partition.batches());
        assert_eq!(
            after.len(),
            6,
            "a, b's tombstone, c, d, e and roll: {after:?}"
        );
        assert_eq!(
            partition.log.segments().len(),
            4,
            "three groups and the active segment"
        );
        Expected {
            before,
            after,
            log_end_offset: partition.log.offsets().log_end_offset,
        }
    }

    /// Everything an undisturbed round would keep is there, nothing is there that was never
    /// written, and a reader of committed records is told of all aborted ones that are left.
    fn check(&self, partition: &Partition, context: &str) {
        let batches = partition.batches();
        let found = records(&batches);
        for (offset, record) in &self.after {
            assert_eq!(found.get(offset), Some(record), "{context}");
        }
        for (offset, record) in &found {
            assert_eq!(self.before.get(offset), Some(record), "{context}");
        }
        let offsets = partition.log.offsets();
        assert_eq!(offsets.log_end_offset, self.log_end_offset, "{context}");
        assert_eq!(offsets.last_stable_offset, self.log_end_offset, "{context}");
        let aborted = partition
            .log
            .aborted_transactions(0, self.log_end_offset)
            .unwrap();
        for record in found
            .values()
            .filter(|one| one.value.as_deref() == Some("aborted"))
        {
            let holds = aborted.iter().any(|one| {
                (one.first_offset..one.last_offset).contains(&record.offset) && one.producer_id == 6
            });
            assert!(holds, "{context}: nobody is told that {record} was aborted");
        }
        let producers = partition.log.producers();
        for (producer_id, last_sequence) in [(9, 2), (5, 2), (6, 2)] {
            let entry = producers.get(producer_id).unwrap();
            assert_eq!(
                entry.last_sequence(),
                last_sequence,
                "{context}: producer {producer_id}"
            );
        }
    }
}

fn file_names(storage: &MemoryStorage) -> Vec<String> {
    let files = storage.files();
    let names = files.keys().filter_map(|path| path.file_name()?.to_str());
    names.map(str::to_owned).collect()
}

/// Opens what a crash has left, checks it, cleans it, and checks that
/// against the undisturbed round.
fn recover_and_finish(expected: &Expected, storage: MemoryStorage, context: &str) {
    let directory = PathBuf::from(HOME).join("t-0");
    let next: Arc<dyn Storage> = Arc::new(storage.clone());
    let mut partition = Partition::open(&directory, small_groups(), next)
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    expected.check(&partition, context);
    let leftover = |name: &str| {
        [".cleaned", ".swap", ".deleted", ".tmp"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    for name in file_names(&storage) {
        assert!(!leftover(&name), "{context}: {name}");
    }
    assert!(clean(&mut partition), "{context}");
    assert_eq!(records(&partition.batches()), expected.after, "{context}");
}

/// Calls of an undisturbed round.
fn calls_of_a_round() -> u64 {
    let storage = MemoryStorage::default();
    let mut partition = dirty_log(&storage);
    let before = storage.calls();
    assert!(clean(&mut partition));
    storage.calls() - before
}

#[test]
fn killed_or_without_power_at_any_call_the_log_says_the_same_and_the_next_round_finishes() {
    let expected = Expected::new();
    let calls = calls_of_a_round();
    assert!(calls > 100, "{calls}");
    let seeds_per_call = if is_long_run() { 20 } else { 2 };
    for nth in 1..=calls + 1 {
        let storage = MemoryStorage::default();
        let mut partition = dirty_log(&storage);
        storage.inject(Fault::at_call(nth, Failure::Io).lasting());
        assert_eq!(clean(&mut partition), nth > calls, "call {nth}");
        let seeds = (0..seeds_per_call).map(|seed| Crash::Seeded(nth * 100 + seed));
        for crash in [Crash::Kill, Crash::LoseUnsynced].into_iter().chain(seeds) {
            recover_and_finish(
                &expected,
                storage.crash(crash),
                &format!("call {nth}, {crash:?}"),
            );
        }
    }
}

#[test]
fn a_call_that_fails_once_loses_nothing_whether_the_log_goes_on_or_not() {
    let expected = Expected::new();
    for failure in [Failure::Io, Failure::NoSpace, Failure::ShortWrite] {
        for nth in 1..=calls_of_a_round() {
            let context = format!("call {nth}, {failure:?}");
            let storage = MemoryStorage::default();
            let mut partition = dirty_log(&storage);
            storage.inject(Fault::at_call(nth, failure));
            let done = clean(&mut partition);
            storage.heal();
            // Readers go on in any case, and so does the cleaner unless the directory is offline.
            expected.check(&partition, &context);
            if done {
                assert_eq!(records(&partition.batches()), expected.after, "{context}");
            }
            // A directory that is offline is judged at the next start.
            if partition.log.advance_log_start_offset(0).is_ok() {
                let names = file_names(&storage);
                let is_output = |name: &&String| name.ends_with(".cleaned");
                assert_eq!(names.iter().find(is_output), None, "{context}");
            }
            recover_and_finish(&expected, storage.crash(Crash::Kill), &context);
        }
    }
}

/// A round that found the disk full left `.cleaned` files behind. A later one, of segments above
/// them, was killed when its output was finished and the old segments were gone: the start after it
/// took that output for half of a split, and removed the only copy of the records.
#[test]
fn what_an_earlier_round_left_does_not_cost_the_finished_output_of_a_later_one() {
    let expected = Expected::new();
    let leftover = PathBuf::from(HOME).join("t-0/00000000000000000001.index.cleaned");
    for nth in 1..=calls_of_a_round() {
        let storage = MemoryStorage::default();
        let mut partition = dirty_log(&storage);
        storage.open(&leftover, OpenMode::CreateOrOpen).unwrap();
        storage.sync_directory(&partition.directory).unwrap();
        storage.inject(Fault::at_call(nth, Failure::Io).lasting());
        clean(&mut partition);
        for crash in [Crash::Kill, Crash::Seeded(nth)] {
            let context = format!("call {nth}, {crash:?}");
            recover_and_finish(&expected, storage.crash(crash), &context);
        }
    }
}
