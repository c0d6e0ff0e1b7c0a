//! Sockets: network threads that never need Python, and what they share.
//!
//! ```text
//! broker_core   starts and stops the threads      shared, settings, counts   what all of them use
//! mailbox       what other threads tell one of them
//! reactor/      one network thread: its event loop, its connections, their requests
//! session       one connection without its socket: request order, response slots
//! outbox        what is to be sent: bytes and file ranges      poller   epoll, eventfd, sendfile
//! storage_call  calls that may block      storage_io/   what happens when one does not return
//! admission, rate   how many connections, and how soon      memory/   how much memory they take
//! control/      the queue to Python, and what Python asks of logs
//! disconnect    why a connection is ended, and what the log says of it
//! ```

pub mod admission;
pub mod broker_core;
pub mod control;
pub mod counts;
mod disconnect;
pub mod mailbox;
mod memory;
pub mod outbox;
pub mod poller;
pub mod rate;
mod reactor;
pub mod session;
pub mod settings;
pub mod shared;
mod storage_call;
mod storage_io;
