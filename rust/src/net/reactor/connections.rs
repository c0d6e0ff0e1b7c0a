//! The connections of one network thread: opened, found by their tokens, looked after, closed.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::api::Ask;
use crate::api::k00_produce::Outcome;
use crate::image::Image;
use crate::limits::{
    FRAME_WAIT_MS, GONE_WAIT_MS, HOUSEKEEPING_MS, MEMORY_FREE_BYTES, SLOW_FRAME_MS,
};
use crate::net::memory::slow_client::{ClientProgress, SlowClientCheck};
use crate::net::poller::{self, Readiness};
use crate::net::reactor::{Reactor, Timer};
use crate::net::session::{Session, Slot};
use crate::net::shared::Shared;
use crate::net::storage_call::{StorageCall, deregister_fetch};
use crate::park::Parked;

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
    pub fn ask<'a>(&'a self, image: &'a Image, shared: &'a Shared) -> Ask<'a> {
        Ask {
            image,
            caller: self.session.caller(self.peer.ip(), self.listener),
            authorizer: &*shared.authorizer,
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
    fn progress(&self) -> u64 {
        let input = &self.session.input;
        self.received_bytes - (input.end - input.start) as u64 + self.session.oldest_slot()
    }

    /// A frame is whole, or could not be sent for lack of memory. That is no merit where the client does
    /// not read its answers.
    fn has_moved(&mut self) {
        if !self.is_full {
            self.slow_client = SlowClientCheck::default();
        }
    }

    /// Its frame came in although there was no memory, one of all may at a time, and waits for a log
    /// directory that does not answer, or for Python.
    fn is_in_the_way(&mut self, now_ms: u64) -> bool {
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
    fn is_cut_off(&self, wanted: usize) -> bool {
        let received = self.session.input.end - self.session.input.start;
        self.peer_has_closed
            && !self.has_ended
            && poller::unread_bytes(self.stream.as_raw_fd())
                .is_ok_and(|unread| received + unread < wanted.max(1))
    }

    /// The client holds memory that is short, and does not go on, or hardly; or it has most likely given
    /// up what it waits for.
    fn is_hoarding(&mut self, now_ms: u64) -> bool {
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

    fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        })
    }

    fn put(&mut self, index: usize, connection: Connection) {
        self.places[index].connection = Some(Box::new(connection));
    }

    fn give_back(&mut self, index: usize) {
        self.free.push(index);
    }

    fn take(&mut self, index: usize) -> Option<Box<Connection>> {
        let place = self.places.get_mut(index)?;
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        Some(connection)
    }
}

impl Reactor {
    pub(super) fn open(&mut self, stream: TcpStream, peer: SocketAddr, listener: usize) {
        let is_refused = self.stop_deadline_ms.is_some()
            || stream.set_nonblocking(true).is_err()
            || stream.set_nodelay(true).is_err();
        if is_refused {
            self.count_out(listener, peer);
            return;
        }
        let index = self.connections.reserve();
        let interest = Readiness {
            readable: true,
            ..Readiness::default()
        };
        let token = self.connections.token_of(index);
        if self
            .poller
            .add(stream.as_raw_fd(), token, interest)
            .is_err()
        {
            self.count_out(listener, peer);
            self.connections.give_back(index);
            return;
        }
        let connection = Connection {
            stream: Arc::new(stream),
            peer,
            listener,
            session: Session::default(),
            interest,
            is_touched: false,
            is_blocked: false,
            waits_for_memory: false,
            frame_waits_since_ms: None,
            short_since_ms: None,
            exceeds_memory: false,
            exceeds_since_ms: None,
            is_sending: false,
            is_full: false,
            has_ended: false,
            peer_has_closed: false,
            last_active_ms: self.now_ms,
            last_sent_ms: self.now_ms,
            received_bytes: 0,
            sent_bytes: 0,
            slow_client: SlowClientCheck::default(),
            held_bytes: 0,
            owed_bytes: 0,
            sending_bytes: 0,
            late_timer_ms: u64::MAX,
            turn: 0,
            work_in_turn: 0,
        };
        self.connections.put(index, connection);
        let idle_ms_max = self.shared.settings.idle_ms_max;
        let due_ms = self.now_ms.saturating_add(idle_ms_max);
        self.due_connections.put(due_ms, token);
        if self
            .due_connections
            .are_mostly_gone(self.connections.count())
        {
            let connections = &self.connections;
            let is_there = |token| connections.place_of(token).is_some();
            self.due_connections.retain(is_there);
        }
    }

    /// Looks at nothing more of what a client sent; its connection is closed once the answers have left,
    /// and none of them waits for more records.
    pub(super) fn end(&mut self, token: u64) {
        if let Some(connection) = self.connections.by_token(token) {
            connection.has_ended = true;
            // It waits with no frame any more.
            connection.is_blocked = false;
            let input = std::mem::take(&mut connection.session.input);
            self.buffers.recycle(input.buffer);
            self.touch(token);
        }
        if let Some(index) = self.connections.place_of(token) {
            self.end_waits(index);
            self.end_exceeding(index);
        }
    }

    /// The frame that was arriving is whole, or there is none any more.
    pub(super) fn end_exceeding(&mut self, index: usize) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        connection.has_moved();
        connection.exceeds_since_ms = None;
        if std::mem::take(&mut connection.exceeds_memory) {
            self.shared.end_exceeding();
        }
    }

    /// Who will ask for nothing more does not wait for more records, and for any other answer not long:
    /// most likely nobody reads it.
    pub(super) fn on_peer_closed(&mut self, index: usize) {
        if let Some(connection) = self.connections.get(index)
            && !std::mem::replace(&mut connection.peer_has_closed, true)
        {
            self.end_waits(index);
            self.give_up_later(index);
        }
    }

    fn give_up_later(&mut self, index: usize) {
        if let Some(connection) = self.connections.get(index) {
            let timer = Timer::GiveUp(connection.progress());
            let token = self.connections.token_of(index);
            self.set_timer(self.now_ms + GONE_WAIT_MS, token, timer);
        }
    }

    /// Closes a connection whose client has closed its side if the same request is still to be begun or
    /// answered as the last time.
    pub(super) fn give_up(&mut self, token: u64, progress: u64) {
        let Some(index) = self.connections.place_of(token) else {
            return;
        };
        let waits = self.connections.get(index).is_some_and(|connection| {
            let session = &connection.session;
            // Who has yet to take answers is not gone.
            let has_answers = connection.is_sending || !session.outbox.is_empty();
            let is_held = (connection.is_blocked || connection.waits_for_memory) && !has_answers;
            (session.has_open_slots() || is_held) && connection.progress() == progress
        });
        match waits {
            true => self.close(index),
            false => self.give_up_later(index),
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        let token = self.connections.token_of(index);
        self.end_exceeding(index);
        let Some(mut connection) = self.connections.take(index) else {
            return;
        };
        let mut has_calls = connection.is_sending;
        for (slot, state) in connection.session.open_slots() {
            has_calls |= matches!(
                state,
                Slot::ReadingLogs { .. } | Slot::SearchingLogs { .. } | Slot::ReadingRequest { .. }
            );
            let parked = self.parked(token, slot);
            deregister(state, parked);
        }
        if has_calls {
            self.drop_calls(token);
        }
        // The descriptor is open, and there may be a thread that sends to it still.
        let _ = self.poller.remove(connection.stream.as_raw_fd());
        if connection.is_sending {
            let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        }
        let held_bytes = connection.held_bytes + connection.owed_bytes;
        self.shared.release_memory(held_bytes);
        self.buffers
            .recycle(std::mem::take(&mut connection.session.input.buffer));
        self.count_out(connection.listener, connection.peer);
    }

    /// Drops the storage calls for a connection that is gone, as far as they are not under way.
    fn drop_calls(&mut self, token: u64) {
        let mut dropped = self.shared.queues.forget(self.index, token);
        for _ in 0..self.work.len() {
            match self.work.pop_front() {
                Some(work) if work.is_for(token) => dropped.push(work),
                Some(work) => self.work.push_back(work),
                None => {}
            }
        }
        for work in dropped {
            if let StorageCall::Fetch(mut look) = work {
                deregister_fetch(&mut look.fetch, look.parked);
            }
        }
    }

    pub(super) fn parked(&self, connection: u64, slot: u64) -> Parked {
        Parked {
            thread: self.index,
            connection,
            slot,
        }
    }

    /// Brings what a connection takes of the budget up to date. A frame reserves its whole size; if
    /// there is no room for it, it is not received further.
    pub(super) fn account(&mut self, index: usize) {
        self.account_owed(index);
        let shared = &self.shared;
        let request_bytes_max = shared.settings.request_bytes_max;
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        let session = &connection.session;
        let received = session.input.end - session.input.start;
        let wanted = match (received, connection.is_blocked) {
            (0, _) | (_, true) => received,
            // What cannot be a frame is refused when it is read.
            _ => session
                .wanted_bytes(request_bytes_max)
                .unwrap_or(0)
                .max(received),
        };
        let unsent = if connection.is_full {
            session.outbox.memory_bytes()
        } else {
            0
        };
        let target = counted(wanted) + counted(unsent);
        let present = counted(received) + counted(unsent);
        let waited = std::mem::take(&mut connection.waits_for_memory);
        if waited {
            connection.has_moved();
        }
        let waits_since_ms = connection.frame_waits_since_ms.take();
        if target > connection.held_bytes {
            // What an earlier frame had is in nobody's way while this one waits, least of all in its own.
            let left_over = connection.held_bytes.saturating_sub(present);
            connection.held_bytes -= left_over;
            shared.release_memory(left_over);
        }
        if target <= connection.held_bytes {
            shared.release_memory(connection.held_bytes - target);
            connection.held_bytes = target;
        } else if shared.budget.reserve(target - connection.held_bytes) {
            connection.held_bytes = target;
        } else if (1..target).contains(&present)
            && connection.session.may_go_on(self.now_ms)
            && (connection.exceeds_memory || shared.budget.exceed())
        {
            shared.budget.charge(target - connection.held_bytes);
            connection.held_bytes = target;
            connection.exceeds_memory = true;
        } else {
            // What has come in is in memory, room or not.
            shared.budget.charge(present - connection.held_bytes);
            connection.held_bytes = present;
            connection.waits_for_memory = true;
            connection.frame_waits_since_ms = waits_since_ms.or(Some(self.now_ms));
            let is_cut_off = connection.is_cut_off(wanted);
            let token = self.connections.token_of(index);
            match is_cut_off {
                true => self.end(token),
                false => self.wait_for_memory.push(token),
            }
            return;
        }
        if waited {
            // It could send nothing so far.
            connection.last_active_ms = self.now_ms;
        }
    }

    /// The same for what waits on our side: it is in memory, room or not.
    pub(super) fn account_owed(&mut self, index: usize) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        let owed_bytes = counted(connection.session.waiting_bytes())
            + counted(connection.sending_bytes)
            + counted(connection.session.client_id_bytes());
        let before_bytes = std::mem::replace(&mut connection.owed_bytes, owed_bytes);
        if owed_bytes > before_bytes {
            self.shared.budget.charge(owed_bytes - before_bytes);
        } else {
            self.shared.release_memory(before_bytes - owed_bytes);
        }
    }

    /// When there is no memory left, those go that hold some and make no progress, and the one that took
    /// more and keeps others from that, for as long as a log directory hangs. A large Fetch that
    /// waits for records, which is nobody's fault, is answered with what there is.
    pub(super) fn ease_shortage(&mut self) {
        if !self.shared.budget.is_exhausted() {
            return;
        }
        let now_ms = self.now_ms;
        let queues = &self.shared.queues;
        let is_stuck = !queues.are_open() || queues.are_changes_stuck();
        let has_hung = is_stuck || self.shared.control().is_held_up();
        for index in 0..self.connections.places() {
            let Some(connection) = self.connections.get(index) else {
                continue;
            };
            if connection.owed_bytes > 0 {
                self.end_waits(index);
            }
            let Some(connection) = self.connections.get(index) else {
                continue;
            };
            if has_hung && connection.is_in_the_way(now_ms) {
                self.close_hoarder(index);
                continue;
            }
            if !connection.is_hoarding(now_ms) {
                continue;
            }
            if connection.is_full && !connection.session.outbox.has_files() {
                // The poller tells of room only once there is much.
                self.advance(index);
            }
            let Some(connection) = self.connections.get(index) else {
                continue;
            };
            if connection.is_hoarding(now_ms) {
                self.close_hoarder(index);
            }
        }
    }

    fn close_hoarder(&mut self, index: usize) {
        self.shared
            .counts
            .hoarders_closed
            .fetch_add(1, Ordering::Relaxed);
        self.close(index);
    }
}

/// What counts of so many bytes.
fn counted(bytes: usize) -> usize {
    match bytes {
        ..=MEMORY_FREE_BYTES => 0,
        bytes => bytes,
    }
}

pub(super) fn deregister(slot: &mut Slot, parked: Parked) {
    match slot {
        Slot::Fetch(fetch) => deregister_fetch(fetch, parked),
        Slot::Produce { produce, .. } if !produce.is_parked => {}
        Slot::Produce { produce, .. } => {
            for partition in &produce.partitions {
                if let Outcome::Accepted(partition, Some(_)) = &partition.outcome {
                    partition.waiters.deregister(parked);
                }
            }
        }
        Slot::ReadingLogs { .. }
        | Slot::SearchingLogs { .. }
        | Slot::ReadingRequest { .. }
        | Slot::Control { .. }
        | Slot::Answered(_) => {}
    }
}
