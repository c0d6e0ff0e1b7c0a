//! What must hold of a start on any bytes. Whoever includes this file has `memory_storage` and
//! `random` of `tests/rust` at the root of its crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kafkalite::batch::EndTransactionMarker;
use kafkalite::batch::header::{LENGTH_AT, compute_crc};
use kafkalite::batch::{
    AppendOrigin, BatchBuilder, BatchHeader, BatchOptions, build::end_transaction_marker,
};
use kafkalite::error::{Error, Result};
use kafkalite::log::append::AppendRequest;
use kafkalite::log::config::LogConfig;
use kafkalite::log::health::Health;
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::recover::{LogParameters, load};
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::Storage;

use crate::memory_storage::MemoryStorage;

const PARTITION: &str = "/data/t-0";
const NOW_MS: i64 = 1_700_000_000_000;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 900,
        index_interval_bytes: 200,
        ..LogConfig::default()
    }
}

fn open(storage: &MemoryStorage, was_clean: bool) -> Result<Arc<Log>> {
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 16);
    let directory = PathBuf::from(PARTITION);
    let parameters = LogParameters {
        was_clean,
        ..LogParameters::new(directory, "t".to_owned(), 0, config(), NOW_MS, 1)
    };
    let health = Arc::new(Health::new(Path::new("/data")));
    load(&open_segments, &health, parameters).map(|(log, _)| log)
}

fn append(log: &Log, records: &mut [u8], origin: AppendOrigin) -> i64 {
    let request = AppendRequest {
        records,
        origin,
        leader_epoch: 1,
        transaction_version: Some(0),
        guard: None,
    };
    let appended = log.append(&mut [request], NOW_MS).remove(0);
    appended.expect("an append to an open log").first_offset
}

fn batch(producer_id: i64, base_sequence: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch: if producer_id < 0 { -1 } else { 0 },
        base_sequence,
        transactional: producer_id >= 0,
        ..BatchOptions::default()
    });
    for number in 0..2 {
        let value = [b'v'; 40];
        let appended = builder.append(NOW_MS + number, Some(b"k"), Some(&value), &[]);
        appended.expect("a small record");
    }
    builder.finish().expect("a small batch")
}

/// A partition of three segments, with aborted transactions, stopped cleanly.
pub fn seed_files() -> &'static BTreeMap<PathBuf, Vec<u8>> {
    static FILES: OnceLock<BTreeMap<PathBuf, Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let storage = MemoryStorage::default();
        let made = storage.create_directory_all(Path::new(PARTITION));
        made.expect("a directory in memory");
        let log = open(&storage, false).expect("an empty log");
        let marker = EndTransactionMarker {
            is_commit: false,
            coordinator_epoch: 0,
        };
        for round in 0..4 {
            append(&log, &mut batch(-1, -1), AppendOrigin::Client);
            append(&log, &mut batch(9, round * 2), AppendOrigin::Client);
            let mut end = end_transaction_marker(NOW_MS, 9, 0, marker);
            append(&log, &mut end, AppendOrigin::Coordinator);
        }
        log.close().expect("a clean stop");
        storage.files()
    })
}

/// The files that may be replaced, in order.
pub fn seed_paths() -> Vec<&'static PathBuf> {
    seed_files().keys().collect()
}

/// Writes every file of the seed partition, for each kind of stop, into the first directory among a
/// fuzzer's arguments, where it looks for its corpus.
#[allow(dead_code, reason = "the tests mutate the files themselves")]
pub fn write_seeds(mut arguments: impl Iterator<Item = String>) {
    let Some(corpus) = arguments.find(|argument| Path::new(argument).is_dir()) else {
        return;
    };
    for (number, path) in seed_paths().into_iter().enumerate() {
        for flags in 0..4 {
            let mut data = vec![(number as u8) << 2 | flags];
            data.extend_from_slice(&seed_files()[path]);
            let name = Path::new(&corpus).join(format!("seed-{number}-{flags}"));
            std::fs::write(name, data).expect("the corpus is a directory of ours");
        }
    }
}

/// The first byte chooses whether the stop was clean, whether CRCs are made right first, and the
/// file; the others are its content. The log opens, or says that a file is corrupt; after an
/// unclean stop it opens, serves whole batches with right CRCs and ascending offsets up to its
/// end, and goes on there.
pub fn recovery(data: &[u8]) {
    let Some((&choice, content)) = data.split_first() else {
        return;
    };
    let paths = seed_paths();
    let path = paths[usize::from(choice >> 2) % paths.len()];
    let mut content = content.to_vec();
    if choice & 1 != 0 {
        repair(&mut content);
    }
    let files = seed_files().iter().map(|(at, bytes)| {
        let bytes = if at == path { &content } else { bytes };
        (at.as_path(), bytes.as_slice())
    });
    let storage = MemoryStorage::with_files(files);
    let was_clean = choice & 2 != 0;
    let log = match open(&storage, was_clean) {
        Ok(log) => log,
        Err(Error::CorruptFile { .. }) if was_clean => return,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let end = log.offsets().log_end_offset;
    let start = log.offsets().log_start_offset;
    // Hints may be wrong, and a clean stop is believed; nothing of it may panic.
    let _ = log.offset_for_timestamp(NOW_MS);
    let _ = log.aborted_transactions(start, end);
    let _ = log.offset_of_max_timestamp();
    let mut next = start;
    while next < end {
        let bytes = match log.read(next, 300, true, ReadIsolation::LogEnd) {
            Ok(range) => range.to_vec().expect("bytes below the end"),
            Err(Error::CorruptFile { .. }) if was_clean => return,
            Err(error) => panic!("at offset {next}: {error}"),
        };
        let Ok(Some(header)) = BatchHeader::parse(&bytes) else {
            assert!(was_clean, "no batch at offset {next}");
            return;
        };
        let batch = bytes
            .get(..header.size_bytes)
            .expect("the first batch whole");
        assert!(
            was_clean || header.crc_matches(batch),
            "a wrong CRC at offset {next}"
        );
        assert!(header.last_offset() >= next, "the log goes back at {next}");
        next = header.next_offset();
    }
    if !was_clean {
        assert_eq!(next, end, "the last batch ends the log");
        let appended = append(&log, &mut batch(-1, -1), AppendOrigin::Client);
        assert_eq!(appended, end);
    }
}

/// Makes the CRC of each batch of magic 2 right, as far as lengths lead from one to the next.
fn repair(content: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = content.get(at..at + 61) {
        let field = [header[LENGTH_AT], header[9], header[10], header[11]];
        let size = (i32::from_be_bytes(field).max(0) as usize) + 12;
        let is_current = header[16] == 2;
        let Some(batch) = content
            .get_mut(at..at + size)
            .filter(|batch| batch.len() >= 61)
        else {
            return;
        };
        if is_current {
            let crc = compute_crc(batch);
            batch[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        at += size;
    }
}
