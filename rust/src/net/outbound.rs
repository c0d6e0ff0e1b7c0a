//! Connections that this broker opens itself, to controllers: a thread each, which sends one
//! request after the other and hands over their answers in that order.
//!
//! ```text
//! Python: call(number, connection, address, request) ──► the connection's thread ──► connect, ApiVersions
//!                                                                               └──► request, answer
//! Python: wait or take ◄── (number, answer or why there is none) ◄── wake ◄─────────────────┘
//! ```
//!
//! A connection is known by its purpose, so that a large request does not delay a heartbeat. It is
//! made by the first request to an address, and again after a failure, by the next request; a
//! request that fails is not sent twice here, since its answer may be what was lost. Kafka:
//! `NodeToControllerChannelManager`.

use std::collections::HashMap;
use std::io::Error as IoError;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::limits::OUTBOUND_ANSWER_BYTES_MAX;
use crate::net::connection::{Connection, Patience};
use crate::net::control::queue::ControlQueue;

/// A request of a flexible version, and where it goes.
pub struct Call {
    /// By which the caller knows the answer.
    pub number: u64,
    pub address: (String, u16),
    pub api_key: i16,
    pub api_version: i16,
    /// The bytes behind the header.
    pub body: Vec<u8>,
    /// Until then there is an answer, or none. It counts the time in which the connection is busy
    /// with earlier requests, so that those that queue behind a server that hangs end together.
    pub due: Instant,
}

/// The number of a call, and the bytes behind the header of its answer, or why there is none.
pub type Outcome = (u64, std::result::Result<Vec<u8>, String>);

/// The queue that is told of outcomes, and the number that wakes Python's control thread.
type Waker = (Arc<ControlQueue>, u64);

#[derive(Default)]
struct Outcomes {
    ready: Vec<Outcome>,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Shared {
    outcomes: Mutex<Outcomes>,
    has_outcomes: Condvar,
}

impl Shared {
    fn put(&self, outcome: Outcome) {
        let mut outcomes = self.outcomes.lock();
        outcomes.ready.push(outcome);
        if let Some((control, number)) = &outcomes.waker {
            control.wake(*number);
        }
        self.has_outcomes.notify_all();
    }
}

/// See the module.
pub struct Outbound {
    client_id: String,
    shared: Arc<Shared>,
    connections: Mutex<HashMap<String, Sender<Call>>>,
}

impl Outbound {
    pub fn new(client_id: String) -> Outbound {
        Outbound {
            client_id,
            shared: Arc::default(),
            connections: Mutex::default(),
        }
    }

    /// Has a request sent by the connection of this purpose, behind those that it was given before.
    ///
    /// Errors: `InvalidArgument` if no thread can be started for it.
    pub fn call(&self, purpose: &str, call: Call) -> Result<()> {
        let mut connections = self.connections.lock();
        if let Some(calls) = connections.get(purpose) {
            // Its thread ends only when this end is dropped.
            return calls.send(call).map_err(|_| gone(purpose));
        }
        let (calls, receiver) = channel();
        let (client_id, shared) = (self.client_id.clone(), self.shared.clone());
        thread::Builder::new()
            .name(format!("to-{purpose}"))
            .spawn(move || serve(&receiver, &client_id, &shared))
            .map_err(|error| Error::InvalidArgument(format!("no thread: {error}")))?;
        let sent = calls.send(call).map_err(|_| gone(purpose));
        connections.insert(purpose.to_owned(), calls);
        sent
    }

    /// Waits until there are outcomes, at most so long, and takes them.
    pub fn wait(&self, timeout: Duration) -> Vec<Outcome> {
        let mut outcomes = self.shared.outcomes.lock();
        if outcomes.ready.is_empty() {
            self.shared.has_outcomes.wait_for(&mut outcomes, timeout);
        }
        std::mem::take(&mut outcomes.ready)
    }

    /// From now on outcomes wake the control thread, which takes them by `wait` without waiting.
    pub fn wake_by(&self, control: Arc<ControlQueue>, number: u64) {
        let mut outcomes = self.shared.outcomes.lock();
        if !outcomes.ready.is_empty() {
            control.wake(number);
        }
        outcomes.waker = Some((control, number));
    }
}

fn gone(purpose: &str) -> Error {
    Error::InvalidArgument(format!("the connection {purpose} has ended"))
}

/// The body of a connection's thread: until the `Outbound` is dropped.
fn serve(calls: &Receiver<Call>, client_id: &str, shared: &Shared) {
    let mut connection: Option<Connection> = None;
    while let Ok(call) = calls.recv() {
        let due = call.due;
        if due <= Instant::now() {
            // The connection has answered others meanwhile, and is as good as it was.
            let (host, port) = &call.address;
            let told = format!("{host}:{port}: no answer in time");
            shared.put((call.number, Err(told)));
            continue;
        }
        let usable = connection
            .take()
            .filter(|each| *each.address() == call.address);
        let made = usable.map_or_else(|| Connection::open(&call.address, client_id, due), Ok);
        let answer = made.and_then(|mut made| {
            let (key, version) = (call.api_key, call.api_version);
            let mut answer = Vec::new();
            let (patience, most) = (Patience::until(due), OUTBOUND_ANSWER_BYTES_MAX);
            let behind_header =
                made.exchange(key, version, &call.body, &patience, &mut answer, most)?;
            connection = Some(made);
            Ok(answer[behind_header].to_vec())
        });
        let (host, port) = &call.address;
        let told = |error: IoError| format!("{host}:{port}: {error}");
        shared.put((call.number, answer.map_err(told)));
    }
}
