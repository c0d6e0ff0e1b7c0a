//! Recovery after an unclean stop, against reading the same file in the same pieces with the
//! CRC-32C of each batch. The file lies in the page cache, clean.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

use kafkalite::batch::build::BatchOptions;
use kafkalite::log::config::LogConfig;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::storage::{DiskStorage, Storage};

use super::measure::{Sample, Table, Verdict, compare, median, timed};
use super::world::{
    NOW_MS, batch_of, load_log, new_log, open_segments, request, temporary_directory,
};

const LOG_BYTES: usize = 512 << 20;
const TARGET: f64 = 1.0;

pub fn run() -> Vec<Verdict> {
    let table = Table::new(
        "Recovery of 512 MiB in one segment against pread + CRC-32C, GB/s, max / median",
        &[
            "Batches",
            "Engine, CPU",
            "Engine, wall",
            "Bare, CPU",
            "Bare, wall",
            "CPU ratio",
            "Target",
        ],
    );
    let mut verdicts = Vec::new();
    for (name, batch_bytes, producer_id, target) in [
        ("16 KiB", 16 << 10, -1, Some(TARGET)),
        ("16 KiB, idempotent", 16 << 10, 4000, Some(TARGET)),
        ("1 KiB", 1 << 10, -1, None),
        ("1 MiB", 1 << 20, -1, None),
    ] {
        let home = temporary_directory();
        let directory = home.path().join("bench-0");
        let bytes = fill(&directory, batch_bytes, producer_id) as f64;
        let pair = compare(|| engine(&directory), || bare(&directory));
        let speed = |of: fn(&Sample) -> f64| move |sample: &Sample| bytes / 1e9 / of(sample);
        let (wall, cpu) = (speed(|sample| sample.wall), speed(|sample| sample.cpu));
        let cpu_ratio = pair.ratio(|sample| sample.cpu);
        table.row(&[
            name.to_owned(),
            max_and_median(&pair.engine, cpu),
            max_and_median(&pair.engine, wall),
            max_and_median(&pair.bare, cpu),
            max_and_median(&pair.bare, wall),
            format!("{cpu_ratio:.2}"),
            target.map_or_else(String::new, |target| format!(">= {target}")),
        ]);
        let found = median(pair.engine.iter().map(cpu).collect());
        if let Some(target) = target {
            verdicts.push(Verdict {
                what: format!("recovery at {name} batches"),
                target: format!(">= {target} GB/s"),
                found: format!("{found:.2} GB/s of CPU"),
                reached: found >= target,
            });
        }
    }
    verdicts
}

/// "max / median" of a speed.
fn max_and_median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> String {
    let speeds: Vec<f64> = samples.iter().map(of).collect();
    let most = speeds.iter().copied().fold(0.0, f64::max);
    format!("{most:.2} / {:.2}", median(speeds))
}

fn config() -> LogConfig {
    LogConfig {
        max_message_bytes: 2 << 20,
        ..LogConfig::default()
    }
}

/// Leaves a log as a crash does, but on disk. Returns its size, bytes.
fn fill(directory: &Path, batch_bytes: usize, producer_id: i64) -> u64 {
    let log = new_log(directory, config(), &open_segments(16));
    let mut options = BatchOptions::default();
    if producer_id >= 0 {
        (
            options.producer_id,
            options.producer_epoch,
            options.base_sequence,
        ) = (producer_id, 0, 0);
    }
    while log.size_bytes() < LOG_BYTES as u64 {
        let mut batch = batch_of(batch_bytes, 100, options.clone());
        let answer = log
            .append(&mut [request(&mut batch)], NOW_MS)
            .remove(0)
            .unwrap();
        if producer_id >= 0 {
            options.base_sequence = (answer.last_offset + 1) as i32;
        }
    }
    log.flush().unwrap();
    log.size_bytes()
}

fn engine(directory: &Path) -> Sample {
    let open = open_segments(16);
    let (sample, (log, report)) = timed(|| load_log(directory, config(), false, &open));
    assert_eq!((report.recovered_segments, report.truncated_bytes), (1, 0));
    let read = log
        .read(0, 100, true, ReadIsolation::HighWatermark)
        .unwrap();
    assert!(!read.is_empty());
    sample
}

/// The batches as the first header says: all are of one size.
fn bare(directory: &Path) -> Sample {
    let entries = DiskStorage.read_directory(directory).unwrap();
    let name = entries
        .into_iter()
        .find(|entry| entry.name.ends_with(".log"));
    let path = directory.join(name.unwrap().name);
    let end = fs::metadata(&path).unwrap().len();
    let file = File::open(&path).unwrap();
    let (sample, ()) = timed(|| {
        let mut buffer = vec![0; 256 << 10];
        let (mut position, mut kept) = (0, 0);
        while position < end {
            let read = file.read_at(&mut buffer[kept..], position).unwrap();
            position += read as u64;
            let filled = kept + read;
            let mut at = 0;
            while let Some(field) = buffer[at..filled].get(8..12) {
                let field = <[u8; 4]>::try_from(field).unwrap();
                let size = i32::from_be_bytes(field) as usize + 12;
                if size > buffer.len() {
                    buffer.resize(size, 0);
                }
                let Some(batch) = buffer[at..filled].get(..size) else {
                    break;
                };
                black_box(crc32c::crc32c(&batch[21..]));
                at += size;
            }
            buffer.copy_within(at..filled, 0);
            kept = filled - at;
        }
    });
    sample
}
