//! A log under test: what is sent to it, what the cleaner is let do, and what is in it then.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kafkalite::batch::build::{BatchBuilder, BatchOptions, end_transaction_marker};
use kafkalite::batch::{AppendOrigin, BatchHeader, EndTransactionMarker, RecordReader};
use kafkalite::error::Error;
use kafkalite::log::append::{AppendInfo, AppendRequest};
use kafkalite::log::compact::{CleanReport, Cleaner, plan_of};
use kafkalite::log::config::{CleanupPolicy, LogConfig};
use kafkalite::log::health::Health;
use kafkalite::log::log::Log;
use kafkalite::log::partition_metadata::create_directory;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::recover::{LogParameters, load};
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::{DiskStorage, Storage};
use kafkalite::uuid::Uuid;

use crate::log_directory::log_parameters;

pub const NOW_MS: i64 = 1_700_000_000_000;
pub const RETENTION_MS: i64 = 1000;
pub const MAP_BYTES: usize = 1 << 16;

pub fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1 << 20,
        index_interval_bytes: 100,
        delete_retention_ms: RETENTION_MS,
        cleanup_policy: CleanupPolicy {
            delete: false,
            compact: true,
        },
        ..LogConfig::default()
    }
}

/// In memory where there is such a file system: these tests open and fsync many small files.
pub fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub type KeyValue<'a> = (&'a str, Option<&'a str>);

/// A log under test, its clock, and where the last round ended.
pub struct Partition {
    pub directory: PathBuf,
    pub log: Arc<Log>,
    pub config: LogConfig,
    storage: Arc<dyn Storage>,
    pub now_ms: i64,
    pub checkpoint: Option<i64>,
    rolls: bool,
}

impl Partition {
    pub fn new(home: &Path) -> Partition {
        Partition::with_storage(home, config(), Arc::new(DiskStorage))
    }

    pub fn with_storage(home: &Path, config: LogConfig, storage: Arc<dyn Storage>) -> Partition {
        let directory = home.join("t-0");
        create_directory(&*storage, &directory, Uuid([7; 16])).unwrap();
        Partition::open(&directory, config, storage).unwrap()
    }

    /// What the process before has left.
    pub fn open(
        directory: &Path,
        config: LogConfig,
        storage: Arc<dyn Storage>,
    ) -> Result<Partition, Error> {
        let log = open(directory, &config, storage.clone(), NOW_MS)?;
        Ok(Partition::of(log, config, storage))
    }

    /// A log that is open already.
    pub fn of(log: Arc<Log>, config: LogConfig, storage: Arc<dyn Storage>) -> Partition {
        Partition {
            directory: log.directory(),
            log,
            config,
            storage,
            now_ms: NOW_MS,
            checkpoint: None,
            rolls: false,
        }
    }

    pub fn reopen(&mut self) {
        let storage = self.storage.clone();
        self.log = open(&self.directory, &self.config, storage, self.now_ms).unwrap();
    }

    /// The next append goes to a new segment.
    pub fn roll(&mut self) {
        self.rolls = true;
    }

    pub fn append(
        &mut self,
        mut bytes: Vec<u8>,
        origin: AppendOrigin,
    ) -> Result<AppendInfo, Error> {
        if std::mem::take(&mut self.rolls) {
            let mut tight = self.config.clone();
            tight.segment_bytes = bytes.len() as u64;
            self.log.set_config(tight);
        }
        let request = AppendRequest {
            records: &mut bytes,
            origin,
            leader_epoch: 0,
            transaction_version: Some(1),
            guard: None,
        };
        let result = self.log.append(&mut [request], self.now_ms).remove(0);
        self.log.set_config(self.config.clone());
        self.log.flush().unwrap();
        result
    }

    pub fn send_with(&mut self, options: BatchOptions, records: &[KeyValue<'_>]) -> i64 {
        let bytes = build(options, self.now_ms, records);
        self.append(bytes, AppendOrigin::Client)
            .unwrap()
            .first_offset
    }

    pub fn send(&mut self, records: &[KeyValue<'_>]) -> i64 {
        self.send_with(BatchOptions::default(), records)
    }

    pub fn send_in_transaction(
        &mut self,
        producer_id: i64,
        sequence: i32,
        records: &[KeyValue<'_>],
    ) -> i64 {
        self.send_with(of_producer(producer_id, sequence, true), records)
    }

    pub fn end_transaction(&mut self, producer_id: i64, is_commit: bool) -> i64 {
        let marker = EndTransactionMarker {
            is_commit,
            coordinator_epoch: 0,
        };
        let bytes = end_transaction_marker(self.now_ms, producer_id, 0, marker);
        self.append(bytes, AppendOrigin::Coordinator)
            .unwrap()
            .first_offset
    }

    pub fn clean_with(&mut self, cleaner: &mut Cleaner) -> Option<CleanReport> {
        let plan = plan_of(&self.log, self.checkpoint, self.now_ms).unwrap();
        let stop = AtomicBool::new(false);
        let report = cleaner.clean(&self.log, &plan, self.now_ms, &stop).unwrap();
        self.checkpoint = report.map(|report| report.end_offset).or(self.checkpoint);
        report
    }

    /// Rolls by a record of its own and cleans all before it.
    pub fn clean(&mut self) -> CleanReport {
        self.roll();
        self.send(&[("roll", Some("roll"))]);
        self.clean_with(&mut Cleaner::new(MAP_BYTES, 0.9)).unwrap()
    }

    /// Cleans what is dirty, with a map of so many keys.
    pub fn clean_with_room(&mut self, slots: usize) -> Option<CleanReport> {
        let plan = plan_of(&self.log, self.checkpoint, self.now_ms).unwrap();
        if plan.cleanable_bytes == 0 {
            return None;
        }
        self.clean_with(&mut Cleaner::new(24 * slots, 0.9))
    }

    pub fn batches(&self) -> Vec<Batch> {
        read_batches(&self.log)
    }

    /// `offset key=value`, the records of `roll` left out, as well as control batches.
    pub fn records(&self) -> Vec<String> {
        let batches = self.batches();
        let data = batches.iter().filter(|batch| !batch.header.is_control());
        let records = data.flat_map(|batch| &batch.records);
        let shown = records.filter(|record| record.key.as_deref() != Some("roll"));
        shown.map(|record| record.to_string()).collect()
    }

    pub fn markers(&self) -> Vec<i64> {
        let batches = self.batches();
        let control = batches.iter().filter(|batch| batch.header.is_control());
        control.map(|batch| batch.header.base_offset).collect()
    }

    pub fn at(&self, offset: i64) -> Batch {
        let batches = self.batches();
        let holds = |batch: &&Batch| {
            (batch.header.base_offset..batch.header.next_offset()).contains(&offset)
        };
        batches.iter().find(holds).cloned().unwrap()
    }

    pub fn file_names(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(&self.directory).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

fn open(
    directory: &Path,
    config: &LogConfig,
    storage: Arc<dyn Storage>,
    now_ms: i64,
) -> Result<Arc<Log>, Error> {
    let open_segments = OpenSegments::new(storage, 64);
    let health = Arc::new(Health::new(directory));
    let parameters = LogParameters {
        now_ms,
        ..log_parameters(directory, config.clone())
    };
    load(&open_segments, &health, parameters).map(|(log, _)| log)
}

pub fn of_producer(producer_id: i64, sequence: i32, transactional: bool) -> BatchOptions {
    BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: sequence,
        transactional,
        ..BatchOptions::default()
    }
}

pub fn build(options: BatchOptions, now_ms: i64, records: &[KeyValue<'_>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for (slot, (key, value)) in records.iter().enumerate() {
        let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"1")), (b"n", None)];
        let (key, value) = (Some(key.as_bytes()), value.map(str::as_bytes));
        builder
            .append(now_ms + slot as i64, key, value, headers)
            .unwrap();
    }
    builder.finish().unwrap()
}

#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub header: BatchHeader,
    pub records: Vec<Found>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: Vec<u8>,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.key.as_deref().unwrap_or("(none)");
        write!(
            f,
            "{} {key}={}",
            self.offset,
            self.value.as_deref().unwrap_or("(null)")
        )
    }
}

/// Everything in the log, each batch with a good CRC and in the order of offsets.
fn read_batches(log: &Log) -> Vec<Batch> {
    let mut found: Vec<Batch> = Vec::new();
    let mut next = log.offsets().log_start_offset;
    let mut reader = RecordReader::new();
    loop {
        let range = log
            .read(next, 1 << 20, true, ReadIsolation::LogEnd)
            .unwrap();
        let bytes = range.to_vec().unwrap();
        let before = found.len();
        let mut at = 0;
        while let Some(header) = BatchHeader::parse(&bytes[at..]).unwrap()
            && at + header.size_bytes <= bytes.len()
        {
            let batch = &bytes[at..at + header.size_bytes];
            at += header.size_bytes;
            if header.last_offset() < next {
                continue;
            }
            let crc = match header.magic {
                2 => kafkalite::batch::header::compute_crc(batch),
                _ => crc32fast::hash(&batch[16..]),
            };
            assert_eq!(crc, header.crc);
            let last = found.last().map_or(-1, |last| last.header.last_offset());
            assert!(
                header.base_offset > last,
                "{} after {last}",
                header.base_offset
            );
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let records = reader.read(batch).unwrap().map(|record| {
                let record = record.unwrap();
                Found {
                    offset: record.offset,
                    timestamp: record.timestamp,
                    key: record.key.map(text),
                    value: record.value.map(text),
                    headers: record.headers.raw_bytes().to_vec(),
                }
            });
            let records = records.collect();
            found.push(Batch { header, records });
        }
        if found.len() == before {
            return found;
        }
        next = found[found.len() - 1].header.next_offset();
    }
}
