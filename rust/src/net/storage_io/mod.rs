//! Storage I/O: a network thread makes its storage calls itself as long as each returns in time, and goes on
//! without it when one does not.
//!
//! ```text
//! handoff           what the thread leaves behind during a call, for another thread to go on with
//! directory_queue   the calls of a log directory that may not run on network threads, and its thread
//! ```

pub mod directory_queue;
pub mod handoff;
