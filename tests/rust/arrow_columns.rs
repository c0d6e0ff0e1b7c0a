//! Records as columns against records one by one; damage and failing reads at every place.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use kafkalite::arrow::{
    BatchBounds, Isolation, LogRead, LogStream, OffsetSpec, Offsets, ReadOptions, Shape,
};
use kafkalite::batch::{BatchBuilder, BatchHeader, BatchOptions, Codec, RecordReader};
use kafkalite::error::{Error, Result};
use kafkalite::log::storage::{
    DirectoryEntry, DiskStorage, Mapping, OpenMode, Storage, StorageFile, StorageFileSystem,
    StorageLock,
};
use proptest::prelude::*;

/// Offset, timestamp in milliseconds, key, value, headers.
type Row = (
    i64,
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(String, Option<Vec<u8>>)>,
);

fn options(start: i64, stop: i64, rows: usize, bytes: usize) -> ReadOptions {
    let for_all = |offset| Offsets {
        for_all: Some(OffsetSpec::Offset(offset)),
        ..Offsets::default()
    };
    ReadOptions {
        topic: None,
        start: for_all(start),
        stop: for_all(stop),
        shape: Shape::all(),
        isolation: Isolation::ReadUncommitted,
        bounds: BatchBounds { rows, bytes },
    }
}

fn read(storage: &Arc<dyn Storage>, directory: &Path, options: ReadOptions) -> Result<Vec<Row>> {
    let bounds = options.bounds;
    let read = Arc::new(LogRead::open(storage, &[directory.to_path_buf()], options)?);
    let mut stream = LogStream::new(read);
    let mut rows = Vec::new();
    while let Some(batch) = stream.next_batch()? {
        assert!((1..=bounds.rows).contains(&batch.num_rows()));
        push_rows(&batch, &mut rows);
    }
    Ok(rows)
}

fn push_rows(batch: &RecordBatch, rows: &mut Vec<Row>) {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let keys = column("key").as_binary::<i32>();
    let values = column("value").as_binary::<i32>();
    let offsets = column("offset").as_primitive::<Int64Type>();
    let times = column("timestamp").as_primitive::<TimestampMicrosecondType>();
    let headers = column("headers").as_list::<i32>();
    let optional = |at: usize, array: &arrow_array::BinaryArray| {
        (!array.is_null(at)).then(|| array.value(at).to_vec())
    };
    for at in 0..batch.num_rows() {
        assert_eq!(column("topic").as_string::<i32>().value(at), "t");
        assert_eq!(column("partition").as_primitive::<Int32Type>().value(at), 7);
        let mut pairs = Vec::new();
        if !headers.is_null(at) {
            let list = headers.value(at);
            let (names, contents) = (
                list.as_struct().column(0).as_string::<i32>().clone(),
                list.as_struct().column(1).as_binary::<i32>().clone(),
            );
            assert!(!list.is_empty());
            pairs.extend(
                (0..list.len()).map(|at| (names.value(at).to_owned(), optional(at, &contents))),
            );
        }
        rows.push((
            offsets.value(at),
            times.value(at) / 1000,
            optional(at, keys),
            optional(at, values),
            pairs,
        ));
    }
}

/// The same rows by `RecordReader`, one record after the other.
fn plain_rows(batches: &[Vec<u8>], start: i64, stop: i64) -> Vec<Row> {
    let mut reader = RecordReader::new();
    let mut rows = Vec::new();
    for batch in batches {
        for record in reader.read(batch).unwrap() {
            let record = record.unwrap();
            if (start..stop).contains(&record.offset) {
                let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                let name = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
                rows.push((
                    record.offset,
                    record.timestamp,
                    owned(record.key),
                    owned(record.value),
                    record
                        .headers
                        .iter()
                        .map(|(key, value)| (name(key), owned(value)))
                        .collect(),
                ));
            }
        }
    }
    rows
}

type Draft = (
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(Vec<u8>, Option<Vec<u8>>)>,
);

fn encode(base_offset: i64, codec: Codec, records: &[Draft]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset,
        codec,
        ..BatchOptions::default()
    });
    for (timestamp, key, value, headers) in records {
        let headers: Vec<(&[u8], Option<&[u8]>)> = headers
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
            .collect();
        builder
            .append(*timestamp, key.as_deref(), value.as_deref(), &headers)
            .unwrap();
    }
    builder.finish().unwrap()
}

fn write_log(parent: &Path, batches: &[Vec<u8>]) -> PathBuf {
    let directory = parent.join("t-7");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{:020}.log", 0));
    std::fs::write(path, batches.concat()).unwrap();
    directory
}

fn disk() -> Arc<dyn Storage> {
    Arc::new(DiskStorage)
}

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200))
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let header = (proptest::collection::vec(any::<u8>(), 0..6), bytes());
    let headers = proptest::collection::vec(header, 0..3);
    let record = (0..4_000_000_000_000_i64, bytes(), bytes(), headers);
    proptest::collection::vec(record, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 2))]
    #[test]
    fn columns_hold_what_the_records_hold(
        batches in proptest::collection::vec((0_usize..5, drafts()), 1..8),
        cut in (0.0..1.0_f64, 0.0..1.0_f64),
        rows in 1_usize..40,
        bytes in 1_usize..3000,
    ) {
        let mut end = 0;
        let mut encoded = Vec::new();
        for (codec, records) in &batches {
            encoded.push(encode(end, Codec::ALL[*codec], records));
            end += records.len() as i64;
        }
        let (low, high) = (cut.0.min(cut.1), cut.0.max(cut.1));
        let (start, stop) = ((low * end as f64) as i64, (high * end as f64) as i64 + 1);
        let parent = tempfile::tempdir().unwrap();
        let directory = write_log(parent.path(), &encoded);
        let found = read(&disk(), &directory, options(start, stop, rows, bytes)).unwrap();
        prop_assert_eq!(found, plain_rows(&encoded, start, stop));
    }
}

/// Three batches of a few hundred bytes in all.
fn small_log() -> Vec<Vec<u8>> {
    let record = |n: u8| -> Draft {
        let header = (b"h".to_vec(), Some(vec![n; 3]));
        (
            1_000_000 + i64::from(n),
            Some(vec![n; 4]),
            Some(vec![n; 30]),
            vec![header],
        )
    };
    vec![
        encode(0, Codec::None, &[record(1), record(2)]),
        encode(2, Codec::Gzip, &[record(3), record(4), record(5)]),
        encode(5, Codec::None, &[record(6)]),
    ]
}

#[test]
fn a_log_cut_at_any_byte_is_its_longest_whole_prefix() {
    let batches = small_log();
    let whole = batches.concat();
    let rows = plain_rows(&batches, 0, i64::MAX);
    let parent = tempfile::tempdir().unwrap();
    for size in 0..=whole.len() {
        let directory = write_log(parent.path(), &[whole[..size].to_vec()]);
        let (mut end, mut left) = (0, size);
        for batch in &batches {
            if left < batch.len() {
                break;
            }
            left -= batch.len();
            end = BatchHeader::parse(batch).unwrap().unwrap().next_offset();
        }
        let found = read(&disk(), &directory, options(0, i64::MAX, 100, 1 << 20)).unwrap();
        assert_eq!(found, rows[..end as usize], "{size} bytes");
    }
}

#[test]
fn a_flipped_bit_is_an_error_or_a_shorter_log_but_never_another_row() {
    let batches = small_log();
    let whole = batches.concat();
    let rows = plain_rows(&batches, 0, i64::MAX);
    let parent = tempfile::tempdir().unwrap();
    let last_batch = whole.len() - batches[2].len();
    let (mut errors, mut shorter, mut moved) = (0, 0, 0);
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let directory = write_log(parent.path(), &[damaged]);
        match read(&disk(), &directory, options(0, i64::MAX, 100, 1 << 20)) {
            Err(Error::CorruptFile { .. }) => errors += 1,
            Err(other) => panic!("bit {bit}: {other}"),
            Ok(found) if found == rows => {
                // The leader epoch is outside the CRC and not shown.
                let starts = [0, batches[0].len(), last_batch];
                let outside = starts
                    .iter()
                    .any(|at| (at + 12..at + 16).contains(&(bit / 8)));
                assert!(outside, "bit {bit} was not noticed");
            }
            Ok(found) if bit / 8 < last_batch + 8 && bit / 8 >= last_batch => {
                // So is the base offset: in the last batch nothing follows
                // that it could contradict.
                let (same, other) = found.split_at(5.min(found.len()));
                assert_eq!(same, &rows[..5], "bit {bit}");
                assert!(
                    other.iter().all(|row| row.0 > 5 && row.3 == rows[5].3),
                    "bit {bit}"
                );
                moved += 1;
            }
            Ok(found) => {
                assert!(bit / 8 >= last_batch, "bit {bit} cut the log in its middle");
                assert_eq!(found, rows[..5], "bit {bit}");
                shorter += 1;
            }
        }
    }
    assert!(
        errors > 0 && shorter > 0 && moved > 0,
        "{errors} {shorter} {moved}"
    );
}

/// The disk, but the n-th call fails.
struct FailingStorage {
    calls: Arc<AtomicUsize>,
    fails_at: usize,
}

struct FailingFile {
    file: Arc<dyn StorageFile>,
    calls: Arc<AtomicUsize>,
    fails_at: usize,
}

fn count(calls: &AtomicUsize, fails_at: usize) -> io::Result<()> {
    if calls.fetch_add(1, Ordering::Relaxed) == fails_at {
        return Err(io::Error::other("made to fail"));
    }
    Ok(())
}

impl Storage for FailingStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        assert_eq!(mode, OpenMode::Read, "a reader writes nothing");
        count(&self.calls, self.fails_at)?;
        Ok(Arc::new(FailingFile {
            file: DiskStorage.open(path, mode)?,
            calls: Arc::clone(&self.calls),
            fails_at: self.fails_at,
        }))
    }
    fn read_directory(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        count(&self.calls, self.fails_at)?;
        DiskStorage.read_directory(path)
    }
    fn file_size(&self, path: &Path) -> io::Result<Option<u64>> {
        count(&self.calls, self.fails_at)?;
        DiskStorage.file_size(path)
    }
    fn modified_ms(&self, _: &Path) -> io::Result<i64> {
        panic!("a reader asks for no file's age")
    }
    fn set_modified_ms(&self, _: &Path, _: i64) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn create_directory_all(&self, _: &Path) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn remove_file(&self, _: &Path) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn remove_directory_all(&self, _: &Path) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn file_system(&self, _: &Path) -> io::Result<Option<Box<dyn StorageFileSystem>>> {
        panic!("a reader writes nothing")
    }
    fn allow_descriptors(&self, _: u64) -> u64 {
        u64::MAX
    }
    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        panic!("a reader takes no lock")
    }
    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        DiskStorage.available_bytes(path)
    }
}

impl StorageFile for FailingFile {
    fn read_at(&self, buffer: &mut [u8], position_byte: u64) -> io::Result<usize> {
        count(&self.calls, self.fails_at)?;
        // Short reads are allowed.
        let half = buffer.len().div_ceil(2);
        self.file.read_at(&mut buffer[..half], position_byte)
    }
    fn size(&self) -> io::Result<u64> {
        count(&self.calls, self.fails_at)?;
        self.file.size()
    }
    fn write_vectored_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        panic!("a reader writes nothing")
    }
    fn set_size(&self, _: u64) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn preallocate(&self, _: u64) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn sync_data(&self) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn check_written(&self) -> io::Result<()> {
        panic!("a reader writes nothing")
    }
    fn map(&self) -> io::Result<Mapping> {
        panic!("a reader maps nothing")
    }
    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

#[test]
fn a_read_that_fails_is_an_error_at_every_call() {
    let batches = small_log();
    let rows = plain_rows(&batches, 0, i64::MAX);
    let parent = tempfile::tempdir().unwrap();
    let directory = write_log(parent.path(), &batches);
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let mut failed = 0;
        loop {
            let storage: Arc<dyn Storage> = Arc::new(FailingStorage {
                calls: Arc::default(),
                fails_at: failed,
            });
            let mut options = options(0, i64::MAX, 2, 1 << 20);
            options.isolation = isolation;
            match read(&storage, &directory, options) {
                Ok(found) => {
                    assert_eq!(found, rows);
                    break;
                }
                Err(Error::Io { source, .. }) => assert_eq!(source.to_string(), "made to fail"),
                Err(other) => panic!("call {failed}: {other}"),
            }
            failed += 1;
        }
        assert!(failed > 8, "only {failed} calls were made to fail");
    }
}
