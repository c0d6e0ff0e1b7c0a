//! Validate and append, against a bare `pwrite` of the same bytes and their CRC-32C.
//!
//! Both sides write the same batches to a new file from the same memory, on pages that a warm-up
//! file has just given back. No segment rolls meanwhile.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;

use kafkalite::batch::build::BatchOptions;
use kafkalite::batch::header::compute_crc;
use kafkalite::log::config::LogConfig;
use kafkalite::log::storage::{DiskStorage, OpenMode, Storage, write_all_vectored_at};

use super::measure::{Pair, Sample, Table, Verdict, compare, min_and_median, timed};
use super::world::{
    batch_of, new_log, open_segments, recycle_pages, request, reset_base_offset,
    temporary_directory,
};

const TARGET: f64 = 1.3;

struct Case {
    name: &'static str,
    batch_bytes: usize,
    value_bytes: usize,
    /// Batches of one append call, each a request of its own.
    group: usize,
    is_idempotent: bool,
    /// Bytes of one run.
    run_bytes: usize,
    has_target: bool,
}

const KIB: usize = 1024;
const MIB: usize = 1024 * 1024;

const CASES: [Case; 10] = [
    case("16 KiB batches, 100 B records", 16 * KIB, 100, 1, true),
    case("16 KiB batches, 1 KB records", 16 * KIB, 1000, 1, true),
    case("1 MiB batches, 100 B records", MIB, 100, 1, true),
    case("1 MiB batches, 1 KB records", MIB, 1000, 1, true),
    Case {
        is_idempotent: true,
        run_bytes: 32 * MIB,
        ..case(
            "16 KiB batches, 100 B records, idempotent",
            16 * KIB,
            100,
            1,
            false,
        )
    },
    case(
        "16 KiB batches, 100 B records, 8 a call",
        16 * KIB,
        100,
        8,
        false,
    ),
    case("1 KiB batches, 100 B records", KIB, 100, 1, false),
    case(
        "1 KiB batches, 100 B records, 16 a call",
        KIB,
        100,
        16,
        false,
    ),
    case("1 record of 100 B", 1, 100, 1, false),
    case("1 record of 100 B, 32 a call", 1, 100, 32, false),
];

const fn case(
    name: &'static str,
    batch_bytes: usize,
    value_bytes: usize,
    group: usize,
    has_target: bool,
) -> Case {
    let batch_bytes = if batch_bytes < 256 { 256 } else { batch_bytes };
    Case {
        name,
        batch_bytes,
        value_bytes,
        group,
        is_idempotent: false,
        run_bytes: if batch_bytes < 16 * KIB {
            8 * MIB
        } else {
            96 * MIB
        },
        has_target,
    }
}

pub fn run() -> Vec<Verdict> {
    let table = Table::new(
        "Append: CPU of Log::append against pwrite + CRC-32C, microseconds a batch, min / median",
        &[
            "Batches",
            "Engine",
            "Bare",
            "Ratio of minima",
            "Median ratio",
            "Target",
        ],
    );
    let mut verdicts = Vec::new();
    for case in &CASES {
        let (pair, batches) = measure(case);
        let microseconds = |sample: &Sample| sample.cpu * 1e6 / batches as f64;
        let cpu = |sample: &Sample| sample.cpu;
        let ratio = pair.ratio(cpu);
        table.row(&[
            case.name.to_owned(),
            min_and_median(&pair.engine, 2, microseconds),
            min_and_median(&pair.bare, 2, microseconds),
            format!("{:.2}", pair.ratio_of_minima(cpu)),
            format!("{ratio:.2}"),
            if case.has_target {
                format!("{TARGET}")
            } else {
                String::new()
            },
        ]);
        if case.has_target {
            verdicts.push(Verdict {
                what: format!("append of {}", case.name),
                target: format!("<= {TARGET} x CPU"),
                found: format!("{ratio:.2} x"),
                reached: ratio <= TARGET,
            });
        }
    }
    verdicts
}

fn measure(case: &Case) -> (Pair, usize) {
    let size_bytes = batch_of(case.batch_bytes, case.value_bytes, BatchOptions::default()).len();
    let calls = case.run_bytes / size_bytes / case.group;
    let batches = calls * case.group;
    let mut pool = source(case, batches);
    let mut other = pool.clone();
    let home = temporary_directory();
    let pair = compare(
        || {
            recycle_pages(home.path(), case.run_bytes);
            engine(home.path(), &mut pool, case.group, calls)
        },
        || {
            recycle_pages(home.path(), case.run_bytes);
            bare(home.path(), &mut other, case.group, calls)
        },
    );
    (pair, batches)
}

/// Batches to send over and over: about 1 MiB of them, as much as a receive buffer leaves in the
/// cache. Those of an idempotent producer are each sent once and so lie in cold memory.
fn source(case: &Case, batches: usize) -> Vec<Vec<u8>> {
    let mut options = BatchOptions::default();
    if !case.is_idempotent {
        let batch = batch_of(case.batch_bytes, case.value_bytes, options);
        let count = (MIB / batch.len())
            .clamp(1, 64)
            .next_multiple_of(case.group);
        return vec![batch; count];
    }
    options.producer_id = 4000;
    options.producer_epoch = 0;
    options.base_sequence = 0;
    let mut pool = Vec::with_capacity(batches);
    for _ in 0..batches {
        let batch = batch_of(case.batch_bytes, case.value_bytes, options.clone());
        let count = i32::from_be_bytes([batch[57], batch[58], batch[59], batch[60]]);
        options.base_sequence += count;
        pool.push(batch);
    }
    pool
}

fn engine(home: &std::path::Path, pool: &mut [Vec<u8>], group: usize, calls: usize) -> Sample {
    let directory = home.join("bench-0");
    let config = LogConfig {
        max_message_bytes: 2 << 20,
        ..LogConfig::default()
    };
    let log = new_log(&directory, config, &open_segments(16));
    let groups = pool.len() / group;
    let (sample, ()) = timed(|| {
        for call in 0..calls {
            let at = call % groups * group;
            let batches = &mut pool[at..at + group];
            if let [batch] = batches {
                reset_base_offset(batch);
                let answers = log.append(&mut [request(batch)], super::world::NOW_MS);
                assert!(answers[0].is_ok(), "{:?}", answers[0]);
                continue;
            }
            let mut requests = Vec::with_capacity(group);
            for batch in batches {
                reset_base_offset(batch);
                requests.push(request(batch));
            }
            let answers = log.append(&mut requests, super::world::NOW_MS);
            assert!(answers.iter().all(Result::is_ok));
        }
    });
    let appended = calls * group;
    assert_eq!(log.size_bytes(), (appended * pool[0].len()) as u64);
    drop(log);
    fs::remove_dir_all(&directory).unwrap();
    sample
}

fn bare(home: &std::path::Path, pool: &mut [Vec<u8>], group: usize, calls: usize) -> Sample {
    let path = home.join("bare");
    let file = File::create_new(&path).unwrap();
    let vectored = DiskStorage.open(&path, OpenMode::ReadWrite).unwrap();
    let groups = pool.len() / group;
    let mut position = 0;
    let (sample, ()) = timed(|| {
        for call in 0..calls {
            let at = call % groups * group;
            let batches = &mut pool[at..at + group];
            if let [batch] = batches {
                reset_base_offset(batch);
                black_box(compute_crc(batch));
                file.write_all_at(batch, position).unwrap();
                position += batch.len() as u64;
                continue;
            }
            let mut buffers = Vec::with_capacity(group);
            for batch in batches {
                reset_base_offset(batch);
                black_box(compute_crc(batch));
                buffers.push(IoSlice::new(batch));
            }
            write_all_vectored_at(&*vectored, &mut buffers, position).unwrap();
            position += (group * pool[0].len()) as u64;
        }
    });
    fs::remove_file(&path).unwrap();
    sample
}
