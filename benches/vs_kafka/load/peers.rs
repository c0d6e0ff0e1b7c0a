//! Connections that send whole frames and hand over whole answers, and the
//! poller that watches them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use kafkalite::net::poller::{Event, Poller, Readiness};

use crate::Failure;
use crate::arguments::Arguments;

const RECEIVE_BYTES: usize = 256 * 1024;
/// Frames that one call sends.
const FRAMES_PER_WRITE: usize = 16;

/// The connections of a load; the token of an event is the index of its connection.
pub struct Peers {
    poller: Poller,
    peers: Vec<Peer>,
}

impl Peers {
    pub fn connect(arguments: &Arguments) -> Result<Peers, Failure> {
        let poller = Poller::new()?;
        let mut peers = Vec::new();
        for (index, stream) in arguments.connections()?.into_iter().enumerate() {
            poller.add(stream.as_raw_fd(), index as u64, interest(false))?;
            peers.push(Peer::new(stream)?);
        }
        Ok(Peers { poller, peers })
    }

    pub fn len(&self) -> usize {
        self.peers.len()
    }

    pub fn at(&mut self, index: usize) -> &mut Peer {
        &mut self.peers[index]
    }

    pub fn wait(&mut self, timeout_ms: i32, events: &mut Vec<Event>) -> io::Result<()> {
        self.poller.wait(timeout_ms, events)
    }

    /// Sends what the socket takes, and waits for room beside answers while that is not all. Gives
    /// frames that are out to `sent`.
    pub fn send(&mut self, index: usize, sent: &mut Vec<Vec<u8>>) -> io::Result<()> {
        let peer = &mut self.peers[index];
        let before = peer.wants_room;
        peer.send(sent)?;
        if peer.wants_room != before {
            let descriptor = peer.stream.as_raw_fd();
            let interest = interest(peer.wants_room);
            self.poller.change(descriptor, index as u64, interest)?;
        }
        Ok(())
    }
}

pub struct Peer {
    stream: TcpStream,
    /// Frames to send, the first from `sent_bytes` on.
    pub outgoing: VecDeque<Vec<u8>>,
    sent_bytes: usize,
    incoming: Vec<u8>,
    filled: usize,
    wants_room: bool,
}

impl Peer {
    fn new(stream: TcpStream) -> io::Result<Peer> {
        stream.set_nonblocking(true)?;
        Ok(Peer {
            stream,
            outgoing: VecDeque::new(),
            sent_bytes: 0,
            incoming: vec![0; RECEIVE_BYTES],
            filled: 0,
            wants_room: false,
        })
    }

    /// Sends what the socket takes; gives back frames that are out.
    fn send(&mut self, sent: &mut Vec<Vec<u8>>) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            let mut skip = self.sent_bytes;
            let frames = self.outgoing.iter().take(FRAMES_PER_WRITE);
            let vectors: Vec<IoSlice<'_>> = frames
                .map(|frame| IoSlice::new(&frame[std::mem::take(&mut skip)..]))
                .collect();
            match self.stream.write_vectored(&vectors) {
                Ok(count) => self.sent_bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wants_room = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            while let Some(frame) = self.outgoing.front()
                && self.sent_bytes >= frame.len()
            {
                self.sent_bytes -= frame.len();
                sent.extend(self.outgoing.pop_front());
            }
        }
        self.wants_room = false;
        Ok(())
    }

    /// Receives once and calls `on_answer` for each whole answer, without its size.
    pub fn receive(
        &mut self,
        mut on_answer: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self.stream.read(&mut self.incoming[self.filled..]) {
            Ok(0) => return Err("the broker closed a connection".into()),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let mut at = 0;
        loop {
            let rest = &self.incoming[at..self.filled];
            let size = match rest.first_chunk() {
                Some(size) => u32::from_be_bytes(*size) as usize,
                None => break,
            };
            let Some(answer) = rest.get(4..4 + size) else {
                break;
            };
            on_answer(answer)?;
            at += 4 + size;
        }
        self.incoming.copy_within(at..self.filled, 0);
        self.filled -= at;
        if self.filled == self.incoming.len() {
            return Err("an answer is larger than expected".into());
        }
        Ok(())
    }
}

pub fn interest(wants_room: bool) -> Readiness {
    Readiness {
        readable: true,
        writable: wants_room,
        ..Readiness::default()
    }
}
