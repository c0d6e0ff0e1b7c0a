//! Makes logs on a `MemoryStorage` and looks at them.

use std::path::Path;
use std::sync::Arc;

use kafkalite::batch::EndTransactionMarker;
use kafkalite::batch::build::{BatchBuilder, BatchOptions, end_transaction_marker};
use kafkalite::batch::compression::Codec;
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::error::Result;
use kafkalite::log::append::{AppendInfo, AppendRequest};
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::health::Health;
use kafkalite::log::log::Log;
use kafkalite::log::partition_metadata::create_directory;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::recover::{LoadReport, LogParameters, load};
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::Storage;
use kafkalite::uuid::Uuid;

use super::plain::{PlainBatch, next_offset_behind, valid_prefix};
use crate::log_directory::log_parameters;
pub use crate::log_directory::{NOW_MS, identity, options};
use crate::memory_storage::MemoryStorage;
use crate::random::Random;

pub const HOME: &str = "/data";
pub const PARTITION: &str = "/data/t-0";

pub fn open_directory(
    open_segments: &Arc<OpenSegments>,
    config: &LogConfig,
) -> Result<LogDirectory> {
    LogDirectory::open(
        open_segments,
        Path::new(HOME),
        &options(&|_| config.clone()),
    )
}

/// How a log is opened.
#[derive(Clone, Debug)]
pub struct Opening {
    pub config: LogConfig,
    pub was_clean: bool,
    pub recovery_point: i64,
    pub log_start_offset: i64,
}

impl Opening {
    pub fn unclean(config: &LogConfig) -> Opening {
        Opening {
            config: config.clone(),
            was_clean: false,
            recovery_point: 0,
            log_start_offset: 0,
        }
    }
}

/// A log with all that is shared around it.
pub struct Opened {
    pub log: Arc<Log>,
    pub report: LoadReport,
    pub open_segments: Arc<OpenSegments>,
}

pub fn open(storage: &MemoryStorage, opening: &Opening) -> Result<Opened> {
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 1024);
    let health = Arc::new(Health::new(Path::new(HOME)));
    let parameters = LogParameters {
        log_start_offset: opening.log_start_offset,
        recovery_point: opening.recovery_point,
        was_clean: opening.was_clean,
        ..log_parameters(PARTITION, opening.config.clone())
    };
    let (log, report) = load(&open_segments, &health, parameters)?;
    Ok(Opened {
        log,
        report,
        open_segments,
    })
}

/// A new, empty partition.
pub fn create(storage: &MemoryStorage, config: &LogConfig) -> Result<Opened> {
    storage.create_directory_all(Path::new(HOME)).unwrap();
    storage.sync_directory(Path::new("/")).unwrap();
    create_directory(storage, Path::new(PARTITION), Uuid([7; 16]))?;
    open(storage, &Opening::unclean(config))
}

/// Who sends a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub transactional: bool,
}

/// Without a producer id.
pub const NOBODY: Sender = Sender {
    producer_id: -1,
    producer_epoch: -1,
    base_sequence: -1,
    transactional: false,
};

/// A batch of `count` records, whose values say their number and are `filler` bytes longer.
pub fn batch(codec: Codec, sender: Sender, first: i64, count: i64, filler: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        producer_id: sender.producer_id,
        producer_epoch: sender.producer_epoch,
        base_sequence: sender.base_sequence,
        transactional: sender.transactional,
        ..BatchOptions::default()
    });
    let mut random = Random::new(first as u64);
    for number in first..first + count {
        let mut value = format!("{number}:").into_bytes();
        value.extend((0..filler).map(|_| random.byte()));
        builder
            .append(NOW_MS + number, Some(b"key"), Some(&value), &[])
            .unwrap();
    }
    builder.finish().unwrap()
}

pub fn append(log: &Log, mut bytes: Vec<u8>, leader_epoch: i32) -> Result<AppendInfo> {
    append_as(log, &mut bytes, AppendOrigin::Client, leader_epoch)
}

pub fn append_as(
    log: &Log,
    records: &mut [u8],
    origin: AppendOrigin,
    leader_epoch: i32,
) -> Result<AppendInfo> {
    let request = AppendRequest {
        records,
        origin,
        leader_epoch,
        transaction_version: (origin == AppendOrigin::Coordinator).then_some(0),
        guard: None,
    };
    log.append(&mut [request], NOW_MS).remove(0)
}

pub fn append_marker(
    log: &Log,
    sender: Sender,
    is_commit: bool,
    leader_epoch: i32,
) -> Result<AppendInfo> {
    let marker = EndTransactionMarker {
        is_commit,
        coordinator_epoch: 0,
    };
    let (id, epoch) = (sender.producer_id, sender.producer_epoch);
    let mut bytes = end_transaction_marker(NOW_MS, id, epoch, marker);
    append_as(log, &mut bytes, AppendOrigin::Coordinator, leader_epoch)
}

/// Everything that a reader of `isolation` gets from the log start on, read in pieces of at most
/// `max_bytes` but at least a batch. Fails if anything is served that is no whole batch with a
/// right CRC, or a read answers an error.
pub fn serve(log: &Log, isolation: ReadIsolation, max_bytes: u64) -> Vec<PlainBatch> {
    let mut served: Vec<PlainBatch> = Vec::new();
    let mut next_offset = log.offsets().log_start_offset;
    loop {
        let range = log.read(next_offset, max_bytes, true, isolation).unwrap();
        let bytes = range.to_vec().unwrap();
        let batches = valid_prefix(&bytes, 0);
        let Some(last) = batches.last() else {
            let size = bytes.len();
            assert_eq!(size, 0, "{size} bytes at offset {next_offset} are no batch");
            return served;
        };
        let first = &batches[0];
        assert!(
            first.last_offset >= next_offset,
            "a batch below offset {next_offset} is served"
        );
        let behind = &bytes[last.end()..];
        let size = behind
            .get(8..12)
            .map(|field| 12 + u32::from_be_bytes([field[0], field[1], field[2], field[3]]));
        assert!(
            size.is_none_or(|size| size as usize > behind.len()),
            "what follows offset {} is no batch",
            last.last_offset
        );
        next_offset = last.next_offset();
        served.extend(batches);
    }
}

/// As `serve`, the bytes alone, nothing of them checked: to be compared with known ones.
pub fn serve_bytes(log: &Log, isolation: ReadIsolation, max_bytes: u64) -> Vec<u8> {
    let mut served = Vec::new();
    let mut next_offset = log.offsets().log_start_offset;
    loop {
        let range = log.read(next_offset, max_bytes, true, isolation).unwrap();
        let bytes = range.to_vec().unwrap();
        let (whole, behind) = next_offset_behind(&bytes);
        let Some(behind) = behind else {
            assert!(bytes.is_empty(), "offset {next_offset} has no whole batch");
            return served;
        };
        assert!(
            behind > next_offset,
            "a batch below offset {next_offset} is served"
        );
        next_offset = behind;
        served.extend_from_slice(&bytes[..whole]);
    }
}

/// Offsets and bytes, wherever in their files they lie.
pub fn contents(batches: &[PlainBatch]) -> Vec<(i64, Vec<u8>)> {
    let parts = batches.iter();
    parts
        .map(|batch| (batch.base_offset, batch.bytes.clone()))
        .collect()
}
