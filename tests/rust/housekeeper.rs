//! The chores of a log directory, by a clock that the test moves.

use std::path::Path;
use std::sync::Arc;

use kafkalite::batch::build::{BatchBuilder, BatchOptions};
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::clock::wall_ms;
use kafkalite::log::append::AppendRequest;
use kafkalite::log::config::{CleanupPolicy, LogConfig};
use kafkalite::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use kafkalite::log::directory::{LogDirectory, NewLog};
use kafkalite::log::log::Log;
use kafkalite::log::maintain::housekeeper::{
    CleanerSettings, Housekeeper, HousekeeperThread, Intervals,
};
use kafkalite::log::names;
use kafkalite::log::storage::{DiskStorage, Storage};
use kafkalite::uuid::Uuid;
use parking_lot::Mutex;

use crate::log_directory;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::faults::{Failure, Fault, Operation};

/// When the log directories are opened.
const START_MS: i64 = log_directory::NOW_MS;

fn open(path: &Path) -> Arc<LogDirectory> {
    Arc::new(log_directory::open(DiskStorage, path, &LogConfig::default()).unwrap())
}

fn append(log: &Log, timestamp: i64) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder
        .append(timestamp, None, Some(&[b'v'; 600]), &[])
        .unwrap();
    let mut bytes = builder.finish().unwrap();
    let request = AppendRequest {
        records: &mut bytes,
        origin: AppendOrigin::Client,
        leader_epoch: 0,
        transaction_version: None,
        guard: None,
    };
    log.append(&mut [request], timestamp).remove(0).unwrap();
}

fn housekeeper(directory: &Arc<LogDirectory>) -> Housekeeper {
    let intervals = Intervals {
        flush_check_ms: 100,
        ..Intervals::default()
    };
    let on_error = Box::new(|error: &kafkalite::error::Error| panic!("{error}"));
    Housekeeper::new(directory.clone(), intervals, START_MS, on_error)
}

#[test]
fn a_checkpoint_moves_to_the_active_segment_and_survives_a_crash() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        segment_bytes: 2_000,
        ..LogConfig::default()
    };
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), config, START_MS)
        .unwrap();
    (0..10).for_each(|number| append(&log, START_MS + number));
    let active = log.segments().pop().unwrap().base_offset();
    assert!(active > 0);
    let mut housekeeper = housekeeper(&directory);
    housekeeper.tick(START_MS + 60_000);
    let path = home.path().join(names::RECOVERY_POINT_CHECKPOINT);
    let checkpoint = OffsetCheckpoint::read(&DiskStorage, &path).unwrap();
    let key = TopicPartition {
        topic: "t".to_owned(),
        partition: 0,
    };
    assert_eq!(checkpoint.offsets.get(&key), Some(&active));
    drop((housekeeper, log, directory));
    let log = open(home.path()).log("t", 0).unwrap();
    assert_eq!(log.offsets().log_end_offset, 10);
    assert_eq!(log.offsets().recovery_point, active);
}

/// It was checked after a whole interval, five minutes, first: a broker that is started more often
/// than that never deleted anything.
#[test]
fn old_segments_go_when_retention_is_checked_and_their_files_a_minute_later() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        segment_bytes: 2_000,
        retention_ms: 1_000,
        ..LogConfig::default()
    };
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), config, START_MS)
        .unwrap();
    (0..10).for_each(|number| append(&log, START_MS + number));
    log.flush().unwrap();
    let count_files = || std::fs::read_dir(log.directory()).unwrap().count();
    let before = count_files();
    let mut housekeeper = housekeeper(&directory);
    housekeeper.tick(START_MS + 29_999);
    assert_eq!(log.offsets().log_start_offset, 0);
    housekeeper.tick(START_MS + 30_000);
    assert_eq!(
        log.offsets().log_start_offset,
        10,
        "even the active segment was too old"
    );
    housekeeper.tick(START_MS + 130_000);
    assert!(count_files() < before);
    append(&log, START_MS + 130_000);
    log.flush().unwrap();
    assert_eq!(log.offsets().log_end_offset, 11);
    housekeeper.tick(START_MS + 329_999);
    assert_eq!(log.offsets().log_start_offset, 10);
    housekeeper.tick(START_MS + 330_000);
    assert_eq!(
        log.offsets().log_start_offset,
        11,
        "from then on by the interval"
    );
}

/// Files were looked for every ten seconds, whatever their delay: under load they filled the disk.
#[test]
fn files_are_unlinked_when_their_own_delay_is_over() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let make = |topic: &str, id: u8, file_delete_delay_ms: i64| {
        let config = LogConfig {
            segment_bytes: 2_000,
            retention_ms: 1_000,
            file_delete_delay_ms,
            ..LogConfig::default()
        };
        let made = directory.create_log(topic, 0, Uuid([id; 16]), config, START_MS);
        let log = made.unwrap();
        (0..10).for_each(|number| append(&log, START_MS + number));
        log.flush().unwrap();
        log
    };
    let (soon, late) = (make("soon", 1, 50), make("late", 2, 1_234));
    let on_error = Box::new(|error: &kafkalite::error::Error| panic!("{error}"));
    let mut housekeeper =
        Housekeeper::new(directory.clone(), Intervals::default(), START_MS, on_error);
    let retention_ms = START_MS + 30_000;
    assert_eq!(housekeeper.tick(retention_ms), retention_ms + 50);
    assert!(deleted_files(&soon) > 0 && deleted_files(&late) > 0);
    housekeeper.tick(retention_ms + 49);
    assert!(deleted_files(&soon) > 0);
    assert_eq!(housekeeper.tick(retention_ms + 50), retention_ms + 1_234);
    assert_eq!(deleted_files(&soon), 0);
    assert!(deleted_files(&late) > 0);
    housekeeper.tick(retention_ms + 1_234);
    assert_eq!(deleted_files(&late), 0);
}

fn deleted_files(log: &Log) -> usize {
    let entries = std::fs::read_dir(log.directory()).unwrap();
    entries
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with(names::DELETED)
        })
        .count()
}

#[test]
fn a_sleeping_housekeeper_is_woken_for_what_is_condemned_meanwhile() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        file_delete_delay_ms: 50,
        ..LogConfig::default()
    };
    let make = |topic: &str| {
        let id = Uuid([topic.len() as u8; 16]);
        let made = directory.create_log(topic, 0, id, config.clone(), START_MS);
        made.unwrap()
    };
    let (log, _deleted) = (make("t"), make("deleted"));
    append(&log, START_MS);
    let on_error = Box::new(|error: &kafkalite::error::Error| panic!("{error}"));
    let now_ms = wall_ms();
    let keeper = Housekeeper::new(directory.clone(), Intervals::default(), now_ms, on_error);
    let keeper = HousekeeperThread::start(keeper).unwrap();
    // It sleeps for half a minute now, or nearly.
    std::thread::sleep(std::time::Duration::from_millis(300)); // polled once: nothing may have happened
    log.truncate_fully_and_start_at(100, wall_ms()).unwrap();
    let renamed = directory.delete_log("deleted", 0, "4f6bd0c0", wall_ms());
    let renamed = renamed.unwrap();
    let started = std::time::Instant::now();
    while deleted_files(&log) > 0 || renamed.exists() {
        assert!(started.elapsed().as_secs() < 8, "nobody has unlinked it");
        std::thread::sleep(std::time::Duration::from_millis(5)); // a poll
    }
    keeper.stop();
}

/// It stood until the next chore, up to a minute: a start in that time took the move up again.
#[test]
fn a_future_replica_that_is_given_up_goes_at_once_although_the_next_chore_is_far() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let on_error = Box::new(|error: &kafkalite::error::Error| panic!("{error}"));
    let intervals = Intervals {
        first_retention_check_ms: Intervals::default().retention_check_ms,
        ..Intervals::default()
    };
    let keeper = Housekeeper::new(directory.clone(), intervals, wall_ms(), on_error);
    let keeper = HousekeeperThread::start(keeper).unwrap();
    let wanted = NewLog {
        topic: Arc::from("t"),
        partition: 0,
        topic_id: Uuid([1; 16]),
        config: LogConfig::default(),
        leader_epoch: None,
    };
    let future = directory.create_future(wanted, wall_ms()).unwrap();
    let lies_in = future.directory();
    // Less than a minute, after which the thread would have looked by itself.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(45);
    directory.give_up_future(&future);
    while lies_in.exists() {
        assert!(std::time::Instant::now() < deadline, "nobody heard of it");
        std::thread::yield_now();
    }
    keeper.stop();
}

/// Every chore waited for a time of day: when the wall clock was set back, by a day here, none was
/// done until it had come up again, and the disk filled.
#[test]
fn a_clock_that_is_set_back_holds_up_no_chore_for_longer_than_its_interval() {
    const DAY_MS: i64 = 24 * 3_600_000;
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        segment_bytes: 2_000,
        retention_ms: 1_000,
        ..LogConfig::default()
    };
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), config, START_MS)
        .unwrap();
    let written_ms = START_MS - 3 * DAY_MS;
    (0..10).for_each(|number| append(&log, written_ms + number));
    log.flush().unwrap();
    let count_files = || std::fs::read_dir(log.directory()).unwrap().count();
    let mut housekeeper = housekeeper(&directory);
    directory
        .create_log("gone", 0, Uuid([2; 16]), LogConfig::default(), START_MS)
        .unwrap();
    let deleted = directory.delete_log("gone", 0, "4f6bd0c1", START_MS);
    let deleted = deleted.unwrap();
    let once_back_ms = START_MS - DAY_MS;
    housekeeper.tick(once_back_ms);
    assert_eq!(log.offsets().log_start_offset, 0);
    housekeeper.tick(once_back_ms + 300_000);
    assert_eq!(log.offsets().log_start_offset, 10, "retention");
    let before = count_files();
    let twice_back_ms = START_MS - 2 * DAY_MS;
    housekeeper.tick(twice_back_ms);
    housekeeper.tick(twice_back_ms + 10_000);
    housekeeper.tick(twice_back_ms + 70_000);
    assert!(count_files() < before, "file.delete.delay.ms");
    assert!(!deleted.exists(), "a deleted partition");
    let path = home.path().join(names::RECOVERY_POINT_CHECKPOINT);
    let checkpoint = OffsetCheckpoint::read(&DiskStorage, &path).unwrap();
    assert_eq!(checkpoint.offsets.values().max(), Some(&10), "checkpoints");
}

#[test]
fn unflushed_records_are_flushed_when_flush_ms_is_over() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        flush_ms: 1_000,
        ..LogConfig::default()
    };
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), config, START_MS)
        .unwrap();
    let mut housekeeper = housekeeper(&directory);
    append(&log, START_MS);
    housekeeper.tick(START_MS + 100);
    housekeeper.tick(START_MS + 1_000);
    assert_eq!(log.offsets().flushed_offset, 0, "seen unflushed for 900 ms");
    let (sender, flushed) = std::sync::mpsc::channel();
    struct Tell(std::sync::Mutex<std::sync::mpsc::Sender<i64>>);
    impl kafkalite::log::log::LogObserver for Tell {
        fn advanced(&self, _: &Log, offsets: kafkalite::log::state::ends::LogOffsets) {
            let _ = self.0.lock().unwrap().send(offsets.flushed_offset);
        }
    }
    log.set_observer(Arc::new(Tell(std::sync::Mutex::new(sender))));
    housekeeper.tick(START_MS + 1_100);
    assert_eq!(
        flushed.recv_timeout(std::time::Duration::from_secs(100)),
        Ok(1)
    );
}

/// What was known of a deleted topic's records counted for those of a new one of its name, and
/// stayed in memory if there was none.
#[test]
fn records_of_a_new_topic_have_their_own_flush_ms() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        flush_ms: 1_000,
        ..LogConfig::default()
    };
    let create = |id: u8| {
        let made = directory.create_log("t", 0, Uuid([id; 16]), config.clone(), START_MS);
        made.unwrap()
    };
    let mut housekeeper = housekeeper(&directory);
    append(&create(1), START_MS);
    housekeeper.tick(START_MS + 100);
    directory.delete_log("t", 0, "4f6bd0c0", START_MS).unwrap();
    housekeeper.tick(START_MS + 200);
    let log = create(2);
    append(&log, START_MS + 1_000);
    housekeeper.tick(START_MS + 1_100);
    // Its end waits for every flush that was asked for.
    drop((housekeeper, directory));
    assert_eq!(log.offsets().flushed_offset, 0, "seen unflushed just now");
}

#[test]
fn a_deleted_log_is_out_of_use_and_its_directory_can_go() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), LogConfig::default(), START_MS)
        .unwrap();
    append(&log, START_MS);
    let renamed = directory.delete_log("t", 0, "4f6bd0c0", START_MS).unwrap();
    assert!(renamed.ends_with("t-0.4f6bd0c0-delete"));
    directory.remove_condemned(START_MS + 59_999).unwrap();
    assert!(renamed.exists(), "file.delete.delay.ms is a minute");
    directory.remove_condemned(START_MS + 60_000).unwrap();
    assert!(!renamed.exists());
    log.flush().unwrap();
    directory.write_checkpoints().unwrap();
    assert!(
        directory.health().check().is_ok(),
        "a queued flush of it fails nobody"
    );
    assert!(directory.log("t", 0).is_none());
}

#[test]
fn the_cleaner_thread_compacts_what_is_due_and_stops_at_once() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        segment_bytes: 2_000,
        cleanup_policy: CleanupPolicy {
            delete: false,
            compact: true,
        },
        min_cleanable_dirty_ratio: 0.01,
        ..LogConfig::default()
    };
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), config, START_MS)
        .unwrap();
    for number in 0..20 {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder
            .append(START_MS + number, Some(b"key"), Some(&[b'v'; 600]), &[])
            .unwrap();
        let mut bytes = builder.finish().unwrap();
        let request = AppendRequest {
            records: &mut bytes,
            origin: AppendOrigin::Client,
            leader_epoch: 0,
            transaction_version: None,
            guard: None,
        };
        log.append(&mut [request], START_MS).remove(0).unwrap();
    }
    log.flush().unwrap();
    let before = log.size_bytes();
    let settings = small_map();
    let tell = |trouble: &dyn std::fmt::Display| panic!("{trouble}");
    let cleaner = HousekeeperThread::start_cleaner(directory.clone(), settings, tell).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(100);
    while log.size_bytes() > before / 2 {
        assert!(
            std::time::Instant::now() < deadline,
            "too little was cleaned"
        );
        std::thread::yield_now();
    }
    cleaner.stop();
    assert_eq!(log.offsets().log_end_offset, 20);
}

#[test]
fn a_log_is_flushed_after_so_many_records_as_its_configuration_says_at_that_time() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), LogConfig::default(), START_MS)
        .unwrap();
    append(&log, START_MS);
    assert_eq!(log.offsets().flushed_offset, 0);
    let every = |flush_messages| {
        log.set_config(LogConfig {
            flush_messages,
            ..LogConfig::default()
        });
    };
    every(3);
    append(&log, START_MS);
    assert_eq!(log.offsets().flushed_offset, 0);
    append(&log, START_MS);
    assert_eq!(log.offsets().flushed_offset, 3);
    every(i64::MAX);
    append(&log, START_MS);
    assert_eq!(log.offsets().flushed_offset, 3);
    every(1);
    append(&log, START_MS);
    assert_eq!(log.offsets().flushed_offset, 5);
}

fn small_map() -> Arc<Mutex<CleanerSettings>> {
    Arc::new(Mutex::new(CleanerSettings {
        dedupe_buffer_bytes: 1 << 20,
        ..CleanerSettings::default()
    }))
}

/// A pause of more than a minute was a minute; and a key that Kafka lets change needed a restart.
#[test]
fn the_cleaner_pauses_as_long_as_it_is_told_to_and_hears_of_a_change_at_once() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let settings = small_map();
    settings.lock().backoff_ms = i64::MAX;
    let tell = |trouble: &dyn std::fmt::Display| panic!("{trouble}");
    let cleaner =
        HousekeeperThread::start_cleaner(directory.clone(), settings.clone(), tell).unwrap();
    let config = LogConfig {
        segment_bytes: 2_000,
        min_cleanable_dirty_ratio: 0.0,
        ..LogConfig::default()
    };
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), config.clone(), START_MS)
        .unwrap();
    (0..10).for_each(|number| append(&log, START_MS + number));
    log.flush().unwrap();
    log.set_config(LogConfig {
        cleanup_policy: CleanupPolicy {
            delete: false,
            compact: true,
        },
        ..config
    });
    let before = log.size_bytes();
    // Less than a minute, after which the thread would have looked by itself.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(45);
    while log.size_bytes() == before {
        assert!(std::time::Instant::now() < deadline, "nobody heard of it");
        settings.lock().backoff_ms = 1;
        cleaner.wake();
        std::thread::yield_now();
    }
    cleaner.stop();
}

#[test]
fn old_segments_of_a_compacted_log_go_with_the_cleaner_and_not_when_retention_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        segment_bytes: 2_000,
        retention_ms: 1_000,
        cleanup_policy: CleanupPolicy {
            delete: true,
            compact: true,
        },
        ..LogConfig::default()
    };
    let log = directory
        .create_log("t", 0, Uuid([1; 16]), LogConfig::default(), START_MS)
        .unwrap();
    (0..10).for_each(|number| append(&log, START_MS + number));
    log.flush().unwrap();
    log.set_config(config);
    housekeeper(&directory).tick(START_MS + 300_000);
    assert_eq!(log.offsets().log_start_offset, 0);
    let settings = small_map();
    let tell = |trouble: &dyn std::fmt::Display| panic!("{trouble}");
    let cleaner = HousekeeperThread::start_cleaner(directory.clone(), settings, tell).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(100);
    while log.offsets().log_start_offset < 10 {
        assert!(std::time::Instant::now() < deadline, "nothing was deleted");
        std::thread::yield_now();
    }
    cleaner.stop();
}

/// A panic over one log ended the thread: nothing was deleted any more, of no log of the directory.
#[test]
fn a_log_over_which_a_chore_panics_keeps_no_other_waiting() {
    struct Panics;
    impl kafkalite::log::log::LogObserver for Panics {
        fn advanced(&self, _: &Log, _: kafkalite::log::state::ends::LogOffsets) {
            panic!("a log that nobody expected");
        }
    }
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let config = LogConfig {
        segment_bytes: 2_000,
        retention_ms: 1_000,
        ..LogConfig::default()
    };
    let logs = ["a", "b", "c"].map(|topic| {
        let id = Uuid([topic.as_bytes()[0]; 16]);
        let log = directory.create_log(topic, 0, id, config.clone(), START_MS);
        let log = log.unwrap();
        (0..10).for_each(|number| append(&log, START_MS + number));
        log.flush().unwrap();
        log
    });
    logs[1].set_observer(Arc::new(Panics));
    let (sender, told) = std::sync::mpsc::channel();
    let on_error = move |error: &kafkalite::error::Error| sender.send(error.to_string()).unwrap();
    let (intervals, on_error) = (Intervals::default(), Box::new(on_error));
    let mut housekeeper = Housekeeper::new(directory.clone(), intervals, START_MS, on_error);
    housekeeper.tick(START_MS + 300_000);
    for log in [&logs[0], &logs[2]] {
        assert_eq!(log.offsets().log_start_offset, 10);
    }
    let told: Vec<String> = told.try_iter().collect();
    let path = logs[1].directory();
    let sentence = "panicked: a log that nobody expected";
    assert_eq!(
        told,
        [format!("the code for {} {sentence}", path.display())]
    );
}

/// A start removed what deleted logs had left behind, one directory after the other, and failed
/// with the first that could not be removed.
#[test]
fn directories_of_deleted_logs_are_left_to_the_housekeeper_each_for_itself() {
    let home = Path::new("/logs");
    let storage = MemoryStorage::default();
    let open = || {
        let config = LogConfig::default();
        Arc::new(log_directory::open(storage.clone(), home, &config).unwrap())
    };
    let left = || {
        let entries = storage.read_directory(home).unwrap();
        let names = entries.into_iter().map(|entry| entry.name);
        let left = names.filter(|name| name.ends_with(names::DELETE_DIRECTORY));
        left.collect::<Vec<_>>()
    };
    let directory = open();
    for partition in 0..20 {
        let id = Uuid([1; 16]);
        let made = directory.create_log("t", partition, id, LogConfig::default(), START_MS);
        made.unwrap();
        let unique = format!("{partition:08x}");
        directory
            .delete_log("t", partition, &unique, START_MS)
            .unwrap();
    }
    drop(directory);
    let stuck = "t-3.00000003-delete";
    storage.inject(Fault::of(Operation::RemoveDirectory, stuck, Failure::Io).lasting());
    let directory = open();
    assert_eq!(left().len(), 20, "no start waits for them");
    let failures = Arc::new(Mutex::new(Vec::new()));
    let told = failures.clone();
    let on_error = Box::new(move |error: &kafkalite::error::Error| {
        told.lock().push(error.to_string());
    });
    let mut housekeeper =
        Housekeeper::new(directory.clone(), Intervals::default(), START_MS, on_error);
    let next_ms = housekeeper.tick(START_MS);
    assert_eq!(left().len(), 4 + 1, "a portion");
    assert!(next_ms <= START_MS, "the next portion is due");
    housekeeper.tick(START_MS);
    assert_eq!(left(), [stuck]);
    assert_eq!(failures.lock().len(), 1);
    assert!(failures.lock()[0].contains(stuck));
    assert!(!directory.health().is_offline());
}
