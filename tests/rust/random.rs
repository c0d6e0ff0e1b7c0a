//! Numbers from a seed (SplitMix64), so that every run of a test is the same and a failure names
//! the seed that repeats it.

use std::sync::atomic::{AtomicBool, Ordering};

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn byte(&mut self) -> u8 {
        (self.next() >> 24) as u8
    }
}

/// `make test-long` and `make faults-long` set the one, a developer the other: everything is tried,
/// not a sample.
pub fn is_long_run() -> bool {
    ["KAFKALITE_TEST_LONG", "KAFKALITE_LONG"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| value == "1"))
}

/// Raises a flag at the end of its scope, also when that is a panic: threads that go on until the
/// flag is up would else keep `thread::scope` from ever telling of it.
pub struct RaiseAtEnd<'f>(pub &'f AtomicBool);

impl Drop for RaiseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Says that a test cannot run here; `make test` counts and prints the reasons at its end.
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
    if let Some(path) = std::env::var_os("KAFKALITE_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        std::io::Write::write_all(&mut file, format!("{reason}\n").as_bytes()).unwrap();
    }
}
