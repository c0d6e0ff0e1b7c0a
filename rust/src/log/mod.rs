//! The log: one directory per partition, in Kafka's format, and the log directories that hold them.

pub mod config;
pub mod names;
pub mod offset_index;
pub mod open_segments;
pub mod scan;
mod search;
pub mod segment;
pub mod storage;
pub mod time_index;
