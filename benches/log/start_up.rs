//! Opening a log directory after a clean stop, in a process of its own so that its memory can be
//! seen. The files lie in the page cache.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use kafkalite::batch::build::BatchOptions;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::clean_shutdown;
use kafkalite::log::directory::meta_properties::MetaProperties;
use kafkalite::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use kafkalite::log::directory::{DirectoryOptions, LogDirectory};
use kafkalite::log::names;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;

use super::measure::{
    ROUNDS, Sample, Table, Verdict, min_and_median, process_cpu_seconds, resident_mib, timed,
};
use super::world::{NOW_MS, batch_of, open_segments, request, temporary_directory};

/// The argument with which this program opens a directory and prints what it took.
pub const CHILD: &str = "--start-up-of";

const BATCHES: i64 = 8;

pub fn run() -> Vec<Verdict> {
    let table = Table::new(
        "Start-up after a clean stop, two threads: LogDirectory::open, min / median",
        &[
            "Partitions",
            "Seconds, wall",
            "Seconds, CPU",
            "MiB resident",
            "KiB a partition",
        ],
    );
    for partitions in [1_000, 10_000] {
        let home = temporary_directory();
        let directory = home.path().join("data");
        fill(&directory, partitions);
        let mut samples = Vec::new();
        let mut memory = Vec::new();
        for round in 0..=ROUNDS {
            mark_clean(&directory);
            let child = Command::new(std::env::current_exe().unwrap())
                .args([CHILD, directory.to_str().unwrap()])
                .output()
                .unwrap();
            assert!(
                child.status.success(),
                "{}",
                String::from_utf8_lossy(&child.stderr)
            );
            let text = String::from_utf8(child.stdout).unwrap();
            let numbers: Vec<f64> = text
                .split_whitespace()
                .map(|n| n.parse().unwrap())
                .collect();
            let [wall, cpu, before, after] = numbers[..] else {
                panic!("the child printed {text}");
            };
            if round > 0 {
                samples.push(Sample { cpu, wall });
                memory.push(Sample {
                    cpu: after - before,
                    wall: after,
                });
            }
        }
        let share = |sample: &Sample| sample.cpu * 1024.0 / f64::from(partitions);
        table.row(&[
            partitions.to_string(),
            min_and_median(&samples, 3, |sample| sample.wall),
            min_and_median(&samples, 3, |sample| sample.cpu),
            min_and_median(&memory, 1, |sample| sample.wall),
            min_and_median(&memory, 2, share),
        ]);
    }
    Vec::new()
}

/// Opens the directory and prints wall seconds, CPU seconds, and MiB resident before and after.
pub fn child(path: &str) {
    let before = resident_mib();
    let cpu = process_cpu_seconds();
    let (sample, directory) = timed(|| open(Path::new(path)));
    let cpu = process_cpu_seconds() - cpu;
    println!("{} {cpu} {before} {}", sample.wall, resident_mib());
    assert!(directory.was_clean());
    for log in directory.logs() {
        assert!(log.offsets().log_end_offset >= BATCHES);
    }
}

fn open(path: &Path) -> LogDirectory {
    let options = DirectoryOptions {
        identity: MetaProperties {
            version: 1,
            cluster_id: Some("bench-cluster".to_owned()),
            node_id: Some(1),
            directory_id: Some(Uuid([9; 16])),
        },
        config_of: &|_| LogConfig::default(),
        is_ours: &|_, _, _| true,
        on_loaded: &|_, _, _| {},
        recovery_threads: 2,
        flush_threads: 2,
        is_single_replica: &|_, _| true,
        now_ms: NOW_MS,
        jitter_seed: 1,
        stop: Arc::default(),
    };
    LogDirectory::open(&open_segments(1024), path, &options).unwrap()
}

/// One partition written by the engine and stopped cleanly, then copies of its files: what is
/// measured is the opening.
fn fill(path: &Path, partitions: i32) {
    let directory = open(path);
    let log = directory.create_log("bench", 0, Uuid([7; 16]), LogConfig::default(), NOW_MS);
    let log = log.unwrap();
    let options = BatchOptions {
        producer_id: 4000,
        producer_epoch: 0,
        base_sequence: 0,
        ..BatchOptions::default()
    };
    let mut last_offset = -1;
    for _ in 0..BATCHES {
        let options = BatchOptions {
            base_sequence: (last_offset + 1) as i32,
            ..options.clone()
        };
        let mut batch = batch_of(4096, 100, options);
        let answer = log.append(&mut [request(&mut batch)], NOW_MS).remove(0);
        last_offset = answer.unwrap().last_offset;
    }
    drop(log);
    directory.close(1).unwrap();
    let template = path.join("bench-0");
    let mut offsets = OffsetCheckpoint::default();
    for partition in 0..partitions {
        let topic = "bench".to_owned();
        offsets
            .offsets
            .insert(TopicPartition { topic, partition }, last_offset + 1);
        let copy = path.join(format!("bench-{partition}"));
        if partition == 0 {
            continue;
        }
        fs::create_dir(&copy).unwrap();
        for entry in fs::read_dir(&template).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    for name in [
        names::RECOVERY_POINT_CHECKPOINT,
        names::HIGH_WATERMARK_CHECKPOINT,
    ] {
        offsets.write(&DiskStorage, &path.join(name)).unwrap();
    }
}

/// What a clean stop leaves last.
fn mark_clean(path: &Path) {
    fs::write(path.join(names::CLEAN_SHUTDOWN), clean_shutdown::print(1)).unwrap();
}
