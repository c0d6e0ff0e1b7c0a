//! Readers and appends beside the cleaner, and after it.

use std::sync::atomic::{AtomicBool, Ordering};

use kafkalite::batch::build::BatchOptions;
use kafkalite::batch::{AppendOrigin, BatchHeader, RecordReader};
use kafkalite::error::Error;
use kafkalite::log::append::AppendRequest;
use kafkalite::log::compact::{Cleaner, plan_of};
use kafkalite::log::log::Log;
use kafkalite::log::read::{FetchedRange, ReadIsolation};

use super::partition::{MAP_BYTES, NOW_MS, Partition, RETENTION_MS, build, home};
use crate::random::RaiseAtEnd;

#[test]
fn what_a_reader_holds_stays_what_it_was_beside_the_swap() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..20 {
        partition.send(&[("a", Some(&number.to_string()))]);
    }
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    let range = partition
        .log
        .read(0, 1 << 20, true, ReadIsolation::HighWatermark)
        .unwrap();
    let before = range.to_vec().unwrap();
    partition
        .clean_with(&mut Cleaner::new(MAP_BYTES, 0.9))
        .unwrap();
    partition.log.delete_due_files(i64::MAX).unwrap();
    assert_eq!(range.to_vec().unwrap(), before);
    assert_eq!(partition.records(), ["19 a=19"]);
}

/// Two aborted transactions, the records and markers of each in a segment of their own.
fn with_aborted_transactions(home: &std::path::Path) -> Partition {
    let mut partition = Partition::new(home);
    for producer_id in [5, 6] {
        partition.roll();
        partition.send_in_transaction(producer_id, 0, &[("a", Some("1"))]);
        partition.end_transaction(producer_id, false);
    }
    // Later ones, so that the markers are not the producers' last sign of life.
    for producer_id in [5, 6] {
        partition.roll();
        partition.send_in_transaction(producer_id, 1, &[("z", Some("1"))]);
        partition.end_transaction(producer_id, true);
    }
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    partition
}

fn read_first(log: &Log) -> FetchedRange {
    let range = log.read(0, 1, true, ReadIsolation::LastStable).unwrap();
    let aborted = log.aborted_of(&range).unwrap().unwrap();
    assert_eq!((aborted[0].producer_id, aborted[0].first_offset), (5, 0));
    range
}

/// A reader had found records, and then their segment was deleted: the look for aborted
/// transactions began at the next one, and the reader took the records for committed.
#[test]
fn records_of_a_segment_deleted_meanwhile_are_not_taken_for_committed() {
    let home = home();
    let partition = with_aborted_transactions(home.path());
    let log = &partition.log;
    let range = read_first(log);
    log.advance_log_start_offset(2).unwrap();
    assert_eq!(log.delete_old_segments(NOW_MS).unwrap(), 1);
    assert_eq!(log.aborted_of(&range).unwrap(), None);
    let again = log.read_committed(0, 1, true).map(|_| ());
    assert!(matches!(again, Err(Error::OffsetOutOfRange { .. })));
}

/// Aborted records go in one round, the entries that name them in a later one.
#[test]
fn records_of_segments_cleaned_meanwhile_are_not_taken_for_committed() {
    let home = home();
    let mut partition = with_aborted_transactions(home.path());
    let range = read_first(&partition.log);
    for _ in 0..3 {
        partition.clean();
        partition.now_ms += RETENTION_MS;
    }
    assert_eq!(partition.log.aborted_of(&range).unwrap(), None);
    let (range, aborted) = partition.log.read_committed(0, 1, true).unwrap();
    let first = BatchHeader::parse(&range.to_vec().unwrap()).unwrap();
    assert!(first.unwrap().base_offset >= 4, "an aborted record is left");
    assert_eq!(aborted, []);
}

/// The marker of a transaction is cut off, and with it the entry.
#[test]
fn records_before_a_cut_made_meanwhile_are_not_taken_for_committed() {
    let home = home();
    let partition = with_aborted_transactions(home.path());
    let range = read_first(&partition.log);
    assert!(partition.log.truncate_to(1, NOW_MS).unwrap());
    assert_eq!(partition.log.aborted_of(&range).unwrap(), None);
    let (range, aborted) = partition.log.read_committed(0, 1, true).unwrap();
    assert!(range.is_empty(), "the transaction is open again");
    assert_eq!(aborted, []);
}

#[test]
fn readers_beside_retention_are_told_of_every_aborted_record() {
    const TRANSACTIONS: i64 = 1000;
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..TRANSACTIONS {
        partition.roll();
        partition.send_in_transaction(5, number as i32, &[("a", Some("1"))]);
        partition.end_transaction(5, false);
    }
    let (log, is_done) = (&partition.log, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _end = RaiseAtEnd(&is_done);
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) {
                    let start = log.offsets().log_start_offset;
                    let Ok((range, aborted)) = log.read_committed(start, 1, true) else {
                        continue;
                    };
                    let begins = aborted.first().map(|first| first.first_offset);
                    assert!(
                        range.is_empty() || begins == Some(start),
                        "{start}: {begins:?}"
                    );
                }
            })
        });
        for number in 1..TRANSACTIONS {
            log.advance_log_start_offset(2 * number).unwrap();
            log.delete_old_segments(NOW_MS).unwrap();
            assert!(!readers.iter().any(|reader| reader.is_finished()));
        }
    });
}

#[test]
fn a_read_in_the_middle_of_what_was_removed_finds_the_next_record() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..30 {
        partition.roll();
        partition.send(&[("a", Some(&number.to_string()))]);
    }
    partition.clean();
    for offset in 0..=30 {
        let range = partition
            .log
            .read(offset, 1 << 20, true, ReadIsolation::LogEnd)
            .unwrap();
        let bytes = range.to_vec().unwrap();
        let header = BatchHeader::parse(&bytes).unwrap().unwrap();
        assert_eq!(header.base_offset, offset.max(29));
    }
}

/// Records that name their own offset: whatever a reader gets wrong shows in the record itself.
fn numbered(keys: i64, offset: i64) -> Vec<u8> {
    let (key, value) = ((offset * 7 % keys).to_string(), offset.to_string());
    build(BatchOptions::default(), NOW_MS, &[(&key, Some(&value))])
}

/// Reads from `offset` to the end, which must be reached, and returns how many records it saw.
fn check_numbered(log: &Log, reader: &mut RecordReader, mut offset: i64) -> usize {
    let mut seen = 0;
    loop {
        let range = log
            .read(offset, 4096, true, ReadIsolation::HighWatermark)
            .unwrap();
        // The copy is made later than the look-up, so that a swap may fall in between.
        std::thread::yield_now();
        let bytes = range.to_vec().unwrap();
        let mut at = 0;
        while let Some(header) = BatchHeader::parse(&bytes[at..]).unwrap()
            && at + header.size_bytes <= bytes.len()
        {
            for record in reader.read(&bytes[at..]).unwrap() {
                let record = record.unwrap();
                assert_eq!(record.value, Some(record.offset.to_string().as_bytes()));
                seen += 1;
            }
            at += header.size_bytes;
            assert!(
                header.next_offset() > offset,
                "offset {offset} is answered by {header:?}"
            );
            offset = header.next_offset();
        }
        if at == 0 {
            return seen;
        }
    }
}

#[test]
fn readers_appends_and_the_cleaner_go_on_beside_each_other() {
    const BATCHES: i64 = 5000;
    const KEYS: i64 = 50;
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.config.segment_bytes = 2000;
    partition.log.set_config(partition.config.clone());
    let (log, done) = (partition.log.clone(), AtomicBool::new(false));
    let is_done = || done.load(Ordering::Acquire);
    let rounds = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _end = RaiseAtEnd(&done);
        for slot in 0..2 {
            let (log, is_done) = (&log, &is_done);
            scope.spawn(move || {
                let mut reader = RecordReader::new();
                let mut turn = slot;
                while !is_done() {
                    let end = log.offsets().high_watermark;
                    check_numbered(log, &mut reader, (turn * 131) % (end + 1));
                    turn += 1;
                }
            });
        }
        let cleaning = scope.spawn(|| {
            let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
            let mut checkpoint = None;
            while !is_done() {
                let plan = plan_of(&log, checkpoint, NOW_MS).unwrap();
                if plan.cleanable_bytes == 0 {
                    std::thread::yield_now();
                    continue;
                }
                let report = cleaner
                    .clean(&log, &plan, NOW_MS, &AtomicBool::new(false))
                    .unwrap();
                checkpoint = report.map(|report| report.end_offset).or(checkpoint);
                rounds.fetch_add(1, Ordering::Release);
            }
        });
        for offset in 0..BATCHES {
            let mut bytes = numbered(KEYS, offset);
            let request = AppendRequest {
                records: &mut bytes,
                origin: AppendOrigin::Client,
                leader_epoch: 0,
                transaction_version: None,
                guard: None,
            };
            log.append(&mut [request], NOW_MS).remove(0).unwrap();
            if offset % 10 == 0 {
                log.flush().unwrap();
            }
        }
        log.flush().unwrap();
        while rounds.load(Ordering::Acquire) == 0 && !cleaning.is_finished() {
            std::thread::yield_now();
        }
    });
    partition.clean();
    let kept = partition
        .batches()
        .iter()
        .filter(|batch| batch.header.base_offset < BATCHES)
        .count();
    assert_eq!(kept as i64, KEYS);
}
