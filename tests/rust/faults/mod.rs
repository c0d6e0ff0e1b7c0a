//! What breaks storage on purpose. `make faults-long` takes every byte, bit and call; the fast run
//! takes a seeded sample of them.

mod bad_directories;
mod bit_flips;
mod freeing;
mod fuzz_recovery;
mod io_failures;
mod log_concurrency;
mod many_logs;
mod model;
mod new_topic;
mod plain;
mod plain_model;
mod power_cuts;
mod refused_writes;
mod same_name;
mod shared_flush;
mod stories;
mod torn_tails;
mod workbench;
