//! The way of a connection's bytes: the only place of the network threads that knows what carries
//! them. TLS will be another variant; what it has encrypted and not sent yet is its own.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use crate::access::Identity;
use crate::net::outbox::Sink;
use crate::net::poller;

pub enum Transport {
    /// The socket as it is.
    Plain(TcpStream),
}

impl Transport {
    /// A connection that a listener has taken, ready for a poller.
    pub fn open(&self) -> io::Result<()> {
        let Transport::Plain(stream) = self;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)
    }

    /// The client's identity, as far as the transport knows it.
    pub fn identity(&self, peer: SocketAddr) -> Identity {
        match self {
            Transport::Plain(_) => Identity::anonymous(peer.ip()),
        }
    }

    /// Takes what has come, as far as there is room for it; 0 at the end.
    pub fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        let Transport::Plain(stream) = self;
        let mut stream = stream;
        stream.read(room)
    }

    /// Bytes of its client wait to be read.
    pub fn has_come(&self) -> bool {
        let Transport::Plain(stream) = self;
        matches!(stream.peek(&mut [0]), Ok(1..))
    }

    /// Bytes of its client that have come and wait to be read.
    pub fn pending_bytes(&self) -> io::Result<usize> {
        let Transport::Plain(stream) = self;
        poller::unread_bytes(stream.as_raw_fd())
    }

    /// Ends both directions, so that a thread that sends to it goes on.
    pub fn shut_down(&self) {
        let Transport::Plain(stream) = self;
        // One that the client has ended is not connected any more.
        stream.shutdown(Shutdown::Both).ok();
    }
}

impl AsRawFd for Transport {
    fn as_raw_fd(&self) -> RawFd {
        let Transport::Plain(stream) = self;
        stream.as_raw_fd()
    }
}

impl Sink for Transport {
    fn write(&self, vectors: &[IoSlice<'_>]) -> io::Result<usize> {
        let Transport::Plain(stream) = self;
        let mut stream = stream;
        match vectors {
            [only] => Write::write(&mut stream, only),
            _ => stream.write_vectored(vectors),
        }
    }

    fn send_file(&self, file: RawFd, position: u64, count: usize) -> io::Result<usize> {
        let Transport::Plain(stream) = self;
        poller::sendfile(stream.as_raw_fd(), file, position, count)
    }
}
