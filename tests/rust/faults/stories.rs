//! Bugs that these tests have found, each with its story. The sweeps find them again, too; here
//! is what they were.

use std::path::Path;
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::batch::header::patch_offset_and_epoch;
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::error::Error;
use kafkalite::log::append::AppendRequest;
use kafkalite::log::compact::cleaner_checkpoint;
use kafkalite::log::config::{CleanupPolicy, LogConfig};
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::state::snapshots;
use kafkalite::log::storage::{OpenMode, Storage, write_all_at};
use kafkalite::uuid::Uuid;

use super::io_failures::new_storage;
use super::plain::valid_prefix;
use super::workbench::{
    HOME, NOBODY, NOW_MS, Opening, PARTITION, Sender, append, append_as, batch, contents, create,
    open, open_directory, serve,
};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};

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
/// its producer snapshot. Recovery saw no torn batch, so it kept the later segment: a log with a
/// hole. And when the producer sent the lost batch again, never having had an answer, it was told
/// that the batch was there already.
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

/// A log of four segments, written by an idempotent producer, and their base offsets but the first.
fn with_snapshots(storage: &MemoryStorage) -> (Arc<Log>, Vec<i64>) {
    let log = create(storage, &config()).unwrap().log;
    let mut next = 0;
    while log.segments().len() < 4 {
        let sender = Sender {
            producer_id: 5,
            producer_epoch: 0,
            base_sequence: next,
            transactional: false,
        };
        append(&log, batch(Codec::None, sender, i64::from(next), 1, 300), 1).unwrap();
        next += 1;
    }
    let segments = log.segments();
    let bases = segments[1..].iter().map(|each| each.base_offset());
    (log, bases.collect())
}

fn check_snapshots(storage: &MemoryStorage, offsets: &[i64]) {
    for offset in offsets {
        let path = path_of(*offset, ".snapshot");
        let producers = snapshots::decode(&storage.files()[&path], &path).unwrap();
        assert_eq!(producers.len(), 1, "{}", path.display());
    }
}

/// A power cut left the names of producer snapshots without their bytes. Recovery never
/// looked at those amid the log, so that they stayed, empty, and `kafkalite log verify`
/// complained of them for ever.
#[test]
fn recovery_leaves_a_good_producer_snapshot_at_each_segment() {
    let storage = MemoryStorage::default();
    let (_log, bases) = with_snapshots(&storage);
    let found = storage.crash(Crash::Kill);
    for base in &bases {
        let path = path_of(*base, ".snapshot");
        found.open(&path, OpenMode::CreateOrTruncate).unwrap();
    }
    open(&found, &Opening::unclean(&config())).unwrap();
    check_snapshots(&found, &bases);
}

/// The same below the recovery point, where nobody recovers: it moved over several segments, and
/// only the last one's snapshot was put on disk.
#[test]
fn below_the_recovery_point_every_producer_snapshot_is_on_disk() {
    let storage = MemoryStorage::default();
    let (log, bases) = with_snapshots(&storage);
    log.advance_recovery_point().unwrap();
    check_snapshots(&storage.crash(Crash::LoseUnsynced), &bases);
    let storage = MemoryStorage::default();
    let (log, bases) = with_snapshots(&storage);
    log.close().unwrap();
    check_snapshots(&storage.crash(Crash::LoseUnsynced), &bases);
}

/// A roll failed on a full disk, and left an empty producer snapshot. The segment went
/// on with smaller batches, so that the next roll came at another offset, and nobody
/// wrote the snapshot again.
#[test]
fn a_roll_that_finds_no_room_leaves_no_empty_producer_snapshot() {
    let storage = MemoryStorage::default();
    let log = create(&storage, &config()).unwrap().log;
    let sent = |sequence: i32, filler: usize| {
        let sender = Sender {
            producer_id: 5,
            producer_epoch: 0,
            base_sequence: sequence,
            transactional: false,
        };
        batch(Codec::None, sender, i64::from(sequence), 1, filler)
    };
    append(&log, sent(0, 700), 1).unwrap();
    storage.inject(Fault::of(Operation::Write, ".snapshot", Failure::NoSpace).lasting());
    append(&log, sent(1, 700), 1).unwrap_err();
    assert!(storage.has_struck());
    storage.heal();
    let snapshots = || {
        storage
            .files()
            .into_keys()
            .filter(|path| path.extension().is_some_and(|kind| kind == "snapshot"))
            .count()
    };
    assert_eq!(snapshots(), 0);
    append(&log, sent(1, 700), 1).unwrap();
    assert_eq!(snapshots(), 1);
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

/// After a clean stop the active segment's largest timestamp was not known, and the next append put
/// its own in the place. Records that were later, but written before the stop, were no longer found
/// by their time.
#[test]
fn a_record_from_before_a_clean_stop_is_found_although_a_later_one_is_older() {
    let storage = MemoryStorage::default();
    let log = create(&storage, &config()).unwrap().log;
    append(&log, batch(Codec::None, NOBODY, 100, 1, 10), 1).unwrap();
    log.close().unwrap();
    let opening = Opening {
        was_clean: true,
        recovery_point: 1,
        ..Opening::unclean(&config())
    };
    let log = open(&storage, &opening).unwrap().log;
    append(&log, batch(Codec::None, NOBODY, 5, 1, 10), 1).unwrap();
    let found = log.offset_for_timestamp(NOW_MS + 100).unwrap().unwrap();
    assert_eq!((found.offset, found.timestamp), (0, NOW_MS + 100));
    let latest = log.offset_of_max_timestamp().unwrap().unwrap();
    assert_eq!(latest.offset, 0);
}

/// Several requests of a leader's records came in one call. One was lost, with a write that failed
/// at a roll, or was refused; those behind it bring their own offsets, and left a hole.
#[test]
fn a_follower_takes_nothing_behind_what_it_has_lost() {
    for nth in 1..12 {
        for with_bad_crc in [false, true] {
            let storage = MemoryStorage::default();
            let log = create(&storage, &config()).unwrap().log;
            let mut sent: Vec<Vec<u8>> = (0..8)
                .map(|number| {
                    let mut bytes = batch(Codec::None, NOBODY, number, 1, 300);
                    patch_offset_and_epoch(&mut bytes, number, 1);
                    bytes
                })
                .collect();
            if with_bad_crc {
                sent[nth % 8][80] ^= 1;
            } else {
                let write = Fault::of(Operation::Write, ".log", Failure::NoSpace);
                storage.inject(Fault {
                    nth: nth as u64,
                    ..write
                });
            }
            let mut requests: Vec<AppendRequest<'_>> = sent
                .iter_mut()
                .map(|records| AppendRequest {
                    records,
                    origin: AppendOrigin::Replication,
                    leader_epoch: 1,
                    transaction_version: None,
                    guard: None,
                })
                .collect();
            let answers = log.append(&mut requests, NOW_MS);
            let taken = answers.iter().take_while(|answer| answer.is_ok()).count();
            assert!(answers[taken..].iter().all(Result::is_err), "{answers:?}");
            if with_bad_crc {
                assert_eq!(taken, nth % 8);
            }
            assert_eq!(log.offsets().log_end_offset, taken as i64, "{answers:?}");
            let served = serve(&log, ReadIsolation::LogEnd, 1 << 20);
            let offsets: Vec<i64> = served.iter().map(|batch| batch.base_offset).collect();
            assert_eq!(offsets, (0..taken as i64).collect::<Vec<_>>());
        }
    }
}

/// A segment was cut away, written again and cut away again within `file.delete.delay.ms`: the turn
/// of the first took the files of the second.
#[test]
fn two_deleted_segments_of_one_name_have_each_its_own_delay() {
    let storage = MemoryStorage::default();
    let log = create(&storage, &config()).unwrap().log;
    let delay_ms = config().file_delete_delay_ms;
    let fill = || {
        for number in 0..4 {
            append(&log, batch(Codec::None, NOBODY, number, 1, 900), 1).unwrap();
        }
    };
    fill();
    log.truncate_to(1, NOW_MS).unwrap();
    fill();
    log.truncate_to(1, NOW_MS + delay_ms / 2).unwrap();
    let deleted = || {
        let files = storage.files();
        let names = files.keys().map(|path| path.to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(".log.deleted")).count()
    };
    let before = deleted();
    assert!(before >= 3);
    log.delete_due_files(NOW_MS + delay_ms).unwrap();
    assert!(deleted() >= before - 1, "only what was not written again");
    log.delete_due_files(NOW_MS + 2 * delay_ms).unwrap();
    assert_eq!(deleted(), 0);
}

/// The log could not be opened, nor could it be for being cut back: the directory went offline,
/// though nothing had been written.
#[test]
fn an_append_without_a_descriptor_fails_alone_and_one_whose_file_does_not_open_takes_it_offline() {
    let storage = new_storage();
    let config = config();
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 16);
    let directory = open_directory(&open_segments, &config).unwrap();
    for partition in 0..40 {
        let created = directory.create_log("t", partition, Uuid([1; 16]), config.clone(), NOW_MS);
        created.unwrap();
    }
    let append_to = |partition| {
        let log = directory.log("t", partition).unwrap();
        append(&log, batch(Codec::None, NOBODY, 0, 3, 50), 1)
    };
    // The last ones have their files open, and the first one has not.
    let append_to_all = || {
        for partition in 0..40 {
            append_to(partition).unwrap();
        }
    };
    append_to_all();
    append_to_all();
    storage.inject(Fault::of(Operation::Open, "/t-0/", Failure::TooManyOpen).lasting());
    let refused = append_to(0);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    assert!(!directory.health().is_offline());
    append_to(1).unwrap();
    storage.heal();
    assert_eq!(append_to(0).unwrap().first_offset, 6);
    append_to_all();
    storage.inject(Fault::of(Operation::Open, "/t-0/", Failure::Io).lasting());
    assert!(append_to(0).is_err());
    assert!(directory.health().is_offline());
}

/// With `kafkalite.acks.fsync=none` a segment is not on disk when the next one gets its name. A
/// power cut took its end by whole batches and left the next one: the log went on behind a hole,
/// and a follower with such a log asked its leader for what comes behind that only, joined the
/// in-sync replicas, and could be elected. Found by the cluster simulation.
#[test]
fn a_log_that_nobody_flushed_ends_where_a_power_cut_has_left_a_hole() {
    let compacted = CleanupPolicy {
        delete: false,
        compact: true,
    };
    for (cleanup_policy, keeps_later) in [(config().cleanup_policy, false), (compacted, true)] {
        let config = LogConfig {
            acks_fsync: false,
            cleanup_policy,
            ..config()
        };
        let storage = MemoryStorage::default();
        let log = create(&storage, &config).unwrap().log;
        while log.segments().len() < 3 {
            let number = log.offsets().log_end_offset;
            append(&log, batch(Codec::None, NOBODY, number, 3, 40), 1).unwrap();
        }
        let path = path_of(0, ".log");
        let bytes = storage.files()[&path].clone();
        let last = valid_prefix(&bytes, 0).pop().unwrap();
        let file = storage.open(&path, OpenMode::ReadWrite).unwrap();
        file.set_size(last.position as u64).unwrap();
        let opened = open(&storage.crash(Crash::Kill), &Opening::unclean(&config)).unwrap();
        let ends_before = opened.log.offsets().log_end_offset == last.base_offset;
        // Of a compacted log records go from the end of a segment by right.
        assert_eq!(
            (ends_before, opened.log.segments().len() > 1),
            (!keeps_later, keeps_later)
        );
    }
}

/// A follower was cut below the recovery point of the checkpoint file, and had new records there
/// that nobody had flushed. A power cut tore them, the start did not look below the recovery point,
/// and the directory could not be loaded. Found by the cluster simulation.
#[test]
fn what_comes_in_place_of_records_that_were_cut_off_is_recovered() {
    let config = LogConfig {
        acks_fsync: false,
        ..config()
    };
    let storage = MemoryStorage::default();
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    let directory = open_directory(&open_segments, &config).unwrap();
    let log = directory
        .create_log("t", 0, Uuid([7; 16]), config.clone(), NOW_MS)
        .unwrap();
    let fill = |segments: usize| {
        while log.segments().len() < segments {
            let number = log.offsets().log_end_offset;
            append(&log, batch(Codec::None, NOBODY, number, 3, 40), 1).unwrap();
        }
    };
    fill(4);
    directory.write_checkpoints().unwrap();
    cleaner_checkpoint::truncate(|| &directory, &log, 3, NOW_MS, || Ok(())).unwrap();
    fill(6);
    for seed in 0..200 {
        let left = Arc::new(storage.crash(Crash::Seeded(seed)));
        let open_segments = OpenSegments::new(left, 64);
        let directory = open_directory(&open_segments, &config).unwrap();
        let log = directory.log("t", 0).unwrap();
        let served = serve(&log, ReadIsolation::LogEnd, 1 << 20);
        let end = served.last().map_or(0, |last| last.next_offset());
        assert_eq!(log.offsets().log_end_offset, end, "seed {seed}");
    }
}

/// The next batch of a log that its leader had compacted began above the log end, in a new segment.
/// There was no space for it: the segment stayed, empty and named after it, and took what another
/// leader had for the offsets in between, which nobody could read there.
#[test]
fn records_for_a_gap_have_a_place_after_a_roll_whose_write_found_no_space() {
    let storage = MemoryStorage::default();
    let config = LogConfig {
        segment_bytes: 900,
        ..LogConfig::default()
    };
    let log = create(&storage, &config).unwrap().log;
    let append_at = |offset: i64, filler: usize| {
        let mut records = batch(Codec::None, NOBODY, offset, 5, filler);
        patch_offset_and_epoch(&mut records, offset, 1);
        append_as(&log, &mut records, AppendOrigin::Replication, 1)
    };
    append_at(0, 120).unwrap();
    storage.inject(Fault::of(Operation::Write, ".log", Failure::NoSpace).lasting());
    append_at(10, 120).unwrap_err();
    storage.heal();
    let after_a_kill = || {
        let storage = storage.crash(Crash::Kill);
        open(&storage, &Opening::unclean(&config)).unwrap().log
    };
    assert_eq!(after_a_kill().offsets().log_end_offset, 5);
    append_at(5, 10).unwrap();
    append_at(10, 10).unwrap();
    let begins = |log: &Log| -> Vec<i64> {
        let served = serve(log, ReadIsolation::LogEnd, 1);
        served.iter().map(|batch| batch.base_offset).collect()
    };
    assert_eq!(begins(&log), [0, 5, 10]);
    assert_eq!(begins(&after_a_kill()), [0, 5, 10]);
}
