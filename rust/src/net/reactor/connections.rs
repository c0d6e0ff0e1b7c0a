//! The connections of one network thread: opened, found by their tokens, looked after, closed.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::api::Ask;
use crate::image::Image;
use crate::limits::{FRAME_WAIT_MS, HOUSEKEEPING_MS, MEMORY_FREE_BYTES, SLOW_FRAME_MS};
use crate::net::memory::slow_client::{ClientProgress, SlowClientCheck};
use crate::net::poller::{self, Readiness};
use crate::net::request_context::RequestContext;
use crate::net::session::Session;

pub struct Connection {
    /// Shared with a thread that is sending files.
    pub stream: Arc<TcpStream>,
    pub peer: SocketAddr,
    pub listener: usize,
    pub session: Session,
    pub interest: Readiness,
    /// Its turn to be sent to and gone on with is to come.
    pub is_touched: bool,
    /// `session.input` holds a frame that may not be worked on yet; or the plane stops, and nothing more
    /// is worked on.
    pub is_blocked: bool,
    /// There is no memory for the rest of a frame, or for the records of one.
    pub waits_for_memory: bool,
    /// Since when there has been none for the rest of a frame.
    pub frame_waits_since_ms: Option<u64>,
    /// Since when a request has waited for memory that is in memory itself.
    pub short_since_ms: Option<u64>,
    /// The frame that arrives, or waits, is the one that may exceed the budget.
    pub exceeds_memory: bool,
    /// Since when that frame has been whole and waited for a log directory.
    pub exceeds_since_ms: Option<u64>,
    /// `session.outbox` is with a thread that sends files.
    pub is_sending: bool,
    /// The last flush left something.
    pub is_full: bool,
    /// Everything that the peer sent has been received, and it will send no more; or it sent nonsense,
    /// or with acks 0 what was refused.
    /// Closed once the answers have left.
    pub has_ended: bool,
    /// The peer will send no more, though there may be bytes in the socket still.
    pub peer_has_closed: bool,
    pub last_active_ms: u64,
    /// When it last took something of its answers, or all of them.
    pub last_sent_ms: u64,
    /// Since it is connected.
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub slow_client: SlowClientCheck,
    /// Memory of the budget, for the frame that arrives and for answers that are not read.
    pub held_bytes: usize,
    /// The same, for what is on our side: requests that wait, answers that wait for earlier ones or are
    /// with another thread.
    pub owed_bytes: usize,
    /// What of `session.outbox` is in memory while it is with a thread that sends.
    pub sending_bytes: usize,
    /// When a timer looks for Produce requests whose time is over.
    pub late_timer_ms: u64,
    /// The turn in which requests were last begun, and how much work they were.
    pub turn: u64,
    pub work_in_turn: u32,
}

impl Connection {
    /// With what the client's requests are looked at.
    pub fn ask<'a>(&'a self, image: &'a Image, context: &'a RequestContext) -> Ask<'a> {
        Ask {
            image,
            caller: self.session.caller(self.peer.ip(), self.listener),
            authorizer: &*context.authorizer,
        }
    }

    /// It holds memory, and it is for the client to go on: to read its answers, whatever else it has
    /// asked for, or to send the rest of a frame. One that waits for a log directory, for memory or for an
    /// answer of ours is not to blame.
    fn duty(&self) -> Option<ClientProgress> {
        match self {
            Connection { held_bytes: 0, .. } => None,
            Connection {
                is_sending: true, ..
            } => None,
            Connection { is_full: true, .. } => Some(ClientProgress {
                moved_bytes: self.sent_bytes,
                moved_ms: self.last_sent_ms,
            }),
            Connection {
                is_blocked: true, ..
            } => None,
            Connection {
                waits_for_memory: true,
                ..
            } => None,
            _ => Some(ClientProgress {
                moved_bytes: self.received_bytes,
                moved_ms: self.last_active_ms,
            }),
        }
    }

    /// When something has gone over it last.
    pub(super) fn used_ms(&self) -> u64 {
        self.last_active_ms.max(self.last_sent_ms)
    }

    /// Grows with each request that is begun, and with each that is answered.
    pub(super) fn progress(&self) -> u64 {
        let input = &self.session.input;
        self.received_bytes - (input.end - input.start) as u64 + self.session.oldest_slot()
    }

    /// A frame is whole, or could not be sent for lack of memory. That is no merit where the client does
    /// not read its answers.
    pub(super) fn has_moved(&mut self) {
        if !self.is_full {
            self.slow_client = SlowClientCheck::default();
        }
    }

    /// Its frame came in although there was no memory, one of all may at a time, and waits for a log
    /// directory that does not answer, or for Python.
    pub(super) fn is_in_the_way(&mut self, now_ms: u64) -> bool {
        let waits = self.exceeds_memory && self.is_blocked;
        let since_ms = waits.then(|| *self.exceeds_since_ms.get_or_insert(now_ms));
        self.exceeds_since_ms = since_ms;
        since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= HOUSEKEEPING_MS)
    }

    /// Bytes of its client wait in the socket.
    pub(super) fn has_come(&self) -> bool {
        matches!(self.stream.peek(&mut [0]), Ok(1..))
    }

    /// The client will send no more, and the frame of `wanted` bytes that arrives will never be whole: the
    /// rest of it is not in the socket either.
    pub(super) fn is_cut_off(&self, wanted: usize) -> bool {
        let received = self.session.input.end - self.session.input.start;
        self.peer_has_closed
            && !self.has_ended
            && poller::unread_bytes(self.stream.as_raw_fd())
                .is_ok_and(|unread| received + unread < wanted.max(1))
    }

    /// The client holds memory that is short, and does not go on, or hardly; or it has most likely given
    /// up what it waits for.
    pub(super) fn is_hoarding(&mut self, now_ms: u64) -> bool {
        let waits = self.session.has_open_slots() || !self.session.input.is_empty();
        let is_idle = !waits && !self.is_sending;
        let is_silent = now_ms.saturating_sub(self.last_active_ms) > SLOW_FRAME_MS;
        if is_idle && is_silent && counted(self.session.client_id_bytes()) > 0 {
            return true;
        }
        let holds_memory = self.held_bytes > 0 && !self.is_sending;
        let waits_since_ms = self.frame_waits_since_ms.filter(|_| holds_memory);
        if waits_since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > FRAME_WAIT_MS) {
            return true;
        }
        let duty = self.duty();
        duty.is_some_and(|duty| self.slow_client.is_too_slow(duty, now_ms))
    }
}

/// A place for a connection; the generation tells it from earlier ones at the same place.
#[derive(Default)]
struct Place {
    generation: u32,
    connection: Option<Box<Connection>>,
}

/// Connections by token: the place's number below, its generation above.
#[derive(Default)]
pub struct Connections {
    places: Vec<Place>,
    free: Vec<usize>,
}

impl Connections {
    /// The number of the place that the token names, if that connection is still there.
    pub fn place_of(&self, token: u64) -> Option<usize> {
        let index = (token & u64::from(u32::MAX)) as usize;
        let place = self.places.get(index)?;
        let is_there = place.connection.is_some() && u64::from(place.generation) == token >> 32;
        is_there.then_some(index)
    }

    pub fn token_of(&self, index: usize) -> u64 {
        let generation = self.places.get(index).map_or(0, |place| place.generation);
        u64::from(generation) << 32 | index as u64
    }

    pub fn get(&mut self, index: usize) -> Option<&mut Connection> {
        self.places.get_mut(index)?.connection.as_deref_mut()
    }

    pub fn by_token(&mut self, token: u64) -> Option<&mut Connection> {
        self.place_of(token).and_then(|index| self.get(index))
    }

    /// How many places there are, taken or not.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// How many connections there are.
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// When the connection was used last, if it is still there.
    pub(super) fn used_ms(&self, token: u64) -> Option<u64> {
        let place = self.places.get(self.place_of(token)?)?;
        place
            .connection
            .as_ref()
            .map(|connection| connection.used_ms())
    }

    /// When each connection was used last, with its token.
    pub(super) fn by_use(&self) -> Vec<(u64, u64)> {
        let there = self.places.iter().enumerate().filter_map(|(index, place)| {
            let connection = place.connection.as_ref()?;
            Some((connection.used_ms(), self.token_of(index)))
        });
        there.collect()
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.places
            .iter_mut()
            .filter_map(|place| place.connection.as_deref_mut())
    }

    pub(super) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        })
    }

    pub(super) fn put(&mut self, index: usize, connection: Connection) {
        self.places[index].connection = Some(Box::new(connection));
    }

    pub(super) fn give_back(&mut self, index: usize) {
        self.free.push(index);
    }

    pub(super) fn take(&mut self, index: usize) -> Option<Box<Connection>> {
        let place = self.places.get_mut(index)?;
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        Some(connection)
    }
}

/// What counts of so many bytes.
pub(super) fn counted(bytes: usize) -> usize {
    match bytes {
        ..=MEMORY_FREE_BYTES => 0,
        bytes => bytes,
    }
}
