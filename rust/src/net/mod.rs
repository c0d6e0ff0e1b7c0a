//! Sockets: network threads that never need Python, connections, and the queue by which Python gets
//! the requests that are its own.
//!
//! ```text
//! reactor      one thread's turn: events, timers, wake-ups, what became of storage calls, sending
//! accept       listeners: connections taken in      connections  looked after, closed
//! receive, buffers    bytes, frames, the memory they come in      dispatch  one request
//! idle         which of them are idle, or have been used least recently
//! end          why a connection is ended, and what the log says of it
//! large        requests that take long to be read, beside the network threads
//! settle       requests that wait, and what becomes of them
//! session      one connection without its socket: request order, response slots
//! outbox       what is to be sent: bytes and file ranges
//! stage        group write: records on their way to the logs      work  calls that may block
//! seat, gate   what happens when such a call does not return      crash  and when a thread panics
//! admission, rate, budget   how many connections, how soon, how much memory      pace  who holds it too long
//! control      the queue to Python      coordinate  what Python asks of logs
//! change       logs that Python has made and deleted      metadata  records of the metadata
//! poller       epoll, eventfd, sendfile      busy_poll  a thread that stays awake
//! plane        all of it together
//! ```

mod accept;
pub mod admission;
pub mod budget;
mod buffers;
mod busy_poll;
pub mod change;
mod connections;
pub mod control;
pub mod coordinate;
mod dispatch;
mod end;
mod gate;
mod idle;
mod large;
pub mod metadata;
pub mod outbox;
pub mod pace;
pub mod plane;
pub mod poller;
pub mod rate;
mod reactor;
mod receive;
mod seat;
pub mod session;
mod settle;
mod stage;
mod work;
