//! What a connection has yet to send, in order: bytes, and ranges of segment files that go from the
//! page cache to the socket by `sendfile`. A range holds its file, so a segment may be deleted meanwhile.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use super::poller;
use crate::api::Chunk;
use crate::limits::{RECEIVE_BYTES, SEND_BYTES_PER_TURN, SENDFILE_BYTES};

/// Small answers are put together into chunks of at most this, bytes.
const COALESCED_BYTES: usize = 64 * 1024;
/// Chunks that one `writev` takes.
const VECTORS: usize = 16;

#[derive(Default)]
pub struct Outbox {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent.
    sent: usize,
    queued_bytes: usize,
}

/// How far a flush came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing is left.
    All,
    /// The socket takes no more, or it is the next connection's turn.
    Part,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes that are not sent yet.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub fn push(&mut self, chunk: Chunk) {
        self.queued_bytes += chunk.size_bytes();
        if let (Some(Chunk::Bytes(last)), Chunk::Bytes(bytes)) = (self.chunks.back_mut(), &chunk)
            && last.len() + bytes.len() <= COALESCED_BYTES
        {
            last.extend_from_slice(bytes);
            return;
        }
        self.chunks.push_back(chunk);
    }

    /// Sends what the socket takes, at most `SEND_BYTES_PER_TURN`. An error is the end of the
    /// connection: a file that is shorter than its range too, since the frame cannot be completed.
    pub fn flush(&mut self, socket: &TcpStream) -> io::Result<Flushed> {
        let mut budget = SEND_BYTES_PER_TURN;
        while !self.chunks.is_empty() {
            if budget == 0 {
                return Ok(Flushed::Part);
            }
            let result = match self.chunks.front() {
                Some(Chunk::File(_)) => self.send_range(socket, budget),
                _ => self.send_bytes(socket),
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    budget = budget.saturating_sub(count);
                    self.consume(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Flushed::Part);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    fn send_bytes(&self, mut socket: &TcpStream) -> io::Result<usize> {
        let mut vectors = [IoSlice::new(&[]); VECTORS];
        let mut count = 0;
        let mut skip = self.sent;
        for (vector, chunk) in vectors.iter_mut().zip(&self.chunks) {
            let Chunk::Bytes(bytes) = chunk else { break };
            *vector = IoSlice::new(bytes.get(skip..).unwrap_or_default());
            skip = 0;
            count += 1;
        }
        match count {
            1 => socket.write(&vectors[0]),
            _ => socket.write_vectored(&vectors[..count]),
        }
    }

    fn send_range(&self, socket: &TcpStream, budget: usize) -> io::Result<usize> {
        let Some(Chunk::File(range)) = self.chunks.front() else {
            return Ok(0);
        };
        let left = range.length_bytes as usize - self.sent;
        let position = range.position_byte + self.sent as u64;
        match range.file().and_then(|file| file.descriptor()) {
            Some(file) => {
                let count = left.min(budget).min(SENDFILE_BYTES);
                poller::sendfile(socket.as_raw_fd(), file, position, count)
            }
            None => {
                let mut buffer = vec![0; left.min(RECEIVE_BYTES)];
                range
                    .read_at(&mut buffer, self.sent as u64)
                    .map_err(|error| io::Error::other(error.to_string()))?;
                let mut socket = socket;
                socket.write(&buffer)
            }
        }
    }

    fn consume(&mut self, mut count: usize) {
        self.queued_bytes -= count;
        while let Some(first) = self.chunks.front() {
            let left = first.size_bytes() - self.sent;
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            self.chunks.pop_front();
        }
    }
}
