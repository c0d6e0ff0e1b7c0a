//! The parts of a network thread: each keeps a state of its own, and knows nothing of the reactor,
//! nor of the others but for the connections.

pub mod accept;
pub mod buffers;
pub mod busy_poll;
pub mod connections;
pub mod idle;
pub mod pending_calls;
pub mod run_queue;
pub mod timers;
