//! Readers and appends beside the cleaner, and after it.

use std::sync::atomic::AtomicBool;

use kafkalite::batch::build::BatchOptions;
use kafkalite::batch::{AppendOrigin, BatchHeader, RecordReader};
use kafkalite::log::append::AppendRequest;
use kafkalite::log::compact::{Cleaner, plan_of};
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;

use super::partition::{MAP_BYTES, NOW_MS, Partition, build, home};
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
    let is_done = || done.load(std::sync::atomic::Ordering::Acquire);
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
                rounds.fetch_add(1, std::sync::atomic::Ordering::Release);
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
        while rounds.load(std::sync::atomic::Ordering::Acquire) == 0 && !cleaning.is_finished() {
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
