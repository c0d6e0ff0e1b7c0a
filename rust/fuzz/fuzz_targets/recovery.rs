//! Starting on a partition of which one file holds anything at all.
#![no_main]

#[path = "../../../tests/rust/memory_storage/mod.rs"]
#[allow(dead_code, reason = "made for more tests than this one")]
mod memory_storage;
#[path = "../../../tests/rust/random.rs"]
#[allow(dead_code, reason = "made for more tests than this one")]
mod random;
#[path = "../recovery.rs"]
mod recovery;

libfuzzer_sys::fuzz_target!(
    init: recovery::write_seeds(std::env::args().skip(1)),
    |data: &[u8]| recovery::recovery(data)
);
