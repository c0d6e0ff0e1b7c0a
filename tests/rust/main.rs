//! Tests of the engine through its public interface; one binary, so that it links once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod aborted;
mod arrow_columns;
mod batch;
mod checkpoint;
mod compact;
mod compression;
mod config_rows;
mod denied;
mod directory;
mod epochs;
mod faults;
mod from_arrow;
mod fuzz_arrow_requests;
mod fuzz_batch;
mod fuzz_re2;
mod fuzz_requests;
mod fuzz_typed;
mod housekeeper;
mod lead;
mod leader_state;
mod led_elsewhere;
mod log;
mod log_directory;
mod look_up;
mod memory_storage;
mod node;
mod outbound;
mod plain_reader;
mod producers;
mod random;
mod stream;
mod typed_json;
mod validate;
mod verify;
mod wire;
