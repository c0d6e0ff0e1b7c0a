//! The control thread of Python, as the network threads and the logs see it.
//!
//! ```text
//! queue             requests for Python, and what wakes it      wait   how it comes for them
//! answer            what became of its calls
//! log_calls         appends of coordinators, DeleteRecords, DescribeProducers
//! log_lifecycle     logs that are made and deleted
//! metadata_append   records of the metadata, made durable
//! ```

pub mod answer;
pub mod log_calls;
pub mod log_lifecycle;
pub mod metadata_append;
pub mod queue;
pub mod wait;
