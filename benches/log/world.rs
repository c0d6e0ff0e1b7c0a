//! Logs and batches to measure with.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::batch::AppendOrigin;
use kafkalite::batch::build::{BatchBuilder, BatchOptions};
use kafkalite::log::append::AppendRequest;
use kafkalite::log::config::LogConfig;
use kafkalite::log::health::Health;
use kafkalite::log::log::Log;
use kafkalite::log::partition_metadata::create_directory;
use kafkalite::log::recover::{LoadReport, LogParameters, load};
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;
use tempfile::TempDir;

/// Where files are made: beside the build, on a real disk.
pub const PLACE: &str = env!("CARGO_TARGET_TMPDIR");

pub const NOW_MS: i64 = 1_760_000_000_000;

pub fn temporary_directory() -> TempDir {
    tempfile::tempdir_in(PLACE).unwrap()
}

/// An uncompressed batch of records with values of `value_bytes`, as many as fit in `batch_bytes`,
/// at least one, as a producer fills its batches.
pub fn batch_of(batch_bytes: usize, value_bytes: usize, options: BatchOptions) -> Vec<u8> {
    // At most, of a record: length, attributes, two deltas, key, value length, header count.
    let record_bytes = value_bytes + 12;
    let count = ((batch_bytes - 61) / record_bytes).max(1);
    let mut builder = BatchBuilder::new(options);
    let mut value = vec![b'v'; value_bytes];
    for number in 0..count {
        let text = number.to_string();
        value[..text.len()].copy_from_slice(text.as_bytes());
        builder.append(NOW_MS, None, Some(&value), &[]).unwrap();
    }
    let batch = builder.finish().unwrap();
    assert!(count == 1 || batch.len() <= batch_bytes);
    batch
}

pub fn request(records: &mut [u8]) -> AppendRequest<'_> {
    AppendRequest {
        records,
        origin: AppendOrigin::Client,
        leader_epoch: 1,
        transaction_version: None,
        guard: None,
    }
}

/// Makes a batch that was appended before one that a client may send.
pub fn reset_base_offset(batch: &mut [u8]) {
    batch[..8].fill(0);
}

pub fn parameters(directory: PathBuf, config: LogConfig, was_clean: bool) -> LogParameters {
    LogParameters {
        was_clean,
        ..LogParameters::new(directory, "bench".to_owned(), 0, config, NOW_MS, 1)
    }
}

/// An empty log in a new directory.
pub fn new_log(directory: &Path, config: LogConfig, open_segments: &Arc<OpenSegments>) -> Arc<Log> {
    create_directory(&DiskStorage, directory, Uuid([7; 16])).unwrap();
    load_log(directory, config, false, open_segments).0
}

pub fn load_log(
    directory: &Path,
    config: LogConfig,
    was_clean: bool,
    open_segments: &Arc<OpenSegments>,
) -> (Arc<Log>, LoadReport) {
    let health = Arc::new(Health::new(directory));
    let parameters = parameters(directory.to_path_buf(), config, was_clean);
    load(open_segments, &health, parameters).unwrap()
}

pub fn open_segments(segments_max: usize) -> Arc<OpenSegments> {
    OpenSegments::new(Arc::new(DiskStorage), segments_max)
}

/// Writes and deletes a file, so that what is measured next gets pages that this machine has
/// already: the first use of a guest's page can cost more than everything else.
pub fn recycle_pages(directory: &Path, bytes: usize) {
    let path = directory.join("warm-up");
    let chunk = vec![1_u8; 1 << 20];
    let mut file = fs::File::create(&path).unwrap();
    for _ in 0..bytes.div_ceil(chunk.len()) + 4 {
        file.write_all(&chunk).unwrap();
    }
    drop(file);
    fs::remove_file(&path).unwrap();
}
