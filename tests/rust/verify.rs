//! `Verification` over logs that the engine wrote: silent about them, loud about each flipped bit,
//! and never beside itself, whatever the files hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::batch::build::{BatchBuilder, BatchOptions, end_transaction_marker};
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::batch::{Codec, EndTransactionMarker};
use kafkalite::log::append::AppendRequest;
use kafkalite::log::check::findings::Finding;
use kafkalite::log::check::inspect::{SegmentReader, inspect_file};
use kafkalite::log::check::verify::Verification;
use kafkalite::log::config::LogConfig;
use kafkalite::log::health::Health;
use kafkalite::log::partition_metadata::create_directory;
use kafkalite::log::recover::load;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;

use crate::log_directory::log_parameters;

const NOW_MS: i64 = 1_700_000_000_000;
const PRODUCER: i64 = 9;

/// A partition with several small segments: every codec, two leader epochs, an aborted transaction.
fn write_log(home: &Path) -> PathBuf {
    let directory = home.join("t-0");
    create_directory(&DiskStorage, &directory, Uuid([7; 16])).unwrap();
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    let health = Arc::new(Health::new(&directory));
    let config = LogConfig {
        segment_bytes: 700,
        index_interval_bytes: 100,
        ..LogConfig::default()
    };
    let parameters = log_parameters(&directory, config);
    let (log, _) = load(&open_segments, &health, parameters).unwrap();
    let append = |bytes: &mut [u8], origin, leader_epoch| {
        let request = AppendRequest {
            records: bytes,
            origin,
            leader_epoch,
            transaction_version: Some(1),
            guard: None,
        };
        log.append(&mut [request], NOW_MS).remove(0).unwrap();
    };
    let codecs = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];
    for (number, codec) in codecs.into_iter().cycle().take(10).enumerate() {
        let options = BatchOptions {
            codec,
            ..BatchOptions::default()
        };
        let mut batch = records(options, number as i64);
        append(&mut batch, AppendOrigin::Client, number as i32 / 5);
    }
    let mut batch = records(
        BatchOptions {
            producer_id: PRODUCER,
            producer_epoch: 0,
            base_sequence: 0,
            transactional: true,
            ..BatchOptions::default()
        },
        10,
    );
    append(&mut batch, AppendOrigin::Client, 1);
    let abort = EndTransactionMarker {
        is_commit: false,
        coordinator_epoch: 0,
    };
    let mut marker = end_transaction_marker(NOW_MS + 11, PRODUCER, 0, abort);
    append(&mut marker, AppendOrigin::Coordinator, 1);
    log.close().unwrap();
    directory
}

fn records(options: BatchOptions, number: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for record in 0..3 {
        let value = format!("value {number} {record} {}", "x".repeat(20));
        builder
            .append(NOW_MS + number, Some(b"key"), Some(value.as_bytes()), &[])
            .unwrap();
    }
    builder.finish().unwrap()
}

fn verify(directory: &Path) -> Vec<Finding> {
    let mut verification = Verification::open(Arc::new(DiskStorage), directory, false).unwrap();
    let mut found = Vec::new();
    while let Some(findings) = verification.step().unwrap() {
        found.extend(findings);
    }
    assert_eq!(verification.summary().findings, found.len());
    found
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn of_kind(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths = files(directory);
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    assert!(!paths.is_empty(), "{extension}");
    paths
}

/// Every place in `make test-long`, every `sampled`-th one else.
fn step(sampled: usize) -> usize {
    match std::env::var_os("KAFKALITE_TEST_LONG") {
        Some(_) => 1,
        None => sampled,
    }
}

#[test]
fn verify_has_nothing_to_say_about_a_log_of_the_engine() {
    let home = tempfile::tempdir().unwrap();
    let directory = write_log(home.path());
    assert!(of_kind(&directory, "log").len() >= 3);
    assert!(!of_kind(&directory, "txnindex").is_empty());
    assert_eq!(verify(&directory), []);
}

#[test]
fn verify_finds_every_flipped_bit_of_every_segment() {
    let home = tempfile::tempdir().unwrap();
    let directory = write_log(home.path());
    for path in of_kind(&directory, "log") {
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        for bit in (0..whole.len() * 8).step_by(step(11)) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            let place = format!("{} byte {} bit {}", path.display(), bit / 8, bit % 8);
            assert_ne!(verify(&directory), [], "{place}");
            bytes[bit / 8] = whole[bit / 8];
        }
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn verify_finds_every_cut_of_every_segment_but_the_last_batch_boundary() {
    let home = tempfile::tempdir().unwrap();
    let directory = write_log(home.path());
    for path in of_kind(&directory, "log") {
        let whole = fs::read(&path).unwrap();
        for length in (0..whole.len()).step_by(step(7)) {
            fs::write(&path, &whole[..length]).unwrap();
            assert_ne!(verify(&directory), [], "{} cut at {length}", path.display());
        }
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn garbage_in_any_file_is_read_without_a_panic() {
    let home = tempfile::tempdir().unwrap();
    let directory = write_log(home.path());
    let mut seed = 0x5eed_u64;
    let mut draw = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for path in files(&directory) {
        let whole = fs::read(&path).unwrap();
        for _ in 0..60 {
            let mut bytes = whole.clone();
            bytes.truncate(draw() as usize % (whole.len() + 1));
            let garbled = if bytes.is_empty() {
                0
            } else {
                draw() as usize % 40
            };
            for _ in 0..garbled {
                let at = draw() as usize % bytes.len();
                bytes[at] = draw() as u8;
            }
            bytes.extend((0..draw() % 50).map(|_| draw() as u8));
            fs::write(&path, &bytes).unwrap();
            verify(&directory);
            let _ = inspect_file(&DiskStorage, &path);
            let mut segment = SegmentReader::open(&DiskStorage, &path).unwrap();
            while segment
                .next_batches(1, true)
                .is_ok_and(|batches| !batches.is_empty())
            {}
        }
        fs::write(&path, &whole).unwrap();
    }
}
