//! The logs of a directory: which one is next, and what the checkpoint says of each.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kafkalite::limits::COMPACTION_RETRY_MS;
use kafkalite::log::compact::{Cleaner, cleaner_checkpoint};
use kafkalite::log::config::{CleanupPolicy, LogConfig};
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use kafkalite::log::storage::{DiskStorage, Storage};
use kafkalite::uuid::Uuid;
use tempfile::TempDir;

use super::partition::{MAP_BYTES, NOW_MS, Partition, config, home};
use crate::log_directory;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const HOME: &str = "/data";

fn on_disk(home: &TempDir) -> LogDirectory {
    log_directory::open(DiskStorage, home.path(), &config()).unwrap()
}

fn in_memory(storage: &MemoryStorage) -> LogDirectory {
    storage.create_directory_all(Path::new(HOME)).unwrap();
    log_directory::open(storage.clone(), Path::new(HOME), &config()).unwrap()
}

/// A log of the directory as a `Partition`, with segments that overwrite one key.
fn dirty_log(directory: &LogDirectory, topic: &str, clean: usize, dirty: usize) -> Partition {
    dirty_log_of(Uuid([3; 16]), directory, topic, clean, dirty)
}

fn dirty_log_of(
    topic_id: Uuid,
    directory: &LogDirectory,
    topic: &str,
    clean: usize,
    dirty: usize,
) -> Partition {
    let log = directory
        .create_log(topic, 0, topic_id, config(), NOW_MS)
        .unwrap();
    let mut partition = Partition::of(log, config(), Arc::new(DiskStorage));
    for number in 0..clean + dirty {
        partition.roll();
        partition.send(&[("a", Some(&number.to_string()))]);
    }
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    partition
}

#[test]
fn the_dirtiest_log_of_a_directory_is_cleaned_first_and_the_checkpoint_says_how_far() {
    let home = home();
    let directory = on_disk(&home);
    let half = dirty_log(&directory, "half", 3, 4);
    let all = dirty_log(&directory, "all", 0, 3);
    let path = home.path().join("cleaner-offset-checkpoint");
    let key = |topic: &str| TopicPartition {
        topic: topic.to_owned(),
        partition: 0,
    };
    let checkpoint = OffsetCheckpoint {
        offsets: [(key("half"), 3), (key("gone"), 5)].into(),
    };
    checkpoint.write(&DiskStorage, &path).unwrap();
    let stop = AtomicBool::new(false);
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    cleaner
        .clean_dirtiest(&directory, NOW_MS, &stop)
        .unwrap()
        .unwrap();
    assert_eq!(all.records(), ["2 a=2"]);
    assert_eq!(half.records().len(), 7);
    cleaner
        .clean_dirtiest(&directory, NOW_MS, &stop)
        .unwrap()
        .unwrap();
    assert_eq!(half.records(), ["6 a=6"]);
    assert_eq!(
        cleaner.clean_dirtiest(&directory, NOW_MS, &stop).unwrap(),
        None
    );
    let after = OffsetCheckpoint::read(&DiskStorage, &path).unwrap();
    assert_eq!(after.offsets, [(key("all"), 3), (key("half"), 7)].into());
}

#[test]
fn a_checkpoint_outside_of_the_log_is_set_to_its_start_and_all_is_cleaned_again() {
    let home = home();
    let directory = on_disk(&home);
    let partition = dirty_log(&directory, "t", 0, 3);
    let path = home.path().join("cleaner-offset-checkpoint");
    let key = TopicPartition {
        topic: "t".to_owned(),
        partition: 0,
    };
    OffsetCheckpoint {
        offsets: [(key.clone(), 500)].into(),
    }
    .write(&DiskStorage, &path)
    .unwrap();
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    let report = cleaner
        .clean_dirtiest(&directory, NOW_MS, &AtomicBool::new(false))
        .unwrap();
    assert_eq!(report.unwrap().first_dirty_offset, 0);
    assert_eq!(partition.records(), ["2 a=2"]);
}

/// No log of the directory was compacted any more.
#[test]
fn a_checkpoint_that_cannot_be_read_is_written_anew() {
    let home = home();
    let directory = on_disk(&home);
    let partition = dirty_log(&directory, "t", 0, 3);
    let path = home.path().join("cleaner-offset-checkpoint");
    std::fs::write(&path, "0\n1\nt 0 ").unwrap();
    let report = Cleaner::new(MAP_BYTES, 0.9)
        .clean_dirtiest(&directory, NOW_MS, &AtomicBool::new(false))
        .unwrap();
    assert_eq!(report.unwrap().end_offset, 3);
    assert_eq!(partition.records(), ["2 a=2"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\nt 0 3\n");
}

/// Nobody lowered the offset in the file when a log was cut: what came after it counted as clean,
/// and a tombstone among it could go before the record that it deletes.
#[test]
fn what_is_appended_after_a_cut_is_dirty_again() {
    let home = home();
    let directory = on_disk(&home);
    let mut partition = dirty_log(&directory, "t", 0, 4);
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let mut clean = || cleaner.clean_dirtiest(&directory, NOW_MS, &stop).unwrap();
    assert_eq!(clean().unwrap().end_offset, 4);
    assert!(
        cleaner_checkpoint::truncate(|| &directory, &partition.log, 1, NOW_MS, || Ok(())).unwrap()
    );
    for number in 0..6 {
        partition.roll();
        partition.send(&[("b", Some(&number.to_string()))]);
    }
    assert_eq!(clean().unwrap().first_dirty_offset, 1);
    assert_eq!(partition.records(), ["5 b=4", "6 b=5"]);
    // A cut above it changes nothing.
    assert!(
        !cleaner_checkpoint::truncate(|| &directory, &partition.log, 500, NOW_MS, || Ok(()))
            .unwrap()
    );
    let checkpoint = cleaner_checkpoint::read(&directory).unwrap();
    assert_eq!(
        cleaner_checkpoint::get(&checkpoint, &partition.log),
        Some(6)
    );
}

/// The cut had waited for a move, and lowered the file of the directory in
/// which the log lay no more.
#[test]
fn a_cut_lowers_the_offset_in_the_directory_to_which_the_log_has_moved_meanwhile() {
    let (first, second) = (home(), home());
    let directories = [on_disk(&first), on_disk(&second)];
    let partitions = directories
        .each_ref()
        .map(|each| dirty_log(each, "t", 0, 4));
    for (directory, partition) in directories.iter().zip(&partitions) {
        cleaner_checkpoint::set(directory, &partition.log, 4, 0).unwrap();
    }
    let asked = Cell::new(0);
    let moving = || &directories[asked.replace(1)];
    let log = &partitions[1].log;
    assert!(cleaner_checkpoint::truncate(moving, log, 1, NOW_MS, || Ok(())).unwrap());
    let known = directories.each_ref().map(|each| {
        let checkpoint = cleaner_checkpoint::read(each).unwrap();
        cleaner_checkpoint::get(&checkpoint, log)
    });
    assert_eq!(known, [Some(1), Some(1)]);
}

/// It noted how far it had come, in a log that was as long again by then.
#[test]
fn a_round_that_ends_after_a_cut_notes_nothing() {
    let home = home();
    let directory = on_disk(&home);
    let mut partition = dirty_log(&directory, "t", 0, 4);
    let truncations = partition.log.truncations();
    cleaner_checkpoint::set(&directory, &partition.log, 2, truncations).unwrap();
    assert!(
        cleaner_checkpoint::truncate(|| &directory, &partition.log, 1, NOW_MS, || Ok(())).unwrap()
    );
    for number in 0..6 {
        partition.roll();
        partition.send(&[("b", Some(&number.to_string()))]);
    }
    cleaner_checkpoint::set(&directory, &partition.log, 4, truncations).unwrap();
    let checkpoint = cleaner_checkpoint::read(&directory).unwrap();
    assert_eq!(
        cleaner_checkpoint::get(&checkpoint, &partition.log),
        Some(1)
    );
}

#[test]
fn a_partition_with_a_batch_that_cannot_be_read_is_left_alone_with_its_reason() {
    let home = home();
    let directory = on_disk(&home);
    let bad = dirty_log(&directory, "bad", 0, 5);
    let good = dirty_log(&directory, "good", 1, 3);
    let file = bad.directory.join("00000000000000000002.log");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let mut reports = 0;
    for _ in 0..4 {
        reports += usize::from(
            cleaner
                .clean_dirtiest(&directory, NOW_MS, &stop)
                .unwrap()
                .is_some(),
        );
    }
    assert_eq!(reports, 1);
    assert_eq!(good.records(), ["3 a=3"]);
    let news = cleaner.take_news();
    assert_eq!(news.len(), 1);
    assert_eq!(news[0].directory, bad.directory);
    let sentence = news[0].to_string();
    assert!(
        sentence.contains("00000000000000000002.log") && sentence.contains("CRC"),
        "{sentence}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    assert!(
        !bad.file_names()
            .iter()
            .any(|name| name.ends_with(".cleaned"))
    );
    // What was wrong with it is nothing to a topic that has its name later. It was left alone too.
    directory.delete_log("bad", 0, "old", NOW_MS).unwrap();
    let next = dirty_log_of(Uuid([4; 16]), &directory, "bad", 0, 3);
    let cleaned = cleaner.clean_dirtiest(&directory, NOW_MS, &stop).unwrap();
    assert_eq!(cleaned.unwrap().end_offset, 3);
    assert_eq!(next.records(), ["2 a=2"]);
}

/// The dirtiest log did not fit on the disk while it was cleaned. It stayed the dirtiest, and each
/// round began with it and ended with it: no other log of the directory was compacted any more.
#[test]
fn a_log_that_cannot_be_written_anew_stops_no_other_and_is_tried_again_later() {
    let storage = MemoryStorage::default();
    let directory = in_memory(&storage);
    let large = dirty_log(&directory, "large", 0, 5);
    // Less dirty, or else chance would say which of the two comes first.
    let small = dirty_log(&directory, "small", 1, 3);
    let small_key = TopicPartition {
        topic: "small".to_owned(),
        partition: 0,
    };
    let checkpoint = OffsetCheckpoint {
        offsets: [(small_key, 1)].into(),
    };
    let path = Path::new(HOME).join("cleaner-offset-checkpoint");
    checkpoint.write(&storage, &path).unwrap();
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let is_full = Fault::of(Operation::Write, "/large-0/", Failure::NoSpace);
    storage.inject(is_full.lasting());
    let mut clean_at = |now_ms: i64| {
        let report = cleaner.clean_dirtiest(&directory, now_ms, &stop).unwrap();
        (report.is_some(), cleaner.take_news())
    };
    let (is_done, news) = clean_at(NOW_MS);
    assert!(is_done);
    assert_eq!(small.records(), ["3 a=3"]);
    assert_eq!(news.len(), 1, "{news:?}");
    assert_eq!(news[0].directory, large.directory);
    assert_eq!(
        clean_at(NOW_MS + 1),
        (false, Vec::new()),
        "it is left alone"
    );
    let later_ms = NOW_MS + COMPACTION_RETRY_MS;
    assert_eq!(clean_at(later_ms), (false, Vec::new()), "told once");
    storage.heal();
    assert_eq!(clean_at(later_ms + 1), (false, Vec::new()));
    assert!(clean_at(later_ms + COMPACTION_RETRY_MS).0);
    assert_eq!(large.records(), ["4 a=4"]);
}

/// The log was as dirty as before: every 15 s all of it was compacted again, and a warning written.
#[test]
fn a_log_of_which_the_checkpoint_takes_nothing_is_not_compacted_again_at_once() {
    let storage = MemoryStorage::default();
    let directory = in_memory(&storage);
    let logs = ["a", "b"].map(|topic| dirty_log(&directory, topic, 0, 3));
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let is_full = Fault::of(
        Operation::Write,
        "cleaner-offset-checkpoint",
        Failure::NoSpace,
    );
    storage.inject(is_full.lasting());
    let mut clean_at = |now_ms: i64| {
        let report = cleaner.clean_dirtiest(&directory, now_ms, &stop).unwrap();
        (
            report.map(|report| report.first_dirty_offset),
            cleaner.take_news(),
        )
    };
    let (done, news) = clean_at(NOW_MS);
    assert_eq!(done, None);
    assert_eq!(news.len(), 2, "{news:?}");
    assert!(
        news[0].reason.contains("cleaner-offset-checkpoint"),
        "{news:?}"
    );
    for log in &logs {
        assert_eq!(log.records(), ["2 a=2"]);
    }
    assert_eq!(clean_at(NOW_MS + 15_000), (None, Vec::new()), "left alone");
    let later_ms = NOW_MS + COMPACTION_RETRY_MS;
    assert_eq!(clean_at(later_ms), (None, Vec::new()), "told once");
    storage.heal();
    assert_eq!(clean_at(later_ms + COMPACTION_RETRY_MS).0, Some(0));
    let checkpoint = cleaner_checkpoint::read(&directory).unwrap();
    assert_eq!(checkpoint.offsets.len(), 1);
}

/// It went by `log.retention.check.interval.ms`, 5 min; Kafka's cleaner does it each time it looks.
#[test]
fn old_segments_of_compacted_logs_go_when_the_cleaner_looks_and_of_other_logs_do_not() {
    let home = home();
    let directory = on_disk(&home);
    let policies = [(true, true), (true, false), (false, true)];
    let [both, compacted, deleted] = policies.map(|(compact, delete)| {
        let topic = format!("compact_{compact}_delete_{delete}");
        let partition = dirty_log(&directory, &topic, 0, 3);
        partition.log.set_config(LogConfig {
            cleanup_policy: CleanupPolicy { compact, delete },
            retention_ms: 1,
            ..config()
        });
        partition
    });
    compacted.log.advance_log_start_offset(2).unwrap();
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let next_year_ms = NOW_MS + 365 * 24 * 3_600_000;
    cleaner
        .delete_old_segments(&directory, next_year_ms, &stop)
        .unwrap();
    assert_eq!(both.records(), Vec::<String>::new());
    assert_eq!(compacted.log.first_base_offset(), Some(2), "DeleteRecords");
    assert_eq!(compacted.records(), ["2 a=2"]);
    assert_eq!(deleted.records().len(), 3, "the housekeeper's");
}

/// It ended the cleaner's thread: no log of the directory was compacted any more, and the broker's
/// log said so once, at the panic.
#[test]
fn a_log_over_which_the_cleaner_panics_stops_no_other() {
    let storage = MemoryStorage::default();
    let directory = in_memory(&storage);
    let bad = dirty_log(&directory, "bad", 0, 5);
    let good = dirty_log(&directory, "good", 0, 3);
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let panic = Fault::of(Operation::Write, "/bad-0/", Failure::Panic);
    storage.inject(panic.lasting());
    let mut clean_at = |now_ms: i64| {
        let report = cleaner.clean_dirtiest(&directory, now_ms, &stop).unwrap();
        (report.is_some(), cleaner.take_news())
    };
    // Whichever of them comes first.
    let (is_done, mut news) = clean_at(NOW_MS);
    assert!(is_done);
    let (is_done, later) = clean_at(NOW_MS);
    assert!(!is_done);
    news.extend(later);
    assert_eq!(good.records(), ["2 a=2"]);
    assert_eq!(news.len(), 1, "{news:?}");
    assert_eq!(news[0].directory, bad.directory);
    let reason = "panicked: a call that nobody expected";
    assert!(news[0].reason.contains(reason), "{news:?}");
    storage.heal();
    assert!(clean_at(NOW_MS + COMPACTION_RETRY_MS).0);
    assert_eq!(bad.records(), ["4 a=4"]);
}
