//! Deleting, and what it must not wait for or keep others waiting for.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kafkalite::batch::compression::Codec;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::uuid::Uuid;

use super::workbench::{
    NOBODY, NOW_MS, Opening, append, batch, create, open, open_directory, serve,
};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const DAY_MS: i64 = 24 * 3_600_000;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1_000,
        retention_ms: DAY_MS,
        ..LogConfig::default()
    }
}

fn fill(log: &Log) {
    for number in 0..6 {
        append(log, batch(Codec::None, NOBODY, number, 1, 900), 1).unwrap();
    }
}

fn with_directory() -> (MemoryStorage, LogDirectory, Arc<Log>) {
    let storage = MemoryStorage::default();
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 1024);
    let directory = open_directory(&open_segments, &config()).unwrap();
    let log = directory.create_log("t", 0, Uuid([7; 16]), config(), NOW_MS);
    let log = log.unwrap();
    (storage, directory, log)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(2)); // a poll
    }
}

/// After a restart retention read whole segments under the append lock, and whoever wrote waited:
/// 832 ms with 3 GiB in the page cache.
#[test]
fn appends_do_not_wait_while_retention_reads_the_timestamps_of_a_segment() {
    let storage = MemoryStorage::default();
    fill(&create(&storage, &config()).unwrap().log);
    let storage = storage.crash(Crash::Kill);
    let opening = Opening {
        was_clean: true,
        ..Opening::unclean(&config())
    };
    let log = open(&storage, &opening).unwrap().log;
    let (sender, appended) = mpsc::channel();
    let (writer, (told, waited)) = (log.clone(), mpsc::channel());
    storage.before(Operation::Read, ".log", move || {
        std::thread::spawn(move || {
            append(&writer, batch(Codec::None, NOBODY, 6, 1, 900), 1).unwrap();
            sender.send(()).unwrap();
        });
        told.send(appended.recv_timeout(Duration::from_secs(10)).is_ok())
            .unwrap();
    });
    let now_ms = NOW_MS + 10 * DAY_MS;
    assert!(log.delete_old_segments(now_ms).unwrap() > 3);
    assert_eq!(waited.try_recv(), Ok(true), "the append waited for it");
}

/// The names of deleted files want a block in their directory. Where there was none, the log
/// directory went offline, and no broker could free anything on a full disk.
#[test]
fn retention_frees_a_disk_that_has_no_block_left() {
    let (storage, directory, log) = with_directory();
    fill(&log);
    let held = log.read(0, 1 << 20, true, ReadIsolation::LogEnd).unwrap();
    storage.inject(Fault::of(Operation::Rename, "", Failure::NoSpace).lasting());
    storage.inject(Fault::of(Operation::Open, ".tmp", Failure::NoSpace).lasting());
    log.advance_log_start_offset(4).unwrap();
    assert_eq!(log.delete_old_segments(NOW_MS).unwrap(), 4);
    assert!(!directory.health().is_offline());
    let files = storage.files();
    let logs = files
        .keys()
        .filter(|path| path.to_string_lossy().contains(".log"));
    assert_eq!(logs.count(), 2, "nothing waits for its delay");
    assert!(!held.to_vec().unwrap().is_empty(), "a reader reads on");
    storage.heal();
    fill(&log);
    assert_eq!(serve(&log, ReadIsolation::LogEnd, 1 << 20).len(), 8);
    drop((held, log, directory));
    let opening = Opening {
        log_start_offset: 4,
        ..Opening::unclean(&config())
    };
    let log = open(&storage.crash(Crash::Kill), &opening).unwrap().log;
    assert_eq!(log.offsets().log_end_offset, 12);
}

#[test]
fn a_rename_that_fails_halfway_for_want_of_a_block_leaves_no_file() {
    for nth in 1..=4 {
        let (storage, directory, log) = with_directory();
        fill(&log);
        let mut fault = Fault::of(Operation::Rename, "", Failure::NoSpace).lasting();
        fault.nth = nth;
        storage.inject(fault);
        log.advance_log_start_offset(2).unwrap();
        assert_eq!(log.delete_old_segments(NOW_MS).unwrap(), 2, "rename {nth}");
        log.delete_due_files(i64::MAX).unwrap();
        assert!(!directory.health().is_offline());
        let files = storage.files();
        let first = |path: &Path| path.to_string_lossy().contains(&format!("{:020}.", 0));
        assert_eq!(
            files.keys().filter(|path| first(path)).count(),
            0,
            "rename {nth}"
        );
    }
}

#[test]
fn a_topic_is_deleted_from_a_disk_that_has_no_block_left() {
    let (storage, directory, log) = with_directory();
    fill(&log);
    let before = storage.files().len();
    storage.inject(Fault::of(Operation::Rename, "", Failure::NoSpace).lasting());
    directory.delete_log("t", 0, "4f6bd0c0", NOW_MS).unwrap();
    directory.remove_condemned(i64::MAX).unwrap();
    assert!(!directory.health().is_offline());
    assert!(directory.log("t", 0).is_none());
    assert!(storage.files().len() < before - 15);
    assert!(append(&log, batch(Codec::None, NOBODY, 0, 1, 9), 1).is_err());
}

/// A flush that found no descriptor for a file took the log directory offline.
#[test]
fn a_flush_waits_for_a_descriptor() {
    let (storage, directory, log) = with_directory();
    fill(&log);
    for operation in [Operation::Open, Operation::SyncDirectory] {
        storage.inject(Fault::of(operation, "", Failure::TooManyOpen).lasting());
    }
    let seen_before = log.offsets().flushed_offset;
    directory.request_flush(&log);
    wait_until("nothing was tried", || storage.has_struck());
    std::thread::sleep(Duration::from_millis(250)); // polled once: nothing may have happened
    assert!(!directory.health().is_offline());
    assert_eq!(log.offsets().flushed_offset, seen_before);
    directory.write_checkpoints().unwrap_err();
    assert!(!directory.health().is_offline());
    storage.heal();
    let is_flushed = || log.offsets().flushed_offset == log.offsets().log_end_offset;
    wait_until("the flush was not tried again", is_flushed);
}
