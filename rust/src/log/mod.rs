//! The log: one directory per partition, in Kafka's format, and the log directories that hold them.
//!
//! | room | what is in it |
//! |---|---|
//! | `segment/` | one segment: its files, its indexes, how it is searched, scanned, checked and rebuilt |
//! | `state/` | what follows from the batches: producers, their snapshots, leader epochs; what is counted |
//! | `recover/` | a log out of a partition's directory, whatever the last process left there |
//! | `directory/` | log directories: lock, checkpoint files, the logs of their partitions |
//! | `maintain/` | cutting and deleting; retention and all that is done from time to time; other files in place of these |
//! | `compact/` | the cleaner |
//! | `check/` | looking at files without opening a log (`log dump`, `log verify`) |
//!
//! | file | verb |
//! |---|---|
//! | `log.rs` | the log itself: its numbers, its locks, rolling |
//! | `append.rs` `read.rs` `flush.rs` | write at the end, read, make durable |
//! | `aborted_transactions.rs` | which transactions a reader of committed records must know |
//! | `leader_epochs.rs` | which leader has written which records |
//! | `config.rs` `deadline.rs` `health.rs` | settings, waits, whether a directory may still be written to |
//! | `names.rs` `storage.rs` `checkpoint_file.rs` `partition_metadata.rs` | names, system calls, small files |

mod aborted_transactions;
pub mod append;
pub mod check;
pub mod checkpoint_file;
pub mod compact;
pub mod config;
pub mod deadline;
pub mod directory;
pub mod flush;
pub mod health;
mod judge;
mod leader_epochs;
#[expect(
    clippy::module_inception,
    reason = "the log of a partition is what Kafka calls a log"
)]
pub mod log;
pub mod maintain;
pub mod names;
pub mod partition_metadata;
pub mod read;
pub mod recover;
pub mod segment;
pub mod state;
pub mod storage;
