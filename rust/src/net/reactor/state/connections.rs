//! The connections of one network thread: opened, found by their tokens, looked after, closed.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::api::Ask;
use crate::image::Image;
use crate::net::memory::connection::ConnectionMemory;
use crate::net::poller::Readiness;
use crate::net::session::Session;
use crate::net::transport::Transport;

pub struct Connection {
    /// Shared with a thread that is sending files.
    pub transport: Arc<Transport>,
    pub peer: SocketAddr,
    pub listener: usize,
    pub session: Session,
    pub interest: Readiness,
    /// Its turn to be sent to and gone on with is to come.
    pub is_touched: bool,
    /// `session.input` holds a frame that may not be worked on yet; or the broker stops, and
    /// nothing more is worked on.
    pub is_blocked: bool,
    /// `session.outbox` is with a thread that sends files.
    pub is_sending: bool,
    /// The last flush left something.
    pub is_full: bool,
    /// Everything that the peer sent has been received, and it will send no more; or it sent
    /// nonsense, or with acks 0 what was refused. Closed once the answers have left.
    pub has_ended: bool,
    /// The peer will send no more, though there may be bytes in the socket still.
    pub peer_has_closed: bool,
    pub traffic: Traffic,
    pub memory: ConnectionMemory,
    /// When a timer looks for Produce requests whose time is over.
    pub late_timer_ms: u64,
    /// The round in which requests were last begun, and how much work they were.
    pub round: u64,
    pub work_in_round: u32,
}

/// Bytes that have gone over a connection since it was made, and when the last did.
#[derive(Default)]
pub struct Traffic {
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub last_active_ms: u64,
    /// When the client last took something of its answers, or all of them.
    pub last_sent_ms: u64,
}

impl Connection {
    /// Gives what the client's requests are looked at with.
    pub fn ask<'a>(&'a self, image: &'a Image) -> Ask<'a> {
        Ask {
            image,
            caller: self.session.caller(self.listener),
        }
    }

    /// When something has gone over it last.
    pub fn used_ms(&self) -> u64 {
        self.traffic.last_active_ms.max(self.traffic.last_sent_ms)
    }

    /// Grows with each request that is begun, and with each that is answered.
    pub fn progress(&self) -> u64 {
        let input = &self.session.input;
        self.traffic.received_bytes - (input.end - input.start) as u64 + self.session.oldest_slot()
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
    pub fn used_ms(&self, token: u64) -> Option<u64> {
        let place = self.places.get(self.place_of(token)?)?;
        place
            .connection
            .as_ref()
            .map(|connection| connection.used_ms())
    }

    /// When each connection was used last, with its token.
    pub fn by_use(&self) -> Vec<(u64, u64)> {
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

    pub fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        })
    }

    pub fn put(&mut self, index: usize, connection: Connection) {
        self.places[index].connection = Some(Box::new(connection));
    }

    pub fn give_back(&mut self, index: usize) {
        self.free.push(index);
    }

    pub fn take(&mut self, index: usize) -> Option<Box<Connection>> {
        let place = self.places.get_mut(index)?;
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        Some(connection)
    }
}
