//! What records cost on their way out of files into Arrow columns, and what the same bytes cost at
//! least.
//!
//! `cargo bench --no-default-features --bench arrow [MIB_A_LOG]`
//!
//! Each row reads a log of its own, in the page cache, in CPU time of this thread, and drops each
//! Arrow batch as it comes, as a consumer does that aggregates. The limit beside it is `pread` into
//! a buffer of the same size, the CRC-32C of every batch, and one copy of the values into fresh
//! memory, measured in turn with it. Medians of the rounds; the last column is the best round.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use kafkalite::arrow::{
    BatchBounds, Isolation, LogRead, LogStream, OffsetSpec, Offsets, ReadOptions, Shape,
    ShapeRequest,
};
use kafkalite::batch::header::{compute_crc, patch_offset_and_epoch};
use kafkalite::batch::{BatchBuilder, BatchOptions, Codec};
use kafkalite::limits::ARROW_READ_BYTES;
use kafkalite::log::storage::{DiskStorage, Storage};

const ROUNDS: usize = 9;
const NOW_MS: i64 = 1_760_000_000_000;
const BOUNDS: BatchBounds = BatchBounds {
    rows: 32_768,
    bytes: 4 << 20,
};

const VALUE: &[&str] = &["value"];
const COUNT: &[&str] = &["partition"];
const SIZE: &[&str] = &["value_size"];
/// Fields of the JSON values, which are columns of their own.
const FIELDS: &[&str] = &["id", "city", "temperature", "ok"];
const SPARK: &[&str] = &[
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
];
const ALL: &[&str] = &[
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
];

/// One log: batches of about 16 KiB before compression, all alike but for their offsets.
struct Contents {
    name: &'static str,
    value_bytes: usize,
    with_key_and_header: bool,
    is_json: bool,
    codec: Codec,
}

fn main() {
    let mib = std::env::args().find_map(|argument| argument.parse().ok());
    let log_bytes = mib.unwrap_or(192) << 20;
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    println!(
        "{:<30}{:<9}{:>11}{:>9}{:>13}{:>9}{:>11}",
        "a core, CPU time", "columns", "M records/s", "MB/s", "limit, M r/s", "ratio", "best M r/s"
    );
    let plain = |name, value_bytes| Contents {
        name,
        value_bytes,
        with_key_and_header: false,
        is_json: false,
        codec: Codec::None,
    };
    let zipped = |name, codec| Contents {
        name,
        value_bytes: 100,
        with_key_and_header: false,
        is_json: false,
        codec,
    };
    let full = Contents {
        name: "100 B, key, header",
        value_bytes: 100,
        with_key_and_header: true,
        is_json: false,
        codec: Codec::None,
    };
    let json = Contents {
        name: "96 B JSON",
        value_bytes: 96,
        with_key_and_header: false,
        is_json: true,
        codec: Codec::None,
    };
    for (contents, columns) in [
        (
            plain("100 B", 100),
            vec![
                ("value", VALUE),
                ("7", SPARK),
                ("count", COUNT),
                ("size", SIZE),
            ],
        ),
        (full, vec![("value", VALUE), ("7", SPARK), ("all 8", ALL)]),
        (plain("1 KB", 1000), vec![("value", VALUE), ("7", SPARK)]),
        (
            json,
            vec![
                ("value", VALUE),
                ("1 field", &FIELDS[..1]),
                ("4 fields", FIELDS),
            ],
        ),
        (zipped("100 B, lz4", Codec::Lz4), vec![("value", VALUE)]),
        (zipped("100 B, zstd", Codec::Zstd), vec![("value", VALUE)]),
        (
            zipped("100 B, snappy", Codec::Snappy),
            vec![("value", VALUE)],
        ),
        (zipped("100 B, gzip", Codec::Gzip), vec![("value", VALUE)]),
    ] {
        let log = Log::write(place.path(), &contents, log_bytes);
        for (name, columns) in columns {
            log.measure(contents.name, name, columns);
        }
        std::fs::remove_dir_all(&log.directory).expect("the log can be removed");
    }
}

struct Log {
    directory: PathBuf,
    records: usize,
    bytes: usize,
    batch_bytes: usize,
    value_bytes: usize,
}

impl Log {
    fn write(place: &Path, contents: &Contents, log_bytes: usize) -> Log {
        let directory = place.join("bench-0");
        std::fs::create_dir_all(&directory).expect("a directory");
        let (mut batch, count) = make_batch(contents);
        // Of a compressed log, as many records as of a plain one.
        let batches = log_bytes / ((contents.value_bytes + 12) * count);
        let path = directory.join(format!("{:020}.log", 0));
        let mut file = std::io::BufWriter::new(File::create(path).expect("a file"));
        for number in 0..batches {
            patch_offset_and_epoch(&mut batch, (number * count) as i64, 0);
            file.write_all(&batch).expect("space");
        }
        file.flush().expect("space");
        Log {
            directory,
            records: batches * count,
            bytes: batches * batch.len(),
            batch_bytes: batch.len(),
            value_bytes: count * contents.value_bytes,
        }
    }

    fn measure(&self, shape: &str, columns_name: &str, columns: &[&str]) {
        let (mut reads, mut limits) = (Vec::new(), Vec::new());
        for _ in 0..=ROUNDS {
            reads.push(cpu_seconds(|| assert_eq!(self.read(columns), self.records)));
            limits.push(cpu_seconds(|| self.limit()));
        }
        let per_second = |seconds: f64| self.records as f64 / seconds / 1e6;
        let best = reads[1..].iter().copied().fold(f64::INFINITY, f64::min);
        let (read, limit) = (median(&mut reads[1..]), median(&mut limits[1..]));
        println!(
            "{shape:<30}{columns_name:<9}{:>11.1}{:>9.0}{:>13.1}{:>9.2}{:>11.1}",
            per_second(read),
            self.bytes as f64 / read / 1e6,
            per_second(limit),
            read / limit,
            per_second(best),
        );
    }

    fn read(&self, columns: &[&str]) -> usize {
        let options = ReadOptions {
            topic: None,
            start: Offsets::default(),
            stop: Offsets {
                for_all: Some(OffsetSpec::Offset(self.records as i64)),
                ..Offsets::default()
            },
            shape: shape(columns),
            isolation: Isolation::ReadUncommitted,
            bounds: BOUNDS,
        };
        let storage: Arc<dyn Storage> = Arc::new(DiskStorage);
        let paths = [self.directory.clone()];
        let read = Arc::new(LogRead::open(&storage, &paths, options).expect("a log"));
        let mut stream = LogStream::new(read);
        let mut rows = 0;
        while let Some(batch) = stream.next_batch().expect("good batches") {
            rows += black_box(batch).num_rows();
        }
        rows
    }

    /// The bytes read once, summed once, and the values copied once.
    fn limit(&self) {
        let file = File::open(self.directory.join(format!("{:020}.log", 0))).expect("the log");
        let mut buffer = vec![0; ARROW_READ_BYTES / self.batch_bytes.max(1) * self.batch_bytes];
        let mut column = Vec::with_capacity(BOUNDS.bytes);
        let mut position = 0;
        while position < self.bytes as u64 {
            let read = file.read_at(&mut buffer, position).expect("the log");
            for batch in buffer[..read].chunks_exact(self.batch_bytes) {
                black_box(compute_crc(batch));
                if column.len() + self.value_bytes > BOUNDS.bytes {
                    black_box(std::mem::replace(
                        &mut column,
                        Vec::with_capacity(BOUNDS.bytes),
                    ));
                }
                let values = batch.len().min(self.value_bytes);
                column.extend_from_slice(&batch[batch.len() - values..]);
            }
            position += read as u64;
        }
        black_box(column);
    }
}

/// Kafka's columns, or fields of JSON values.
fn shape(columns: &[&str]) -> Shape {
    if !columns.iter().all(|name| FIELDS.contains(name)) {
        return Shape::from_names(columns).expect("columns");
    }
    let fields = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("city", DataType::Utf8, true),
        Field::new("temperature", DataType::Float64, true),
        Field::new("ok", DataType::Boolean, true),
    ]);
    let options = [("value.format", "json"), ("value.flatten", "true")];
    let formats = options.map(|(name, word)| (name.to_owned(), word.to_owned()));
    let names: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    Shape::choose(&ShapeRequest {
        columns: Some(&names),
        value_schema: Some(&fields),
        formats: Some(&formats.into()),
        ..ShapeRequest::default()
    })
    .expect("a schema")
}

/// A batch of records and their count. Values are words, which compress to about a third.
fn make_batch(contents: &Contents) -> (Vec<u8>, usize) {
    let count = (16 << 10) / (contents.value_bytes + 12);
    let mut builder = BatchBuilder::new(BatchOptions {
        codec: contents.codec,
        ..BatchOptions::default()
    });
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..count {
        let mut value = Vec::with_capacity(contents.value_bytes + 16);
        if contents.is_json {
            value.extend_from_slice(json(number).as_bytes());
        }
        while value.len() < contents.value_bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let words: [&[u8]; 4] = [b"\"city\":", b"amsterdam,", b"\"temperature\":", b"true,"];
            value.extend_from_slice(words[(state >> 20) as usize % 4]);
            value.extend_from_slice(((state >> 40) % 1000).to_string().as_bytes());
        }
        value.truncate(contents.value_bytes);
        let key = format!("key-{:012}", number * 7919);
        let header: (&[u8], Option<&[u8]>) = (b"trace", Some(b"0123456789abcdef"));
        let (key, headers) = if contents.with_key_and_header {
            (Some(key.as_bytes()), [header].to_vec())
        } else {
            (None, Vec::new())
        };
        builder
            .append(NOW_MS + number as i64, key, Some(&value), &headers)
            .expect("a record");
    }
    (builder.finish().expect("a batch"), count)
}

/// 96 bytes, of which `note` is what is left.
fn json(number: usize) -> String {
    let cities = ["amsterdam", "berlin", "cairo", "delhi"];
    let head = format!(
        r#"{{"id":{},"city":"{}","temperature":{}.{:02},"ok":{},"note":""#,
        1_000_000 + number * 7919,
        cities[number % 4],
        number % 40,
        number % 100,
        number.is_multiple_of(3),
    );
    format!("{head:.<94}\"}}")
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// CPU time of this thread that `work` took, seconds; a busy machine does not count.
fn cpu_seconds(work: impl FnOnce()) -> f64 {
    let before = thread_cpu_seconds();
    work();
    thread_cpu_seconds() - before
}

#[expect(unsafe_code, reason = "the thread's CPU clock is a system call")]
fn thread_cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct is valid for the call to write to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "the CPU clock can be read");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
