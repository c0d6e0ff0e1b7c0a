//! A bounded, seeded run of the fuzz targets on stable Rust: mutations of Kafka's own batches.
//!
//! `FUZZ_SECONDS=60 FUZZ_SEED=7 cargo test fuzz_batch`; without them a fixed number of rounds from
//! a fixed seed, so that a failure can be had again. cargo-fuzz goes deeper: see `rust/fuzz`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use kafkalite::batch::compression::compress;
use kafkalite::batch::{BatchBuilder, BatchOptions, Codec};

use crate::batch::golden_batches;

#[path = "../../rust/fuzz/targets.rs"]
mod targets;

const ROUNDS: u64 = 3_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Runs `target` on mutations of `seeds`; a panic names the seed and shows the input.
pub fn run(seeds: &[Vec<u8>], repair: bool, target: fn(&[u8])) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seed = number("FUZZ_SEED").unwrap_or(0x5eed);
    let seconds = number("FUZZ_SECONDS").map(Duration::from_secs);
    let mut random = Random(seed | 1 << 63);
    let start = Instant::now();
    let mut round = 0;
    while seconds.map_or(round < ROUNDS, |seconds| start.elapsed() < seconds) {
        round += 1;
        let mut data = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut data, seeds, &mut random);
        }
        if repair && random.below(4) > 0 {
            targets::repair(data.get_mut(1..).unwrap_or_default());
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&data)));
        assert!(
            outcome.is_ok(),
            "FUZZ_SEED={seed}, round {round}: {data:02x?}"
        );
    }
}

fn mutate(data: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    const INTERESTING: [u8; 8] = [0x00, 0x01, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x40];
    if data.is_empty() {
        data.push(0);
    }
    let at = match random.below(3) {
        0 => random.below(data.len().min(90)),
        _ => random.below(data.len()),
    };
    match random.below(7) {
        0 => data[at] ^= 1 << random.below(8),
        1 => data[at] = random.next() as u8,
        2 => data[at] = INTERESTING[random.below(8)],
        3 => data.truncate(at + 1),
        4 => data.insert(at, random.next() as u8),
        5 => {
            data.remove(at);
        }
        _ => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            let length = random.below((other.len() - from).min(100));
            data.truncate(at);
            data.extend_from_slice(&other[from..from + length]);
        }
    }
}

/// Kafka's batches, short ones of each codec, two in a row; with a first byte of choices.
fn batch_seeds() -> Vec<Vec<u8>> {
    let mut batches: Vec<Vec<u8>> = golden_batches()
        .into_iter()
        .map(|(_, batch)| batch)
        .collect();
    for codec in Codec::ALL {
        let mut builder = BatchBuilder::new(BatchOptions {
            codec,
            ..BatchOptions::default()
        });
        for index in 0..3 {
            let headers = [(&b"h"[..], None)];
            builder
                .append(1_700_000_000_000 + index, Some(b"k"), Some(b"v"), &headers)
                .unwrap();
        }
        batches.push(builder.finish().unwrap());
    }
    let twice = [&batches[9][..], &batches[10]].concat();
    batches.push(twice);
    let choices = (0..=255_u8).cycle().step_by(7);
    batches
        .iter()
        .cycle()
        .zip(choices)
        .take(batches.len() * 8)
        .map(|(batch, choice)| [&[choice][..], batch].concat())
        .collect()
}

#[test]
fn no_bytes_break_what_validation_promises() {
    run(&batch_seeds(), true, targets::validation);
}

#[test]
fn no_bytes_break_the_reading_of_records() {
    let seeds: Vec<Vec<u8>> = batch_seeds()
        .into_iter()
        .map(|seed| seed[1..].to_vec())
        .collect();
    run(&seeds, false, targets::records);
}

#[test]
fn no_bytes_break_a_decoder() {
    let mut seeds = Vec::new();
    for (index, codec) in Codec::ALL.into_iter().enumerate() {
        for magic in 0..3 {
            for input in [&b""[..], b"records", &b"record ".repeat(20_000)] {
                let stream = compress(codec, None, input).unwrap();
                seeds.push([&[index as u8 + 5 * magic][..], &stream].concat());
            }
        }
    }
    run(&seeds, false, targets::decompression);
}

#[test]
fn no_bytes_break_the_reading_of_a_leaders_answer() {
    run(&crate::follower::seeds(), false, targets::follower_answers);
}
