//! The logs of a new topic, made several at a time: all of them are on disk,
//! or none of them is there.

use std::path::Path;
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::error::{Error, Result};
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::{DirectoryOptions, LogDirectory, NewLog};
use kafkalite::log::log::Log;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::Storage;
use kafkalite::uuid::Uuid;

use super::workbench::{HOME, NOBODY, NOW_MS, append, batch, options};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const ID: Uuid = Uuid([7; 16]);
const PARTITIONS: [i32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

fn empty() -> (MemoryStorage, LogDirectory) {
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new(HOME)).unwrap();
    storage.sync_directory(Path::new("/")).unwrap();
    let directory = reopened(&storage);
    (storage, directory)
}

fn reopened(storage: &MemoryStorage) -> LogDirectory {
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    let config_of = |_: &str| LogConfig::default();
    // As the broker has it: a directory without the topic's id is stray.
    let options = DirectoryOptions {
        is_ours: &|_, _, id| id == Some(ID),
        ..options(&config_of)
    };
    LogDirectory::open(&open_segments, Path::new(HOME), &options).unwrap()
}

fn create(directory: &LogDirectory) -> Result<Vec<Arc<Log>>> {
    directory.create_logs(wanted(PARTITIONS), NOW_MS)
}

fn wanted(partitions: impl IntoIterator<Item = i32>) -> Vec<NewLog> {
    let partitions = partitions.into_iter();
    partitions
        .map(|partition| NewLog {
            topic: Arc::from("t"),
            partition,
            topic_id: ID,
            config: LogConfig::default(),
            leader_epoch: Some(0),
        })
        .collect()
}

/// The directories of partitions that are there.
fn directories(storage: &MemoryStorage) -> Vec<String> {
    let entries = storage.read_directory(Path::new(HOME)).unwrap();
    let names = entries.into_iter().filter(|entry| entry.is_directory);
    names.map(|entry| entry.name).collect()
}

/// After a power cut every partition of the topic is there, with its id and these records.
fn check_durable(storage: &MemoryStorage, records: i64, case: &str) {
    let directory = reopened(&storage.crash(Crash::LoseUnsynced));
    for partition in PARTITIONS {
        let log = directory.log("t", partition);
        let log = log.unwrap_or_else(|| panic!("{case}: t-{partition} is gone"));
        assert!(directory.holds("t", partition, ID), "{case}: t-{partition}");
        assert_eq!(
            log.offsets().log_end_offset,
            records,
            "{case}: t-{partition}"
        );
    }
}

#[test]
fn after_it_returns_all_logs_of_the_topic_survive_a_power_cut() {
    let (storage, directory) = empty();
    let logs = create(&directory).unwrap();
    let partitions: Vec<i32> = logs.iter().map(|log| log.partition()).collect();
    assert_eq!(partitions, PARTITIONS);
    check_durable(&storage, 0, "empty");
    for log in &logs {
        append(log, batch(Codec::None, NOBODY, 0, 3, 50), 1).unwrap();
        log.flush().unwrap();
    }
    check_durable(&storage, 3, "with records");
}

#[test]
fn a_partition_that_is_there_already_keeps_the_others_from_being_made() {
    let (_, directory) = empty();
    directory
        .create_log("t", 3, ID, LogConfig::default(), NOW_MS)
        .unwrap();
    assert!(matches!(create(&directory), Err(Error::InvalidArgument(_))));
    assert!(directory.log("t", 0).is_none() && directory.log("t", 3).is_some());
}

#[test]
fn wherever_it_fails_no_log_is_there_and_a_power_cut_leaves_a_directory_that_opens() {
    let mut failures = 0;
    for nth in 1.. {
        let (storage, directory) = empty();
        storage.inject(Fault::at_call(nth, Failure::Io));
        let made = create(&directory);
        if !storage.has_struck() {
            break;
        }
        storage.heal();
        if made.is_ok() {
            check_durable(&storage, 0, &format!("call {nth}, made nevertheless"));
            continue;
        }
        failures += 1;
        assert!(
            PARTITIONS
                .iter()
                .all(|each| directory.log("t", *each).is_none()),
            "call {nth}"
        );
        assert_eq!(directories(&storage), [""; 0], "call {nth}");
        for seed in 0..2 {
            let left = storage.crash(Crash::Seeded(nth * 2 + seed));
            let directory = reopened(&left);
            let missing: Vec<i32> = PARTITIONS
                .into_iter()
                .filter(|partition| directory.log("t", *partition).is_none())
                .collect();
            let made = directory.create_logs(wanted(missing), NOW_MS);
            made.unwrap_or_else(|error| panic!("call {nth}: {error}"));
            check_durable(&left, 0, &format!("call {nth}, after a restart"));
        }
    }
    assert!(failures > 5 * PARTITIONS.len(), "{failures}");
}

#[test]
fn logs_that_nobody_has_used_are_discarded_with_their_directories() {
    let (storage, directory) = empty();
    let logs = create(&directory).unwrap();
    assert_eq!(directories(&storage).len(), PARTITIONS.len());
    directory
        .discard_logs(&logs, "0123456789abcdef0123456789abcdef", NOW_MS)
        .unwrap();
    assert!(directory.logs().is_empty());
    assert_eq!(directories(&storage), [""; 0]);
    create(&directory).unwrap();
}

/// One that could not be made kept the others from being made, and the broker from starting.
#[test]
fn a_log_that_cannot_be_made_keeps_no_other_from_being_made() {
    let (storage, directory) = empty();
    let fault = Fault::of(Operation::CreateDirectory, "/t-3", Failure::NoSpace);
    storage.inject(fault.lasting());
    let failed = directory.create_each(wanted(PARTITIONS), NOW_MS);
    let failed: Vec<String> = failed.iter().map(|(key, _)| key.to_string()).collect();
    assert_eq!(failed, ["t-3"]);
    assert_eq!(directories(&storage).len(), PARTITIONS.len() - 1);
    assert!(directory.log("t", 3).is_none() && directory.log("t", 4).is_some());
    storage.heal();
    assert!(directory.create_each(wanted([3]), NOW_MS).is_empty());
    assert_eq!(directory.logs().len(), PARTITIONS.len());
}
