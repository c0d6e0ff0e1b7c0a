//! Requests to the Arrow endpoint.
#![no_main]

#[path = "../arrow_requests.rs"]
mod arrow_requests;

libfuzzer_sys::fuzz_target!(|data: &[u8]| arrow_requests::arrow_requests(data));
