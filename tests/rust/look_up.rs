//! Look-ups by offset: every offset is found in its batch, whatever the sizes of the batches and
//! whatever the index says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::batch::build::{BatchBuilder, BatchOptions};
use kafkalite::batch::{AppendOrigin, BatchHeader};
use kafkalite::error::Result;
use kafkalite::log::append::AppendRequest;
use kafkalite::log::config::LogConfig;
use kafkalite::log::health::Health;
use kafkalite::log::log::Log;
use kafkalite::log::partition_metadata::create_directory;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::recover::{LogParameters, load};
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;

use crate::log_directory::log_parameters;
use crate::random::Random;

const NOW_MS: i64 = 1_700_000_000_000;

/// The default interval of the index; about 60 batches a segment.
fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 128 * 1024,
        ..LogConfig::default()
    }
}

fn open(directory: &Path, was_clean: bool) -> Arc<Log> {
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    let parameters = LogParameters {
        was_clean,
        ..log_parameters(directory, config())
    };
    load(
        &open_segments,
        &Arc::new(Health::new(directory)),
        parameters,
    )
    .unwrap()
    .0
}

/// Appends a batch of so many records and bytes.
fn append(log: &Log, records: usize, size_bytes: usize) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = vec![b'x'; size_bytes / records];
    for _ in 0..records {
        builder.append(NOW_MS, None, Some(&value), &[]).unwrap();
    }
    let request = AppendRequest {
        records: &mut builder.finish().unwrap(),
        origin: AppendOrigin::Client,
        leader_epoch: 0,
        transaction_version: None,
        guard: None,
    };
    log.append(&mut [request], NOW_MS).remove(0).unwrap();
}

/// Sizes of one kind for a while, then of another: those of which an index entry has many, a few,
/// and one, and all mixed.
fn fill(log: &Log) {
    let mut random = Random::new(7);
    for kind in [100, 1_000, 2_000, 4_000, 4_200, 9_000, 40_000, 0, 0] {
        for _ in 0..40 {
            let size_bytes = match kind {
                0 => [90, 700, 1_500, 3_900, 5_000, 12_000][random.below(6) as usize],
                kind => kind,
            };
            append(log, 1 + random.below(9) as usize, size_bytes);
        }
    }
}

/// The batch that a read begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    first: i64,
    last: i64,
    segment: i64,
    position_byte: u64,
}

fn found_at(log: &Log, offset: i64) -> Result<Found> {
    let range = log.read(offset, 1, true, ReadIsolation::LogEnd)?;
    let header = BatchHeader::parse(&range.to_vec()?)?.unwrap();
    Ok(Found {
        first: header.base_offset,
        last: header.last_offset(),
        segment: range.segment_base_offset,
        position_byte: range.position_byte,
    })
}

/// Every batch of the log, read one after the other.
fn batches(log: &Log) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let mut next = 0;
    while next < log.offsets().log_end_offset {
        let batch = found_at(log, next).unwrap();
        assert_eq!(batch.first, next, "batches follow each other");
        next = batch.last + 1;
        found.push(batch);
    }
    found
}

fn filled() -> (tempfile::TempDir, PathBuf, Vec<Found>) {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("t-0");
    create_directory(&DiskStorage, &directory, Uuid([7; 16])).unwrap();
    let log = open(&directory, false);
    fill(&log);
    let batches = batches(&log);
    assert_eq!(batches.len(), 9 * 40);
    log.close().unwrap();
    (home, directory, batches)
}

#[test]
fn every_offset_is_found_in_its_batch_whatever_the_sizes_of_batches() {
    let (_home, directory, batches) = filled();
    let log = open(&directory, true);
    assert!(log.segments().len() > 10);
    for batch in &batches {
        for offset in batch.first..=batch.last {
            assert_eq!(&found_at(&log, offset).unwrap(), batch, "offset {offset}");
        }
    }
}

#[test]
fn an_index_that_is_garbled_at_any_byte_leads_nobody_astray() {
    let (_home, directory, batches) = filled();
    let bases: Vec<i64> = {
        let log = open(&directory, true);
        let segments = log.segments();
        segments.iter().map(|one| one.base_offset()).collect()
    };
    let mut random = Random::new(11);
    // The last segment's index is in memory.
    for base in bases[..bases.len() - 1].iter().step_by(3) {
        let path = directory.join(format!("{base:020}.index"));
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut garbled = whole.clone();
            garbled[at] ^= 1 << random.below(8);
            fs::write(&path, &garbled).unwrap();
            let log = open(&directory, true);
            for batch in batches.iter().filter(|batch| batch.segment == *base) {
                for offset in [batch.first, batch.last] {
                    let found = found_at(&log, offset).unwrap();
                    assert_eq!(&found, batch, "offset {offset}, byte {at} of {base}");
                }
            }
        }
        fs::write(&path, &whole).unwrap();
    }
}
