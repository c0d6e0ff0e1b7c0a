//! The keys that Rust answers without Python: one file each. They read a request, look at the image
//! and the logs, and give an answer or say what it waits for. They know no socket. Who sends the
//! answer puts its size in front (`finish`).

mod chunk;
pub mod fetch_sessions;
mod handler;
pub mod k00_produce;
pub mod k01_fetch;
pub mod k02_list_offsets;
pub mod k03_metadata;
pub mod k18_api_versions;
pub mod large;
mod leader;
mod topic_ref;

pub use chunk::{Chunk, finish};
pub use handler::{ApiKey, Ask};

/// The keys of this folder.
pub const HOT_KEYS: [ApiKey; 5] = [
    k00_produce::KEY,
    k01_fetch::KEY,
    k02_list_offsets::KEY,
    k03_metadata::KEY,
    k18_api_versions::KEY,
];
