//! Tests of the engine through its public interface; one binary, so that it links once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod aborted;
mod checkpoint;
mod epochs;
mod log;
mod producers;

mod compression;
