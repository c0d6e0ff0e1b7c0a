//! Directories that a broker must not touch: each is refused in one sentence that names it and says
//! why, and nothing in it is changed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::error::{Error, Result};
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;

use super::power_cuts::unmount;
use super::workbench::{
    HOME, NOBODY, NOW_MS, append, batch, identity, open_directory, options, serve,
};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::faults::{Failure, Fault, Operation};
use crate::random::skip;

fn open(path: &Path) -> Result<LogDirectory> {
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    LogDirectory::open(&open_segments, path, &options(&|_| LogConfig::default()))
}

/// Every name below `path` with its content; directories have none.
fn listing(path: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![path.to_path_buf()];
    while let Some(directory) = todo.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let content = if path.is_dir() {
                None
            } else {
                Some(std::fs::read(&path).unwrap())
            };
            if content.is_none() {
                todo.push(path.clone());
            }
            found.insert(path, content);
        }
    }
    found
}

/// Opens what cannot be opened; returns the sentence.
fn refusal(path: &Path) -> String {
    let before = listing(path.parent().unwrap());
    let error = open(path)
        .err()
        .unwrap_or_else(|| panic!("{} was opened", path.display()));
    assert_eq!(listing(path.parent().unwrap()), before, "{error}");
    let sentence = error.to_string();
    assert!(sentence.contains(path.to_str().unwrap()), "{sentence}");
    assert!(!sentence.contains('\n'), "{sentence}");
    sentence
}

/// A log directory with a record in it, stopped cleanly.
fn used_directory(path: &Path) {
    let directory = open(path).unwrap();
    let log = directory
        .create_log("t", 0, Uuid([7; 16]), LogConfig::default(), NOW_MS)
        .unwrap();
    append(&log, batch(Codec::None, NOBODY, 0, 3, 10), 1).unwrap();
    directory.close(1).unwrap();
}

#[test]
fn a_directory_that_is_not_kafkas_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("photos");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("holiday.jpg"), b"...").unwrap();
    let sentence = refusal(&path);
    assert!(
        sentence.contains("holiday.jpg") && sentence.contains("name an empty one"),
        "{sentence}"
    );
    let file = home.path().join("file");
    std::fs::write(&file, b"...").unwrap();
    assert!(refusal(&file).contains("Not a directory"));
}

#[test]
fn a_directory_of_the_future_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    used_directory(&path);
    let meta = path.join("meta.properties");
    let text = std::fs::read_to_string(&meta).unwrap();
    std::fs::write(&meta, text.replace("version=1", "version=2")).unwrap();
    let sentence = refusal(&path);
    assert!(sentence.contains("version 2 is unknown"), "{sentence}");
}

#[test]
fn a_directory_of_another_cluster_or_node_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    used_directory(&path);
    let meta = path.join("meta.properties");
    let text = std::fs::read_to_string(&meta).unwrap();
    std::fs::write(&meta, text.replace("node.id=1", "node.id=2")).unwrap();
    assert!(refusal(&path).contains("meta.properties is 2, but the configuration has node.id=1"));
    let cluster = identity().cluster_id.unwrap();
    std::fs::write(&meta, text.replace(&cluster, "another")).unwrap();
    assert!(refusal(&path).contains("cluster.id in its meta.properties is another"));
}

#[test]
fn a_foreign_directory_among_the_partitions_is_refused_and_foreign_files_are_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    used_directory(&path);
    std::fs::write(path.join("notes.txt"), b"mine").unwrap();
    std::fs::write(path.join("t-0").join("notes.txt"), b"mine").unwrap();
    let directory = open(&path).unwrap();
    assert_eq!(directory.log("t", 0).unwrap().offsets().high_watermark, 3);
    directory.close(1).unwrap();
    drop(directory);
    assert_eq!(std::fs::read(path.join("notes.txt")).unwrap(), b"mine");
    assert_eq!(
        std::fs::read(path.join("t-0").join("notes.txt")).unwrap(),
        b"mine"
    );
    // The last three were deleted, or left out in silence.
    for name in ["backup", "to-delete", "t-0-delete", "t-0-stray"] {
        std::fs::create_dir(path.join(name)).unwrap();
        std::fs::write(path.join(name).join("notes.txt"), b"mine").unwrap();
        let sentence = refusal(&path);
        assert!(
            sentence.contains(name) && sentence.contains("topic-partition"),
            "{sentence}"
        );
        std::fs::remove_dir_all(path.join(name)).unwrap();
    }
}

/// The partition's directory was taken for missing and made anew over its files, and what
/// DeleteRecords had taken was there again.
#[test]
fn a_link_to_a_partitions_directory_is_that_partition() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    used_directory(&path);
    let directory = open(&path).unwrap();
    let log = directory.log("t", 0).unwrap();
    assert_eq!(log.advance_log_start_offset(2).unwrap(), 2);
    directory.close(1).unwrap();
    drop((log, directory));
    let elsewhere = home.path().join("elsewhere");
    std::fs::rename(path.join("t-0"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, path.join("t-0")).unwrap();
    let directory = open(&path).unwrap();
    let offsets = directory.log("t", 0).unwrap().offsets();
    assert_eq!((offsets.log_start_offset, offsets.high_watermark), (2, 3));
}

/// Kafka locks with `fcntl`, as Python's `lockf` does.
#[test]
fn a_directory_that_another_process_has_locked_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    used_directory(&path);
    let script = "import fcntl, sys\n\
                  f = open(sys.argv[1], 'r+')\n\
                  fcntl.lockf(f, fcntl.LOCK_EX)\n\
                  print('locked', flush=True)\n\
                  sys.stdin.read()\n";
    let spawned = Command::new("python3")
        .args(["-c", script])
        .arg(path.join(".lock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut other) = spawned else {
        return skip("no python3 that could hold a lock of another process");
    };
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "locked\n");
    assert!(refusal(&path).ends_with("is in use by another process"));
    drop(other.stdin.take());
    other.wait().unwrap();
    open(&path).unwrap();
}

#[test]
fn a_directory_in_use_by_this_process_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    let _held = open(&path).unwrap();
    assert!(matches!(open(&path), Err(Error::LogDirLocked { .. })));
}

/// EROFS on whatever would change something.
#[test]
fn a_read_only_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    used_directory(&path);
    let mounted = Command::new("mount")
        .args(["--bind", "-o", "ro"])
        .args([&path, &path])
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("a read-only bind mount is not allowed here");
    }
    let sentence = std::panic::catch_unwind(|| refusal(&path));
    unmount(&path);
    let sentence = sentence.unwrap();
    assert!(sentence.contains("Read-only file system"), "{sentence}");
    open(&path).unwrap();
}

/// A new directory on a full disk: nothing of the attempt is left, and it works once there is room.
#[test]
fn a_new_directory_on_a_full_disk_is_refused_without_a_trace() {
    let storage = MemoryStorage::with_files([(Path::new("/other"), b"x".as_slice())]);
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 16);
    for was_there in [false, true] {
        if was_there {
            kafkalite::log::storage::Storage::create_directory_all(&storage, Path::new(HOME))
                .unwrap();
        }
        let before = storage.files();
        storage.inject(Fault::of(Operation::Write, HOME, Failure::NoSpace).lasting());
        let error = open_directory(&open_segments, &LogConfig::default())
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("No space left on device"),
            "{error}"
        );
        assert_eq!(storage.files(), before);
        storage.heal();
    }
    open_directory(&open_segments, &LogConfig::default()).unwrap();
}

/// A used directory on a full disk opens and is read; producers get an error until there is room.
#[test]
fn a_used_directory_on_a_full_disk_is_read_and_resumes_without_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("small");
    std::fs::create_dir(&path).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&path)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("a small tmpfs is not allowed here");
    }
    let outcome = std::panic::catch_unwind(|| {
        let data = path.join("data");
        used_directory(&data);
        let filler = path.join("filler");
        while std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&filler)
            .and_then(|mut file| std::io::Write::write_all(&mut file, &[0; 4096]))
            .is_ok()
        {}
        let directory = open(&data).unwrap();
        let log = directory.log("t", 0).unwrap();
        let mut appended = 0;
        let error = loop {
            match append(&log, batch(Codec::None, NOBODY, 0, 1, 3000), 1) {
                Ok(_) => appended += 1,
                Err(error) => break error,
            }
        };
        assert!(
            error.to_string().contains("No space left on device"),
            "{error}"
        );
        assert!(!directory.health().is_offline());
        let served = serve(&log, ReadIsolation::LogEnd, 1 << 20);
        assert_eq!(served.len(), 1 + appended, "a part of a batch is visible");
        std::fs::remove_file(&filler).unwrap();
        append(&log, batch(Codec::None, NOBODY, 0, 1, 3000), 1).unwrap();
        log.flush().unwrap();
        assert_eq!(log.offsets().high_watermark, 3 + appended as i64 + 1);
        directory.close(1).unwrap();
    });
    unmount(&path);
    outcome.unwrap();
}
