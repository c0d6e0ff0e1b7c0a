//! A start and a clean stop of many logs, which one sync of their file system makes durable.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kafkalite::batch::compression::Codec;
use kafkalite::error::{Error, Result};
use kafkalite::limits::SYNC_FILE_SYSTEM_LOGS_MIN;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::{DirectoryOptions, LogDirectory};
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::state::producers::ProducerState;
use kafkalite::log::state::snapshots::encode;
use kafkalite::uuid::Uuid;

use super::io_failures::new_storage;
use super::workbench::{
    HOME, NOW_MS, Sender, append, batch, contents, open_directory, options, serve,
};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};
use crate::random::is_long_run;

const LOGS: i32 = SYNC_FILE_SYSTEM_LOGS_MIN as i32;
const FLUSHED_BATCHES: i64 = 6;
const BATCHES: i64 = 8;

/// Two batches a segment.
fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 500,
        index_interval_bytes: 100,
        ..LogConfig::default()
    }
}

fn open(storage: &MemoryStorage) -> Result<LogDirectory> {
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    open_directory(&open_segments, &config())
}

fn log(directory: &LogDirectory, partition: i32) -> Arc<Log> {
    directory.log("t", partition).unwrap()
}

/// What stands in each log at batch `number`.
fn batch_of(number: i64) -> Vec<u8> {
    let sender = Sender {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: (number * 2) as i32,
        transactional: false,
    };
    batch(Codec::None, sender, number * 2, 2, 50)
}

fn append_batches(log: &Log, numbers: std::ops::Range<i64>) {
    for number in numbers {
        append(log, batch_of(number), 1).unwrap();
    }
}

/// Logs of several segments each, of which the last batches are not flushed; nothing was closed.
fn killed() -> MemoryStorage {
    let storage = new_storage();
    let directory = open(&storage).unwrap();
    for partition in 0..LOGS {
        let log = directory
            .create_log("t", partition, Uuid([7; 16]), config(), NOW_MS)
            .unwrap();
        append_batches(&log, 0..FLUSHED_BATCHES);
        log.flush().unwrap();
    }
    directory.write_checkpoints().unwrap();
    for partition in 0..LOGS {
        append_batches(&log(&directory, partition), FLUSHED_BATCHES..BATCHES);
    }
    storage.crash(Crash::Kill)
}

/// Offsets and bytes of the log's batches, and the state of its producers.
fn state_of(log: &Log) -> (Vec<(i64, Vec<u8>)>, Vec<u8>) {
    let served = serve(log, ReadIsolation::HighWatermark, 1 << 20);
    (contents(&served), encode(&log.producers()))
}

/// All batches that were flushed are in each log, then perhaps others; its producer goes on.
fn check_whole(storage: &MemoryStorage, crash: Crash, case: &str) {
    let directory = open(&storage.crash(crash)).unwrap_or_else(|error| panic!("{case}: {error}"));
    for partition in 0..LOGS {
        let log = log(&directory, partition);
        let (batches, _) = state_of(&log);
        let count = batches.len() as i64;
        assert!(
            (FLUSHED_BATCHES..=BATCHES).contains(&count),
            "{case}, then {crash:?}: {count} batches in partition {partition}"
        );
        for (number, (offset, bytes)) in (0..).zip(&batches) {
            assert_eq!(*offset, number * 2, "{case}, then {crash:?}");
            assert_eq!(
                bytes[21..],
                batch_of(number)[21..],
                "{case}, then {crash:?}"
            );
        }
        append_batches(&log, count..count + 1);
        log.flush().unwrap();
    }
}

fn at_each_call(calls: u64) -> impl Iterator<Item = u64> {
    (1..=calls).step_by(if is_long_run() { 1 } else { 7 })
}

#[test]
fn what_many_logs_serve_after_a_recovery_survives_a_power_cut() {
    let storage = killed();
    let directory = open(&storage).unwrap();
    let after_start: Vec<_> = (0..LOGS).map(|at| state_of(&log(&directory, at))).collect();
    assert_eq!(after_start[0].0.len() as i64, BATCHES);
    let again = open(&storage.crash(Crash::LoseUnsynced)).unwrap();
    for (at, before) in (0..LOGS).zip(&after_start) {
        assert_eq!(&state_of(&log(&again, at)), before);
    }
}

#[test]
fn the_power_goes_off_at_every_call_of_the_recovery_of_many_logs() {
    let torn = killed();
    let whole = torn.crash(Crash::Kill);
    open(&whole).unwrap();
    for nth in at_each_call(whole.calls()) {
        let storage = torn.crash(Crash::Kill);
        storage.inject(Fault::at_call(nth, Failure::NoSpace).lasting());
        drop(open(&storage));
        let case = format!("recovery cut at call {nth} of {}", whole.calls());
        check_whole(&storage, Crash::LoseUnsynced, &case);
        check_whole(&storage, Crash::Seeded(nth), &case);
    }
}

#[test]
fn the_power_goes_off_at_every_call_of_a_stop_of_many_logs() {
    let begun = killed();
    let calls_until_stop = {
        let storage = begun.crash(Crash::Kill);
        let directory = open(&storage).unwrap();
        let before = storage.calls();
        directory.close(5).unwrap();
        before..storage.calls()
    };
    let count = calls_until_stop.end - calls_until_stop.start;
    for nth in at_each_call(count + 1) {
        let storage = begun.crash(Crash::Kill);
        let directory = open(&storage).unwrap();
        let before: Vec<_> = (0..LOGS).map(|at| state_of(&log(&directory, at))).collect();
        storage.inject(Fault::at_call(nth, Failure::NoSpace).lasting());
        let closed = directory.close(5);
        assert_eq!(closed.is_ok(), nth > count, "call {nth}: {closed:?}");
        for crash in [Crash::LoseUnsynced, Crash::Seeded(nth), Crash::Kill] {
            let again = open(&storage.crash(crash)).unwrap();
            assert!(again.was_clean() || closed.is_err(), "{crash:?}");
            for (at, before) in (0..LOGS).zip(&before) {
                let log = log(&again, at);
                assert_eq!(&state_of(&log), before, "call {nth}, then {crash:?}");
                assert_eq!(log.offsets().log_end_offset, BATCHES * 2);
            }
        }
        check_whole(
            &storage,
            Crash::LoseUnsynced,
            &format!("stop cut at call {nth}"),
        );
    }
}

#[test]
fn a_failed_sync_of_the_file_system_refuses_the_start_and_leaves_no_mark_of_a_clean_stop() {
    let storage = killed();
    storage.inject(Fault::of(Operation::SyncFileSystem, "", Failure::Io));
    let refused = open(&storage).map(drop);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");

    let storage = killed();
    let directory = open(&storage).unwrap();
    storage.inject(Fault::of(Operation::SyncFileSystem, "", Failure::Io));
    assert!(directory.close(5).is_err());
    assert!(directory.health().is_offline());
    assert!(log(&directory, 0).flush().is_err());
    drop(directory);
    storage.heal();
    assert!(!open(&storage).unwrap().was_clean());
}

/// Linux tells `syncfs` of failed writes since its descriptor was opened. One from before, of the
/// process that was killed, it tells whoever asks for the file.
#[test]
fn a_write_that_had_failed_before_the_start_refuses_it() {
    let storage = killed();
    storage.inject(Fault::of(Operation::CheckWritten, "/t-3/", Failure::Io));
    let refused = open(&storage).map(drop);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
}

#[test]
fn nothing_is_written_for_a_log_where_nothing_has_changed() {
    let never = |storage: &MemoryStorage, operations: &[Operation]| {
        for operation in operations {
            storage.inject(Fault::of(*operation, "/t-", Failure::Panic).lasting());
        }
    };
    use Operation::{Open, RemoveFile, Rename, SyncData, SyncDirectory, Write};
    let storage = new_storage();
    let directory = open(&storage).unwrap();
    for partition in 0..LOGS {
        let log = directory.create_log("t", partition, Uuid([7; 16]), config(), NOW_MS);
        append_batches(&log.unwrap(), 0..1);
    }
    let storage = storage.crash(Crash::Kill);
    never(
        &storage,
        &[Write, Rename, RemoveFile, SyncData, SyncDirectory],
    );
    let directory = open(&storage).unwrap();
    storage.heal();
    never(&storage, &[SyncData, SyncDirectory]);
    directory.close(5).unwrap();
    drop(directory);
    never(&storage, &[Write, Rename, RemoveFile]);
    let directory = open(&storage).unwrap();
    assert!(directory.was_clean());
    never(&storage, &[Open]);
    directory.close(6).unwrap();
}

#[test]
fn a_start_that_is_stopped_ends_without_a_mark_of_a_clean_stop() {
    let storage = killed();
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    let config_of = |_: &str| config();
    let stopped = DirectoryOptions {
        stop: Arc::new(AtomicBool::new(true)),
        ..options(&config_of)
    };
    let refused = LogDirectory::open(&open_segments, Path::new(HOME), &stopped).map(drop);
    assert_eq!(
        refused.unwrap_err().to_string(),
        Error::LoadStopped.to_string()
    );
    let directory = open(&storage).unwrap();
    assert!(!directory.was_clean());
    assert_eq!(state_of(&log(&directory, 0)).0.len() as i64, BATCHES);
}

/// The snapshot of a clean stop holds as long as the log's records do; the
/// next one takes its place.
#[test]
fn the_snapshot_of_a_clean_stop_goes_once_there_is_another() {
    let storage = killed();
    let directory = open(&storage).unwrap();
    append_batches(&log(&directory, 0), BATCHES..BATCHES + 1);
    directory.close(5).unwrap();
    drop(directory);
    let snapshots = || {
        let names = storage.files().into_keys();
        let names = names.filter(|path| path.starts_with("/data/t-0"));
        let names = names.filter(|path| path.extension().is_some_and(|kind| kind == "snapshot"));
        names.count()
    };
    let directory = open(&storage).unwrap();
    let before = snapshots();
    append_batches(&log(&directory, 0), BATCHES + 1..BATCHES + 2);
    let storage_after_kill = storage.crash(Crash::Kill);
    let after_kill = open(&storage_after_kill).unwrap();
    let state: ProducerState = log(&after_kill, 0).producers();
    assert_eq!(encode(&state), encode(&log(&directory, 0).producers()));
    directory.close(6).unwrap();
    drop(directory);
    assert_eq!(snapshots(), before + 1);
    let directory = open(&storage).unwrap();
    log(&directory, 0).delete_due_files(NOW_MS).unwrap();
    assert_eq!(snapshots(), before);
}
