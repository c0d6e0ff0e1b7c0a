//! Connections that this broker opens itself, to controllers: a thread each, which sends one request after
//! the other and hands over their answers in that order.
//!
//! ```text
//! Python: call(number, connection, address, request) ──► the connection's thread ──► connect, ApiVersions
//!                                                                               └──► request, answer
//! Python: wait or take ◄── (number, answer or why there is none) ◄── wake ◄─────────────────┘
//! ```
//!
//! A connection is known by its purpose, so that a large request does not delay a heartbeat. It is made by the
//! first request to an address, and again after a failure, by the next request; a request that fails is not
//! sent twice here, since its answer may be what was lost. Kafka: `NodeToControllerChannelManager`.

use std::collections::HashMap;
use std::io::{Error as IoError, ErrorKind, Read, Result as IoResult, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::limits::OUTBOUND_ANSWER_BYTES_MAX;
use crate::net::control::queue::ControlQueue;
use crate::wire::cursor::{Reader, Writer};
use crate::wire::header::API_VERSIONS;

/// Of ApiVersions; a controller that does not know it tells its own, and speaks none of our keys.
const API_VERSIONS_VERSION: i16 = 4;

/// A request of a flexible version, and where it goes.
pub struct Call {
    /// By which the caller knows the answer.
    pub number: u64,
    pub address: (String, u16),
    pub api_key: i16,
    pub api_version: i16,
    /// The bytes behind the header.
    pub body: Vec<u8>,
    pub timeout: Duration,
}

/// The number of a call, and the bytes behind the header of its answer, or why there is none.
pub type Outcome = (u64, std::result::Result<Vec<u8>, String>);

/// Who is told that there are outcomes: the number wakes Python's control thread.
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

/// A connection that has told which keys it knows.
struct Connection {
    address: (String, u16),
    socket: TcpStream,
    /// Key, lowest and highest version.
    ranges: Vec<(i16, i16, i16)>,
    correlation_id: i32,
}

/// The body of a connection's thread: until the `Outbound` is dropped.
fn serve(calls: &Receiver<Call>, client_id: &str, shared: &Shared) {
    let mut connection: Option<Connection> = None;
    while let Ok(call) = calls.recv() {
        let due = Instant::now() + call.timeout;
        let usable = connection
            .take()
            .filter(|each| each.address == call.address);
        let made = usable.map_or_else(|| Connection::open(&call.address, client_id, due), Ok);
        let answer = made.and_then(|mut made| {
            let answer = made.exchange(&call, client_id, due)?;
            connection = Some(made);
            Ok(answer)
        });
        let (host, port) = &call.address;
        let told = |error: IoError| format!("{host}:{port}: {error}");
        shared.put((call.number, answer.map_err(told)));
    }
}

impl Connection {
    fn open(address: &(String, u16), client_id: &str, due: Instant) -> IoResult<Connection> {
        let mut failure = IoError::new(ErrorKind::NotFound, "the name has no address");
        for each in (address.0.as_str(), address.1).to_socket_addrs()? {
            match TcpStream::connect_timeout(&each, left(due)?) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    let mut connection = Connection {
                        address: address.clone(),
                        socket,
                        ranges: Vec::new(),
                        correlation_id: 0,
                    };
                    connection.ask_versions(client_id, due)?;
                    return Ok(connection);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn ask_versions(&mut self, client_id: &str, due: Instant) -> IoResult<()> {
        let mut body = Writer::with_capacity(32);
        body.string("kafkalite", true);
        body.string(env!("CARGO_PKG_VERSION"), true);
        body.no_tags(true);
        self.send(
            API_VERSIONS,
            API_VERSIONS_VERSION,
            &body.bytes,
            client_id,
            due,
        )?;
        let answer = self.receive(due)?;
        self.ranges = read_ranges(&answer).map_err(|error| malformed(&error))?;
        Ok(())
    }

    fn exchange(&mut self, call: &Call, client_id: &str, due: Instant) -> IoResult<Vec<u8>> {
        let mut ranges = self.ranges.iter();
        let is_known = ranges.any(|(key, low, high)| {
            *key == call.api_key && (*low..=*high).contains(&call.api_version)
        });
        if !is_known {
            let (key, version) = (call.api_key, call.api_version);
            let sentence = format!("it does not know key {key} in version {version}");
            return Err(IoError::new(ErrorKind::Unsupported, sentence));
        }
        self.send(call.api_key, call.api_version, &call.body, client_id, due)?;
        let answer = self.receive(due)?;
        let mut reader = Reader::new(&answer);
        let skipped = reader.i32().and_then(|_| reader.skip_tags(true));
        skipped.map_err(|error| malformed(&error))?;
        let start = reader.position();
        Ok(answer[start..].to_vec())
    }

    fn send(
        &mut self,
        api_key: i16,
        api_version: i16,
        body: &[u8],
        client_id: &str,
        due: Instant,
    ) -> IoResult<()> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let mut writer = Writer::with_capacity(64 + body.len());
        writer.i32(0);
        writer.i16(api_key);
        writer.i16(api_version);
        writer.i32(self.correlation_id);
        writer.nullable_string(Some(client_id), false);
        writer.no_tags(true);
        writer.bytes.extend_from_slice(body);
        let size = i32::try_from(writer.bytes.len() - 4)
            .map_err(|_| IoError::new(ErrorKind::InvalidInput, "the request is too large"))?;
        writer.bytes[..4].copy_from_slice(&size.to_be_bytes());
        self.socket.set_write_timeout(Some(left(due)?))?;
        self.socket.write_all(&writer.bytes)
    }

    /// The content of the next frame, which must be the answer to what was sent last.
    fn receive(&mut self, due: Instant) -> IoResult<Vec<u8>> {
        let mut size = [0; 4];
        self.read_exact(&mut size, due)?;
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        if !(4..=OUTBOUND_ANSWER_BYTES_MAX).contains(&size) {
            let sentence = format!("an answer of {size} bytes");
            return Err(IoError::new(ErrorKind::InvalidData, sentence));
        }
        let mut answer = vec![0; size];
        self.read_exact(&mut answer, due)?;
        if answer[..4] != self.correlation_id.to_be_bytes() {
            return Err(IoError::new(
                ErrorKind::InvalidData,
                "the answer to another request",
            ));
        }
        Ok(answer)
    }

    fn read_exact(&mut self, bytes: &mut [u8], due: Instant) -> IoResult<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            self.socket.set_read_timeout(Some(left(due)?))?;
            match self.socket.read(&mut bytes[filled..]) {
                Ok(0) => return Err(IoError::new(ErrorKind::UnexpectedEof, "it has closed")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(silent()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The time until `due`. Errors: it is over.
fn left(due: Instant) -> IoResult<Duration> {
    let left = due.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(silent()),
        false => Ok(left),
    }
}

fn silent() -> IoError {
    IoError::new(ErrorKind::TimedOut, "no answer in time")
}

fn malformed(error: &Error) -> IoError {
    IoError::new(ErrorKind::InvalidData, error.to_string())
}

/// The keys that an answer to ApiVersions names, with their versions. Its header has no tags.
fn read_ranges(answer: &[u8]) -> Result<Vec<(i16, i16, i16)>> {
    let mut reader = Reader::new(answer);
    reader.i32()?;
    let code = reader.i16()?;
    if code != 0 {
        let sentence = format!("ApiVersions is refused by code {code}");
        return Err(Error::InvalidArgument(sentence));
    }
    let count = reader.array_length(true)?;
    let mut ranges = Vec::new();
    for _ in 0..count {
        ranges.push((reader.i16()?, reader.i16()?, reader.i16()?));
        reader.skip_tags(true)?;
    }
    Ok(ranges)
}
