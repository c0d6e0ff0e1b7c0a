//! Markers, aborted records, and what producers must find again of themselves.

use kafkalite::batch::AppendOrigin;
use kafkalite::log::compact::Cleaner;

use super::partition::{MAP_BYTES, NOW_MS, Partition, RETENTION_MS, build, home, of_producer};

#[test]
fn a_commit_marker_stays_until_its_records_are_gone_and_its_horizon_has_passed() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send_in_transaction(5, 0, &[("a", Some("1"))]);
    let marker = partition.end_transaction(5, true);
    // A later epoch of the producer, so that the marker is not its last sign of life.
    partition.send_in_transaction(5, 1, &[("z", Some("1"))]);
    partition.end_transaction(5, true);
    partition.clean();
    assert!(partition.markers().contains(&marker));
    assert_eq!(
        partition.at(marker).header.delete_horizon_ms(),
        None,
        "its record is there"
    );
    partition.send(&[("a", Some("2"))]);
    partition.clean();
    assert_eq!(
        partition.at(marker).header.delete_horizon_ms(),
        None,
        "its record went just now"
    );
    partition.clean();
    let horizon_ms = partition.now_ms + RETENTION_MS;
    assert_eq!(
        partition.at(marker).header.delete_horizon_ms(),
        Some(horizon_ms)
    );
    partition.now_ms = horizon_ms - 1;
    partition.clean();
    assert!(partition.markers().contains(&marker));
    partition.now_ms = horizon_ms;
    partition.clean();
    assert!(!partition.markers().contains(&marker));
}

#[test]
fn aborted_records_go_at_once_and_their_marker_with_its_index_entry_later() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send_in_transaction(5, 0, &[("a", Some("2"))]);
    partition.send_in_transaction(5, 1, &[("a", Some("3"))]);
    let marker = partition.end_transaction(5, false);
    partition.send_in_transaction(5, 2, &[("z", Some("1"))]);
    partition.end_transaction(5, true);
    let aborted =
        |partition: &Partition| partition.log.aborted_transactions(0, 1000).unwrap().len();
    assert_eq!(aborted(&partition), 1);
    partition.clean();
    assert_eq!(
        partition.records(),
        ["0 a=1", "4 z=1"],
        "the aborted ones hide nothing"
    );
    assert!(partition.markers().contains(&marker));
    assert_eq!(
        aborted(&partition),
        1,
        "readers of the old segment may come back"
    );
    partition.clean();
    let horizon_ms = NOW_MS + RETENTION_MS;
    assert_eq!(
        partition.at(marker).header.delete_horizon_ms(),
        Some(horizon_ms)
    );
    assert_eq!(aborted(&partition), 0);
    partition.now_ms = horizon_ms;
    partition.clean();
    assert!(!partition.markers().contains(&marker));
}

#[test]
fn the_last_sequence_of_an_active_producer_survives_its_records() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send_with(
        of_producer(9, 0, false),
        &[("a", Some("1")), ("b", Some("1"))],
    );
    partition.send_with(
        of_producer(9, 2, false),
        &[("a", Some("2")), ("b", Some("2"))],
    );
    partition.send(&[("a", Some("3")), ("b", Some("3"))]);
    partition.clean();
    assert_eq!(partition.records(), ["4 a=3", "5 b=3"]);
    let header = partition.at(2).header;
    assert_eq!(
        (
            header.records_count,
            header.last_sequence(),
            header.last_offset()
        ),
        (0, 3, 3)
    );
    assert!(
        partition
            .batches()
            .iter()
            .all(|batch| batch.header.base_offset != 0)
    );
    for entry in std::fs::read_dir(&partition.directory).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "snapshot")
        {
            std::fs::remove_file(path).unwrap();
        }
    }
    partition.reopen();
    assert_eq!(partition.log.producers().get(9).unwrap().last_sequence(), 3);
    let again = build(
        of_producer(9, 2, false),
        NOW_MS,
        &[("a", Some("2")), ("b", Some("2"))],
    );
    let info = partition.append(again, AppendOrigin::Client).unwrap();
    assert!(info.is_duplicate && info.first_offset == 2);
}

#[test]
fn the_last_batch_of_a_round_keeps_its_header_so_that_no_offset_is_lost() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send_in_transaction(5, 0, &[("b", Some("1")), ("c", Some("1"))]);
    partition.end_transaction(5, false);
    partition.roll();
    partition.send_in_transaction(6, 0, &[("d", Some("1")), ("e", Some("1"))]);
    partition.roll();
    partition.end_transaction(6, false);
    partition.roll();
    partition.send(&[("f", Some("1"))]);
    partition
        .clean_with(&mut Cleaner::new(MAP_BYTES, 0.9))
        .unwrap();
    let ends: Vec<i64> = partition
        .batches()
        .iter()
        .map(|batch| batch.header.last_offset())
        .collect();
    assert_eq!(
        ends,
        [0, 2, 3, 5, 6, 7],
        "5 and 2 are the last data of their producers, too"
    );
}
