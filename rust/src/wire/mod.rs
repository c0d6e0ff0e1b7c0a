//! The primitives of Kafka's wire protocol: bounded reads, writes, frames and headers. Nothing here
//! knows a request, opens a socket or panics on any input.

pub mod cursor;
pub mod frame;
pub mod header;

pub use cursor::{Reader, Writer, utf8};
pub use header::RequestHeader;
