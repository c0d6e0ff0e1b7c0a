//! Group commit against a bare loop of write and `fdatasync`, and what makes many files durable
//! fastest. Both end at the disk: the numbers are wall time, and other work on the disk is in them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use kafkalite::batch::build::BatchOptions;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::flusher::Flusher;
use kafkalite::log::log::{Log, LogObserver};
use kafkalite::log::state::ends::LogOffsets;
use kafkalite::log::storage::{DiskStorage, Storage};
use parking_lot::{Condvar, Mutex};

use super::measure::{ROUNDS, Sample, Table, Verdict, compare, median, min_and_median, timed};
use super::world::{
    NOW_MS, batch_of, new_log, open_segments, request, reset_base_offset, temporary_directory,
};

const BATCH_BYTES: usize = 16 << 10;
/// Of DESIGN: durable throughput against the bare loop.
const TARGET: f64 = 0.85;

pub fn run() -> Vec<Verdict> {
    let verdicts = group_commit();
    many_files();
    beside_a_flush();
    verdicts
}

/// So many producers, each with one batch in flight: it appends, and appends the next once the last
/// is durable. The bare loop writes as many batches and calls `fdatasync`, over and over.
fn group_commit() -> Vec<Verdict> {
    let table = Table::new(
        "Group commit, 16 KiB batches: durable batches a second, min / median",
        &["Producers", "Engine", "Bare loop", "Median ratio", "Target"],
    );
    let mut verdicts = Vec::new();
    for producers in [1, 4, 16, 64] {
        let batches = 200 * producers.min(16);
        let home = temporary_directory();
        let pair = compare(
            || engine(home.path(), producers, batches),
            || bare(home.path(), producers, batches),
        );
        let rate = |sample: &Sample| batches as f64 / sample.wall;
        let ratio = pair.ratio(rate);
        table.row(&[
            producers.to_string(),
            min_and_median(&pair.engine, 0, rate),
            min_and_median(&pair.bare, 0, rate),
            format!("{ratio:.2}"),
            format!(">= {TARGET}"),
        ]);
        verdicts.push(Verdict {
            what: format!("group commit of {producers} producers, 16 KiB batches"),
            target: format!(">= {TARGET} x bare loop"),
            found: format!("{ratio:.2} x"),
            reached: ratio >= TARGET,
        });
    }
    verdicts
}

/// Wakes whoever waits for records to be durable.
#[derive(Default)]
struct Durable {
    flushed: Mutex<i64>,
    moved: Condvar,
}

impl LogObserver for Durable {
    fn advanced(&self, _log: &Log, offsets: LogOffsets) {
        let mut flushed = self.flushed.lock();
        if offsets.flushed_offset > *flushed {
            *flushed = offsets.flushed_offset;
            self.moved.notify_all();
        }
    }
}

/// One thread plays the network thread: it appends for every producer whose last batch is durable,
/// all in one call, asks for a flush, and waits for the next that moves. For a producer that is
/// alone it flushes itself, as `Reactor::may_flush` has it.
fn engine(home: &Path, producers: usize, batches: usize) -> Sample {
    let directory = home.join("bench-0");
    let log = new_log(&directory, LogConfig::default(), &open_segments(16));
    let durable = Arc::new(Durable::default());
    log.set_observer(durable.clone());
    let flusher = Flusher::start("bench", 1, None).unwrap();
    let batch = batch_of(BATCH_BYTES, 100, BatchOptions::default());
    let mut idle = vec![batch; producers];
    // Last offset and the batch, of each producer that waits.
    let mut waiting: Vec<(i64, Vec<u8>)> = Vec::new();
    let (sample, ()) = timed(|| {
        let mut done = 0;
        while done < batches {
            let mut requests = Vec::with_capacity(idle.len());
            for batch in &mut idle {
                reset_base_offset(batch);
                requests.push(request(batch));
            }
            let answers = log.append(&mut requests, NOW_MS);
            drop(requests);
            if producers == 1 && flusher.is_fast() {
                flusher.flush_here(&log);
            } else {
                flusher.request(&log);
            }
            let ends = answers
                .into_iter()
                .map(|answer| answer.unwrap().last_offset);
            waiting.extend(ends.zip(idle.drain(..)));
            let oldest = waiting.iter().map(|(last, _)| *last).min().unwrap();
            let mut flushed = durable.flushed.lock();
            while *flushed <= oldest {
                durable.moved.wait(&mut flushed);
            }
            let flushed = *flushed;
            let (ready, later) = waiting.drain(..).partition(|(last, _)| *last < flushed);
            waiting = later;
            done += ready.len();
            idle.extend(ready.into_iter().map(|(_, batch)| batch));
        }
    });
    flusher.stop();
    drop(log);
    fs::remove_dir_all(&directory).unwrap();
    sample
}

fn bare(home: &Path, producers: usize, batches: usize) -> Sample {
    let path = home.join("bare");
    let file = File::create_new(&path).unwrap();
    let batch = batch_of(BATCH_BYTES, 100, BatchOptions::default());
    let (sample, ()) = timed(|| {
        let mut position = 0;
        for _ in 0..batches.div_ceil(producers) {
            for _ in 0..producers {
                file.write_all_at(&batch, position).unwrap();
                position += batch.len() as u64;
            }
            file.sync_data().unwrap();
        }
    });
    fs::remove_file(&path).unwrap();
    sample
}

/// 16 KiB appended to each of many files, then all of them made durable, in three ways.
fn many_files() {
    let table = Table::new(
        "Making 16 KiB in each of many files durable, milliseconds for all, min / median",
        &[
            "Files",
            "fdatasync, 1 thread",
            "fdatasync, 4 threads",
            "syncfs",
        ],
    );
    let milliseconds = |sample: &Sample| sample.wall * 1e3;
    let bytes = vec![7; BATCH_BYTES];
    for count in [1, 4, 16, 64, 256, 1024] {
        let home = temporary_directory();
        let files: Vec<File> = (0..count)
            .map(|number| File::create_new(home.path().join(number.to_string())).unwrap())
            .collect();
        let mut ways: [Vec<Sample>; 3] = Default::default();
        let file_system = DiskStorage.file_system(home.path()).unwrap().unwrap();
        for round in 0..=ROUNDS {
            for (way, samples) in ways.iter_mut().enumerate() {
                let position = ((round * 3 + way) * BATCH_BYTES) as u64;
                for file in &files {
                    file.write_all_at(&bytes, position).unwrap();
                }
                let (sample, ()) = timed(|| match way {
                    0 => sync_all(&files, 1),
                    1 => sync_all(&files, 4),
                    _ => file_system.sync().unwrap(),
                });
                if round > 0 {
                    samples.push(sample);
                }
            }
        }
        let [alone, pool, whole] = ways.map(|samples| min_and_median(&samples, 2, milliseconds));
        table.row(&[count.to_string(), alone, pool, whole]);
    }
}

fn sync_all(files: &[File], threads: usize) {
    if threads == 1 {
        return files.iter().for_each(|file| file.sync_data().unwrap());
    }
    thread::scope(|scope| {
        for share in files.chunks(files.len().div_ceil(threads)) {
            scope.spawn(|| share.iter().for_each(|file| file.sync_data().unwrap()));
        }
    });
}

/// What an append waits while `fdatasync` runs on the same file.
fn beside_a_flush() {
    let table = Table::new(
        "Appends of 16 KiB beside a flusher that never rests, microseconds",
        &["Append", "p50", "p99", "Largest"],
    );
    let home = temporary_directory();
    for (name, is_flushed) in [("alone", false), ("beside the flusher", true)] {
        let directory = home.path().join(format!("{name}-0"));
        let log = new_log(&directory, LogConfig::default(), &open_segments(16));
        let flusher = Flusher::start("bench", 1, None).unwrap();
        let mut batch = batch_of(BATCH_BYTES, 100, BatchOptions::default());
        let mut times = Vec::new();
        for _ in 0..4000 {
            reset_base_offset(&mut batch);
            let (sample, answer) =
                timed(|| log.append(&mut [request(&mut batch)], NOW_MS).remove(0));
            answer.unwrap();
            times.push(sample.wall * 1e6);
            if is_flushed {
                flusher.request(&log);
            }
        }
        flusher.stop();
        times.sort_by(f64::total_cmp);
        table.row(&[
            name.to_owned(),
            format!("{:.1}", median(times.clone())),
            format!("{:.1}", times[times.len() * 99 / 100]),
            format!("{:.1}", times[times.len() - 1]),
        ]);
    }
}
