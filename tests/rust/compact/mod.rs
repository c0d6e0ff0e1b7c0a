//! The cleaner: its rules by name, every crash point, and random histories against a plain list of
//! all records ever written.

mod crash;
mod directory;
mod histories;
pub mod partition;
mod plan;
mod readers;
mod records;
mod rounds;
mod transactions;
