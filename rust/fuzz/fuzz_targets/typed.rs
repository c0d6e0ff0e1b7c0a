//! Keys and values that become columns: JSON, CSV, Avro.
#![no_main]

#[path = "../typed.rs"]
mod typed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| typed::typed(data));
