//! A connection that this broker opens itself, to a controller or to another broker: one request
//! after the other, each in time or not at all, of versions that the other side has said it knows.

use std::io::{Error as IoError, ErrorKind, Read, Result as IoResult, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::codec::schema::Message;
use crate::error::{Error, Result};
use crate::limits::{OUTBOUND_ANSWER_BYTES_MAX, RECEIVE_GROWTH_MAX};
use crate::wire::cursor::{Reader, Writer};
use crate::wire::header::API_VERSIONS;

/// The version of ApiVersions; a broker that does not know it tells its own, and
/// speaks none of our keys.
const API_VERSIONS_VERSION: i16 = 4;

/// A host name and a port.
pub type Address = (String, u16);

/// How long an answer is waited for.
pub struct Patience<'a> {
    pub due: Instant,
    /// After so long without a byte of it, and each time again, somebody is
    /// asked whether to wait on.
    pub silence: Duration,
    pub gives_up: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    pub fn until(due: Instant) -> Patience<'static> {
        Patience {
            due,
            silence: Duration::MAX,
            gives_up: &|| false,
        }
    }
}

/// A connection that has told which keys it knows.
pub struct Connection {
    address: Address,
    client_id: String,
    socket: TcpStream,
    /// Key, lowest and highest version.
    ranges: Vec<(i16, i16, i16)>,
    correlation_id: i32,
}

impl Connection {
    /// Connects to the first of the name's addresses that lets it, and asks for the versions there.
    pub fn open(address: &Address, client_id: &str, due: Instant) -> IoResult<Connection> {
        let mut failure = IoError::new(ErrorKind::NotFound, "the name has no address");
        for each in (address.0.as_str(), address.1).to_socket_addrs()? {
            match TcpStream::connect_timeout(&each, left(due)?) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    let mut connection = Connection {
                        address: address.clone(),
                        client_id: client_id.to_owned(),
                        socket,
                        ranges: Vec::new(),
                        correlation_id: 0,
                    };
                    connection.ask_versions(due)?;
                    return Ok(connection);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Another handle of the socket, by which anybody may end what waits for it.
    pub fn socket(&self) -> IoResult<TcpStream> {
        self.socket.try_clone()
    }

    /// The highest version of a key, of those up to `version_max`, that the other side knows.
    pub fn version_of(&self, api_key: i16, version_max: i16) -> Option<i16> {
        let mut ranges = self.ranges.iter();
        let (_, low, high) = ranges.find(|(key, ..)| *key == api_key)?;
        let version = version_max.min(*high);
        (version >= *low).then_some(version)
    }

    fn ask_versions(&mut self, due: Instant) -> IoResult<()> {
        let mut body = Writer::with_capacity(32);
        body.string("kafkalite", true);
        body.string(env!("CARGO_PKG_VERSION"), true);
        body.no_tags(true);
        self.send(API_VERSIONS, API_VERSIONS_VERSION, &body.bytes, due)?;
        let mut answer = Vec::new();
        let patience = Patience::until(due);
        let size = self.receive(&patience, &mut answer, OUTBOUND_ANSWER_BYTES_MAX)?;
        self.ranges = read_ranges(&answer[..size]).map_err(|error| malformed(&error))?;
        Ok(())
    }

    /// Sends a request of a flexible version, and receives its answer into `answer`, which
    /// is made longer where it is too short, and never shorter. Returns where in it the
    /// bytes behind the header are.
    ///
    /// Errors: `Unsupported` where the other side does not know the version; the connection is as
    /// it was. `InvalidData` for an answer of more than `bytes_max`. Behind any other error than
    /// the first the connection is of no use.
    pub fn exchange(
        &mut self,
        api_key: i16,
        api_version: i16,
        body: &[u8],
        patience: &Patience<'_>,
        answer: &mut Vec<u8>,
        bytes_max: usize,
    ) -> IoResult<Range<usize>> {
        if self.version_of(api_key, api_version) != Some(api_version) {
            let name = Message::name_of_key(api_key).unwrap_or("unknown");
            let sentence = format!("it does not support {name} (key {api_key}) v{api_version}");
            return Err(IoError::new(ErrorKind::Unsupported, sentence));
        }
        self.send(api_key, api_version, body, patience.due)?;
        let size = self.receive(patience, answer, bytes_max)?;
        let mut reader = Reader::new(&answer[..size]);
        // The header of an answer to ApiVersions has no tags in any version (KIP-511).
        let has_tags = api_key != API_VERSIONS;
        let skipped = reader.i32().and_then(|_| reader.skip_tags(has_tags));
        skipped.map_err(|error| malformed(&error))?;
        Ok(reader.position()..size)
    }

    fn send(&mut self, api_key: i16, api_version: i16, body: &[u8], due: Instant) -> IoResult<()> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let mut writer = Writer::with_capacity(64 + body.len());
        writer.i32(0);
        writer.i16(api_key);
        writer.i16(api_version);
        writer.i32(self.correlation_id);
        writer.nullable_string(Some(&self.client_id), false);
        writer.no_tags(true);
        writer.bytes.extend_from_slice(body);
        let size = i32::try_from(writer.bytes.len() - 4)
            .map_err(|_| IoError::new(ErrorKind::InvalidInput, "the request is too large"))?;
        writer.bytes[..4].copy_from_slice(&size.to_be_bytes());
        self.socket.set_write_timeout(Some(left(due)?))?;
        self.socket.write_all(&writer.bytes)
    }

    /// Receives the next frame, which must be the answer to what was sent
    /// last, and returns its size.
    fn receive(
        &mut self,
        patience: &Patience<'_>,
        answer: &mut Vec<u8>,
        bytes_max: usize,
    ) -> IoResult<usize> {
        let due = patience.due;
        let size = self.receive_size(patience)?;
        // Set once: each read may take what was left at first, and the sum is looked at.
        self.socket.set_read_timeout(Some(left(due)?))?;
        if !(4..=bytes_max).contains(&size) {
            let sentence = format!("an answer of {size} bytes");
            return Err(IoError::new(ErrorKind::InvalidData, sentence));
        }
        let mut filled = 0;
        while filled < size {
            // A size that is a lie takes no more memory than bytes have come.
            let end = size.min(answer.len().max(filled + RECEIVE_GROWTH_MAX));
            if answer.len() < end {
                answer.resize(end, 0);
            }
            self.read_exact(&mut answer[filled..end], due)?;
            filled = end;
        }
        if answer[..4] != self.correlation_id.to_be_bytes() {
            return Err(IoError::new(
                ErrorKind::InvalidData,
                "the answer to another request",
            ));
        }
        Ok(size)
    }

    /// Waits for an answer to begin, and receives its size.
    fn receive_size(&mut self, patience: &Patience<'_>) -> IoResult<usize> {
        let mut size = [0; 4];
        let mut filled = 0;
        while filled < size.len() {
            let wait = left(patience.due)?.min(patience.silence);
            self.socket.set_read_timeout(Some(wait))?;
            match self.socket.read(&mut size[filled..]) {
                Ok(0) => return Err(closed()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if (patience.gives_up)() {
                        return Err(silent());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX))
    }

    fn read_exact(&mut self, bytes: &mut [u8], due: Instant) -> IoResult<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.socket.read(&mut bytes[filled..]) {
                Ok(0) => return Err(closed()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(silent()),
                Err(error) => return Err(error),
            }
            left(due)?;
        }
        Ok(())
    }
}

/// The time until `due`. Errors: it is over.
fn left(due: Instant) -> IoResult<Duration> {
    let left = due.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(silent())
    } else {
        Ok(left)
    }
}

fn closed() -> IoError {
    IoError::new(ErrorKind::UnexpectedEof, "it has closed")
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
