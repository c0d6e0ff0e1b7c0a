//! Which records stay, and what becomes of the batches around them.

use kafkalite::batch::build::{BatchBuilder, BatchOptions};
use kafkalite::batch::{AppendOrigin, Codec};

use super::partition::{NOW_MS, Partition, RETENTION_MS, home, of_producer};

#[test]
fn of_each_key_the_newest_record_stays_at_its_offset() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]);
    partition.send(&[("c", Some("1"))]);
    partition.roll();
    partition.send(&[("b", Some("2"))]);
    let before = partition.at(2).records[2].clone();
    let report = partition.clean();
    assert_eq!(report.end_offset, 5);
    assert_eq!(partition.records(), ["2 a=2", "3 c=1", "4 b=2"]);
    assert_eq!(
        partition.at(2).records,
        [before],
        "timestamp and headers are what they were"
    );
    assert_eq!(
        (report.counts.records_read, report.counts.records_written),
        (5, 3)
    );
}

#[test]
fn a_batch_that_is_written_again_keeps_its_range_of_offsets_and_its_sequence() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send_with(
        of_producer(9, 0, false),
        &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))],
    );
    let before = partition.at(0).header;
    partition.send(&[("a", Some("2")), ("c", Some("2"))]);
    partition.clean();
    let after = partition.at(0).header;
    assert_eq!((after.base_offset, after.last_offset()), (0, 2));
    assert_eq!(
        (
            after.producer_id,
            after.base_sequence,
            after.last_sequence()
        ),
        (9, 0, 2)
    );
    assert_eq!(
        (after.records_count, after.base_timestamp),
        (1, before.base_timestamp + 1)
    );
    assert_eq!(after.partition_leader_epoch, before.partition_leader_epoch);
}

#[test]
fn a_batch_of_which_every_record_stays_is_copied_byte_for_byte() {
    let home = home();
    let mut partition = Partition::new(home.path());
    let options = BatchOptions {
        codec: Codec::Zstd,
        ..BatchOptions::default()
    };
    partition.send_with(options, &[("a", Some("1")), ("b", Some("1"))]);
    let before = partition.at(0).header;
    partition.clean();
    assert_eq!(partition.at(0).header, before);
}

#[test]
fn a_compressed_batch_is_written_again_with_its_codec() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let home = home();
        let mut partition = Partition::new(home.path());
        let options = BatchOptions {
            codec,
            ..BatchOptions::default()
        };
        partition.send_with(options, &[("a", Some("1")), ("b", Some("1"))]);
        partition.send(&[("a", Some("2"))]);
        partition.clean();
        assert_eq!(partition.records(), ["1 b=1", "2 a=2"], "{codec:?}");
        assert_eq!(partition.at(1).header.codec_id(), codec.id());
    }
}

#[test]
fn a_tombstone_takes_its_key_away_and_stays_itself_until_its_horizon() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", None), ("b", Some("1"))]);
    partition.clean();
    assert_eq!(partition.records(), ["1 a=(null)", "2 b=1"]);
    let horizon_ms = NOW_MS + RETENTION_MS;
    let header = partition.at(1).header;
    assert_eq!(header.delete_horizon_ms(), Some(horizon_ms));
    assert_eq!(header.base_timestamp, horizon_ms);
    assert_eq!(
        partition.at(1).records[0].timestamp,
        NOW_MS,
        "the record's own time is kept"
    );
    partition.now_ms = horizon_ms - 1;
    partition.clean();
    assert_eq!(partition.records(), ["1 a=(null)", "2 b=1"]);
    assert_eq!(
        partition.at(1).header.delete_horizon_ms(),
        Some(horizon_ms),
        "it never moves"
    );
    partition.now_ms = horizon_ms;
    partition.clean();
    assert_eq!(partition.records(), ["2 b=1"]);
}

#[test]
fn a_tombstone_that_is_not_the_newest_of_its_key_goes_at_once() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", None)]);
    partition.send(&[("a", Some("1"))]);
    partition.clean();
    assert_eq!(partition.records(), ["1 a=1"]);
}

#[test]
fn records_without_a_key_are_dropped_and_counted() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.config.cleanup_policy.compact = false;
    partition.log.set_config(partition.config.clone());
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(NOW_MS, None, Some(b"1"), &[]).unwrap();
    builder.append(NOW_MS, Some(b"a"), Some(b"1"), &[]).unwrap();
    partition
        .append(builder.finish().unwrap(), AppendOrigin::Client)
        .unwrap();
    partition.config.cleanup_policy.compact = true;
    partition.log.set_config(partition.config.clone());
    let report = partition.clean();
    assert_eq!(report.counts.keyless_records, 1);
    assert_eq!(partition.records(), ["1 a=1"]);
}

/// A message of magic 1; no value is a tombstone.
fn legacy_message(offset: i64, timestamp: i64, key: &str, value: Option<&str>) -> Vec<u8> {
    let mut body = vec![1, 0];
    body.extend_from_slice(&timestamp.to_be_bytes());
    body.extend_from_slice(&(key.len() as i32).to_be_bytes());
    body.extend_from_slice(key.as_bytes());
    body.extend_from_slice(&value.map_or(-1, |value| value.len() as i32).to_be_bytes());
    body.extend_from_slice(value.unwrap_or_default().as_bytes());
    let mut message = offset.to_be_bytes().to_vec();
    message.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    message.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    message.extend_from_slice(&body);
    message
}

#[test]
fn tombstones_of_magic_1_go_by_the_age_of_their_segment() {
    let home = home();
    let long = "2".repeat(150);
    let mut partition = Partition::new(home.path());
    // Too small for two segments to become one, which would be as young as the younger.
    partition.config.segment_bytes = 320;
    partition.log.set_config(partition.config.clone());
    let mut old = legacy_message(0, NOW_MS, "a", Some("1"));
    old.extend(legacy_message(1, NOW_MS, "a", None));
    old.extend(legacy_message(2, NOW_MS, "b", Some("1")));
    old.extend(legacy_message(3, NOW_MS, "b", Some(&long)));
    partition.append(old, AppendOrigin::Replication).unwrap();
    let kept = format!("3 b={long}");
    partition.clean();
    assert_eq!(partition.records(), ["1 a=(null)", &kept]);
    assert_eq!(
        partition.at(1).header.magic,
        1,
        "what stays whole is copied"
    );
    // Old is what was last written the retention or more before the newest clean segment.
    partition.now_ms += RETENTION_MS - 1;
    partition.send(&[("c", Some("1"))]);
    partition.clean();
    partition.clean();
    assert_eq!(partition.records(), ["1 a=(null)", &kept, "5 c=1"]);
    partition.now_ms += 1;
    partition.send(&[("d", Some("1"))]);
    partition.clean();
    assert!(
        partition.records().contains(&"1 a=(null)".to_owned()),
        "the newest was dirty then"
    );
    partition.clean();
    assert!(!partition.records().contains(&"1 a=(null)".to_owned()));
    assert!(partition.records().contains(&kept));
}
