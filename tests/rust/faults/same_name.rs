//! A topic that is deleted, and made again with the same name: the new one
//! has nothing of the old one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::error::{Error, Result};
use kafkalite::log::compact::cleaner_checkpoint;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::directories::LogDirectories;
use kafkalite::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use kafkalite::log::directory::{DirectoryOptions, LogDirectory};
use kafkalite::log::log::Log;
use kafkalite::log::names::OFFSET_CHECKPOINTS;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::Storage;
use kafkalite::uuid::Uuid;

use super::workbench::{HOME, NOBODY, NOW_MS, append, batch, options, serve};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const OLD: Uuid = Uuid([1; 16]);
const NEW: Uuid = Uuid([2; 16]);

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 2_000,
        ..LogConfig::default()
    }
}

fn open(storage: &MemoryStorage, path: &str, topic_id: Uuid) -> Result<LogDirectory> {
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    let config_of = |_: &str| config();
    let options = DirectoryOptions {
        is_ours: &|_, _, id| id == Some(topic_id),
        ..options(&config_of)
    };
    LogDirectory::open(&open_segments, Path::new(path), &options)
}

fn create(directory: &LogDirectory, topic_id: Uuid) -> Result<Arc<Log>> {
    directory.create_log("t", 0, topic_id, config(), NOW_MS)
}

fn fill(log: &Log, count: i64) {
    for number in 0..count {
        append(log, batch(Codec::None, NOBODY, number, 1, 500), 1).unwrap();
    }
    log.flush().unwrap();
}

fn new_home() -> MemoryStorage {
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new(HOME)).unwrap();
    storage.sync_directory(Path::new("/")).unwrap();
    storage
}

/// A topic of several segments, of whose records the first are deleted and compacted, with an entry
/// in each checkpoint file; deleted then.
fn with_a_deleted_topic(storage: &MemoryStorage) -> (LogDirectory, Arc<Log>) {
    let directory = open(storage, HOME, OLD).unwrap();
    let log = create(&directory, OLD).unwrap();
    fill(&log, 20);
    assert_eq!(log.advance_log_start_offset(11).unwrap(), 11);
    directory.write_checkpoints().unwrap();
    cleaner_checkpoint::set(&directory, &log, 12, log.truncations()).unwrap();
    for name in OFFSET_CHECKPOINTS {
        assert_eq!(entries(storage, name).len(), 1, "{name}");
    }
    directory.delete_log("t", 0, "old", NOW_MS).unwrap();
    directory.sync_deleted().unwrap();
    (directory, log)
}

fn entries(storage: &MemoryStorage, name: &str) -> Vec<(TopicPartition, i64)> {
    let checkpoint = OffsetCheckpoint::read(storage, &Path::new(HOME).join(name)).unwrap();
    checkpoint.offsets.into_iter().collect()
}

fn check_has_all(directory: &LogDirectory, count: i64, case: &str) {
    let log = directory.log("t", 0).unwrap_or_else(|| panic!("{case}"));
    let offsets = log.offsets();
    let found = (offsets.log_start_offset, offsets.log_end_offset);
    assert_eq!(found, (0, count), "{case}");
    let served = serve(&log, ReadIsolation::LogEnd, 10_000);
    assert_eq!(served.len() as i64, count, "{case}");
}

/// DeleteRecords had moved the start of a topic, which was deleted and made again. After a kill its
/// name still stood in the checkpoint files: the new topic began where the old one had, and its
/// acknowledged records below were gone with the next look for old segments.
#[test]
fn a_new_topic_takes_no_offsets_of_a_deleted_one_of_its_name() {
    for crash in [Crash::Kill, Crash::LoseUnsynced] {
        for is_restarted in [false, true] {
            let case = format!("{crash:?}, restarted before: {is_restarted}");
            let mut storage = new_home();
            let (mut directory, old) = with_a_deleted_topic(&storage);
            if is_restarted {
                drop(directory);
                storage = storage.crash(crash);
                directory = open(&storage, HOME, NEW).unwrap();
            }
            fill(&create(&directory, NEW).unwrap(), 15);
            // As by a round of the cleaner that was under way.
            cleaner_checkpoint::set(&directory, &old, 13, old.truncations()).unwrap();
            for name in OFFSET_CHECKPOINTS {
                assert_eq!(entries(&storage, name), [], "{case}, {name}");
            }
            let left = storage.crash(crash);
            let reopened = open(&left, HOME, NEW).unwrap();
            check_has_all(&reopened, 15, &case);
        }
    }
}

/// The names of deleted topics stayed in memory until the next start, and in the cleaner's file.
#[test]
fn nothing_is_known_of_a_deleted_topic_behind_the_next_checkpoint() {
    let storage = new_home();
    let (directory, old) = with_a_deleted_topic(&storage);
    directory.write_checkpoints().unwrap();
    // As by a round of the cleaner that was under way.
    cleaner_checkpoint::set(&directory, &old, 13, old.truncations()).unwrap();
    for name in OFFSET_CHECKPOINTS {
        assert_eq!(entries(&storage, name), [], "{name}");
    }
    let calls_for = |topic: &str| {
        let before = storage.calls();
        let made = directory.create_log(topic, 0, NEW, config(), NOW_MS);
        made.unwrap();
        storage.calls() - before
    };
    assert_eq!(calls_for("t"), calls_for("u"), "no file is looked at");
}

#[test]
fn wherever_the_new_topic_fails_to_be_made_it_takes_nothing_of_the_old_one_later() {
    let mut failures = 0;
    for nth in 1.. {
        let storage = new_home();
        let (directory, _) = with_a_deleted_topic(&storage);
        storage.inject(Fault::at_call(nth, Failure::NoSpace));
        let made = create(&directory, NEW);
        if !storage.has_struck() {
            break;
        }
        storage.heal();
        failures += usize::from(made.is_err());
        // This storage knows directories by their names alone: the removal of the first attempt
        // must not come behind what the second one puts there.
        storage.sync_directory(Path::new(HOME)).unwrap();
        let log = made.or_else(|_| create(&directory, NEW)).unwrap();
        fill(&log, 15);
        for crash in [Crash::Kill, Crash::LoseUnsynced] {
            let reopened = open(&storage.crash(crash), HOME, NEW).unwrap();
            check_has_all(&reopened, 15, &format!("call {nth}, {crash:?}"));
        }
    }
    assert!(failures > 20, "{failures}");
}

/// Its log stayed among the directory's, and a new topic of the name got it, with the old records
/// and the old id: the next start called it stray, and the records of the new topic were gone.
#[test]
fn a_log_whose_directory_cannot_be_renamed_is_nobodys_and_its_log_directory_is_offline() {
    let storage = MemoryStorage::default();
    let paths = ["/one", "/two"].map(PathBuf::from);
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    let claim = |topic_id: Uuid| {
        let config_of = |_: &str| config();
        let mut options = DirectoryOptions {
            is_ours: &|_, _, id| id == Some(topic_id),
            ..options(&config_of)
        };
        let mut id = 100;
        let mut directories = LogDirectories::claim(&open_segments, &paths, &mut options, || {
            id += 1;
            Uuid([id; 16])
        })
        .unwrap();
        let strays = directories.load(&options, |_, _| None).unwrap();
        (directories, strays)
    };
    let (directories, _) = claim(OLD);
    let [one, two] = &directories.online[..] else {
        panic!("both can be had")
    };
    let old = create(one, OLD).unwrap();
    fill(&old, 3);
    assert!(directories.log("t", 0, OLD).is_some());
    assert!(directories.log("t", 0, NEW).is_none());
    storage.inject(Fault::of(Operation::Rename, "t-0", Failure::Io));
    assert!(one.delete_log("t", 0, "a", NOW_MS).is_err());
    assert!(directories.log("t", 0, OLD).is_none());
    assert!(one.health().is_offline() && !two.health().is_offline());
    let late = append(&old, batch(Codec::None, NOBODY, 3, 1, 10), 1);
    assert!(matches!(late, Err(Error::LogDirOffline { .. })), "{late:?}");
    assert!(create(one, NEW).is_err());
    assert_eq!(directories.for_new_logs(1, |_| false)[0].path(), two.path());
    fill(&create(two, NEW).unwrap(), 5);
    drop((directories, old));
    let (directories, strays) = claim(NEW);
    assert_eq!(strays.len(), 1);
    check_has_all(&directories.online[1], 5, "after the start");
}

#[test]
fn a_log_of_an_offline_directory_is_forgotten_when_its_topic_is_deleted() {
    let storage = new_home();
    let directory = open(&storage, HOME, OLD).unwrap();
    let log = create(&directory, OLD).unwrap();
    append(&log, batch(Codec::None, NOBODY, 0, 1, 10), 1).unwrap();
    storage.inject(Fault::of(Operation::SyncData, "t-0", Failure::Io));
    assert!(log.flush().is_err());
    assert!(directory.delete_log("t", 0, "a", NOW_MS).is_err());
    assert!(directory.log("t", 0).is_none());
}

/// What a failed creation had left, and could not take away, became the log of the next topic.
#[test]
fn what_lies_where_a_new_log_is_to_be_is_set_aside() {
    let storage = new_home();
    let directory = open(&storage, HOME, OLD).unwrap();
    fill(&create(&directory, OLD).unwrap(), 3);
    drop(directory);
    // As if it had come there behind the start.
    let elsewhere = PathBuf::from("/t-0");
    let home = Path::new(HOME).join("t-0");
    storage.rename(&home, &elsewhere).unwrap();
    let directory = open(&storage, HOME, NEW).unwrap();
    storage.rename(&elsewhere, &home).unwrap();
    fill(&create(&directory, NEW).unwrap(), 5);
    check_has_all(&directory, 5, "made");
    let names = storage.read_directory(Path::new(HOME)).unwrap();
    let stray = names.iter().find(|entry| entry.name.ends_with("-stray"));
    assert!(stray.is_some_and(|entry| entry.name.starts_with("t-0.")));
    drop(directory);
    let reopened = open(&storage.crash(Crash::LoseUnsynced), HOME, NEW).unwrap();
    check_has_all(&reopened, 5, "after a power cut");
}
