//! Bugs that these tests have found, each with its story. The sweeps find them again, too; here
//! is what they were.

use std::path::Path;

use kafkalite::batch::compression::Codec;
use kafkalite::log::config::LogConfig;
use kafkalite::log::open_segments::OpenSegments;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::storage::{OpenMode, Storage, write_all_at};

use super::plain::valid_prefix;
use super::workbench::{
    HOME, NOBODY, Opening, PARTITION, Sender, append, batch, contents, create, open,
    open_directory, serve,
};
use crate::memory_storage::{Crash, Failure, Fault, MemoryStorage, Operation};

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1_000,
        ..LogConfig::default()
    }
}

fn path_of(base_offset: i64, kind: &str) -> std::path::PathBuf {
    Path::new(PARTITION).join(format!("{base_offset:020}{kind}"))
}

/// One bit of the base offset of a closed segment's last batch: recovery took the offset, far above
/// the next segment's, for a gap, found every batch behind it out of order, and ended with a log
/// whose end lay below records that it served.
#[test]
fn an_offset_that_reaches_into_the_next_segment_is_no_gap() {
    let storage = MemoryStorage::default();
    let log = create(&storage, &config()).unwrap().log;
    for number in 0..10 {
        append(&log, batch(Codec::None, NOBODY, number * 3, 3, 40), 1).unwrap();
    }
    let whole = serve(&log, ReadIsolation::LogEnd, 1 << 20);
    let bytes = storage.files()[&path_of(0, ".log")].clone();
    let last = valid_prefix(&bytes, 0).pop().unwrap();
    let file = storage
        .open(&path_of(0, ".log"), OpenMode::ReadWrite)
        .unwrap();
    write_all_at(&*file, &[1], last.position as u64 + 2).unwrap();
    let log = open(&storage.crash(Crash::Kill), &Opening::unclean(&config()))
        .unwrap()
        .log;
    assert_eq!(log.offsets().log_end_offset, last.base_offset);
    let served = serve(&log, ReadIsolation::LogEnd, 1 << 20);
    assert_eq!(contents(&served), contents(&whole[..served.len()]));
}

/// A power cut took the end of a segment, by whole batches, and left the name of the next one and
/// its producer snapshot. Recovery saw no torn batch, so it kept the later segment: a log with a hole.
/// And when the producer sent the lost batch again, never having had an answer, it was told that
/// the batch was there already.
#[test]
fn a_batch_lost_with_the_end_of_a_segment_is_taken_when_it_is_sent_again() {
    let storage = MemoryStorage::default();
    let log = create(&storage, &config()).unwrap().log;
    let sent = |sequence: i32| {
        let sender = Sender {
            producer_id: 5,
            producer_epoch: 0,
            base_sequence: sequence,
            transactional: false,
        };
        batch(Codec::None, sender, i64::from(sequence), 1, 300)
    };
    let mut next = 0;
    while log.segments().len() < 2 {
        append(&log, sent(next), 1).unwrap();
        next += 1;
    }
    for seed in 0..300 {
        let found = storage.crash(Crash::Seeded(seed));
        let Ok(opened) = open(&found, &Opening::unclean(&config())) else {
            // Not even the directory was durable, or it was without its metadata.
            continue;
        };
        let log = opened.log;
        let end = log.offsets().log_end_offset;
        assert_eq!(
            serve(&log, ReadIsolation::LogEnd, 1 << 20).len() as i64,
            end,
            "seed {seed}"
        );
        let again = append(&log, sent(end as i32), 1).unwrap();
        assert!(!again.is_duplicate, "seed {seed}: offset {end} was lost");
        assert_eq!(again.first_offset, end, "seed {seed}");
    }
}

/// Recovery cut a torn segment and then removed the segments behind it. When the power went off in
/// between, the next start found a log whose torn segment was whole again, cut as it was, and kept
/// what lay behind the hole.
#[test]
fn a_recovery_that_is_interrupted_leaves_no_hole() {
    let storage = MemoryStorage::default();
    let log = create(&storage, &config()).unwrap().log;
    for number in 0..20 {
        append(&log, batch(Codec::None, NOBODY, number * 3, 3, 40), 1).unwrap();
    }
    log.flush().unwrap();
    let file = storage
        .open(&path_of(0, ".log"), OpenMode::ReadWrite)
        .unwrap();
    let size = file.size().unwrap();
    write_all_at(&*file, &[0; 4], size - 4).unwrap();
    file.sync_data().unwrap();
    let calls = {
        let torn = storage.crash(Crash::Kill);
        open(&torn, &Opening::unclean(&config())).unwrap();
        torn.calls()
    };
    for nth in 1..=calls {
        let torn = storage.crash(Crash::Kill);
        torn.inject(Fault::at_call(nth, Failure::NoSpace).lasting());
        drop(open(&torn, &Opening::unclean(&config())));
        for crash in [Crash::Kill, Crash::LoseUnsynced, Crash::Seeded(nth)] {
            let log = open(&torn.crash(crash), &Opening::unclean(&config()))
                .unwrap()
                .log;
            let served = serve(&log, ReadIsolation::LogEnd, 1 << 20);
            let end = served.iter().fold(0, |next, batch| {
                assert_eq!(batch.base_offset, next, "cut at call {nth}, then {crash:?}");
                batch.next_offset()
            });
            assert!(
                end <= log.segments()[0].end().next_offset,
                "cut at call {nth}"
            );
        }
    }
}

/// The process was killed, or the disk full, while it formatted an empty directory. What it left,
/// `meta.properties.tmp`, looked foreign to every later start.
#[test]
fn a_directory_that_was_being_formatted_is_formatted() {
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new(HOME)).unwrap();
    let open_segments = OpenSegments::new(std::sync::Arc::new(storage.clone()), 16);
    storage.inject(Fault::of(Operation::Rename, "meta.properties", Failure::NoSpace).lasting());
    assert!(open_directory(&open_segments, &config()).is_err());
    storage.heal();
    open_directory(&open_segments, &config()).unwrap();
}
