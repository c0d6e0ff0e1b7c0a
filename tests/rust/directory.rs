//! A log directory as a whole: what in it is taken, and what is left alone.

use std::fs;
use std::path::Path;

use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::storage::DiskStorage;

use crate::log_directory;

fn open(path: &Path) -> LogDirectory {
    log_directory::open(DiskStorage, path, &LogConfig::default()).unwrap()
}

/// The directory of a Kafka in combined mode also holds `__cluster_metadata-0`, which its raft layer
/// keeps. It was loaded like any partition: an index whose log had been deleted was removed, and the
/// close left a producer snapshot and checkpoint lines that Kafka never writes for it. Kafka's
/// `LogManager` passes it over, and what tiered storage caches; the latter was even refused.
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
