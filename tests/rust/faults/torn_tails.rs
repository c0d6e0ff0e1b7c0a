//! The end of every file cut off, zeroed, and overwritten with garbage, byte by byte.
//!
//! Whatever is done to one file's tail, the log opens, and holds what the plain reader finds to
//! be the longest valid prefix; nothing with a wrong CRC is served; appends go on; the next
//! start finds the same again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::error::{Error, Result};
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::segment::transaction_index::ABORTED_ENTRY_BYTES;
use kafkalite::uuid::Uuid;

use super::plain::{PlainBatch, valid_prefix, valid_prefix_of_damaged};
use super::workbench::{
    NOBODY, NOW_MS, Opening, PARTITION, Sender, append, append_marker, batch, contents, create,
    open, open_directory, serve, serve_bytes,
};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::random::{Random, is_long_run};

const TAIL_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// Everything from the byte on is missing.
    Cut,
    /// Everything from the byte on is zeros: the size was written, the data not.
    Zeroed,
    /// Everything from the byte on is something else.
    Garbled,
    /// The byte alone is something else.
    Changed,
}

const DAMAGES: [Damage; 4] = [
    Damage::Cut,
    Damage::Zeroed,
    Damage::Garbled,
    Damage::Changed,
];

impl Damage {
    fn done_to(self, bytes: &[u8], from: usize) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        match self {
            Damage::Cut => damaged.truncate(from),
            Damage::Zeroed => damaged[from..].fill(0),
            Damage::Garbled => {
                let mut random = Random::new(from as u64);
                damaged[from..].fill_with(|| random.byte());
            }
            Damage::Changed => damaged[from] ^= 1 + Random::new(from as u64).byte() % 255,
        }
        damaged
    }
}

fn config() -> LogConfig {
    LogConfig {
        index_interval_bytes: 1024,
        ..LogConfig::default()
    }
}

/// One segment a little larger than the tail, with an aborted transaction in it, stopped by a kill.
fn one_segment(codec: Codec) -> MemoryStorage {
    let storage = MemoryStorage::default();
    let log = create(&storage, &config()).unwrap().log;
    let sender = |base_sequence| Sender {
        producer_id: 9,
        producer_epoch: 0,
        base_sequence,
        transactional: true,
    };
    append(&log, batch(codec, sender(0), 0, 5, 20), 3).unwrap();
    append_marker(&log, sender(0), false, 3).unwrap();
    while log.size_bytes() < TAIL_BYTES as u64 + 1024 {
        let first = log.offsets().log_end_offset;
        append(&log, batch(codec, NOBODY, first, 7, 60), 3).unwrap();
    }
    append(&log, batch(codec, sender(5), 7777, 3, 30), 4).unwrap();
    log.flush().unwrap();
    storage.crash(Crash::Kill)
}

/// The bytes at which a tail is damaged: each of the last batch, and of the rest a sample.
fn places(file: &[u8], sample: usize) -> Vec<usize> {
    let start = file.len().saturating_sub(TAIL_BYTES);
    if is_long_run() {
        return (start..file.len()).collect();
    }
    let last_batch = valid_prefix(file, 0)
        .last()
        .map_or(start, |last| last.position);
    let mut random = Random::new(file.len() as u64);
    let below =
        (0..sample).map(|_| start + random.below((last_batch - start).max(1) as u64) as usize);
    below.chain(last_batch..file.len()).collect()
}

fn with_damage(
    files: &BTreeMap<PathBuf, Vec<u8>>,
    path: &Path,
    damage: Damage,
    from: usize,
) -> MemoryStorage {
    let damaged = damage.done_to(&files[path], from);
    MemoryStorage::with_files(files.iter().map(|(at, bytes)| {
        let bytes = if at == path { &damaged } else { bytes };
        (at.as_path(), bytes.as_slice())
    }))
}

fn log_path() -> PathBuf {
    Path::new(PARTITION).join("00000000000000000000.log")
}

/// Opens what is left, compares it with what the plain reader finds, appends, and opens it again.
fn check_log_tail(codec: Codec, opening: &Opening, sample: usize) {
    let files = one_segment(codec).files();
    let whole = &files[&log_path()];
    let batches = valid_prefix(whole, 0);
    // A byte alone: see `bit_flips.rs`, which goes further.
    for damage in [Damage::Cut, Damage::Zeroed, Damage::Garbled] {
        for from in places(whole, sample) {
            let case = format!("{damage:?} from byte {from} of {}, {codec:?}", whole.len());
            let storage = with_damage(&files, &log_path(), damage, from);
            let damaged = damage.done_to(whole, from);
            let expected = valid_prefix_of_damaged(&damaged, from, &batches);
            let opened = open(&storage, opening).unwrap_or_else(|error| panic!("{case}: {error}"));
            let served = serve_bytes(&opened.log, ReadIsolation::LogEnd, 4096);
            let size = expected.last().map_or(0, PlainBatch::end);
            assert!(served == damaged[..size], "{case}: {} bytes", served.len());
            let end = expected.last().map_or(0, |last| last.next_offset());
            let offsets = opened.log.offsets();
            assert_eq!(offsets.log_end_offset, end, "{case}");
            assert_eq!(offsets.flushed_offset, end, "{case}");
            let appended = append(&opened.log, batch(codec, NOBODY, 1, 2, 10), 5);
            assert_eq!(appended.unwrap().first_offset, end, "{case}");
            let expected = serve_bytes(&opened.log, ReadIsolation::LogEnd, 1 << 20);
            assert!(expected.starts_with(&served), "{case}");
            assert_eq!(valid_prefix(&expected[size..], end).len(), 1, "{case}");
            drop(opened);
            let again = open(&storage.crash(Crash::Kill), opening).unwrap();
            assert_eq!(
                again.report.truncated_bytes, 0,
                "{case}: {:?}",
                again.report
            );
            let served = serve_bytes(&again.log, ReadIsolation::LogEnd, 4096);
            assert!(served == expected, "{case}: {} bytes", served.len());
        }
    }
}

#[test]
fn a_torn_log_comes_back_to_its_longest_valid_prefix_uncompressed() {
    check_log_tail(Codec::None, &Opening::unclean(&config()), 150);
}

#[test]
fn a_torn_log_comes_back_to_its_longest_valid_prefix_gzip() {
    check_log_tail(Codec::Gzip, &Opening::unclean(&config()), 50);
}

#[test]
fn a_torn_log_comes_back_to_its_longest_valid_prefix_snappy() {
    check_log_tail(Codec::Snappy, &Opening::unclean(&config()), 50);
}

#[test]
fn a_torn_log_comes_back_to_its_longest_valid_prefix_lz4() {
    check_log_tail(Codec::Lz4, &Opening::unclean(&config()), 50);
}

#[test]
fn a_torn_log_comes_back_to_its_longest_valid_prefix_zstd() {
    check_log_tail(Codec::Zstd, &Opening::unclean(&config()), 50);
}

fn small_segments() -> LogConfig {
    LogConfig {
        segment_bytes: 3_000,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

/// Several segments with transactions of two producers, three leader epochs, timestamps that
/// sometimes go back; all but the active one are below the recovery point, which is returned.
fn several_segments() -> (MemoryStorage, i64) {
    let storage = MemoryStorage::default();
    let log = create(&storage, &small_segments()).unwrap().log;
    for round in 0..30 {
        let sender = |base_sequence| Sender {
            producer_id: 9,
            producer_epoch: 0,
            base_sequence,
            transactional: true,
        };
        let epoch = 3 + round / 12;
        let first = log.offsets().log_end_offset;
        append(&log, batch(Codec::None, NOBODY, first, 4, 30), epoch).unwrap();
        let sequence = round * 2;
        append(
            &log,
            batch(Codec::None, sender(sequence), first + 4, 2, 10),
            epoch,
        )
        .unwrap();
        if round % 4 == 1 {
            // Open while others end, so that a last stable offset lies before its marker.
            let late = Sender {
                producer_id: 11,
                ..sender(round / 4)
            };
            let early = first - 60 * i64::from(round % 8 == 1);
            append(&log, batch(Codec::None, late, early, 1, 10), epoch).unwrap();
        }
        append_marker(&log, sender(0), round % 3 == 0, epoch).unwrap();
        if round % 4 == 3 {
            let late = Sender {
                producer_id: 11,
                ..sender(0)
            };
            append_marker(&log, late, false, epoch).unwrap();
        }
    }
    let recovery_point = log.advance_recovery_point().unwrap();
    assert!(log.segments().len() > 2);
    (storage, recovery_point)
}

/// What a log answers to every question about its offsets and producers.
#[derive(Debug, PartialEq)]
struct Answers {
    records: Vec<(i64, Vec<u8>)>,
    /// By offset: where the batch begins that a read from there starts with.
    starts: Vec<(i64, u64)>,
    /// Producer, first and last offset.
    aborted: Vec<(i64, i64, i64)>,
    /// The same, asked for a few offsets at a time: how often it was told.
    aborted_by_fetch: Vec<usize>,
    /// By timestamp asked for: timestamp and offset found.
    times: Vec<Option<(i64, i64)>>,
    /// Of each segment, by which retention goes.
    largest_timestamps: Vec<i64>,
    epochs: Vec<(i32, i64)>,
    producer: Option<(i16, i32, Option<i64>)>,
}

fn answers(log: &kafkalite::log::log::Log) -> Answers {
    let end = log.offsets().log_end_offset;
    let start_of = |offset| {
        let range = log.read(offset, 1, true, ReadIsolation::LogEnd).unwrap();
        (range.segment_base_offset, range.position_byte)
    };
    let aborted = log.aborted_transactions(0, end).unwrap();
    let fetch = |at| {
        log.aborted_transactions(at, (at + 9).min(end))
            .unwrap()
            .len()
    };
    let time = |timestamp| {
        let found = log.offset_for_timestamp(timestamp).unwrap();
        found.map(|found| (found.timestamp, found.offset))
    };
    let latest = log.offset_of_max_timestamp().unwrap();
    let asked = (-70..end + 3).step_by(2).map(|delta| NOW_MS + delta);
    let segments = log.segments();
    let epochs = log.leader_epochs();
    Answers {
        records: contents(&serve(log, ReadIsolation::LogEnd, 1 << 20)),
        starts: (0..end).map(start_of).collect(),
        aborted: aborted
            .iter()
            .map(|one| (one.producer_id, one.first_offset, one.last_offset))
            .collect(),
        aborted_by_fetch: (0..end).step_by(3).map(fetch).collect(),
        times: asked
            .map(time)
            .chain([latest.map(|found| (found.timestamp, found.offset))])
            .collect(),
        largest_timestamps: segments
            .iter()
            .map(|segment| segment.largest_timestamp_of_all().unwrap().timestamp)
            .collect(),
        epochs: epochs
            .entries()
            .iter()
            .map(|one| (one.epoch, one.start_offset))
            .collect(),
        producer: log.producers().get(9).map(|entry| {
            let transaction = entry.current_transaction_first_offset;
            (entry.producer_epoch, entry.last_sequence(), transaction)
        }),
    }
}

/// Damages every file whose name ends in `kind`, at every byte, and asks everything.
fn check_small_files(kind: &str, is_clean: bool) {
    let (storage, recovery_point) = several_segments();
    let mut opening = Opening {
        recovery_point,
        ..Opening::unclean(&small_segments())
    };
    if is_clean {
        let opened = open(&storage, &opening).unwrap();
        opened.log.close().unwrap();
        opening.recovery_point = opened.log.offsets().recovery_point;
        opening.was_clean = true;
    }
    let files = storage.crash(Crash::Kill).files();
    let whole = open(&MemoryStorage::with_files(borrowed(&files)), &opening).unwrap();
    let expected = answers(&whole.log);
    assert!(
        expected.aborted.len() > 10 && expected.epochs.len() == 3,
        "{expected:?}"
    );
    let damaged: Vec<&PathBuf> = files
        .keys()
        .filter(|path| path.to_string_lossy().ends_with(kind))
        .collect();
    assert!(!damaged.is_empty(), "no file ends in {kind}");
    for path in damaged {
        for damage in DAMAGES {
            for from in small_places(files[path].len()) {
                let case = format!("{damage:?} from byte {from} of {}", path.display());
                let storage = with_damage(&files, path, damage, from);
                let opened =
                    open(&storage, &opening).unwrap_or_else(|error| panic!("{case}: {error}"));
                let mut found = answers(&opened.log);
                let is_undetectable = is_undetectable(path, &files, damage, from);
                if is_undetectable {
                    found.aborted.clone_from(&expected.aborted);
                    found
                        .aborted_by_fetch
                        .clone_from(&expected.aborted_by_fetch);
                    found.epochs.clone_from(&expected.epochs);
                }
                assert_eq!(found, expected, "{case}: {:?}", opened.report);
                append(&opened.log, batch(Codec::None, NOBODY, 1, 2, 10), 5).unwrap();
                assert_eq!(
                    answers(&opened.log).records.len(),
                    expected.records.len() + 1
                );
                let again = open(
                    &storage.crash(Crash::Kill),
                    &Opening::unclean(&small_segments()),
                );
                let again = answers(&again.unwrap().log);
                assert!(is_undetectable || again == answers(&opened.log), "{case}");
            }
        }
    }
}

/// What looks right: a transaction index that ends with an entry; a transaction that begins at, or
/// a last stable offset that is, another batch with which that could be; epochs that are other
/// numbers now. None is what a crash leaves: indexes are synced before the recovery point passes
/// them, epochs replaced as a whole.
fn is_undetectable(
    path: &Path,
    files: &BTreeMap<PathBuf, Vec<u8>>,
    damage: Damage,
    from: usize,
) -> bool {
    let name = path.to_string_lossy();
    if name.ends_with("leader-epoch-checkpoint") {
        return matches!(damage, Damage::Garbled | Damage::Changed);
    }
    if !name.ends_with(".txnindex") {
        return false;
    }
    let before = &files[path];
    let after = damage.done_to(before, from);
    if after.len() < before.len() {
        return from > 0 && from.is_multiple_of(ABORTED_ENTRY_BYTES);
    }
    let batches: Vec<PlainBatch> = files
        .iter()
        .filter(|(path, _)| path.to_string_lossy().ends_with(".log"))
        .flat_map(|(_, bytes)| valid_prefix(bytes, 0))
        .collect();
    let entries = before
        .chunks(ABORTED_ENTRY_BYTES)
        .zip(after.chunks(ABORTED_ENTRY_BYTES));
    let mut changed = entries.filter(|(before, after)| before != after);
    changed.all(|(before, after)| {
        let number = |entry: &[u8], at| i64::from_be_bytes(entry[at..at + 8].try_into().unwrap());
        let producer_id = number(before, 2);
        let begins_at = |at, is_own: bool| {
            number(before, at) == number(after, at)
                || batches.iter().any(|batch| {
                    batch.base_offset == number(after, at)
                        && batch.is_transactional()
                        && !batch.is_control()
                        && (batch.producer_id() == producer_id) == is_own
                })
        };
        before[..10] == after[..10]
            && before[18..26] == after[18..26]
            && begins_at(10, true)
            && begins_at(26, false)
    })
}

fn small_places(size: usize) -> Vec<usize> {
    if is_long_run() {
        return (0..size).collect();
    }
    let mut random = Random::new(size as u64);
    let sample = (0..8.min(size)).map(|_| random.below(size as u64) as usize);
    sample.chain(size.saturating_sub(4)..size).collect()
}

fn borrowed(files: &BTreeMap<PathBuf, Vec<u8>>) -> impl Iterator<Item = (&Path, &[u8])> {
    files
        .iter()
        .map(|(path, bytes)| (path.as_path(), bytes.as_slice()))
}

#[test]
fn a_torn_offset_index_leads_nobody_astray() {
    check_small_files(".index", false);
    check_small_files(".index", true);
}

#[test]
fn a_torn_time_index_misses_no_record_by_its_time() {
    check_small_files(".timeindex", false);
    check_small_files(".timeindex", true);
}

#[test]
fn a_torn_transaction_index_is_made_anew() {
    check_small_files(".txnindex", false);
    check_small_files(".txnindex", true);
}

#[test]
fn a_torn_producer_snapshot_is_replaced_by_the_one_before_and_the_records() {
    check_small_files(".snapshot", false);
    check_small_files(".snapshot", true);
}

#[test]
fn torn_leader_epochs_are_made_anew_from_the_records() {
    check_small_files("leader-epoch-checkpoint", false);
    check_small_files("leader-epoch-checkpoint", true);
}

/// Torn checkpoints and identities of a whole log directory: it opens with all records, or says in
/// one sentence which file it cannot do without.
#[test]
fn torn_files_of_the_log_directory_cost_time_or_a_refusal_but_no_record() {
    let storage = MemoryStorage::default();
    let directory = open_in(&storage).unwrap();
    let log = directory
        .create_log("t", 0, Uuid([7; 16]), small_segments(), NOW_MS)
        .unwrap();
    for number in 0..40 {
        append(&log, batch(Codec::None, NOBODY, number * 4, 4, 30), 3).unwrap();
    }
    log.flush().unwrap();
    log.advance_log_start_offset(10).unwrap();
    directory.write_checkpoints().unwrap();
    let expected = contents(&serve(&log, ReadIsolation::LogEnd, 1 << 20));
    let files = storage.files();
    let names = [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "partition.metadata",
    ];
    for path in files
        .keys()
        .filter(|path| names.iter().any(|name| path.ends_with(name)))
    {
        let is_identity = path.ends_with("meta.properties") || path.ends_with("partition.metadata");
        // Numbers that are other numbers now look right.
        for damage in [Damage::Cut, Damage::Zeroed, Damage::Garbled] {
            for from in 0..files[path].len() {
                let case = format!("{damage:?} from byte {from} of {}", path.display());
                let storage = with_damage(&files, path, damage, from);
                let before = storage.files();
                let directory = match open_in(&storage) {
                    Ok(directory) => directory,
                    Err(error) => {
                        assert!(is_identity, "{case}: {error}");
                        let refused = matches!(
                            error,
                            Error::CorruptFile { .. } | Error::LogDirRefused { .. }
                        );
                        assert!(refused, "{case}: {error}");
                        if path.ends_with("meta.properties") {
                            assert_eq!(storage.files(), before, "{case}: {error}");
                        }
                        continue;
                    }
                };
                let log = directory.log("t", 0).unwrap();
                let served = contents(&serve(&log, ReadIsolation::LogEnd, 1 << 20));
                assert!(served.ends_with(&expected), "{case}");
            }
        }
    }
}

fn open_in(storage: &MemoryStorage) -> Result<LogDirectory> {
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    open_directory(&open_segments, &small_segments())
}
