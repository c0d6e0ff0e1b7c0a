//! Answers of leaders to their followers.
#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code, reason = "each target calls one of them")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::follower_answers(data));
