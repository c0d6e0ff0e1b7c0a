//! One round: how far it goes, which segments it makes one, and when it changes nothing.

use std::sync::atomic::AtomicBool;

use kafkalite::log::compact::{Cleaner, plan_of};

use super::partition::{KeyValue, MAP_BYTES, NOW_MS, Partition, config, home};

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
            .replace_segments(&[], &[version], NOW_MS)
            .unwrap()
    );
    let active = partition.log.segments()[1].version();
    assert!(
        !partition
            .log
            .replace_segments(&[], &[active], NOW_MS)
            .unwrap()
    );
    assert_eq!(partition.records(), ["0 a=1", "1 b=2", "2 b=3"]);
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
