//! Sockets: network threads that never need Python, connections, and the queue by which Python gets
//! the requests that are its own.
//!
//! ```text
//! reactor   one thread: epoll, receive, take frames, append in groups, send
//! session   one connection without its socket: frames, request order, response slots
//! outbox    what is to be sent: bytes and file ranges
//! poller    epoll and eventfd      control   the queue to Python      plane   all of it together
//! ```

pub mod control;
pub mod outbox;
pub mod plane;
pub mod poller;
pub mod reactor;
pub mod session;
