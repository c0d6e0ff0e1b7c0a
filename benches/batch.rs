//! What validation costs on top of the checksum and the write that nobody can do without.
//!
//! `cargo bench --no-default-features --bench batch [SECONDS_A_ROW]`
//!
//! Each row times four sides in turn, so that a noisy machine is noisy for all of them, and gives
//! the median of their rounds in CPU time of this thread: the CRC-32C of the batches; `validate`,
//! which has that CRC in it; both again with a `pwrite` of the same bytes, over pages of a file
//! that are in the page cache already. The last column is what a produced batch costs over the
//! physical limit; the target is 1.3.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use kafkalite::batch::header::compute_crc;
use kafkalite::batch::validate::Scratch;
use kafkalite::batch::{BatchBuilder, BatchOptions, Codec, ValidationRules, validate};

const T: i64 = 1_700_000_000_000;
/// Bytes of batches in one round: more than the first caches hold, less than the last one.
const ROUND_BYTES: usize = 2 << 20;
const FILE_BYTES: u64 = 64 << 20;

fn main() {
    let seconds = std::env::args().find_map(|argument| argument.parse().ok());
    let row_time = Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let path = std::env::temp_dir().join(format!("kafkalite-bench-{}", std::process::id()));
    let file = scratch_file(&path);
    println!(
        "{:<34}{:>9}{:>11}{:>9}{:>13}{:>17}{:>8}",
        "ns a batch (CPU)", "crc", "validate", "walk", "crc+pwrite", "validate+pwrite", "ratio"
    );
    for (name, batch_bytes, shape) in [
        ("16 KiB, records of 1 KB", 16 << 10, Shape::Fixed(1000)),
        ("16 KiB, records of 100 B", 16 << 10, Shape::Fixed(100)),
        ("16 KiB, mixed, keys, headers", 16 << 10, Shape::Mixed),
        ("1 MiB, records of 1 KB", 1 << 20, Shape::Fixed(1000)),
        ("1 MiB, records of 100 B", 1 << 20, Shape::Fixed(100)),
        ("1 MiB, mixed, keys, headers", 1 << 20, Shape::Mixed),
    ] {
        let mut batches = make_batches(batch_bytes, shape, Codec::None);
        let mut rounds = Rounds::default();
        let end = Instant::now() + row_time;
        while Instant::now() < end {
            rounds.run(&mut batches, &file);
        }
        rounds.print(name, batches.len());
    }
    println!(
        "\n{:<34}{:>9}{:>11}",
        "compressed, 16 KiB of records", "bytes", "validate"
    );
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut batches = make_batches(16 << 10, Shape::Mixed, codec);
        let (rules, mut scratch) = (rules(), Scratch::default());
        let mut times = Vec::new();
        let end = Instant::now() + row_time / 4;
        while Instant::now() < end {
            times.push(timed(|| {
                validate_all(&mut batches, &rules, &mut scratch, |_, _| {})
            }));
        }
        let nanoseconds = median(&mut times) / batches.len() as u64;
        println!(
            "{:<34}{:>9}{nanoseconds:>11}",
            codec.name(),
            batches[0].len()
        );
    }
    drop(file);
    std::fs::remove_file(path).expect("the scratch file was there");
}

#[derive(Clone, Copy)]
enum Shape {
    /// Values of that many bytes, no keys.
    Fixed(usize),
    /// Values of 10 to 500 bytes, half with a key, a quarter with two headers.
    Mixed,
}

fn make_batches(batch_bytes: usize, shape: Shape, codec: Codec) -> Vec<Vec<u8>> {
    let mut state = 1;
    let mut random = move |bound: usize| {
        state = xorshift(state);
        state as usize % bound
    };
    let noise: Vec<u8> = (0..4096).map(|_| b'a' + random(16) as u8).collect();
    let batches = ROUND_BYTES / batch_bytes;
    (0..batches)
        .map(|_| {
            let options = BatchOptions {
                codec,
                ..BatchOptions::default()
            };
            let mut builder = BatchBuilder::new(options);
            let mut timestamp = T;
            while builder.size_bytes() < batch_bytes - 100 {
                let start = random(1000);
                let (length, key, headers) = match shape {
                    Shape::Fixed(length) => (length, None, 0),
                    Shape::Mixed => (
                        10 + random(490),
                        (random(2) == 0).then_some(&noise[..16]),
                        random(4) / 3,
                    ),
                };
                let headers =
                    &[(&b"trace"[..], Some(&noise[..16])), (b"kind", None)][..headers * 2];
                let value = Some(&noise[start..start + length]);
                builder
                    .append(timestamp, key, value, headers)
                    .expect("it fits");
                timestamp += random(3) as i64;
            }
            builder.finish().expect("it is built")
        })
        .collect()
}

fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

fn rules() -> ValidationRules {
    ValidationRules {
        now_ms: T,
        max_message_bytes: 2 << 20,
        ..ValidationRules::default()
    }
}

#[derive(Default)]
struct Rounds {
    crc: Vec<u64>,
    validate: Vec<u64>,
    crc_and_write: Vec<u64>,
    validate_and_write: Vec<u64>,
    scratch: Scratch<'static>,
    position: u64,
}

impl Rounds {
    fn run(&mut self, batches: &mut [Vec<u8>], file: &File) {
        let rules = rules();
        self.crc.push(timed(|| crc_all(batches, |_, _| {})));
        self.validate.push(timed(|| {
            validate_all(batches, &rules, &mut self.scratch, |_, _| {})
        }));
        self.position = (self.position + ROUND_BYTES as u64) % (FILE_BYTES / 2 - (4 << 20));
        // Each side has half of the file, so that neither finds the pages that the other dirtied.
        let write_at = |start: u64| {
            move |index: usize, batch: &[u8]| {
                let position = start + (index * batch.len()) as u64;
                file.write_all_at(batch, position)
                    .expect("the scratch file takes it");
            }
        };
        let (near, far) = (self.position, self.position + FILE_BYTES / 2);
        self.crc_and_write
            .push(timed(|| crc_all(batches, write_at(near))));
        let scratch = &mut self.scratch;
        self.validate_and_write.push(timed(|| {
            validate_all(batches, &rules, scratch, write_at(far))
        }));
    }

    fn print(&mut self, name: &str, batches: usize) {
        let of = |times: &mut Vec<u64>| median(times) / batches as u64;
        let (crc, validate) = (of(&mut self.crc), of(&mut self.validate));
        let (floor, whole) = (
            of(&mut self.crc_and_write),
            of(&mut self.validate_and_write),
        );
        println!(
            "{name:<34}{crc:>9}{validate:>11}{:>9}{floor:>13}{whole:>17}{:>8.2}",
            validate.saturating_sub(crc),
            whole as f64 / floor as f64
        );
    }
}

fn crc_all(batches: &[Vec<u8>], write: impl Fn(usize, &[u8])) {
    for (index, batch) in batches.iter().enumerate() {
        black_box(compute_crc(black_box(batch)));
        write(index, batch);
    }
}

fn validate_all(
    batches: &mut [Vec<u8>],
    rules: &ValidationRules,
    scratch: &mut Scratch<'_>,
    write: impl Fn(usize, &[u8]),
) {
    for (index, batch) in batches.iter_mut().enumerate() {
        black_box(validate(black_box(batch), rules, scratch).expect("a good batch"));
        write(index, batch);
    }
}

fn scratch_file(path: &std::path::Path) -> File {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path);
    let file = file.expect("a temporary directory to write to");
    for position in (0..FILE_BYTES).step_by(1 << 20) {
        file.write_all_at(&[1; 1 << 20], position)
            .expect("64 MiB of room");
    }
    file
}

/// CPU nanoseconds of this thread in `work`.
fn timed(work: impl FnOnce()) -> u64 {
    let start = thread_cpu_ns();
    work();
    thread_cpu_ns() - start
}

#[expect(unsafe_code, reason = "std has no clock for CPU time")]
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec to write to, and the clock exists on every Linux.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}
