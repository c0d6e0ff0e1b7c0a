//! Validation of produced batches; the CRC is made right first, or the fuzzer would not pass it.
#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code, reason = "each target calls one of them")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::validation(data);
    let mut repaired = data.to_vec();
    targets::repair(repaired.get_mut(1..).unwrap_or_default());
    targets::validation(&repaired);
});
