//! Requests of the keys that Rust answers.
#![no_main]

#[path = "../requests.rs"]
mod requests;

libfuzzer_sys::fuzz_target!(|data: &[u8]| requests::requests(data));
