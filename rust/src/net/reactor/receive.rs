//! Bytes from sockets, and the frames in them.
//!
//! One buffer of the thread serves all frames that are whole in it, in place. What is cut off gets
//! a buffer of its connection, which grows as the frame arrives, not by what it claims to be.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use crate::limits::{MEMORY_FREE_BYTES, RECEIVES_PER_TURN};
use crate::net::disconnect::DisconnectReason;
use crate::net::reactor::Reactor;
use crate::net::session::Input;
use crate::wire::frame;

impl Reactor {
    pub(super) fn receive(&mut self, index: usize) {
        for _ in 0..RECEIVES_PER_TURN {
            match self.receive_once(index) {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => {
                    self.log_disconnect(index, &why);
                    self.close(index);
                    return;
                }
            }
            let goes_on = self.connections.get(index).is_some_and(|connection| {
                !connection.is_blocked && !connection.memory.waits && !connection.has_ended
            });
            if !goes_on || self.calls.are_appends_full() {
                return;
            }
        }
    }

    /// One `recv` and the frames that it completes. False: the socket has no more for now.
    fn receive_once(&mut self, index: usize) -> Result<bool, DisconnectReason> {
        let request_bytes_max = self.shared.context.settings.request_bytes_max;
        let Some(connection) = self.connections.get(index) else {
            return Ok(false);
        };
        if connection.is_blocked || connection.memory.waits || connection.has_ended {
            return Ok(false);
        }
        let is_fresh = connection.session.input.is_empty();
        let mut input = if is_fresh {
            Input {
                buffer: self.buffers.usual(),
                start: 0,
                end: 0,
            }
        } else {
            let wanted = connection.session.wanted_bytes(request_bytes_max)?;
            let input = std::mem::take(&mut connection.session.input);
            self.buffers.make_room(input, wanted)
        };
        let Some(connection) = self.connections.get(index) else {
            return Ok(false);
        };
        // When memory is short, no more of a new frame is taken than a
        // connection may hold uncounted.
        let limit = if is_fresh && self.shared.memory.is_exhausted() {
            MEMORY_FREE_BYTES
        } else {
            input.buffer.len()
        };
        let room = input.buffer.get_mut(input.end..limit).unwrap_or_default();
        let room_bytes = room.len();
        let mut is_end = false;
        let received = match connection.transport.read(room) {
            Ok(0) => {
                connection.has_ended = true;
                is_end = true;
                0
            }
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                0
            }
            Err(_) => return Err(DisconnectReason::Gone),
        };
        input.end += received;
        connection.traffic.received_bytes += received as u64;
        self.shared
            .counts
            .received_bytes
            .fetch_add(received as u64, Ordering::Relaxed);
        match received {
            0 if is_fresh || is_end => self.buffers.recycle(input.buffer),
            0 => connection.session.input = input,
            _ => self.process(index, input),
        }
        if is_end {
            self.end_exceeding(index);
            self.on_peer_closed(index);
        }
        // What has come counts at once: many connections may be served before it is this one's
        // turn, in which it waits if there is no room.
        Ok(received > 0 && self.has_room(index) && received == room_bytes)
    }

    /// There is memory for what is received next of the frame that arrives, if one does. If not, it
    /// waits.
    fn has_room(&mut self, index: usize) -> bool {
        let connection = self.connections.get(index);
        let has_begun = connection.is_some_and(|connection| !connection.session.input.is_empty());
        if !has_begun || self.reserve(index) {
            return true;
        }
        if let Some(connection) = self.connections.get(index) {
            connection.memory.waits = true;
        }
        false
    }

    /// Has the log say why a connection is ended.
    pub(super) fn log_disconnect(&mut self, index: usize, end: &DisconnectReason) {
        let now_ms = self.now_ms;
        if let Some(connection) = self.connections.get(index) {
            self.shared
                .control()
                .end_notice(connection.peer, end, now_ms);
        }
    }

    /// Works on the frames in `input`; what is left over stays the session's input.
    pub(super) fn process(&mut self, index: usize, input: Input) {
        let Input { buffer, start, end } = input;
        let result = self.dispatch_all(index, &buffer, start, end);
        let (at, is_blocked) = match result {
            Ok(found) => found,
            Err(why) => {
                self.log_disconnect(index, &why);
                // What it sent before is answered still, but waits for no more records.
                self.end_waits(index);
                if let Some(connection) = self.connections.get(index) {
                    connection.has_ended = true;
                    let token = self.connections.token_of(index);
                    self.touch(token);
                }
                (end, false)
            }
        };
        if at > start {
            self.end_exceeding(index);
        }
        let Some(connection) = self.connections.get(index) else {
            self.aside = None;
            if let Some(buffer) = self.calls.end_buffer(buffer) {
                self.buffers.recycle(buffer);
            }
            return;
        };
        connection.is_blocked = is_blocked;
        let rest = buffer.get(at..end).unwrap_or_default();
        let is_whole = rest.len() > buffer.len() / 2 && self.aside.is_none();
        if rest.is_empty() {
            connection.session.input = Input::default();
        } else if !self.calls.has_buffer() && is_whole {
            // Kept as it is.
            connection.session.input = Input {
                buffer,
                start: at,
                end,
            };
            return;
        } else {
            connection.session.input = Input {
                start: 0,
                end: rest.len(),
                buffer: rest.to_vec(),
            };
        }
        if let Some(buffer) = self.read_aside(index, buffer)
            && let Some(buffer) = self.calls.end_buffer(buffer)
        {
            self.buffers.recycle(buffer);
        }
    }

    /// Begins the frames in `buffer[at..end]`. Returns how far it came, and whether
    /// the next frame must wait.
    fn dispatch_all(
        &mut self,
        index: usize,
        buffer: &[u8],
        mut at: usize,
        end: usize,
    ) -> Result<(usize, bool), DisconnectReason> {
        let request_bytes_max = self.shared.context.settings.request_bytes_max;
        let bytes = buffer.get(..end).unwrap_or_default();
        let (image, shared) = (self.image.clone(), self.shared.clone());
        while let Some(rest) = bytes.get(at..)
            && let Some(size) = frame::frame_size(rest, request_bytes_max)?
            && size <= rest.len()
        {
            let content = at + frame::SIZE_BYTES..at + size;
            if !self.dispatch(index, bytes, content, &image, &shared)? {
                return Ok((at, true));
            }
            shared.counts.note_request(rest);
            at += size;
        }
        Ok((at, false))
    }
}
