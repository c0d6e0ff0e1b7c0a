//! Readers beside everything that a log does to itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use kafkalite::batch::compression::Codec;
use kafkalite::error::Error;
use kafkalite::log::config::LogConfig;
use kafkalite::log::health::Health;
use kafkalite::log::log::Log;
use kafkalite::log::names::CLEANED;
use kafkalite::log::partition_metadata::create_directory;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::recover::load;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::segment::{Segment, WrittenBatch};
use kafkalite::log::storage::{Storage, read_full_at};
use kafkalite::uuid::Uuid;

use super::plain::valid_prefix;
use super::workbench::{HOME, NOBODY, NOW_MS, PARTITION, append, batch, create};
use crate::log_directory::log_parameters;
use crate::memory_storage::MemoryStorage;
use crate::random::{RaiseAtEnd, Random, is_long_run};

/// Ten thousand segments with 1,024 descriptors, and then every one of them read.
#[test]
fn no_more_segments_are_open_at_once_than_allowed() {
    let (segments, segments_max) = if is_long_run() {
        (10_000, 1024)
    } else {
        (600, 64)
    };
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new(HOME)).unwrap();
    create_directory(&storage, Path::new(PARTITION), Uuid([7; 16])).unwrap();
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), segments_max);
    let config = LogConfig {
        segment_bytes: 150,
        ..LogConfig::default()
    };
    let parameters = log_parameters(PARTITION, config);
    let (log, _) = load(
        &open_segments,
        &Arc::new(Health::new(Path::new(HOME))),
        parameters,
    )
    .unwrap();
    for number in 0..segments {
        append(&log, batch(Codec::None, NOBODY, number, 1, 20), 1).unwrap();
    }
    assert_eq!(log.segments().len() as i64, segments);
    let mut random = Random::new(1);
    for step in 0..2 * segments {
        let offset = if step < segments {
            step
        } else {
            random.below(segments as u64) as i64
        };
        let range = log.read(offset, 1, true, ReadIsolation::LogEnd).unwrap();
        assert_eq!(range.to_vec().unwrap()[..8], offset.to_be_bytes());
    }
    assert!(open_segments.open_count() <= segments_max);
    assert!(
        storage.open_files() <= segments_max,
        "{} files stay open",
        storage.open_files()
    );
    // Beside those kept, the one that is being opened and an index that is being mapped.
    let most = storage.open_files_max();
    assert!(most <= segments_max + 2, "{most} files were open at once");
}

/// The value of the batch at an offset: so that a reader knows what must be there.
fn batch_at(offset: i64) -> Vec<u8> {
    batch(Codec::None, NOBODY, offset, 1, 30 + (offset % 50) as usize)
}

/// Reads from anywhere until told to stop; counts the batches that it has seen.
fn read_until(log: &Log, is_over: &AtomicBool, seen: &AtomicUsize, seed: u64) {
    let mut random = Random::new(seed);
    while !is_over.load(Ordering::Acquire) {
        let offsets = log.offsets();
        let (start, end) = (offsets.log_start_offset, offsets.log_end_offset);
        let offset = start + random.below((end - start).max(1) as u64) as i64;
        let max_bytes = random.below(3000);
        let range = match log.read(offset, max_bytes, true, ReadIsolation::LogEnd) {
            Ok(range) => range,
            // The log has been cut at either end since we asked.
            Err(Error::OffsetOutOfRange { .. }) => continue,
            Err(error) => panic!("reading at {offset}: {error}"),
        };
        let bytes = range.to_vec().unwrap();
        let batches = valid_prefix(&bytes, 0);
        assert!(
            bytes.is_empty() || !batches.is_empty(),
            "no batch at {offset}"
        );
        for batch in &batches {
            let expected = &batch_at(batch.base_offset)[17..];
            assert_eq!(
                batch.content(),
                expected,
                "wrong bytes at {}",
                batch.base_offset
            );
        }
        if let Some(first) = batches.first() {
            assert!(first.last_offset >= offset, "below what was asked for");
        }
        match log.read_committed(offset, max_bytes, true) {
            Ok(_) | Err(Error::OffsetOutOfRange { .. }) => {}
            Err(error) => panic!("the committed records at {offset}: {error}"),
        }
        match log.offset_for_timestamp(NOW_MS + offset) {
            Ok(_) | Err(Error::OffsetOutOfRange { .. }) => {}
            Err(error) => panic!("the timestamp of {offset}: {error}"),
        }
        seen.fetch_add(batches.len(), Ordering::AcqRel);
    }
}

/// One thread appends, rolls, flushes, cuts, retains and cleans; the others read all the while.
#[test]
fn readers_beside_everything_see_right_bytes_or_the_agreed_error() {
    let storage = MemoryStorage::default();
    let config = LogConfig {
        segment_bytes: 900,
        index_interval_bytes: 200,
        retention_bytes: 6_000,
        ..LogConfig::default()
    };
    let opened = create(&storage, &config).unwrap();
    let (log, open_segments) = (opened.log, opened.open_segments);
    let (is_over, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let rounds = if is_long_run() { 20_000 } else { 1_500 };
    std::thread::scope(|scope| {
        let _end = RaiseAtEnd(&is_over);
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let (log, is_over, seen) = (&log, &is_over, &seen);
                scope.spawn(move || read_until(log, is_over, seen, seed))
            })
            .collect();
        let has_failed = || readers.iter().any(ScopedJoinHandle::is_finished);
        let mut random = Random::new(77);
        for round in 0..rounds {
            let end = log.offsets().log_end_offset;
            append(&log, batch_at(end), 1).unwrap();
            match random.below(12) {
                0 => log.flush().unwrap(),
                1 => {
                    log.flush().unwrap();
                    log.delete_old_segments(NOW_MS).unwrap();
                }
                2 => {
                    log.delete_due_files(i64::MAX).unwrap();
                }
                3 => {
                    let offsets = log.offsets();
                    let down = random.below(6) as i64;
                    let to = (end - down).max(offsets.log_start_offset);
                    log.truncate_to(to, NOW_MS).unwrap();
                }
                4 => {
                    let offsets = log.offsets();
                    let to = offsets.log_start_offset + random.below(3) as i64;
                    log.advance_log_start_offset(to.min(offsets.high_watermark))
                        .unwrap();
                }
                5 => clean_one(&log, &open_segments),
                _ => {}
            }
            assert!(!has_failed(), "a reader has failed in round {round}");
        }
        append(&log, batch_at(log.offsets().log_end_offset), 1).unwrap();
        // On a busy machine all rounds may be over before a reader has had its first turn.
        while seen.load(Ordering::Acquire) == 0 && !has_failed() {
            std::thread::yield_now();
        }
    });
}

/// Writes the first segment again as it is, and puts the copy in its place.
fn clean_one(log: &Log, open_segments: &Arc<OpenSegments>) {
    let segments = log.segments();
    if segments.len() < 2 {
        return;
    }
    let old = &segments[0];
    let (version, truncations) = (old.version(), log.truncations());
    let mut bytes = vec![0; old.size_bytes() as usize];
    read_full_at(&*old.file().unwrap(), &mut bytes, 0).unwrap();
    let (directory, config) = (log.directory(), log.config());
    let base_offset = old.base_offset();
    let new = Segment::create(
        open_segments,
        &directory,
        base_offset,
        CLEANED,
        &config,
        0,
        NOW_MS,
    );
    let new = new.unwrap();
    for batch in valid_prefix(&bytes, 0) {
        new.write(
            &*new.file().unwrap(),
            &mut [std::io::IoSlice::new(&batch.bytes)],
        )
        .unwrap();
        new.note_written(std::iter::once(WrittenBatch {
            last_offset: batch.last_offset,
            size_bytes: batch.bytes.len() as u64,
            max_timestamp: NOW_MS + batch.last_offset,
        }));
    }
    new.close().unwrap();
    new.sync_log().unwrap();
    new.sync_indexes().unwrap();
    log.replace_segments(&[new], &[version], truncations, NOW_MS)
        .unwrap();
}
