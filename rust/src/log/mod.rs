//! The log: one directory per partition, in Kafka's format, and the log directories that hold them.

pub mod storage;
