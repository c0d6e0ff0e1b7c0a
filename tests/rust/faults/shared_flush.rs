//! Many logs made durable by one sync of their file system.

use std::path::Path;
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::error::Error;
use kafkalite::limits::SYNC_FILE_SYSTEM_LOGS_MIN;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::directory::flusher::flush_together;
use kafkalite::log::log::{Log, LogObserver};
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::state::ends::LogOffsets;
use kafkalite::log::storage::Storage;
use kafkalite::uuid::Uuid;

use super::workbench::{HOME, NOBODY, NOW_MS, append, batch, open_directory, serve};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const LOGS: i32 = 2 * SYNC_FILE_SYSTEM_LOGS_MIN as i32;

struct World {
    storage: MemoryStorage,
    open_segments: Arc<OpenSegments>,
    directory: LogDirectory,
    logs: Vec<Arc<Log>>,
}

/// Logs with three unflushed records each.
fn dirty_logs() -> World {
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new(HOME)).unwrap();
    storage.sync_directory(Path::new("/")).unwrap();
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    let directory = open_directory(&open_segments, &LogConfig::default()).unwrap();
    let logs: Vec<Arc<Log>> = (0..LOGS)
        .map(|partition| {
            directory
                .create_log("t", partition, Uuid([7; 16]), LogConfig::default(), NOW_MS)
                .unwrap()
        })
        .collect();
    for log in &logs {
        append(log, batch(Codec::None, NOBODY, 0, 3, 50), 1).unwrap();
    }
    World {
        storage,
        open_segments,
        directory,
        logs,
    }
}

#[test]
fn one_sync_makes_every_log_durable_and_visible() {
    let world = dirty_logs();
    let file_system = world.storage.file_system(Path::new(HOME)).unwrap().unwrap();
    let before = world.storage.calls();
    flush_together(&world.logs, &*file_system);
    assert_eq!(world.storage.calls(), before + 1, "one call for all");
    for log in &world.logs {
        assert_eq!(log.offsets().flushed_offset, 3);
        assert_eq!(log.offsets().high_watermark, 3);
    }
    let left = world.storage.crash(Crash::LoseUnsynced);
    let open_segments = OpenSegments::new(Arc::new(left), 64);
    let directory = open_directory(&open_segments, &LogConfig::default()).unwrap();
    for partition in 0..LOGS {
        let log = directory.log("t", partition).unwrap();
        assert_eq!(serve(&log, ReadIsolation::LogEnd, 1 << 20).len(), 1);
    }
}

#[test]
fn a_failed_sync_takes_the_directory_offline_and_nothing_claims_to_be_flushed() {
    let world = dirty_logs();
    let file_system = world.storage.file_system(Path::new(HOME)).unwrap().unwrap();
    world
        .storage
        .inject(Fault::of(Operation::SyncFileSystem, "", Failure::Io));
    flush_together(&world.logs, &*file_system);
    // The second try would succeed, and lie.
    flush_together(&world.logs, &*file_system);
    for log in &world.logs {
        assert_eq!(log.offsets().flushed_offset, 0);
        assert!(matches!(log.flush(), Err(Error::LogDirOffline { .. })));
    }
    assert!(world.directory.health().is_offline());
    assert!(world.open_segments.open_count() > 0);
}

#[test]
fn a_log_that_was_cut_meanwhile_is_flushed_by_itself() {
    let world = dirty_logs();
    let log = &world.logs[0];
    let shared = log.begin_shared_flush().unwrap().unwrap();
    let file_system = world.storage.file_system(Path::new(HOME)).unwrap().unwrap();
    file_system.sync().unwrap();
    log.truncate_to(0, NOW_MS).unwrap();
    // As long as before, with other records, of which the sync knows nothing.
    append(log, batch(Codec::None, NOBODY, 50, 3, 50), 2).unwrap();
    let expected = serve(log, ReadIsolation::LogEnd, 1 << 20);
    log.finish_shared_flush(shared).unwrap();
    assert_eq!(log.offsets().flushed_offset, 3);
    let open_segments = OpenSegments::new(Arc::new(world.storage.crash(Crash::LoseUnsynced)), 64);
    let directory = open_directory(&open_segments, &LogConfig::default()).unwrap();
    let left = directory.log("t", 0).unwrap();
    assert_eq!(serve(&left, ReadIsolation::LogEnd, 1 << 20), expected);
}

/// The beginning of a shared flush said already that the directory was synced: another flush of the
/// log, before the file system was, answered for records in a segment that had no name on disk.
#[test]
fn a_flush_beside_a_shared_one_does_not_rely_on_what_that_has_not_yet_synced() {
    let world = dirty_logs();
    let log = &world.logs[0];
    log.flush().unwrap();
    log.set_config(LogConfig {
        segment_bytes: 150,
        ..LogConfig::default()
    });
    append(log, batch(Codec::None, NOBODY, 3, 1, 50), 1).unwrap();
    assert_eq!(log.segments().len(), 2, "it has rolled");
    let shared = log.begin_shared_flush().unwrap().unwrap();
    log.flush().unwrap();
    assert_eq!(log.offsets().high_watermark, 4);
    let expected = serve(log, ReadIsolation::LogEnd, 1 << 20);
    let left = world.storage.crash(Crash::LoseUnsynced);
    let open_segments = OpenSegments::new(Arc::new(left), 64);
    let directory = open_directory(&open_segments, &LogConfig::default()).unwrap();
    let left = directory.log("t", 0).unwrap();
    assert_eq!(serve(&left, ReadIsolation::LogEnd, 1 << 20), expected);
    log.finish_shared_flush(shared).unwrap();
}

struct Told(std::sync::mpsc::Sender<i64>);

impl LogObserver for Told {
    fn advanced(&self, _: &Log, offsets: LogOffsets) {
        // The test may be over.
        let _ = self.0.send(offsets.flushed_offset);
    }
}

/// Nobody was told, so that a producer whose records were written waited for the end of its time.
#[test]
fn of_a_directory_that_fails_during_a_shared_flush_the_observer_is_told() {
    let world = dirty_logs();
    let log = &world.logs[0];
    let (told, flushed) = std::sync::mpsc::channel();
    log.set_observer(Arc::new(Told(told)));
    let shared = log.begin_shared_flush().unwrap().unwrap();
    let failure = Error::CorruptMessage("of another log".to_owned());
    world.directory.health().fail(&failure);
    assert!(matches!(
        log.finish_shared_flush(shared),
        Err(Error::LogDirOffline { .. })
    ));
    assert_eq!(flushed.try_recv(), Ok(0));
}

/// Whatever way the pool takes, everybody is told, and everything is on disk.
#[test]
fn a_pool_with_many_requests_flushes_them_all() {
    let world = dirty_logs();
    let (told, flushed) = std::sync::mpsc::channel();
    for log in &world.logs {
        log.set_observer(Arc::new(Told(told.clone())));
        world.directory.request_flush(log);
    }
    for _ in &world.logs {
        let offset = flushed.recv_timeout(std::time::Duration::from_secs(100));
        assert_eq!(offset, Ok(3));
    }
    let left = world.storage.crash(Crash::LoseUnsynced);
    for partition in 0..LOGS {
        let path = format!("{HOME}/t-{partition}/00000000000000000000.log");
        assert!(left.files()[Path::new(&path)].len() > 61);
    }
}
