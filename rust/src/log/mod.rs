//! The log: one directory per partition, in Kafka's format, and the log directories that hold them.
//!
//! | room | what is in it |
//! |---|---|
//! | `segment/` | one segment: its files, its indexes, how it is searched, scanned, checked and rebuilt |
//! | `state/` | what follows from the batches: producers, their snapshots, leader epochs |
//! | `recover/` | a log out of a partition's directory, whatever the last process left there |
//! | `directory/` | log directories: lock, checkpoint files, the logs of their partitions |
//! | `compact/` | the cleaner |
//! | `check/` | looking at files without opening a log (`log dump`, `log verify`) |
//!
//! | file | verb |
//! |---|---|
//! | `log.rs` | the log itself: its numbers, its locks, rolling |
//! | `append.rs` `read.rs` `flush.rs` | write at the end, read, make durable |
//! | `aborted_transactions.rs` | which transactions a reader of committed records must know |
//! | `maintain.rs` `retain.rs` `housekeeper.rs` | cut and delete; by age and size; all that is done from time to time |
//! | `replace.rs` | the files of another log directory in place of those that there are |
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
pub mod housekeeper;
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
mod replace;
pub mod retain;
pub mod segment;
pub mod state;
pub mod storage;
