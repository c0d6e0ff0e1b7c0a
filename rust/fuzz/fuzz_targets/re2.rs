//! Regular expressions of clients.
#![no_main]

#[path = "../re2.rs"]
mod re2;

libfuzzer_sys::fuzz_target!(|data: &[u8]| re2::re2(data));
