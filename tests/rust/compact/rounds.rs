//! One round: how far it goes, which segments it makes one, and when it changes nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kafkalite::batch::build::BatchOptions;
use kafkalite::batch::header::NO_TIMESTAMP;
use kafkalite::batch::{AppendOrigin, Codec};
use kafkalite::limits::INFLATE_WINDOW_BYTES;
use kafkalite::log::compact::{Cleaner, plan_of};
use kafkalite::log::config::{CleanupPolicy, LogConfig};
use kafkalite::log::storage::{DiskStorage, Storage};

use super::partition::{KeyValue, MAP_BYTES, NOW_MS, Partition, build, config, home};

#[test]
fn the_active_segment_and_what_is_not_stable_are_left_alone() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", Some("2"))]);
    assert_eq!(
        plan_of(&partition.log, None, NOW_MS)
            .unwrap()
            .cleanable_bytes,
        0
    );
    partition.roll();
    partition.send_in_transaction(5, 0, &[("b", Some("1"))]);
    partition.roll();
    partition.send(&[("b", Some("2"))]);
    partition.roll();
    partition.send(&[("b", Some("3"))]);
    let report = partition.clean();
    assert_eq!(report.end_offset, 2, "the open transaction begins at 2");
    assert_eq!(partition.records(), ["1 a=2", "2 b=1", "3 b=2", "4 b=3"]);
}

/// They were inflated as a whole, and held again as what is left of them.
#[test]
fn batches_that_inflate_to_more_than_is_held_are_cleaned() {
    let home = home();
    let config = LogConfig {
        segment_bytes: 64 << 20,
        max_message_bytes: 16 << 20,
        ..config()
    };
    let mut partition = Partition::with_storage(home.path(), config, Arc::new(DiskStorage));
    let large = |name: &str| format!("{name}:{}", "abcdefgh".repeat(INFLATE_WINDOW_BYTES / 24));
    let keys: Vec<String> = (0..9).map(|number| format!("k{number}")).collect();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let options = || BatchOptions {
            codec,
            ..BatchOptions::default()
        };
        let value = large(codec.name());
        let records: Vec<_> = keys.iter().map(|key| (&**key, Some(&*value))).collect();
        partition.send_with(options(), &records);
        partition.send_with(options(), &records[..7]);
    }
    partition.clean();
    let newest = large("zstd");
    let mut left: Vec<String> = (0..2)
        .map(|at| format!("{} k{}={newest}", 55 + at, 7 + at))
        .collect();
    left.extend((0..7).map(|at| format!("{} k{at}={newest}", 57 + at)));
    assert!(partition.records() == left, "not what compaction leaves");
}

#[test]
fn small_segments_become_one_and_the_old_ones_are_called_deleted_for_a_while() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..5 {
        partition.roll();
        partition.send(&[
            ("a", Some(&number.to_string())),
            (&number.to_string(), Some("x")),
        ]);
    }
    partition.clean();
    let bases: Vec<i64> = partition
        .log
        .segments()
        .iter()
        .map(|s| s.base_offset())
        .collect();
    assert_eq!(bases, [0, 10]);
    assert!(
        partition
            .file_names()
            .contains("00000000000000000008.log.deleted")
    );
    partition
        .log
        .delete_due_files(NOW_MS + config().file_delete_delay_ms)
        .unwrap();
    let names = partition.file_names();
    assert!(
        !names.iter().any(|name| name.ends_with(".deleted")),
        "{names:?}"
    );
    let logs = names.iter().filter(|name| name.ends_with(".log")).count();
    assert_eq!(logs, 2);
    partition.reopen();
    assert_eq!(
        partition.records(),
        ["1 0=x", "3 1=x", "5 2=x", "7 3=x", "8 a=4", "9 4=x"]
    );
}

#[test]
fn groups_stay_within_the_size_of_a_segment() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..6 {
        partition.roll();
        partition.send(&[(&number.to_string(), Some(&"x".repeat(1000)))]);
    }
    partition.config.segment_bytes = 2500;
    partition.log.set_config(partition.config.clone());
    let report = partition.clean();
    assert_eq!(report.groups, 3);
    let bases: Vec<i64> = partition
        .log
        .segments()
        .iter()
        .map(|s| s.base_offset())
        .collect();
    assert_eq!(bases, [0, 2, 4, 6]);
}

#[test]
fn a_full_map_ends_the_round_early_and_the_next_one_goes_on_there() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..10 {
        let key = (number % 5).to_string();
        partition.send(&[(&key, Some(&number.to_string()))]);
    }
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    let mut cleaner = Cleaner::new(24 * 5, 0.8);
    let mut ends = Vec::new();
    while let Some(report) = partition.clean_with(&mut cleaner) {
        ends.push(report.end_offset);
        if report.end_offset == 10 {
            break;
        }
    }
    assert_eq!(ends, [4, 8, 10]);
    assert_eq!(
        partition.records(),
        ["5 0=5", "6 1=6", "7 2=7", "8 3=8", "9 4=9"]
    );
}

#[test]
fn a_batch_with_more_keys_than_the_map_holds_is_refused_by_a_sentence() {
    let home = home();
    let mut partition = Partition::new(home.path());
    let keys: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    let records: Vec<KeyValue<'_>> = keys.iter().map(|key| (key.as_str(), Some("x"))).collect();
    partition.send(&records);
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    let plan = plan_of(&partition.log, None, NOW_MS).unwrap();
    let mut cleaner = Cleaner::new(24 * 5, 0.8);
    let error = cleaner
        .clean(&partition.log, &plan, NOW_MS, &AtomicBool::new(false))
        .unwrap_err();
    assert!(
        error.to_string().contains("log.cleaner.dedupe.buffer.size"),
        "{error}"
    );
    assert_eq!(partition.records().len(), 10);
}

#[test]
fn a_segment_cut_or_deleted_meanwhile_is_not_replaced() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", Some("2"))]);
    partition.roll();
    partition.send(&[("a", Some("3"))]);
    let segments = partition.log.segments();
    let version = segments[0].version();
    partition.log.truncate_to(1, NOW_MS).unwrap();
    partition.send(&[("b", Some("2"))]);
    partition.roll();
    partition.send(&[("b", Some("3"))]);
    assert!(
        !partition
            .log
            .replace_segments(&[], &[version], 1, NOW_MS)
            .unwrap()
    );
    let active = partition.log.segments()[1].version();
    assert!(
        !partition
            .log
            .replace_segments(&[], &[active], 1, NOW_MS)
            .unwrap()
    );
    assert_eq!(partition.records(), ["0 a=1", "1 b=2", "2 b=3"]);
}

/// The newest record of a key was mapped, and then cut off. The older one lay in a segment that
/// had not changed, which was replaced by one without it: the key was lost.
#[test]
fn a_cut_elsewhere_keeps_the_records_that_newer_ones_had_replaced() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.roll();
    partition.send(&[("a", Some("2"))]);
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    let plan = plan_of(&partition.log, None, NOW_MS).unwrap();
    partition.log.truncate_to(1, NOW_MS).unwrap();
    partition.send(&[("b", Some("2"))]);
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    let version = partition.log.segments()[0].version();
    let log = &partition.log;
    let replaced = log.replace_segments(&[], &[version], plan.truncations, NOW_MS);
    assert!(!replaced.unwrap());
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    let stop = AtomicBool::new(false);
    let report = cleaner.clean(&partition.log, &plan, NOW_MS, &stop).unwrap();
    assert_eq!(report, None, "what was planned before the cut");
    assert_eq!(partition.records(), ["0 a=1", "1 b=2"]);
    assert!(partition.clean_with(&mut cleaner).is_some());
    assert_eq!(partition.records(), ["0 a=1", "1 b=2"]);
}

#[test]
fn a_stop_leaves_the_log_as_it_was_and_no_file_behind() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", Some("2"))]);
    partition.roll();
    partition.send(&[("a", Some("3"))]);
    let plan = plan_of(&partition.log, None, NOW_MS).unwrap();
    let names = partition.file_names();
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    let report = cleaner
        .clean(&partition.log, &plan, NOW_MS, &AtomicBool::new(true))
        .unwrap();
    assert_eq!(report, None);
    assert_eq!(partition.file_names(), names);
    assert_eq!(partition.records().len(), 3);
}

/// The active segment is not compacted, and `max.compaction.lag.ms` did not close it: a tombstone
/// waited for `segment.ms`, a week.
#[test]
fn the_longest_wait_for_compaction_closes_the_active_segment() {
    let segments_after = |config: LogConfig, waited_ms: i64| {
        let home = home();
        let mut partition = Partition::with_storage(home.path(), config, Arc::new(DiskStorage));
        partition.send(&[("a", Some("1"))]);
        partition.now_ms += waited_ms;
        partition.send(&[("a", Some("2"))]);
        partition.log.segments().len()
    };
    let hourly = LogConfig {
        max_compaction_lag_ms: 3_600_000,
        ..config()
    };
    assert_eq!(segments_after(hourly.clone(), 3_600_000), 1);
    assert_eq!(segments_after(hourly.clone(), 3_600_001), 2);
    let deleted = CleanupPolicy {
        delete: true,
        compact: false,
    };
    let not_compacted = LogConfig {
        cleanup_policy: deleted,
        ..hourly
    };
    assert_eq!(segments_after(not_compacted, 3_600_001), 1);
}

/// `segment.jitter.ms` may be larger than the time it is taken from, which left less than nothing:
/// every record got a segment of its own.
#[test]
fn a_jitter_longer_than_the_time_of_a_segment_leaves_it_some_records() {
    let week_of_jitter = LogConfig {
        segment_jitter_ms: 7 * 24 * 3_600_000,
        ..config()
    };
    let by_segment_ms = LogConfig {
        segment_ms: 1_000,
        ..week_of_jitter.clone()
    };
    let by_compaction = LogConfig {
        max_compaction_lag_ms: 1_000,
        ..week_of_jitter
    };
    for config in [by_segment_ms, by_compaction] {
        let home = home();
        let mut partition = Partition::with_storage(home.path(), config, Arc::new(DiskStorage));
        partition.send(&[("a", Some("1"))]);
        partition.now_ms += 1_001;
        for _ in 0..20 {
            partition.send(&[("a", Some("2"))]);
        }
        assert_eq!(partition.log.segments().len(), 2);
    }
}

/// A round wrote the records anew and with that made them young: those without a timestamp, whose
/// age is that of their file, were never deleted for it.
#[test]
fn what_a_round_writes_is_as_old_as_what_it_was_made_of() {
    const DAY_MS: i64 = 24 * 3_600_000;
    let home = home();
    let both = LogConfig {
        cleanup_policy: CleanupPolicy {
            delete: true,
            compact: true,
        },
        retention_ms: DAY_MS,
        ..config()
    };
    let mut partition = Partition::with_storage(home.path(), both, Arc::new(DiskStorage));
    for key in ["a", "b"] {
        partition.roll();
        let bytes = build(BatchOptions::default(), NO_TIMESTAMP, &[(key, Some("1"))]);
        partition.append(bytes, AppendOrigin::Client).unwrap();
    }
    let directory = partition.directory.clone();
    let file = |base: i64| directory.join(format!("{base:020}.log"));
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    for (base, days) in [(0, 9), (1, 5)] {
        let written_ms = NOW_MS - days * DAY_MS;
        DiskStorage
            .set_modified_ms(&file(base), written_ms)
            .unwrap();
    }
    partition.clean_with(&mut Cleaner::new(MAP_BYTES, 0.9));
    assert_eq!(partition.log.segments().len(), 2);
    let modified_ms = DiskStorage.modified_ms(&file(0)).unwrap();
    assert_eq!(modified_ms, NOW_MS - 5 * DAY_MS);
    partition.log.delete_old_segments(NOW_MS).unwrap();
    assert_eq!(partition.log.offsets().log_start_offset, 2);
}
