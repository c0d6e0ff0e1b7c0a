//! The log of one partition on a real file system: append, read, roll, reopen, cut, delete.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use kafkalite::batch::RecordReader;
use kafkalite::batch::build::{BatchBuilder, BatchOptions};
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::error::Error;
use kafkalite::limits::RECORD_ERRORS_MAX;
use kafkalite::log::append::{AppendInfo, AppendRequest};
use kafkalite::log::config::LogConfig;
use kafkalite::log::health::Health;
use kafkalite::log::log::Log;
use kafkalite::log::partition_metadata::create_directory;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::recover::{LoadReport, LogParameters, load};
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;

use crate::log_directory::log_parameters;

const NOW_MS: i64 = 1_700_000_000_000;

fn small_segments() -> LogConfig {
    LogConfig {
        segment_bytes: 2_000,
        index_interval_bytes: 256,
        ..LogConfig::default()
    }
}

/// A batch of `count` records whose values are their numbers from `first` on.
pub fn batch(first: i64, count: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for number in first..first + count {
        let value = format!("value-{number}-{}", "x".repeat(40));
        builder
            .append(NOW_MS + number, None, Some(value.as_bytes()), &[])
            .unwrap();
    }
    builder.finish().unwrap()
}

fn open(
    directory: &Path,
    config: &LogConfig,
    was_clean: bool,
    recovery_point: i64,
) -> (Arc<Log>, LoadReport) {
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    let health = Arc::new(Health::new(directory));
    let parameters = LogParameters {
        recovery_point,
        was_clean,
        ..log_parameters(directory, config.clone())
    };
    load(&open_segments, &health, parameters).unwrap()
}

fn new_log(directory: &Path, config: &LogConfig) -> Arc<Log> {
    create_directory(&DiskStorage, directory, Uuid([7; 16])).unwrap();
    open(directory, config, false, 0).0
}

pub fn append(log: &Log, bytes: &mut [u8]) -> Result<AppendInfo, Error> {
    append_in(log, 3, bytes)
}

fn append_in(log: &Log, leader_epoch: i32, bytes: &mut [u8]) -> Result<AppendInfo, Error> {
    let request = AppendRequest {
        records: bytes,
        origin: AppendOrigin::Client,
        leader_epoch,
        transaction_version: None,
        guard: None,
    };
    log.append(&mut [request], NOW_MS).remove(0)
}

fn fill(log: &Log, batches: i64) {
    for number in 0..batches {
        append(log, &mut batch(number * 5, 5)).unwrap();
    }
}

/// Offsets and values of everything from `from` on, batch by batch.
fn read_all(log: &Log, from: i64, isolation: ReadIsolation) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    let mut next = from;
    let mut reader = RecordReader::new();
    loop {
        let bytes = log
            .read(next, 1, true, isolation)
            .unwrap()
            .to_vec()
            .unwrap();
        if bytes.is_empty() {
            return found;
        }
        for record in reader.read(&bytes).unwrap() {
            let record = record.unwrap();
            if record.offset >= next {
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                found.push((record.offset, value.split('-').nth(1).unwrap().to_owned()));
                next = record.offset + 1;
            }
        }
    }
}

fn expected(from: i64, to: i64) -> Vec<(i64, String)> {
    (from..to)
        .map(|number| (number, number.to_string()))
        .collect()
}

#[test]
fn epochs_of_records_that_a_crash_brings_back_are_known_again() {
    for kept in [10, 15, 20, 25] {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("t-0");
        let config = LogConfig::default();
        let log = new_log(&directory, &config);
        fill(&log, 3);
        log.start_leader_epoch(5).unwrap();
        append_in(&log, 5, &mut batch(15, 5)).unwrap();
        log.start_leader_epoch(6).unwrap();
        append_in(&log, 6, &mut batch(20, 5)).unwrap();
        let epochs = log.leader_epochs();
        log.flush().unwrap();
        assert_eq!(log.advance_log_start_offset(kept).unwrap(), kept);
        assert_ne!(log.leader_epochs(), epochs);
        drop(log);
        // The checkpoint of log starts has not been written since.
        let (log, report) = open(&directory, &config, false, 25);
        assert_eq!(log.offsets().log_start_offset, 0);
        assert_eq!(log.leader_epochs(), epochs, "{:?}", report.notes);
        drop(log);
        let (log, _) = open(&directory, &config, true, 25);
        assert_eq!(log.leader_epochs(), epochs);
    }
}

#[test]
fn what_is_appended_is_read_back_over_many_segments_and_after_a_clean_stop() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("t-0");
    let config = small_segments();
    let log = new_log(&directory, &config);
    fill(&log, 40);
    assert!(log.segments().len() > 5);
    assert_eq!(read_all(&log, 0, ReadIsolation::LogEnd), expected(0, 200));
    assert_eq!(
        read_all(&log, 137, ReadIsolation::LogEnd),
        expected(137, 200)
    );
    log.close().unwrap();
    let (log, report) = open(&directory, &config, true, 200);
    assert_eq!(report, LoadReport::default());
    assert_eq!(
        read_all(&log, 3, ReadIsolation::HighWatermark),
        expected(3, 200)
    );
    assert_eq!(log.leader_epochs().latest_epoch(), Some(3));
    append(&log, &mut batch(200, 5)).unwrap();
    assert_eq!(
        read_all(&log, 199, ReadIsolation::LogEnd),
        expected(199, 205)
    );
}

/// Only what was rolled while the broker ran had a jitter: after a start, and in new partitions,
/// all logs that were written to alike closed their segments at once.
#[test]
fn the_jitter_of_a_segment_counts_for_a_first_and_for_a_loaded_one_too() {
    let config = LogConfig {
        segment_ms: 1_000,
        segment_jitter_ms: 1_000,
        ..LogConfig::default()
    };
    for restarts in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("t-0");
        let mut log = new_log(&directory, &config);
        append(&log, &mut batch(0, 1)).unwrap();
        if restarts {
            log.close().unwrap();
            log = open(&directory, &config, true, 1).0;
        }
        append(&log, &mut batch(1_000, 1)).unwrap();
        assert_eq!(log.segments().len(), 2);
    }
}

/// What one call appended to an empty segment went into that one whole, however large it was and
/// whatever its timestamps were.
#[test]
fn requests_that_are_written_together_fill_segments_as_those_that_come_alone() {
    let append_together = |config: &LogConfig, batches: &mut [Vec<u8>]| {
        let home = tempfile::tempdir().unwrap();
        let log = new_log(&home.path().join("t-0"), config);
        let requests = batches.iter_mut().map(|records| AppendRequest {
            records,
            origin: AppendOrigin::Client,
            leader_epoch: 3,
            transaction_version: None,
            guard: None,
        });
        let mut requests: Vec<_> = requests.collect();
        let answers = log.append(&mut requests, NOW_MS);
        assert!(answers.iter().all(Result::is_ok));
        let sizes: Vec<u64> = log.segments().iter().map(|one| one.size_bytes()).collect();
        (sizes, read_all(&log, 0, ReadIsolation::LogEnd))
    };
    let small = small_segments();
    let mut batches: Vec<_> = (0..40).map(|number| batch(number * 5, 5)).collect();
    let (sizes, records) = append_together(&small, &mut batches);
    assert!(sizes.len() > 5);
    assert!(
        sizes.iter().all(|size| *size <= small.segment_bytes),
        "{sizes:?}"
    );
    assert_eq!(records, expected(0, 200));
    let short = LogConfig {
        segment_ms: 1_000,
        ..LogConfig::default()
    };
    let mut batches = [batch(0, 1), batch(1_000, 1), batch(1_001, 1)];
    assert_eq!(append_together(&short, &mut batches).0.len(), 2);
    let mut batches = [batch(0, 1), batch(1_001, 1), batch(2_002, 1)];
    assert_eq!(append_together(&short, &mut batches).0.len(), 3);
}

/// The bound of the topic as it was by then closed segments whose indexes Kafka
/// maps when it opens them.
#[test]
fn a_smaller_bound_of_indexes_counts_from_the_next_segment_on() {
    let home = tempfile::tempdir().unwrap();
    let config = LogConfig {
        index_interval_bytes: 0,
        ..LogConfig::default()
    };
    let log = new_log(&home.path().join("t-0"), &config);
    fill(&log, 10);
    log.set_config(LogConfig {
        segment_index_bytes: 40,
        ..config
    });
    fill(&log, 1);
    assert_eq!(log.segments().len(), 1);
    log.truncate_fully_and_start_at(60, NOW_MS).unwrap();
    fill(&log, 10);
    assert!(log.segments().len() > 2);
}

#[test]
fn every_offset_is_found_whatever_the_sizes_of_the_batches_around_it() {
    let home = tempfile::tempdir().unwrap();
    let config = LogConfig {
        segment_bytes: 60_000,
        ..small_segments()
    };
    let log = new_log(&home.path().join("t-0"), &config);
    // Where each batch starts: some are smaller than the index interval, some many times larger.
    let mut starts = Vec::new();
    let mut next = 0;
    for number in 0..300_i64 {
        let count = [1, 2, 1, 40, 7, 90, 3][number as usize % 7];
        append(&log, &mut batch(next, count)).unwrap();
        starts.push((next, next + count));
        next += count;
    }
    assert!(log.segments().len() > 4);
    let mut reader = RecordReader::new();
    for (start, end) in starts {
        for offset in start..end {
            let range = log.read(offset, 1, true, ReadIsolation::LogEnd).unwrap();
            let bytes = range.to_vec().unwrap();
            let mut records = reader.read(&bytes).unwrap();
            let first = records.next().unwrap().unwrap();
            assert_eq!(
                (first.offset, 1 + records.count() as i64),
                (start, end - start)
            );
        }
    }
}

#[test]
fn nothing_above_the_flushed_offset_is_visible_to_a_consumer() {
    let home = tempfile::tempdir().unwrap();
    let log = new_log(&home.path().join("t-0"), &LogConfig::default());
    fill(&log, 2);
    let offsets = log.offsets();
    assert_eq!((offsets.log_end_offset, offsets.high_watermark), (10, 0));
    assert!(
        log.read(0, 1 << 20, true, ReadIsolation::HighWatermark)
            .unwrap()
            .is_empty()
    );
    log.flush().unwrap();
    assert_eq!(log.offsets().high_watermark, 10);
    assert_eq!(
        read_all(&log, 0, ReadIsolation::HighWatermark),
        expected(0, 10)
    );
}

#[test]
fn an_unclean_stop_loses_no_whole_batch_and_cuts_the_torn_one() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("t-0");
    let config = small_segments();
    let log = new_log(&directory, &config);
    fill(&log, 40);
    let active = log.segments().pop().unwrap();
    let path = active.files().path(".log");
    drop(log);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let (log, report) = open(&directory, &config, false, 0);
    assert_eq!(
        read_all(&log, 0, ReadIsolation::HighWatermark),
        expected(0, 195)
    );
    assert!(report.truncated_bytes > 0, "{report:?}");
    append(&log, &mut batch(195, 5)).unwrap();
    assert_eq!(read_all(&log, 0, ReadIsolation::LogEnd), expected(0, 200));
}

#[test]
fn a_truncated_log_goes_on_at_the_offset_it_was_cut_to() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("t-0");
    let log = new_log(&directory, &small_segments());
    fill(&log, 40);
    log.flush().unwrap();
    assert!(log.truncate_to(35, NOW_MS).unwrap());
    assert_eq!(log.offsets().log_end_offset, 35);
    assert_eq!(log.offsets().flushed_offset, 35);
    assert_eq!(
        read_all(&log, 0, ReadIsolation::HighWatermark),
        expected(0, 35)
    );
    append(&log, &mut batch(35, 5)).unwrap();
    assert_eq!(read_all(&log, 30, ReadIsolation::LogEnd), expected(30, 40));
    log.truncate_fully_and_start_at(1000, NOW_MS).unwrap();
    assert_eq!(append(&log, &mut batch(0, 5)).unwrap().first_offset, 1000);
}

/// A cut that waited for the disk, while this replica was elected, took effect in the log of a
/// leader: what others had fetched of it counted as replicated, and was another one's.
#[test]
fn a_cut_whose_role_ends_while_it_looks_for_its_place_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let log = new_log(&home.path().join("t-0"), &small_segments());
    fill(&log, 40);
    log.flush().unwrap();
    let over = || Error::LogDeleted {
        topic: "t".to_owned(),
        partition: 0,
    };
    let asked = Cell::new(0);
    let check = || {
        asked.set(asked.get() + 1);
        if asked.get() < 2 { Ok(()) } else { Err(over()) }
    };
    let before = (log.offsets(), log.truncations());
    assert!(log.truncate_checked(35, NOW_MS, check).is_err());
    assert!(log.restart_checked(50, NOW_MS, || Err(over())).is_err());
    assert_eq!((log.offsets(), log.truncations()), before);
    assert!(!log.is_offline());
    assert_eq!(read_all(&log, 0, ReadIsolation::LogEnd), expected(0, 200));
    append(&log, &mut batch(200, 5)).unwrap();
}

/// A client that read slowly kept the truncation waiting, and with it all
/// that needs the append lock.
#[test]
fn a_truncation_waits_for_no_reader_and_leaves_it_its_bytes() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("t-0");
    let log = new_log(&directory, &LogConfig::default());
    fill(&log, 40);
    log.flush().unwrap();
    let range = log.read(0, 1 << 20, true, ReadIsolation::LogEnd).unwrap();
    let before = range.to_vec().unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    let truncated = log.clone();
    std::thread::spawn(move || done.send(truncated.truncate_to(35, NOW_MS)));
    let is_done = is_done.recv_timeout(std::time::Duration::from_secs(20));
    assert!(is_done.expect("it waits for the reader").unwrap());
    for number in 0..10 {
        append(&log, &mut batch(1000 + number * 5, 5)).unwrap();
    }
    assert_eq!(range.to_vec().unwrap(), before);
    assert_eq!(
        read_all(&log, 0, ReadIsolation::LogEnd)[..35],
        expected(0, 35)
    );
    log.flush().unwrap();
    let all = read_all(&log, 0, ReadIsolation::LogEnd);
    assert_eq!((all.len(), all[35].clone()), (85, (35, "1000".to_owned())));
    drop((log, range));
    let (again, _) = open(&directory, &LogConfig::default(), false, 0);
    assert_eq!(read_all(&again, 0, ReadIsolation::LogEnd), all);
    assert!(std::fs::read_dir(&directory).unwrap().all(|entry| {
        let name = entry.unwrap().file_name();
        !name.to_string_lossy().ends_with(".tmp")
    }));
}

#[test]
fn retention_by_size_keeps_the_newest_segments_and_the_files_go_after_the_delay() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("t-0");
    let config = LogConfig {
        retention_bytes: 6_000,
        ..small_segments()
    };
    let log = new_log(&directory, &config);
    // The in-sync replicas have nothing yet; a roll has flushed what was before it.
    log.set_replicated_offset(0);
    fill(&log, 40);
    assert_eq!(
        log.delete_old_segments(NOW_MS).unwrap(),
        0,
        "nothing is below the high watermark"
    );
    log.set_replicated_offset(i64::MAX);
    log.flush().unwrap();
    assert!(log.delete_old_segments(NOW_MS).unwrap() > 0);
    let start = log.offsets().log_start_offset;
    assert!(start > 0 && log.size_bytes() <= 8_000);
    assert_eq!(
        read_all(&log, start, ReadIsolation::LogEnd),
        expected(start, 200)
    );
    assert!(matches!(
        log.read(0, 1, true, ReadIsolation::LogEnd),
        Err(Error::OffsetOutOfRange { .. })
    ));
    let deleted = || {
        let names = std::fs::read_dir(&directory).unwrap();
        names
            .filter(|e| {
                e.as_ref()
                    .unwrap()
                    .path()
                    .extension()
                    .is_some_and(|x| x == "deleted")
            })
            .count()
    };
    assert!(deleted() > 0);
    assert_eq!(log.delete_due_files(NOW_MS + 59_999).unwrap(), 0);
    assert!(log.delete_due_files(NOW_MS + 60_000).unwrap() > 0);
    assert_eq!(deleted(), 0);
}

#[test]
fn a_timestamp_finds_its_record_in_closed_and_active_segments() {
    let home = tempfile::tempdir().unwrap();
    let log = new_log(&home.path().join("t-0"), &small_segments());
    fill(&log, 40);
    for number in [0, 1, 77, 150, 199] {
        let found = log.offset_for_timestamp(NOW_MS + number).unwrap().unwrap();
        assert_eq!((found.offset, found.timestamp), (number, NOW_MS + number));
        assert_eq!(found.leader_epoch, 3);
    }
    assert_eq!(
        log.offset_for_timestamp(NOW_MS - 5)
            .unwrap()
            .unwrap()
            .offset,
        0
    );
    assert_eq!(log.offset_for_timestamp(NOW_MS + 200).unwrap(), None);
    assert_eq!(log.offset_of_max_timestamp().unwrap().unwrap().offset, 199);
}

/// The batch that made it roll was refused, and smaller ones went on being acknowledged,
/// into a file without a name.
#[test]
fn a_log_whose_directory_was_removed_takes_nothing_more_from_its_next_roll_on() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("t-0");
    let config = LogConfig {
        acks_fsync: false,
        ..small_segments()
    };
    let log = new_log(&directory, &config);
    append(&log, &mut batch(0, 1)).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    append(&log, &mut batch(1, 20)).unwrap();
    let large = append(&log, &mut batch(21, 20));
    assert!(matches!(
        large.unwrap_err(),
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound
    ));
    assert!(matches!(
        append(&log, &mut batch(21, 1)),
        Err(Error::LogDirOffline { .. })
    ));
}

#[test]
fn a_closed_log_takes_no_record_that_the_next_start_would_not_look_for() {
    let home = tempfile::tempdir().unwrap();
    let log = new_log(&home.path().join("t-0"), &LogConfig::default());
    fill(&log, 2);
    log.close().unwrap();
    assert!(matches!(
        append(&log, &mut batch(10, 5)),
        Err(Error::LogDirOffline { .. })
    ));
    assert_eq!(log.offsets().log_end_offset, 10);
    assert_eq!(read_all(&log, 0, ReadIsolation::LogEnd), expected(0, 10));
}

/// Each batch of a call had a thousand sentences, so that a request that named a partition again
/// and again, a hundred bytes each time, took a thousand times its size in memory.
#[test]
fn the_records_named_in_refusals_of_one_call_are_bounded_together() {
    let home = tempfile::tempdir().unwrap();
    let log = new_log(&home.path().join("t-0"), &LogConfig::default());
    let count = RECORD_ERRORS_MAX * 3 / 5;
    let next_year_ms = NOW_MS + 365 * 24 * 3_600_000;
    let mut batches: Vec<Vec<u8>> = (0..3)
        .map(|_| {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            for _ in 0..count {
                builder
                    .append(next_year_ms, None, Some(b"value"), &[])
                    .unwrap();
            }
            builder.finish().unwrap()
        })
        .collect();
    let mut requests: Vec<AppendRequest<'_>> = batches
        .iter_mut()
        .map(|records| AppendRequest {
            records,
            origin: AppendOrigin::Client,
            leader_epoch: 0,
            transaction_version: None,
            guard: None,
        })
        .collect();
    let refused = log.append(&mut requests, NOW_MS).into_iter();
    let found: Vec<_> = refused
        .map(|answer| match answer {
            Err(Error::RecordsRefused(refused)) => (refused.errors_count, refused.errors.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    let rest = RECORD_ERRORS_MAX - count;
    assert_eq!(found, [(count, count), (count, rest), (count, 0)]);
}
