//! The log: one directory per partition, in Kafka's format, and the log directories that hold them.

pub mod aborted;
pub mod append;
pub mod checkpoint;
pub mod compact;
mod condemned;
pub mod config;
pub mod deadline;
pub mod directories;
pub mod directory;
pub mod epochs;
pub mod flush;
pub mod flusher;
mod heal;
pub mod health;
pub mod housekeeper;
pub mod inspect;
#[expect(
    clippy::module_inception,
    reason = "the log of a partition is what Kafka calls a log"
)]
pub mod log;
mod log_end;
mod look_up;
pub mod maintain;
pub mod meta_properties;
pub mod names;
pub mod offset_index;
pub mod open_segments;
mod ownership;
pub mod producers;
mod prove;
pub mod read;
mod rebuild;
pub mod recover;
mod replay;
pub mod retain;
pub mod scan;
mod search;
pub mod segment;
mod segment_map;
pub mod snapshots;
pub mod storage;
pub mod time_index;
pub mod verify;
pub mod verify_segment;
