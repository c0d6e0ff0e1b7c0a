//! Sockets: network threads that never need Python, and what they share.
//!
//! ```text
//! broker_core   starts and stops the threads      threads   who drives which reactor
//! reactor/      one network thread: its event loop, its connections, their requests
//! mailbox       messages of other threads to one of them
//! shared, request_context, settings, counts   what all of them use
//! session       one connection without its socket: request order, response slots
//! transport     what carries a connection's bytes              poller   epoll, eventfd, sendfile
//! outbox        bytes and file ranges that are to be sent
//! storage_call/   calls that may block: records of many requests, appended together; logs read for a fetch; a
//!                 request that takes long to be read      storage_io/   who makes them, and where
//! admission/    how many connections, and how soon      memory/   how much memory they take
//! control/      the queue to Python, and what Python asks of logs
//! connection    one that the broker has opened itself
//! outbound      requests to controllers      replication/   partitions fetched from the brokers that lead them
//! disconnect    why a connection is ended, and what the log says of it
//! ```
//!
//! Imports point one way: `poller → storage_io, memory → control → connection →
//! outbound, replication, session, outbox → transport → storage_call → mailbox → shared
//! → reactor → threads → broker_core`.

pub mod admission;
pub mod broker_core;
pub mod connection;
pub mod control;
pub mod counts;
mod disconnect;
pub mod mailbox;
pub mod memory;
pub mod outbound;
pub mod outbox;
pub mod poller;
mod reactor;
pub mod replication;
mod request_context;
pub mod session;
pub mod settings;
pub mod shared;
pub mod storage_call;
pub mod storage_io;
mod threads;
pub mod transport;
