//! A log directory as a whole: what in it is taken, and what is left alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::{DirectoryOptions, LogDirectory, NewLog};
use kafkalite::log::log::Log;
use kafkalite::log::recover::LoadReport;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;
use parking_lot::Mutex;

use crate::log::{append, batch};
use crate::log_directory::{self, NOW_MS};

fn open(path: &Path) -> LogDirectory {
    log_directory::open(DiskStorage, path, &LogConfig::default()).unwrap()
}

/// The directory of a Kafka in combined mode also holds `__cluster_metadata-0`, which its raft
/// layer keeps. It was loaded like any partition: an index whose log had been deleted was
/// removed, and the close left a producer snapshot and checkpoint lines that Kafka never
/// writes for it. Kafka's `LogManager` passes it over, and what tiered storage caches; the
/// latter was even refused.
#[test]
fn the_controllers_log_and_the_cache_of_tiered_storage_are_left_alone() {
    let home = tempfile::tempdir().unwrap();
    open(home.path()).close(1).unwrap();
    let metadata = home.path().join("__cluster_metadata-0");
    let cache = home.path().join("remote-log-index-cache");
    for directory in [&metadata, &cache] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("00000000000000000000.index"), b"theirs").unwrap();
    }
    let directory = open(home.path());
    assert!(directory.logs().is_empty());
    directory.close(1).unwrap();
    for directory in [&metadata, &cache] {
        let names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["00000000000000000000.index"]);
    }
    let checkpoint = home.path().join("recovery-point-offset-checkpoint");
    assert_eq!(fs::read_to_string(checkpoint).unwrap(), "0\n0\n");
}

/// What a broker vouches for when it registers after a kill (KIP-966): a log that ends before the
/// high watermark of the checkpoint is told, and one whose torn end is behind that is not.
#[test]
fn a_log_that_ends_before_its_high_watermark_is_told() {
    let home = tempfile::tempdir().unwrap();
    let directory = open(home.path());
    let wanted = NewLog {
        topic: Arc::from("t"),
        partition: 0,
        topic_id: Uuid([7; 16]),
        config: LogConfig::default(),
        leader_epoch: Some(0),
    };
    directory.create_logs(vec![wanted], NOW_MS).unwrap();
    let log = directory.log("t", 0).unwrap();
    append(&log, &mut batch(0, 5)).unwrap();
    append(&log, &mut batch(5, 5)).unwrap();
    directory.close(1).unwrap();
    drop((directory, log));
    fs::remove_file(home.path().join(".kafka_cleanshutdown")).unwrap();
    assert_eq!(ends(home.path()), [(10, false)]);

    let file = home.path().join("t-0/00000000000000000000.log");
    let mut bytes = fs::read(&file).unwrap();
    let whole = bytes.len();
    bytes.extend_from_slice(&batch(10, 5)[..40]);
    fs::write(&file, &bytes).unwrap();
    assert_eq!(ends(home.path()), [(10, false)]);

    bytes.truncate(whole - 1);
    fs::write(&file, &bytes).unwrap();
    assert_eq!(ends(home.path()), [(5, true)]);
}

/// Loads the directory as after a kill: the log end offset of each log, and
/// whether records are missed.
fn ends(path: &Path) -> Vec<(i64, bool)> {
    let found = Mutex::new(Vec::new());
    let on_loaded = |log: &Log, report: &LoadReport, _count: usize| {
        let ends = (log.offsets().log_end_offset, report.is_cut);
        found.lock().push(ends);
    };
    let config_of = |_: &str| LogConfig::default();
    let options = DirectoryOptions {
        on_loaded: &on_loaded,
        ..log_directory::options(&config_of)
    };
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    drop(LogDirectory::open(&open_segments, path, &options).unwrap());
    found.into_inner()
}
