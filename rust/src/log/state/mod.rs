//! State of a partition that follows from its batches, and the files that spare a start
//! reading them all: producers and their transactions, producer snapshots, leader epochs;
//! its ends; what is counted.

pub mod ends;
pub mod epochs;
pub mod name_changes;
pub mod producer_entry;
pub mod producers;
pub mod snapshots;
pub mod traffic;
pub mod verification;
