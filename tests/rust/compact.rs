//! The cleaner: its rules by name, every crash point, and random histories against a plain list of
//! all records ever written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kafkalite::batch::build::{BatchBuilder, BatchOptions, end_transaction_marker};
use kafkalite::batch::header::{NO_SEQUENCE, increment_sequence};
use kafkalite::batch::{AppendOrigin, BatchHeader, Codec, EndTransactionMarker, RecordReader};
use kafkalite::error::Error;
use kafkalite::log::append::{AppendInfo, AppendRequest};
use kafkalite::log::checkpoint::{OffsetCheckpoint, TopicPartition, Uuid};
use kafkalite::log::compact::{CleanReport, Cleaner, checkpoints, plan_of};
use kafkalite::log::config::{CleanupPolicy, LogConfig};
use kafkalite::log::directory::{DirectoryOptions, LogDirectory};
use kafkalite::log::health::Health;
use kafkalite::log::log::Log;
use kafkalite::log::meta_properties::MetaProperties;
use kafkalite::log::open_segments::OpenSegments;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::recover::{LogParameters, create_directory, load};
use kafkalite::log::storage::{DiskStorage, Storage};
use proptest::prelude::*;

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
fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub type KeyValue<'a> = (&'a str, Option<&'a str>);

/// A log under test, its clock, and where the last round ended.
pub struct Partition {
    pub directory: PathBuf,
    pub log: Arc<Log>,
    config: LogConfig,
    storage: Arc<dyn Storage>,
    pub now_ms: i64,
    pub checkpoint: Option<i64>,
    rolls: bool,
}

impl Partition {
    fn new(home: &Path) -> Partition {
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
        Ok(Partition {
            directory: directory.to_path_buf(),
            log,
            config,
            storage,
            now_ms: NOW_MS,
            checkpoint: None,
            rolls: false,
        })
    }

    fn reopen(&mut self) {
        let storage = self.storage.clone();
        self.log = open(&self.directory, &self.config, storage, self.now_ms).unwrap();
    }

    /// The next append goes to a new segment.
    pub fn roll(&mut self) {
        self.rolls = true;
    }

    fn append(&mut self, mut bytes: Vec<u8>, origin: AppendOrigin) -> Result<AppendInfo, Error> {
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

    fn clean_with(&mut self, cleaner: &mut Cleaner) -> Option<CleanReport> {
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

    fn at(&self, offset: i64) -> Batch {
        let batches = self.batches();
        let holds = |batch: &&Batch| {
            (batch.header.base_offset..batch.header.next_offset()).contains(&offset)
        };
        batches.iter().find(holds).cloned().unwrap()
    }

    fn file_names(&self) -> BTreeSet<String> {
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
        directory: directory.to_path_buf(),
        topic: "t".to_owned(),
        partition: 0,
        config: config.clone(),
        log_start_offset: 0,
        recovery_point: 0,
        high_watermark: None,
        was_clean: false,
        now_ms,
        jitter_seed: 1,
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

fn build(options: BatchOptions, now_ms: i64, records: &[KeyValue<'_>]) -> Vec<u8> {
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

#[test]
fn of_each_key_the_newest_record_stays_at_its_offset() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]);
    partition.send(&[("c", Some("1"))]);
    partition.roll();
    partition.send(&[("b", Some("2"))]);
    let before = partition.at(2).records[2].clone();
    let report = partition.clean();
    assert_eq!(report.end_offset, 5);
    assert_eq!(partition.records(), ["2 a=2", "3 c=1", "4 b=2"]);
    assert_eq!(
        partition.at(2).records,
        [before],
        "timestamp and headers are what they were"
    );
    assert_eq!(
        (report.counts.records_read, report.counts.records_written),
        (5, 3)
    );
}

#[test]
fn a_batch_that_is_written_again_keeps_its_range_of_offsets_and_its_sequence() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send_with(
        of_producer(9, 0, false),
        &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))],
    );
    let before = partition.at(0).header;
    partition.send(&[("a", Some("2")), ("c", Some("2"))]);
    partition.clean();
    let after = partition.at(0).header;
    assert_eq!((after.base_offset, after.last_offset()), (0, 2));
    assert_eq!(
        (
            after.producer_id,
            after.base_sequence,
            after.last_sequence()
        ),
        (9, 0, 2)
    );
    assert_eq!(
        (after.records_count, after.base_timestamp),
        (1, before.base_timestamp + 1)
    );
    assert_eq!(after.partition_leader_epoch, before.partition_leader_epoch);
}

#[test]
fn a_batch_of_which_every_record_stays_is_copied_byte_for_byte() {
    let home = home();
    let mut partition = Partition::new(home.path());
    let options = BatchOptions {
        codec: Codec::Zstd,
        ..BatchOptions::default()
    };
    partition.send_with(options, &[("a", Some("1")), ("b", Some("1"))]);
    let before = partition.at(0).header;
    partition.clean();
    assert_eq!(partition.at(0).header, before);
}

#[test]
fn a_compressed_batch_is_written_again_with_its_codec() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let home = home();
        let mut partition = Partition::new(home.path());
        let options = BatchOptions {
            codec,
            ..BatchOptions::default()
        };
        partition.send_with(options, &[("a", Some("1")), ("b", Some("1"))]);
        partition.send(&[("a", Some("2"))]);
        partition.clean();
        assert_eq!(partition.records(), ["1 b=1", "2 a=2"], "{codec:?}");
        assert_eq!(partition.at(1).header.codec_id(), codec.id());
    }
}

#[test]
fn the_active_segment_and_what_is_not_stable_are_left_alone() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", Some("2"))]);
    assert_eq!(
        plan_of(&partition.log, None, NOW_MS)
            .unwrap()
            .cleanable_bytes,
        0
    );
    partition.roll();
    partition.send_in_transaction(5, 0, &[("b", Some("1"))]);
    partition.roll();
    partition.send(&[("b", Some("2"))]);
    partition.roll();
    partition.send(&[("b", Some("3"))]);
    let report = partition.clean();
    assert_eq!(report.end_offset, 2, "the open transaction begins at 2");
    assert_eq!(partition.records(), ["1 a=2", "2 b=1", "3 b=2", "4 b=3"]);
}

#[test]
fn a_tombstone_takes_its_key_away_and_stays_itself_until_its_horizon() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", None), ("b", Some("1"))]);
    partition.clean();
    assert_eq!(partition.records(), ["1 a=(null)", "2 b=1"]);
    let horizon_ms = NOW_MS + RETENTION_MS;
    let header = partition.at(1).header;
    assert_eq!(header.delete_horizon_ms(), Some(horizon_ms));
    assert_eq!(header.base_timestamp, horizon_ms);
    assert_eq!(
        partition.at(1).records[0].timestamp,
        NOW_MS,
        "the record's own time is kept"
    );
    partition.now_ms = horizon_ms - 1;
    partition.clean();
    assert_eq!(partition.records(), ["1 a=(null)", "2 b=1"]);
    assert_eq!(
        partition.at(1).header.delete_horizon_ms(),
        Some(horizon_ms),
        "it never moves"
    );
    partition.now_ms = horizon_ms;
    partition.clean();
    assert_eq!(partition.records(), ["2 b=1"]);
}

#[test]
fn a_tombstone_that_is_not_the_newest_of_its_key_goes_at_once() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", None)]);
    partition.send(&[("a", Some("1"))]);
    partition.clean();
    assert_eq!(partition.records(), ["1 a=1"]);
}

#[test]
fn a_commit_marker_stays_until_its_records_are_gone_and_its_horizon_has_passed() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send_in_transaction(5, 0, &[("a", Some("1"))]);
    let marker = partition.end_transaction(5, true);
    // A later epoch of the producer, so that the marker is not its last sign of life.
    partition.send_in_transaction(5, 1, &[("z", Some("1"))]);
    partition.end_transaction(5, true);
    partition.clean();
    assert!(partition.markers().contains(&marker));
    assert_eq!(
        partition.at(marker).header.delete_horizon_ms(),
        None,
        "its record is there"
    );
    partition.send(&[("a", Some("2"))]);
    partition.clean();
    assert_eq!(
        partition.at(marker).header.delete_horizon_ms(),
        None,
        "its record went just now"
    );
    partition.clean();
    let horizon_ms = partition.now_ms + RETENTION_MS;
    assert_eq!(
        partition.at(marker).header.delete_horizon_ms(),
        Some(horizon_ms)
    );
    partition.now_ms = horizon_ms - 1;
    partition.clean();
    assert!(partition.markers().contains(&marker));
    partition.now_ms = horizon_ms;
    partition.clean();
    assert!(!partition.markers().contains(&marker));
}

#[test]
fn aborted_records_go_at_once_and_their_marker_with_its_index_entry_later() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send_in_transaction(5, 0, &[("a", Some("2"))]);
    partition.send_in_transaction(5, 1, &[("a", Some("3"))]);
    let marker = partition.end_transaction(5, false);
    partition.send_in_transaction(5, 2, &[("z", Some("1"))]);
    partition.end_transaction(5, true);
    let aborted =
        |partition: &Partition| partition.log.aborted_transactions(0, 1000).unwrap().len();
    assert_eq!(aborted(&partition), 1);
    partition.clean();
    assert_eq!(
        partition.records(),
        ["0 a=1", "4 z=1"],
        "the aborted ones hide nothing"
    );
    assert!(partition.markers().contains(&marker));
    assert_eq!(
        aborted(&partition),
        1,
        "readers of the old segment may come back"
    );
    partition.clean();
    let horizon_ms = NOW_MS + RETENTION_MS;
    assert_eq!(
        partition.at(marker).header.delete_horizon_ms(),
        Some(horizon_ms)
    );
    assert_eq!(aborted(&partition), 0);
    partition.now_ms = horizon_ms;
    partition.clean();
    assert!(!partition.markers().contains(&marker));
}

#[test]
fn the_last_sequence_of_an_active_producer_survives_its_records() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send_with(
        of_producer(9, 0, false),
        &[("a", Some("1")), ("b", Some("1"))],
    );
    partition.send_with(
        of_producer(9, 2, false),
        &[("a", Some("2")), ("b", Some("2"))],
    );
    partition.send(&[("a", Some("3")), ("b", Some("3"))]);
    partition.clean();
    assert_eq!(partition.records(), ["4 a=3", "5 b=3"]);
    let header = partition.at(2).header;
    assert_eq!(
        (
            header.records_count,
            header.last_sequence(),
            header.last_offset()
        ),
        (0, 3, 3)
    );
    assert!(
        partition
            .batches()
            .iter()
            .all(|batch| batch.header.base_offset != 0)
    );
    for entry in std::fs::read_dir(&partition.directory).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "snapshot")
        {
            std::fs::remove_file(path).unwrap();
        }
    }
    partition.reopen();
    assert_eq!(partition.log.producers().get(9).unwrap().last_sequence(), 3);
    let again = build(
        of_producer(9, 2, false),
        NOW_MS,
        &[("a", Some("2")), ("b", Some("2"))],
    );
    let info = partition.append(again, AppendOrigin::Client).unwrap();
    assert!(info.is_duplicate && info.first_offset == 2);
}

#[test]
fn the_last_batch_of_a_round_keeps_its_header_so_that_no_offset_is_lost() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send_in_transaction(5, 0, &[("b", Some("1")), ("c", Some("1"))]);
    partition.end_transaction(5, false);
    partition.roll();
    partition.send_in_transaction(6, 0, &[("d", Some("1")), ("e", Some("1"))]);
    partition.roll();
    partition.end_transaction(6, false);
    partition.roll();
    partition.send(&[("f", Some("1"))]);
    partition
        .clean_with(&mut Cleaner::new(MAP_BYTES, 0.9))
        .unwrap();
    let ends: Vec<i64> = partition
        .batches()
        .iter()
        .map(|batch| batch.header.last_offset())
        .collect();
    assert_eq!(
        ends,
        [0, 2, 3, 5, 6, 7],
        "5 and 2 are the last data of their producers, too"
    );
}

#[test]
fn records_without_a_key_are_dropped_and_counted() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.config.cleanup_policy.compact = false;
    partition.log.set_config(partition.config.clone());
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(NOW_MS, None, Some(b"1"), &[]).unwrap();
    builder.append(NOW_MS, Some(b"a"), Some(b"1"), &[]).unwrap();
    partition
        .append(builder.finish().unwrap(), AppendOrigin::Client)
        .unwrap();
    partition.config.cleanup_policy.compact = true;
    partition.log.set_config(partition.config.clone());
    let report = partition.clean();
    assert_eq!(report.counts.keyless_records, 1);
    assert_eq!(partition.records(), ["1 a=1"]);
}

#[test]
fn small_segments_become_one_and_the_old_ones_are_called_deleted_for_a_while() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..5 {
        partition.roll();
        partition.send(&[
            ("a", Some(&number.to_string())),
            (&number.to_string(), Some("x")),
        ]);
    }
    partition.clean();
    let bases: Vec<i64> = partition
        .log
        .segments()
        .iter()
        .map(|s| s.base_offset())
        .collect();
    assert_eq!(bases, [0, 10]);
    assert!(
        partition
            .file_names()
            .contains("00000000000000000008.log.deleted")
    );
    partition
        .log
        .delete_due_files(NOW_MS + config().file_delete_delay_ms)
        .unwrap();
    let names = partition.file_names();
    assert!(
        !names.iter().any(|name| name.ends_with(".deleted")),
        "{names:?}"
    );
    let logs = names.iter().filter(|name| name.ends_with(".log")).count();
    assert_eq!(logs, 2);
    partition.reopen();
    assert_eq!(
        partition.records(),
        ["1 0=x", "3 1=x", "5 2=x", "7 3=x", "8 a=4", "9 4=x"]
    );
}

#[test]
fn groups_stay_within_the_size_of_a_segment() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..6 {
        partition.roll();
        partition.send(&[(&number.to_string(), Some(&"x".repeat(1000)))]);
    }
    partition.config.segment_bytes = 2500;
    partition.log.set_config(partition.config.clone());
    let report = partition.clean();
    assert_eq!(report.groups, 3);
    let bases: Vec<i64> = partition
        .log
        .segments()
        .iter()
        .map(|s| s.base_offset())
        .collect();
    assert_eq!(bases, [0, 2, 4, 6]);
}

#[test]
fn a_full_map_ends_the_round_early_and_the_next_one_goes_on_there() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..10 {
        let key = (number % 5).to_string();
        partition.send(&[(&key, Some(&number.to_string()))]);
    }
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    let mut cleaner = Cleaner::new(24 * 5, 0.8);
    let mut ends = Vec::new();
    while let Some(report) = partition.clean_with(&mut cleaner) {
        ends.push(report.end_offset);
        if report.end_offset == 10 {
            break;
        }
    }
    assert_eq!(ends, [4, 8, 10]);
    assert_eq!(
        partition.records(),
        ["5 0=5", "6 1=6", "7 2=7", "8 3=8", "9 4=9"]
    );
}

#[test]
fn a_batch_with_more_keys_than_the_map_holds_is_refused_by_a_sentence() {
    let home = home();
    let mut partition = Partition::new(home.path());
    let keys: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    let records: Vec<KeyValue<'_>> = keys.iter().map(|key| (key.as_str(), Some("x"))).collect();
    partition.send(&records);
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    let plan = plan_of(&partition.log, None, NOW_MS).unwrap();
    let mut cleaner = Cleaner::new(24 * 5, 0.8);
    let error = cleaner
        .clean(&partition.log, &plan, NOW_MS, &AtomicBool::new(false))
        .unwrap_err();
    assert!(
        error.to_string().contains("log.cleaner.dedupe.buffer.size"),
        "{error}"
    );
    assert_eq!(partition.records().len(), 10);
}

#[test]
fn what_a_reader_holds_stays_what_it_was_beside_the_swap() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..20 {
        partition.send(&[("a", Some(&number.to_string()))]);
    }
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    let range = partition
        .log
        .read(0, 1 << 20, true, ReadIsolation::HighWatermark)
        .unwrap();
    let before = range.to_vec().unwrap();
    partition
        .clean_with(&mut Cleaner::new(MAP_BYTES, 0.9))
        .unwrap();
    partition.log.delete_due_files(i64::MAX).unwrap();
    assert_eq!(range.to_vec().unwrap(), before);
    assert_eq!(partition.records(), ["19 a=19"]);
}

#[test]
fn a_read_in_the_middle_of_what_was_removed_finds_the_next_record() {
    let home = home();
    let mut partition = Partition::new(home.path());
    for number in 0..30 {
        partition.roll();
        partition.send(&[("a", Some(&number.to_string()))]);
    }
    partition.clean();
    for offset in 0..=30 {
        let range = partition
            .log
            .read(offset, 1 << 20, true, ReadIsolation::LogEnd)
            .unwrap();
        let bytes = range.to_vec().unwrap();
        let header = BatchHeader::parse(&bytes).unwrap().unwrap();
        assert_eq!(header.base_offset, offset.max(29));
    }
}

#[test]
fn a_segment_cut_or_deleted_meanwhile_is_not_replaced() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", Some("2"))]);
    partition.roll();
    partition.send(&[("a", Some("3"))]);
    let segments = partition.log.segments();
    let version = segments[0].version();
    partition.log.truncate_to(1, NOW_MS).unwrap();
    partition.send(&[("b", Some("2"))]);
    partition.roll();
    partition.send(&[("b", Some("3"))]);
    assert!(
        !partition
            .log
            .replace_segments(&[], &[version], NOW_MS)
            .unwrap()
    );
    let active = partition.log.segments()[1].version();
    assert!(
        !partition
            .log
            .replace_segments(&[], &[active], NOW_MS)
            .unwrap()
    );
    assert_eq!(partition.records(), ["0 a=1", "1 b=2", "2 b=3"]);
}

#[test]
fn a_stop_leaves_the_log_as_it_was_and_no_file_behind() {
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.send(&[("a", Some("1"))]);
    partition.send(&[("a", Some("2"))]);
    partition.roll();
    partition.send(&[("a", Some("3"))]);
    let plan = plan_of(&partition.log, None, NOW_MS).unwrap();
    let names = partition.file_names();
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    let report = cleaner
        .clean(&partition.log, &plan, NOW_MS, &AtomicBool::new(true))
        .unwrap();
    assert_eq!(report, None);
    assert_eq!(partition.file_names(), names);
    assert_eq!(partition.records().len(), 3);
}

/// A message of magic 1; no value is a tombstone.
fn legacy_message(offset: i64, timestamp: i64, key: &str, value: Option<&str>) -> Vec<u8> {
    let mut body = vec![1, 0];
    body.extend_from_slice(&timestamp.to_be_bytes());
    body.extend_from_slice(&(key.len() as i32).to_be_bytes());
    body.extend_from_slice(key.as_bytes());
    body.extend_from_slice(&value.map_or(-1, |value| value.len() as i32).to_be_bytes());
    body.extend_from_slice(value.unwrap_or_default().as_bytes());
    let mut message = offset.to_be_bytes().to_vec();
    message.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    message.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    message.extend_from_slice(&body);
    message
}

#[test]
fn tombstones_of_magic_1_go_by_the_age_of_their_segment() {
    let home = home();
    let long = "2".repeat(150);
    let mut partition = Partition::new(home.path());
    // Too small for two segments to become one, which would be as young as the younger.
    partition.config.segment_bytes = 320;
    partition.log.set_config(partition.config.clone());
    let mut old = legacy_message(0, NOW_MS, "a", Some("1"));
    old.extend(legacy_message(1, NOW_MS, "a", None));
    old.extend(legacy_message(2, NOW_MS, "b", Some("1")));
    old.extend(legacy_message(3, NOW_MS, "b", Some(&long)));
    partition.append(old, AppendOrigin::Replication).unwrap();
    let kept = format!("3 b={long}");
    partition.clean();
    assert_eq!(partition.records(), ["1 a=(null)", &kept]);
    assert_eq!(
        partition.at(1).header.magic,
        1,
        "what stays whole is copied"
    );
    // Old is what was last written the retention or more before the newest clean segment.
    partition.now_ms += RETENTION_MS - 1;
    partition.send(&[("c", Some("1"))]);
    partition.clean();
    partition.clean();
    assert_eq!(partition.records(), ["1 a=(null)", &kept, "5 c=1"]);
    partition.now_ms += 1;
    partition.send(&[("d", Some("1"))]);
    partition.clean();
    assert!(
        partition.records().contains(&"1 a=(null)".to_owned()),
        "the newest was dirty then"
    );
    partition.clean();
    assert!(!partition.records().contains(&"1 a=(null)".to_owned()));
    assert!(partition.records().contains(&kept));
}

fn directory_options<'a>(
    config_of: &'a (dyn Fn(&str) -> LogConfig + Sync),
    on_loaded: &'a (dyn Fn(&Log, &kafkalite::log::recover::LoadReport, usize) + Sync),
) -> DirectoryOptions<'a> {
    DirectoryOptions {
        identity: MetaProperties {
            version: 1,
            cluster_id: Some("c".to_owned()),
            node_id: Some(1),
            directory_id: Some(Uuid([9; 16])),
        },
        config_of,
        is_ours: &|_, _, _| true,
        on_loaded,
        recovery_threads: 1,
        flush_threads: 1,
        is_single_replica: true,
        now_ms: NOW_MS,
        jitter_seed: 1,
    }
}

/// A log of the directory as a `Partition`, with `rounds` segments that overwrite one key.
fn dirty_log(directory: &LogDirectory, topic: &str, clean: usize, dirty: usize) -> Partition {
    let log = directory
        .create_log(topic, 0, Uuid([3; 16]), config(), NOW_MS)
        .unwrap();
    let mut partition = Partition {
        directory: log.directory(),
        log,
        config: config(),
        storage: Arc::new(DiskStorage),
        now_ms: NOW_MS,
        checkpoint: None,
        rolls: false,
    };
    for number in 0..clean + dirty {
        partition.roll();
        partition.send(&[("a", Some(&number.to_string()))]);
    }
    partition.roll();
    partition.send(&[("roll", Some("roll"))]);
    partition
}

#[test]
fn the_dirtiest_log_of_a_directory_is_cleaned_first_and_the_checkpoint_says_how_far() {
    let home = home();
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    let (config_of, on_loaded) = (|_: &str| config(), |_: &Log, _: &_, _| {});
    let options = directory_options(&config_of, &on_loaded);
    let directory = LogDirectory::open(&open_segments, home.path(), &options).unwrap();
    let half = dirty_log(&directory, "half", 3, 4);
    let all = dirty_log(&directory, "all", 0, 3);
    let path = home.path().join("cleaner-offset-checkpoint");
    let key = |topic: &str| TopicPartition {
        topic: topic.to_owned(),
        partition: 0,
    };
    let checkpoint = OffsetCheckpoint {
        offsets: [(key("half"), 3), (key("gone"), 5)].into(),
    };
    checkpoint.write(&DiskStorage, &path).unwrap();
    let stop = AtomicBool::new(false);
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    cleaner
        .clean_dirtiest(&directory, NOW_MS, &stop)
        .unwrap()
        .unwrap();
    assert_eq!(all.records(), ["2 a=2"]);
    assert_eq!(half.records().len(), 7);
    cleaner
        .clean_dirtiest(&directory, NOW_MS, &stop)
        .unwrap()
        .unwrap();
    assert_eq!(half.records(), ["6 a=6"]);
    assert_eq!(
        cleaner.clean_dirtiest(&directory, NOW_MS, &stop).unwrap(),
        None
    );
    let after = OffsetCheckpoint::read(&DiskStorage, &path).unwrap();
    assert_eq!(after.offsets, [(key("all"), 3), (key("half"), 7)].into());
}

#[test]
fn a_checkpoint_outside_of_the_log_is_set_to_its_start_and_all_is_cleaned_again() {
    let home = home();
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    let (config_of, on_loaded) = (|_: &str| config(), |_: &Log, _: &_, _| {});
    let options = directory_options(&config_of, &on_loaded);
    let directory = LogDirectory::open(&open_segments, home.path(), &options).unwrap();
    let partition = dirty_log(&directory, "t", 0, 3);
    let path = home.path().join("cleaner-offset-checkpoint");
    let key = TopicPartition {
        topic: "t".to_owned(),
        partition: 0,
    };
    OffsetCheckpoint {
        offsets: [(key.clone(), 500)].into(),
    }
    .write(&DiskStorage, &path)
    .unwrap();
    let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
    let report = cleaner
        .clean_dirtiest(&directory, NOW_MS, &AtomicBool::new(false))
        .unwrap();
    assert_eq!(report.unwrap().first_dirty_offset, 0);
    assert_eq!(partition.records(), ["2 a=2"]);
}

#[test]
fn what_is_appended_after_a_cut_is_dirty_again() {
    let home = home();
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    let (config_of, on_loaded) = (|_: &str| config(), |_: &Log, _: &_, _| {});
    let options = directory_options(&config_of, &on_loaded);
    let directory = LogDirectory::open(&open_segments, home.path(), &options).unwrap();
    let mut partition = dirty_log(&directory, "t", 0, 4);
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let mut clean = || cleaner.clean_dirtiest(&directory, NOW_MS, &stop).unwrap();
    assert_eq!(clean().unwrap().end_offset, 4);
    partition.log.truncate_to(1, NOW_MS).unwrap();
    checkpoints::lower(&directory, &partition.log, 1).unwrap();
    for number in 0..6 {
        partition.roll();
        partition.send(&[("b", Some(&number.to_string()))]);
    }
    assert_eq!(clean().unwrap().first_dirty_offset, 1);
    assert_eq!(partition.records(), ["5 b=4", "6 b=5"]);
    // A cut above it changes nothing.
    checkpoints::lower(&directory, &partition.log, 500).unwrap();
    let checkpoint = checkpoints::read(&directory).unwrap();
    assert_eq!(checkpoints::get(&checkpoint, &partition.log), Some(6));
}

#[test]
fn a_partition_with_a_batch_that_cannot_be_read_is_left_alone_with_its_reason() {
    let home = home();
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    let (config_of, on_loaded) = (|_: &str| config(), |_: &Log, _: &_, _| {});
    let options = directory_options(&config_of, &on_loaded);
    let directory = LogDirectory::open(&open_segments, home.path(), &options).unwrap();
    let bad = dirty_log(&directory, "bad", 0, 5);
    let good = dirty_log(&directory, "good", 1, 3);
    let file = bad.directory.join("00000000000000000002.log");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let (mut cleaner, stop) = (Cleaner::new(MAP_BYTES, 0.9), AtomicBool::new(false));
    let mut reports = 0;
    for _ in 0..4 {
        reports += usize::from(
            cleaner
                .clean_dirtiest(&directory, NOW_MS, &stop)
                .unwrap()
                .is_some(),
        );
    }
    assert_eq!(reports, 1);
    assert_eq!(good.records(), ["3 a=3"]);
    let reason = cleaner.uncleanable().get(&bad.directory).unwrap();
    assert!(
        reason.contains("00000000000000000002.log") && reason.contains("CRC"),
        "{reason}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    assert!(
        !bad.file_names()
            .iter()
            .any(|name| name.ends_with(".cleaned"))
    );
}

#[derive(Clone, Debug)]
enum Event {
    Send {
        producer: u8,
        records: Vec<(u8, bool)>,
        codec: u8,
    },
    End {
        producer: u8,
        commit: bool,
    },
    Roll,
    Wait(i64),
    Clean {
        slots: usize,
    },
    Crash,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let records = prop::collection::vec((0..6u8, any::<u8>().prop_map(|byte| byte < 60)), 1..5);
    let send = (0..5u8, records, prop_oneof![3 => Just(0u8), 1 => 1..5u8]);
    let send = send.prop_map(|(producer, records, codec)| Event::Send {
        producer,
        records,
        codec,
    });
    let end =
        (3..5u8, any::<bool>()).prop_map(|(producer, commit)| Event::End { producer, commit });
    let slots = prop_oneof![4 => Just(1000usize), 1 => 8..12usize];
    let event = prop_oneof![
        12 => send,
        5 => end,
        4 => Just(Event::Roll),
        2 => prop_oneof![Just(1i64), Just(RETENTION_MS / 2), Just(RETENTION_MS)].prop_map(Event::Wait),
        5 => slots.prop_map(|slots| Event::Clean { slots }),
        1 => Just(Event::Crash),
    ];
    prop::collection::vec(event, 1..60)
}

#[derive(Clone, Debug)]
struct Written {
    found: Found,
    batch: i64,
    /// Producer of the transaction, 0 for none.
    producer: u8,
    /// `None`: open.
    committed: Option<bool>,
}

/// All that was ever written, and what the cleaner has to have done to it.
#[derive(Default)]
struct History {
    written: Vec<Written>,
    sequences: BTreeMap<u8, i32>,
    /// By base offset of the batch.
    horizons: BTreeMap<i64, i64>,
}

impl History {
    /// Replays the round up to `end` and compares with what is left. A round that filled its map has
    /// put some keys of the next batch in it: what these hide may be gone, too.
    fn check(
        &mut self,
        partition: &Partition,
        end: i64,
        map_was_full: bool,
    ) -> Result<(), TestCaseError> {
        let left: BTreeMap<i64, Found> = partition
            .batches()
            .into_iter()
            .filter(|batch| !batch.header.is_control())
            .flat_map(|batch| batch.records)
            .map(|found| (found.offset, found))
            .collect();
        let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
        for one in self.written.iter().filter(|one| one.found.offset < end) {
            if one.committed == Some(true) {
                newest.insert(one.found.key.as_deref().unwrap(), one.found.offset);
            }
        }
        let now_ms = partition.now_ms;
        let mut expected = BTreeMap::new();
        for one in &self.written {
            let found = &one.found;
            let is_newest = newest.get(found.key.as_deref().unwrap()) <= Some(&found.offset);
            let horizon_ms = self.horizons.get(&one.batch);
            let stays = if found.offset >= end {
                one.committed != Some(false) || left.contains_key(&found.offset)
            } else {
                let is_seen = found.value.is_none() && horizon_ms.is_some_and(|at| *at <= now_ms);
                one.committed == Some(true) && is_newest && !is_seen
            };
            if stays {
                expected.insert(found.offset, found.clone());
            }
        }
        if map_was_full {
            let newer = |found: &Found| {
                let same_key = |one: &&Written| one.found.key == found.key;
                let mut others = self.written.iter().filter(same_key);
                others.any(|one| one.found.offset > found.offset && one.committed != Some(false))
            };
            expected.retain(|offset, found| left.contains_key(offset) || !newer(found));
        }
        prop_assert_eq!(&left, &expected, "end {}", end);
        for batch in partition.batches() {
            let header = batch.header;
            let has_tombstone = batch.records.iter().any(|record| record.value.is_none());
            if let Some(horizon_ms) = header.delete_horizon_ms() {
                let known = self.horizons.entry(header.base_offset);
                prop_assert_eq!(horizon_ms, *known.or_insert(now_ms + RETENTION_MS));
            } else {
                prop_assert!(!has_tombstone || header.last_offset() >= end);
            }
        }
        self.check_committed_reader(partition, &left)
    }

    /// A consumer with `read_committed` skips by the list of aborted transactions and the markers;
    /// it must get exactly the committed records that are left.
    fn check_committed_reader(
        &self,
        partition: &Partition,
        left: &BTreeMap<i64, Found>,
    ) -> Result<(), TestCaseError> {
        let offsets = partition.log.offsets();
        let stable = offsets.last_stable_offset;
        let mut ahead = partition.log.aborted_transactions(0, stable).unwrap();
        ahead.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        let mut aborted = BTreeSet::new();
        let mut seen = Vec::new();
        for batch in partition.batches() {
            let header = batch.header;
            if header.base_offset >= stable {
                break;
            }
            while ahead
                .last()
                .is_some_and(|next| next.first_offset <= header.last_offset())
            {
                aborted.insert(ahead.pop().unwrap().producer_id);
            }
            if header.is_control() {
                aborted.remove(&header.producer_id);
            } else if !header.is_transactional() || !aborted.contains(&header.producer_id) {
                seen.extend(batch.records.iter().map(|record| record.offset));
            }
        }
        let committed = self
            .written
            .iter()
            .filter(|one| one.committed == Some(true));
        let committed: Vec<i64> = committed
            .map(|one| one.found.offset)
            .filter(|offset| *offset < stable && left.contains_key(offset))
            .collect();
        prop_assert_eq!(seen, committed);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_end_as_a_list_of_all_records_says(events in events()) {
        let home = home();
        let mut partition = Partition::new(home.path());
        let mut history = History::default();
        for event in events {
            match event {
                Event::Roll => partition.roll(),
                Event::Wait(ms) => partition.now_ms += ms,
                Event::Crash => partition.reopen(),
                Event::Send { producer, records, codec } => {
                    // 0 and 1 are plain, 2 is idempotent, 3 and 4 write in transactions.
                    let count = records.len() as i32;
                    let mut options = BatchOptions::default();
                    if producer >= 2 {
                        let sequence = history.sequences.get(&producer).copied().unwrap_or(0);
                        history.sequences.insert(producer, increment_sequence(sequence, count));
                        options = of_producer(i64::from(producer), sequence, producer >= 3);
                    }
                    options.codec = Codec::from_id(codec).unwrap();
                    let texts: Vec<(String, Option<String>)> = records.iter().map(|(key, dies)| {
                        let value = format!("v{}", history.written.len());
                        (key.to_string(), (!dies).then_some(value))
                    }).collect();
                    let pairs: Vec<KeyValue<'_>> =
                        texts.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
                    let base = partition.send_with(options, &pairs);
                    for found in partition.at(base).records {
                        let committed = if producer >= 3 { None } else { Some(true) };
                        history.written.push(Written { found, batch: base, producer, committed });
                    }
                }
                Event::End { producer, commit } => {
                    partition.end_transaction(i64::from(producer), commit);
                    for one in history.written.iter_mut().filter(|one| one.producer == producer) {
                        one.committed = one.committed.or(Some(commit));
                    }
                }
                Event::Clean { slots } => {
                    let end_before = partition.log.offsets();
                    let report = partition.clean_with_room(slots);
                    prop_assert_eq!(partition.log.offsets(), end_before);
                    if let Some(report) = report {
                        let map_was_full = report.map_utilization >= 1.0;
                        history.check(&partition, report.end_offset, map_was_full)?;
                    }
                }
            }
        }
        let before = partition.batches();
        let offsets = partition.log.offsets();
        partition.reopen();
        prop_assert_eq!(partition.batches(), before);
        prop_assert_eq!(partition.log.offsets().log_end_offset, offsets.log_end_offset);
        for (producer, sequence) in &history.sequences {
            let producers = partition.log.producers();
            let last = producers.get(i64::from(*producer)).map_or(NO_SEQUENCE, |entry| entry.last_sequence());
            prop_assert_eq!(increment_sequence(last, 1), *sequence);
        }
    }
}

impl Partition {
    fn clean_with_room(&mut self, slots: usize) -> Option<CleanReport> {
        let plan = plan_of(&self.log, self.checkpoint, self.now_ms).unwrap();
        if plan.cleanable_bytes == 0 {
            return None;
        }
        self.clean_with(&mut Cleaner::new(24 * slots, 0.9))
    }
}

/// Records that name their own offset: whatever a reader gets wrong shows in the record itself.
fn numbered(keys: i64, offset: i64) -> Vec<u8> {
    let (key, value) = ((offset * 7 % keys).to_string(), offset.to_string());
    build(BatchOptions::default(), NOW_MS, &[(&key, Some(&value))])
}

/// Reads from `offset` to the end, which must be reached, and returns how many records it saw.
fn check_numbered(log: &Log, reader: &mut RecordReader, mut offset: i64) -> usize {
    let mut seen = 0;
    loop {
        let range = log
            .read(offset, 4096, true, ReadIsolation::HighWatermark)
            .unwrap();
        // The copy is made later than the look-up, so that a swap may fall in between.
        std::thread::yield_now();
        let bytes = range.to_vec().unwrap();
        let mut at = 0;
        while let Some(header) = BatchHeader::parse(&bytes[at..]).unwrap()
            && at + header.size_bytes <= bytes.len()
        {
            for record in reader.read(&bytes[at..]).unwrap() {
                let record = record.unwrap();
                assert_eq!(record.value, Some(record.offset.to_string().as_bytes()));
                seen += 1;
            }
            at += header.size_bytes;
            assert!(
                header.next_offset() > offset,
                "offset {offset} is answered by {header:?}"
            );
            offset = header.next_offset();
        }
        if at == 0 {
            return seen;
        }
    }
}

#[test]
fn readers_appends_and_the_cleaner_go_on_beside_each_other() {
    const BATCHES: i64 = 5000;
    const KEYS: i64 = 50;
    let home = home();
    let mut partition = Partition::new(home.path());
    partition.config.segment_bytes = 2000;
    partition.log.set_config(partition.config.clone());
    let (log, done) = (partition.log.clone(), AtomicBool::new(false));
    let is_done = || done.load(std::sync::atomic::Ordering::Acquire);
    let rounds = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for slot in 0..2 {
            let (log, is_done) = (&log, &is_done);
            scope.spawn(move || {
                let mut reader = RecordReader::new();
                let mut turn = slot;
                while !is_done() {
                    let end = log.offsets().high_watermark;
                    check_numbered(log, &mut reader, (turn * 131) % (end + 1));
                    turn += 1;
                }
            });
        }
        scope.spawn(|| {
            let mut cleaner = Cleaner::new(MAP_BYTES, 0.9);
            let mut checkpoint = None;
            while !is_done() {
                let plan = plan_of(&log, checkpoint, NOW_MS).unwrap();
                if plan.cleanable_bytes == 0 {
                    std::thread::yield_now();
                    continue;
                }
                let report = cleaner
                    .clean(&log, &plan, NOW_MS, &AtomicBool::new(false))
                    .unwrap();
                checkpoint = report.map(|report| report.end_offset).or(checkpoint);
                rounds.fetch_add(1, std::sync::atomic::Ordering::Release);
            }
        });
        for offset in 0..BATCHES {
            let mut bytes = numbered(KEYS, offset);
            let request = AppendRequest {
                records: &mut bytes,
                origin: AppendOrigin::Client,
                leader_epoch: 0,
                transaction_version: None,
            };
            log.append(&mut [request], NOW_MS).remove(0).unwrap();
            if offset % 10 == 0 {
                log.flush().unwrap();
            }
        }
        log.flush().unwrap();
        while rounds.load(std::sync::atomic::Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        done.store(true, std::sync::atomic::Ordering::Release);
    });
    partition.clean();
    let kept = partition
        .batches()
        .iter()
        .filter(|batch| batch.header.base_offset < BATCHES)
        .count();
    assert_eq!(kept as i64, KEYS);
}
