//! Look-ups by offset among many segments: with the segment's index mapped, and with everything of
//! it closed. The files lie in the page cache.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use kafkalite::batch::build::BatchOptions;
use kafkalite::log::config::LogConfig;
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::Segment;
use kafkalite::log::segment::open_segments::OpenSegments;

use super::measure::{
    ROUNDS, Sample, Table, Verdict, median, min_and_median, raise_descriptor_limit, timed,
};
use super::world::{
    NOW_MS, batch_of, new_log, open_segments, request, reset_base_offset, temporary_directory,
};

const SEGMENTS: usize = 10_000;
const DESCRIPTORS: usize = 1024;
const SEGMENT_BYTES: u64 = 64 * 1024;
const LOOK_UPS: usize = 20_000;

const MAPPED_TARGET: f64 = 2.0;
const CLOSED_TARGET: f64 = 50.0;

pub fn run() -> Vec<Verdict> {
    raise_descriptor_limit();
    let home = temporary_directory();
    let many = open_segments(DESCRIPTORS);
    let log = fill(
        &home.path().join("many-0"),
        SEGMENT_BYTES,
        SEGMENTS,
        4096,
        &many,
    );
    let table = Table::new(
        "Look-up among 10,000 segments of 64 KiB, 1,024 open, microseconds, min / median",
        &["Look-up", "CPU", "Wall", "Target"],
    );
    let wall = |sample: &Sample| sample.wall * 1e6;
    let cpu = |sample: &Sample| sample.cpu * 1e6;
    let show = |what: &str, samples: &[Sample], target: Option<f64>| -> Option<Verdict> {
        table.row(&[
            what.to_owned(),
            min_and_median(samples, 2, cpu),
            min_and_median(samples, 2, wall),
            target.map_or_else(String::new, |target| format!("<= {target}")),
        ]);
        let found = median(samples.iter().map(cpu).collect());
        target.map(|target| Verdict {
            what: format!("look-up, {what}"),
            target: format!("<= {target} us"),
            found: format!("{found:.2} us CPU"),
            reached: found <= target,
        })
    };
    let mut verdicts = Vec::new();

    let segments = log.segments();
    let step = segments.len() / 500;
    let few: Vec<Arc<Segment>> = segments.iter().step_by(step).take(500).cloned().collect();
    let mapped = repeated(LOOK_UPS, |number| {
        locate(&few[number * 7 % few.len()], number)
    });
    verdicts.extend(show(
        "mapped, Segment::locate",
        &mapped,
        Some(MAPPED_TARGET),
    ));
    let mapped = repeated(LOOK_UPS, |number| {
        read(&log, &few[number * 7 % few.len()], number)
    });
    verdicts.extend(show("mapped, Log::read", &mapped, Some(MAPPED_TARGET)));

    let one = repeated(LOOK_UPS, |number| locate(&few[0], number));
    show("mapped, always the same segment", &one, None);

    // A stride that visits every segment before it comes back to one.
    let stride = 3571;
    let mut at = 0;
    let mut next = move || {
        at = (at + stride) % SEGMENTS;
        at
    };
    let closed = repeated(SEGMENTS / 2, |number| locate(&segments[next()], number));
    verdicts.extend(show(
        "closed, Segment::locate",
        &closed,
        Some(CLOSED_TARGET),
    ));
    let closed = repeated(SEGMENTS / 2, |number| read(&log, &segments[next()], number));
    verdicts.extend(show("closed, Log::read", &closed, Some(CLOSED_TARGET)));

    for (name, batch_bytes) in [("1 KiB", 1 << 10), ("16 KiB", 16 << 10)] {
        let directory = home.path().join(format!("big{batch_bytes}-0"));
        let big = fill(&directory, 128 << 20, 2, batch_bytes, &many);
        let first = big.segments().swap_remove(0);
        let mapped = repeated(LOOK_UPS, |number| locate(&first, number * 7919));
        let what = format!("mapped, one segment of 128 MiB, {name} batches");
        show(&what, &mapped, None);
    }

    let (descriptors, maps) = held(home.path());
    println!("\nAfter a walk over all segments: {descriptors} descriptors, {maps} maps.");
    verdicts.push(Verdict {
        what: format!("{SEGMENTS} segments work with {DESCRIPTORS} descriptors"),
        target: format!("<= {DESCRIPTORS}"),
        found: format!("{descriptors} and {maps} maps"),
        reached: descriptors <= DESCRIPTORS,
    });
    verdicts
}

/// A log of so many full segments and an active one, of batches of about `batch_bytes`.
fn fill(
    directory: &Path,
    segment_bytes: u64,
    segments: usize,
    batch_bytes: usize,
    open: &Arc<OpenSegments>,
) -> Arc<Log> {
    let config = LogConfig {
        segment_bytes,
        ..LogConfig::default()
    };
    let log = new_log(directory, config, open);
    let batch = batch_of(batch_bytes, batch_bytes / 4 - 30, BatchOptions::default());
    let batches = segment_bytes as usize / batch.len() * segments;
    let mut group = vec![batch; 16];
    for _ in 0..batches.div_ceil(group.len()) {
        let mut requests = Vec::new();
        for batch in &mut group {
            reset_base_offset(batch);
            requests.push(request(batch));
        }
        assert!(log.append(&mut requests, NOW_MS).iter().all(Result::is_ok));
    }
    log.flush().unwrap();
    log
}

/// One round unmeasured, then the time of one look-up in each of `ROUNDS`.
fn repeated(count: usize, mut look_up: impl FnMut(usize)) -> Vec<Sample> {
    let mut round = || {
        let (sample, ()) = timed(|| (0..count).for_each(&mut look_up));
        Sample {
            cpu: sample.cpu / count as f64,
            wall: sample.wall / count as f64,
        }
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

/// Some offset of the segment, far from the last one asked for.
fn offset_in(segment: &Segment, number: usize) -> i64 {
    let count = (segment.end().next_offset - segment.base_offset()).max(1);
    segment.base_offset() + (number as i64 * 31) % count
}

fn locate(segment: &Segment, number: usize) {
    let found = segment.locate(offset_in(segment, number)).unwrap();
    assert!(black_box(found).is_some());
}

fn read(log: &Log, segment: &Segment, number: usize) {
    let offset = offset_in(segment, number);
    let range = log.read(offset, 1 << 20, true, ReadIsolation::HighWatermark);
    assert!(!black_box(range.unwrap()).is_empty());
}

/// Descriptors and maps of files under `home` that this process holds.
fn held(home: &Path) -> (usize, usize) {
    let home = fs::canonicalize(home).unwrap();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let descriptors = descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.starts_with(&home))
        .count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let place = home.to_string_lossy().into_owned();
    (
        descriptors,
        maps.lines().filter(|line| line.contains(&place)).count(),
    )
}
