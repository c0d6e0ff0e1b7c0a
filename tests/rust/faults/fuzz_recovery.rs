//! A bounded, seeded run of `rust/fuzz/recovery.rs` on stable Rust: mutations of the files of a
//! real partition. A failure names the round; the same round fails again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::random::{Random, is_long_run};

#[path = "../../../rust/fuzz/recovery.rs"]
mod recovery;

fn mutate(content: &mut Vec<u8>, random: &mut Random) {
    if content.is_empty() {
        content.push(random.byte());
    }
    let size = content.len() as u64;
    // Half of them in the first batch's header, where the meaning is.
    let at = match random.below(2) {
        0 => random.below(size.min(70)),
        _ => random.below(size),
    } as usize;
    match random.below(8) {
        0 => content[at] ^= 1 << random.below(8),
        1 => content[at] = random.byte(),
        2 => content[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
        3 => content.truncate(at),
        4 => content.insert(at, random.byte()),
        5 => {
            content.remove(at);
        }
        6 => content[at..].fill(0),
        _ => {
            // A piece of it once more, somewhere else.
            let length = random.below(size - at as u64 + 1).min(200) as usize;
            let piece = content[at..at + length].to_vec();
            let to = random.below(size) as usize;
            content.splice(to..to, piece);
        }
    }
}

#[test]
fn no_bytes_in_any_file_break_a_start() {
    let files = recovery::seed_files();
    let paths = recovery::seed_paths();
    let rounds = if is_long_run() { 2_000_000 } else { 8_000 };
    for round in 0..rounds {
        let mut random = Random::new(round);
        let path = random.below(paths.len() as u64) as usize;
        let mut data = files[paths[path]].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut data, &mut random);
        }
        let choice = (path as u8) << 2 | random.below(4) as u8;
        data.insert(0, choice);
        let outcome = catch_unwind(AssertUnwindSafe(|| recovery::recovery(&data)));
        assert!(
            outcome.is_ok(),
            "round {round}, {}: {data:02x?}",
            paths[path].display()
        );
    }
}
