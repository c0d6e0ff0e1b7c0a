//! One network thread: it waits for its sockets, receives, takes frames, has them answered, appends
//! what was produced, sends. It never needs Python and shares nothing hot with the other threads.
//!
//! ```text
//! event_loop   wait ─► mailbox: wake-ups, Python's answers, new connections ─► timers
//! receive      bytes of a socket ─► frames
//! dispatch     a frame ─► its request begins      large_requests   those that take long to be read
//! event_loop   storage calls: appends of the round, the logs read for fetches
//! delayed_operations    requests that wait ─► their answers
//! send         answers ─► the socket; a connection that waited for that goes on with its next frames
//! lifecycle    connections opened, ended, closed      memory_use   what they take of the memory
//! ```
//!
//! These are methods of the reactor, for they need several of its parts. The parts, in `state/`,
//! know nothing of it, nor of each other but for the connections:
//!
//! ```text
//! Listeners (accept)      connections that come        RunQueue      who is served next
//! Connections             found by their tokens        Timers        whose time is over
//! DueConnections, LeastRecent (idle)   who goes        PendingCalls  storage calls to be made
//! Buffers                 memory to receive into       BusyPoll      a look before the thread sleeps
//! ```
//!
//! This file holds the state, which belongs to one thread at a time. `event_loop::drive` makes the
//! storage calls, and only there: during each the reactor is in its `Handoff`, so that another
//! thread can go on with it if the call does not return.
//!
//! Receive buffers belong to the thread, so an idle connection costs its bookkeeping only; a buffer
//! that holds records to be appended stays aside until they are written. A connection that may not
//! go on (`Session::may_begin`) is not read: level-triggered polling would spin on what it left.

mod delayed_operations;
mod dispatch;
pub mod event_loop;
mod large_requests;
mod lifecycle;
mod memory_use;
mod receive;
mod send;
mod state;
mod verification;

use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use self::state::accept::{LISTENER_TOKEN, Listeners};
use self::state::buffers::Buffers;
use self::state::busy_poll::BusyPoll;
use self::state::connections::Connections;
use self::state::idle::{DueConnections, LeastRecent};
use self::state::pending_calls::PendingCalls;
use self::state::run_queue::RunQueue;
use self::state::timers::Timers;
use crate::api::k00_produce;
use crate::image::Image;
use crate::net::outbox::SpareAnswers;
use crate::net::poller::{Poller, Readiness};
use crate::net::shared::Shared;
use crate::net::storage_io::Handoff;

const WAKE_TOKEN: u64 = u64::MAX;

pub struct Reactor {
    index: usize,
    shared: Arc<Shared>,
    poller: Poller,
    /// The first thread has them, the others none.
    listeners: Listeners,
    connections: Connections,
    /// Receive buffers to be used again.
    buffers: Buffers,
    /// Memory of requests and of answers, to be used again.
    spare_requests: k00_produce::Spare,
    spare_answers: SpareAnswers,
    /// A large request in the buffer that is being looked at: its slot, and where it lies.
    aside: Option<(u64, Range<usize>)>,
    calls: PendingCalls,
    queue: RunQueue,
    timers: Timers,
    /// The connection that had the last event, and when another one had one.
    busy: u64,
    others_busy_ms: u64,
    busy_poll: BusyPoll,
    image: Arc<Image>,
    round: u64,
    now_ms: u64,
    next_housekeeping_ms: u64,
    /// When connections may have been idle for too long.
    due_connections: DueConnections,
    least_recent: LeastRecent,
    stop_deadline_ms: Option<u64>,
    /// Where this is left during a storage call.
    handoff: Arc<Handoff<Box<Reactor>>>,
}

impl Reactor {
    /// A thread's state. `listeners` are bound, listening and non-blocking.
    pub fn new(
        index: usize,
        shared: Arc<Shared>,
        listeners: Vec<TcpListener>,
    ) -> io::Result<Reactor> {
        let poller = Poller::new()?;
        let readable = Readiness {
            readable: true,
            ..Readiness::default()
        };
        if let Some(mailbox) = shared.mailboxes.get(index) {
            poller.add_wake_up(&mailbox.wake_up, WAKE_TOKEN)?;
        }
        for (number, listener) in listeners.iter().enumerate() {
            let token = LISTENER_TOKEN - number as u64;
            poller.add(listener.as_raw_fd(), token, readable)?;
        }
        Ok(Reactor {
            index,
            image: shared.image(),
            poller,
            listeners: Listeners::new(listeners),
            connections: Connections::default(),
            buffers: Buffers::default(),
            spare_requests: k00_produce::Spare::default(),
            spare_answers: SpareAnswers::default(),
            aside: None,
            calls: PendingCalls::default(),
            queue: RunQueue::default(),
            timers: Timers::default(),
            busy: WAKE_TOKEN,
            others_busy_ms: 0,
            busy_poll: BusyPoll::new(shared.context.settings.busy_poll),
            round: 0,
            now_ms: 0,
            next_housekeeping_ms: 0,
            due_connections: DueConnections::default(),
            least_recent: LeastRecent::default(),
            stop_deadline_ms: None,
            handoff: Arc::default(),
            shared,
        })
    }

    pub fn index(&self) -> usize {
        self.index
    }

    /// Where this is left during a storage call.
    pub fn handoff(&self) -> Arc<Handoff<Box<Reactor>>> {
        self.handoff.clone()
    }
}
