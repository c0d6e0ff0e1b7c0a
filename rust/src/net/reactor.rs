//! One network thread: it waits for its sockets, receives, takes frames, has them answered, appends
//! what was produced, sends. It never needs Python and shares nothing hot with the other threads.
//!
//! A turn of the loop:
//!
//! ```text
//! wait ─► receive, take frames ─► mailbox: wake-ups, Python's answers, new connections ─► timers
//!      ─► group write: the Produce requests of the turn, one append per partition
//!      ─► send; a connection that waited for its answers goes on with its next frames
//! ```
//!
//! Receive buffers belong to the thread, so an idle connection costs its bookkeeping only; a buffer
//! that holds records to be appended stays aside until they are written. A connection that may not go
//! on (`Session::may_begin`) is not read: level-triggered polling would spin on what it left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::control::{ControlAnswer, ControlFrame};
use super::outbox::Flushed;
use super::plane::{Message, Shared};
use super::poller::{Event, Poller, Readiness};
use super::session::{Session, Slot};
use crate::access::{Caller, Principal};
use crate::api::k00_produce::{self, Outcome, Produce};
use crate::api::{Ask, Chunk, k01_fetch, k02_list_offsets, k03_metadata, k18_api_versions};
use crate::batch::validate::AppendOrigin;
use crate::error::{Error, Result};
use crate::image::{Image, Partition};
use crate::limits::{
    HOUSEKEEPING_MS, RECEIVE_BUFFERS_KEPT, RECEIVE_BYTES, RECEIVES_PER_TURN, STAGED_BYTES_MAX,
    STOP_WAIT_MS,
};
use crate::log::log::AppendRequest;
use crate::park::Parked;
use crate::wire::header::{API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE};
use crate::wire::{Reader, RequestHeader, frame};

const WAKE_TOKEN: u64 = u64::MAX;
/// Token of the first listener; the others follow downwards.
const LISTENER_TOKEN: u64 = u64::MAX - 1;

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    listener: usize,
    session: Session,
    interest: Readiness,
    /// `session.input` holds a frame that may not be worked on yet.
    is_blocked: bool,
    /// Everything that the peer sent has been received, and it will send no more.
    has_ended: bool,
    /// The peer will send no more, though there may be bytes in the socket still.
    peer_has_closed: bool,
    last_active_ms: u64,
}

/// A place for a connection; the generation tells it from earlier ones at the same place.
#[derive(Default)]
struct Place {
    generation: u32,
    connection: Option<Box<Connection>>,
}

/// A Produce request whose records lie in a receive buffer, to be appended.
struct Staged {
    token: u64,
    /// `None` with acks 0.
    slot: Option<u64>,
    buffer: usize,
    /// Where in the buffer the frame's content begins.
    base: usize,
    produce: Produce,
}

/// What became of a frame.
enum Dispatched {
    Done,
    /// Its records wait in the buffer, so many bytes of them.
    Staged(Produce, usize),
    /// Not begun: an earlier answer must leave first.
    Blocked,
}

pub struct Reactor {
    index: usize,
    shared: Arc<Shared>,
    poller: Poller,
    /// The thread that accepts has them, the others none.
    listeners: Vec<TcpListener>,
    accepts: bool,
    next_thread: usize,
    places: Vec<Place>,
    free: Vec<usize>,
    pool: Vec<Vec<u8>>,
    staged: Vec<Staged>,
    staged_buffers: Vec<Vec<u8>>,
    staged_bytes: usize,
    /// Connections to be sent to and gone on with at the end of the turn.
    touched: Vec<u64>,
    /// (deadline, connection, slot), soonest first; an entry may be of a slot long answered.
    timers: BinaryHeap<Reverse<(u64, u64, u64)>>,
    image: Arc<Image>,
    now_ms: u64,
    next_housekeeping_ms: u64,
    stop_deadline_ms: Option<u64>,
}

impl Reactor {
    /// A thread's state. `listeners` are bound, listening and non-blocking.
    pub fn new(
        index: usize,
        shared: Arc<Shared>,
        listeners: Vec<TcpListener>,
    ) -> std::io::Result<Reactor> {
        let poller = Poller::new()?;
        let readable = Readiness {
            readable: true,
            ..Readiness::default()
        };
        poller.add(
            shared.mailboxes[index].wake_up.as_raw_fd(),
            WAKE_TOKEN,
            readable,
        )?;
        for (number, listener) in listeners.iter().enumerate() {
            poller.add(
                listener.as_raw_fd(),
                LISTENER_TOKEN - number as u64,
                readable,
            )?;
        }
        Ok(Reactor {
            index,
            image: shared.image(),
            shared,
            poller,
            accepts: true,
            listeners,
            next_thread: 0,
            places: Vec::new(),
            free: Vec::new(),
            pool: Vec::new(),
            staged: Vec::new(),
            staged_buffers: Vec::new(),
            staged_bytes: 0,
            touched: Vec::new(),
            timers: BinaryHeap::new(),
            now_ms: 0,
            next_housekeeping_ms: 0,
            stop_deadline_ms: None,
        })
    }

    /// Runs until the plane stops, or the poller fails.
    pub fn run(mut self) -> std::io::Result<()> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let timeout_ms = self.timeout_ms();
            self.poller.wait(timeout_ms, &mut events)?;
            self.now_ms = self.shared.monotonic_ms();
            self.image = self.shared.image();
            for event in &events {
                self.on_event(*event);
            }
            self.read_mailbox();
            self.run_timers();
            if self.now_ms >= self.next_housekeeping_ms {
                self.keep_house();
            }
            self.finish_turn();
            if self.is_stopped() {
                break;
            }
        }
        for index in 0..self.places.len() {
            self.close(index);
        }
        Ok(())
    }

    fn timeout_ms(&self) -> i32 {
        let timer = self
            .timers
            .peek()
            .map(|Reverse((deadline_ms, ..))| *deadline_ms);
        let due_ms = timer.unwrap_or(u64::MAX).min(self.next_housekeeping_ms);
        // Rounded up, so as not to spin through the last millisecond.
        due_ms
            .saturating_sub(self.shared.monotonic_ms())
            .min(HOUSEKEEPING_MS) as i32
    }

    fn is_stopped(&self) -> bool {
        let Some(deadline_ms) = self.stop_deadline_ms else {
            return false;
        };
        let connections = self
            .places
            .iter()
            .filter_map(|place| place.connection.as_ref());
        self.now_ms >= deadline_ms
            || connections
                .into_iter()
                .all(|connection| connection.session.is_idle())
    }

    fn on_event(&mut self, event: Event) {
        if event.token == WAKE_TOKEN {
            self.shared.mailboxes[self.index].wake_up.clear();
            return;
        }
        let listener = (LISTENER_TOKEN - event.token) as usize;
        if listener < self.listeners.len() {
            self.accept(listener);
            return;
        }
        let Some(index) = self.place_of(event.token) else {
            return;
        };
        let ready = event.readiness;
        let mut waiting = Vec::new();
        if let Some(connection) = &mut self.places[index].connection {
            connection.last_active_ms = self.now_ms;
            if ready.peer_closed && !connection.peer_has_closed {
                connection.peer_has_closed = true;
                waiting.extend(connection.session.open_slots().map(|(slot, _)| slot));
            }
        }
        // Who will ask for nothing more does not wait for more records.
        for slot in waiting {
            self.end_wait(event.token, slot);
        }
        if ready.readable {
            self.receive(index);
        } else if ready.hung_up {
            self.close(index);
            return;
        }
        self.touched.push(event.token);
    }

    fn place_of(&self, token: u64) -> Option<usize> {
        let index = (token & u64::from(u32::MAX)) as usize;
        let place = self.places.get(index)?;
        (place.connection.is_some() && u64::from(place.generation) == token >> 32).then_some(index)
    }

    fn token_of(&self, index: usize) -> u64 {
        u64::from(self.places[index].generation) << 32 | index as u64
    }

    // --- connections -----------------------------------------------------------------------------

    fn accept(&mut self, number: usize) {
        loop {
            match self.listeners[number].accept() {
                Ok((stream, peer)) => {
                    let thread = self.next_thread % self.shared.mailboxes.len();
                    self.next_thread += 1;
                    let message = Message::Accepted {
                        stream,
                        peer,
                        listener: number,
                    };
                    match thread == self.index {
                        true => self.on_message(message),
                        false => self.shared.post(thread, message),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Out of descriptors: the listener stays readable, so look away for a while.
                    self.listen(false);
                    return;
                }
            }
        }
    }

    fn listen(&mut self, accepts: bool) {
        self.accepts = accepts;
        for (number, listener) in self.listeners.iter().enumerate() {
            let interest = Readiness {
                readable: accepts,
                ..Readiness::default()
            };
            let token = LISTENER_TOKEN - number as u64;
            // The descriptor is in the poller, and nothing else can fail.
            let _ = self.poller.change(listener.as_raw_fd(), token, interest);
        }
    }

    fn open(&mut self, stream: TcpStream, peer: SocketAddr, listener: usize) {
        let count = self
            .shared
            .counts
            .connections
            .fetch_add(1, Ordering::Relaxed);
        let refused = count >= self.shared.settings.connections_max
            || self.stop_deadline_ms.is_some()
            || stream.set_nonblocking(true).is_err()
            || stream.set_nodelay(true).is_err();
        if refused {
            self.shared
                .counts
                .connections
                .fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let interest = Readiness {
            readable: true,
            ..Readiness::default()
        };
        let token = self.token_of(index);
        if self
            .poller
            .add(stream.as_raw_fd(), token, interest)
            .is_err()
        {
            self.shared
                .counts
                .connections
                .fetch_sub(1, Ordering::Relaxed);
            self.free.push(index);
            return;
        }
        self.places[index].connection = Some(Box::new(Connection {
            stream,
            peer,
            listener,
            session: Session::default(),
            interest,
            is_blocked: false,
            has_ended: false,
            peer_has_closed: false,
            last_active_ms: self.now_ms,
        }));
    }

    fn close(&mut self, index: usize) {
        let token = self.token_of(index);
        let Some(mut connection) = self.places[index].connection.take() else {
            return;
        };
        for (slot, state) in connection.session.open_slots() {
            let parked = self.parked(token, slot);
            deregister(state, parked);
        }
        // The descriptor is open; closing it takes it out of the poller anyway.
        let _ = self.poller.remove(connection.stream.as_raw_fd());
        self.places[index].generation = self.places[index].generation.wrapping_add(1);
        self.free.push(index);
        self.shared
            .counts
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }

    fn parked(&self, connection: u64, slot: u64) -> Parked {
        Parked {
            thread: self.index,
            connection,
            slot,
        }
    }

    // --- receiving -------------------------------------------------------------------------------

    fn receive(&mut self, index: usize) {
        for _ in 0..RECEIVES_PER_TURN {
            let goes_on = match self.receive_once(index) {
                Ok(goes_on) => goes_on,
                Err(_) => {
                    self.close(index);
                    return;
                }
            };
            let connection = &self.places[index].connection;
            if !goes_on
                || connection
                    .as_ref()
                    .is_none_or(|connection| connection.is_blocked)
            {
                return;
            }
            let buffers = self.staged_buffers.len();
            if self.staged_bytes >= STAGED_BYTES_MAX || buffers >= RECEIVE_BUFFERS_KEPT {
                self.commit();
            }
        }
    }

    /// One `recv` and the frames that it completes. False: the socket has no more for now.
    fn receive_once(&mut self, index: usize) -> Result<bool> {
        let request_bytes_max = self.shared.settings.request_bytes_max;
        let Some(connection) = &mut self.places[index].connection else {
            return Ok(false);
        };
        if connection.is_blocked {
            return Ok(false);
        }
        let is_fresh = connection.session.input.is_empty();
        let (mut buffer, have) = if is_fresh {
            (self.pool.pop().unwrap_or_else(|| vec![0; RECEIVE_BYTES]), 0)
        } else {
            // A frame that is cut off grows as it arrives, not by what it claims to be.
            let wanted = connection.session.wanted_bytes(request_bytes_max)?;
            let mut input = std::mem::take(&mut connection.session.input);
            let have = input.len();
            input.resize(wanted.min((2 * have).max(RECEIVE_BYTES)).max(have + 1), 0);
            (input, have)
        };
        let room = buffer.len() - have;
        let received = match (&connection.stream).read(&mut buffer[have..]) {
            Ok(0) => {
                connection.has_ended = true;
                0
            }
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                0
            }
            Err(_) => {
                return Err(Error::MalformedRequest(
                    "the connection was reset".to_owned(),
                ));
            }
        };
        self.shared
            .counts
            .received_bytes
            .fetch_add(received as u64, Ordering::Relaxed);
        if received == 0 && !is_fresh {
            buffer.truncate(have);
            connection.session.input = buffer;
            return Ok(false);
        }
        self.process(index, buffer, have + received)?;
        Ok(received == room)
    }

    /// Works on the frames in `buffer[..filled]`; what is left over goes to the session's input.
    fn process(&mut self, index: usize, buffer: Vec<u8>, filled: usize) -> Result<()> {
        let staged_before = self.staged.len();
        let result = self.dispatch_all(index, &buffer[..filled]);
        if let (Ok((at, is_blocked)), Some(connection)) =
            (&result, &mut self.places[index].connection)
        {
            connection.is_blocked = *is_blocked;
            connection
                .session
                .input
                .extend_from_slice(&buffer[*at..filled]);
        }
        match self.staged.len() > staged_before {
            true => self.staged_buffers.push(buffer),
            false => self.recycle(buffer),
        }
        result.map(|_| ())
    }

    /// Begins the frames in `bytes`. Returns how far it came, and whether the next frame must wait.
    fn dispatch_all(&mut self, index: usize, bytes: &[u8]) -> Result<(usize, bool)> {
        let request_bytes_max = self.shared.settings.request_bytes_max;
        let token = self.token_of(index);
        let mut at = 0;
        while let Some(size) = frame::frame_size(&bytes[at..], request_bytes_max)? {
            if size > bytes.len() - at {
                break;
            }
            let base = at + frame::SIZE_BYTES;
            match self.dispatch(index, &bytes[base..at + size])? {
                Dispatched::Done => {}
                Dispatched::Blocked => return Ok((at, true)),
                Dispatched::Staged(produce, bytes) => {
                    let slot = match produce.acks {
                        0 => None,
                        _ => self
                            .session(index)
                            .map(|session| session.begin(Slot::Staged)),
                    };
                    self.staged_bytes += bytes;
                    self.staged.push(Staged {
                        token,
                        slot,
                        buffer: self.staged_buffers.len(),
                        base,
                        produce,
                    });
                }
            }
            at += size;
        }
        Ok((at, false))
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.len() == RECEIVE_BYTES && self.pool.len() < RECEIVE_BUFFERS_KEPT {
            self.pool.push(buffer);
        }
    }

    fn session(&mut self, index: usize) -> Option<&mut Session> {
        self.places[index]
            .connection
            .as_mut()
            .map(|connection| &mut connection.session)
    }

    /// Works on one frame. An error closes the connection, as in Kafka: a request that cannot be
    /// read, an unknown key, a version that is not spoken.
    fn dispatch(&mut self, index: usize, content: &[u8]) -> Result<Dispatched> {
        let token = self.token_of(index);
        let image = self.image.clone();
        let shared = self.shared.clone();
        let Some(connection) = &mut self.places[index].connection else {
            return Ok(Dispatched::Done);
        };
        let session = &mut connection.session;
        let mut reader = Reader::new(content);
        let header = RequestHeader::read(&mut reader, |key| {
            shared.key(key).map(|known| known.first_flexible)
        })?;
        let key = shared.key(header.api_key).ok_or_else(|| {
            Error::MalformedRequest(format!("unknown api key {}", header.api_key))
        })?;
        if !session.may_begin(header.api_key) {
            return Ok(Dispatched::Blocked);
        }
        let is_spoken = (key.min..=key.max).contains(&header.api_version);
        if !is_spoken && header.api_key != API_VERSIONS {
            return Err(Error::MalformedRequest(format!(
                "api key {} has no version {}",
                header.api_key, header.api_version
            )));
        }
        shared.counts.requests.fetch_add(1, Ordering::Relaxed);
        let answer = match header.api_key {
            PRODUCE => {
                let produce = k00_produce::read(&header, &mut reader, &image)?;
                let bytes = produce
                    .partitions
                    .iter()
                    .map(|each| each.records.len())
                    .sum();
                // The ranges count from the start of the content, as the reader did.
                return Ok(Dispatched::Staged(produce, bytes));
            }
            FETCH => {
                let principal = Principal::default();
                let ask = Ask {
                    image: &image,
                    caller: Caller {
                        principal: &principal,
                        client_id: header.client_id,
                        address: connection.peer.ip(),
                        listener: connection.listener,
                    },
                    authorizer: &*shared.authorizer,
                };
                let fetch = k01_fetch::read(
                    &header,
                    &mut reader,
                    &ask,
                    &shared.fetch_sessions,
                    shared.settings.fetch_bytes_max,
                    self.now_ms,
                )?;
                let deadline_ms = self.now_ms + fetch.max_wait_ms as u64;
                let slot = session.begin(Slot::Fetch(fetch));
                self.settle(token, slot, false);
                if self
                    .session(index)
                    .is_some_and(|session| session.slot(slot).is_some())
                {
                    self.timers.push(Reverse((deadline_ms, token, slot)));
                }
                return Ok(Dispatched::Done);
            }
            LIST_OFFSETS => k02_list_offsets::answer(&header, &mut reader, &image)?,
            METADATA => {
                let creates = shared.settings.auto_create_topics
                    && k03_metadata::missing_topics(&header, reader.clone(), &image)?;
                if creates {
                    let slot = session.begin(Slot::Control(content.to_vec()));
                    let parked = self.parked(token, slot);
                    self.hand_over(index, parked, &header, &reader, content);
                    return Ok(Dispatched::Done);
                }
                k03_metadata::answer(&header, reader, &image, connection.listener)?
            }
            API_VERSIONS => k18_api_versions::answer(
                &header,
                &mut reader,
                &shared.keys,
                &shared.node.image().features,
            )?,
            _ => {
                let slot = session.begin(Slot::Control(Vec::new()));
                let parked = self.parked(token, slot);
                self.hand_over(index, parked, &header, &reader, content);
                return Ok(Dispatched::Done);
            }
        };
        session.outbox.push(Chunk::Bytes(answer));
        self.touched.push(token);
        Ok(Dispatched::Done)
    }

    fn hand_over(
        &mut self,
        index: usize,
        parked: Parked,
        header: &RequestHeader<'_>,
        reader: &Reader<'_>,
        content: &[u8],
    ) {
        let Some(connection) = &self.places[index].connection else {
            return;
        };
        self.shared.control().put(ControlFrame {
            parked,
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id.map(str::to_owned),
            listener: connection.listener,
            peer: connection.peer.to_string(),
            body: content
                .get(reader.position()..)
                .unwrap_or_default()
                .to_vec(),
        });
    }

    // --- parked requests -------------------------------------------------------------------------

    fn read_mailbox(&mut self) {
        for message in self.shared.mailboxes[self.index].take() {
            self.on_message(message);
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Accepted {
                stream,
                peer,
                listener,
            } => self.open(stream, peer, listener),
            Message::Woken(parked) => self.settle(parked.connection, parked.slot, false),
            Message::Control(parked, answer) => self.on_control_answer(parked, answer),
            Message::Stop => self.stop(),
        }
    }

    /// Looks whether the answer of a parked request is due, and gives it; else the request is
    /// registered at what it waits for. `is_over`: its time has come, so it is due.
    fn settle(&mut self, token: u64, slot: u64, is_over: bool) {
        let Some(index) = self.place_of(token) else {
            return;
        };
        let parked = self.parked(token, slot);
        let is_over = is_over || self.stop_deadline_ms.is_some();
        let (shared, image) = (self.shared.clone(), self.image.clone());
        let Some(session) = self.session(index) else {
            return;
        };
        let chunks = match session.slot(slot) {
            Some(Slot::Fetch(fetch)) => match settle_fetch(fetch, parked, is_over, &shared, &image)
            {
                Some(chunks) => chunks,
                None => return,
            },
            Some(Slot::Produce { produce, .. }) => match settle_produce(produce, parked) {
                Some(chunks) => chunks,
                None => return,
            },
            _ => return,
        };
        session.answer(slot, chunks);
        self.touched.push(token);
    }

    /// Answers a waiting Fetch with what there is.
    fn end_wait(&mut self, token: u64, slot: u64) {
        let index = self.place_of(token);
        let session = index.and_then(|index| self.session(index));
        if let Some(Slot::Fetch(_)) = session.and_then(|session| session.slot(slot)) {
            self.settle(token, slot, true);
        }
    }

    fn on_control_answer(&mut self, parked: Parked, answer: ControlAnswer) {
        let Some(index) = self.place_of(parked.connection) else {
            return;
        };
        let chunk = match answer {
            ControlAnswer::Response(bytes) => Ok(bytes),
            ControlAnswer::Close => Err(()),
            ControlAnswer::Again => self.answer_again(index, parked.slot).map_err(|_| ()),
        };
        match (chunk, self.session(index)) {
            (Ok(bytes), Some(session)) => {
                session.answer(parked.slot, vec![Chunk::Bytes(bytes)]);
                self.touched.push(parked.connection);
            }
            _ => self.close(index),
        }
    }

    /// Answers a Metadata request whose topics Python has made since.
    fn answer_again(&mut self, index: usize, slot: u64) -> Result<Vec<u8>> {
        let image = self.image.clone();
        let listener = self.places[index]
            .connection
            .as_ref()
            .map_or(0, |each| each.listener);
        let Some(Slot::Control(content)) = self.session(index).and_then(|each| each.slot(slot))
        else {
            return Err(Error::InvalidArgument(
                "no request to be answered again".to_owned(),
            ));
        };
        let content = std::mem::take(content);
        let mut reader = Reader::new(&content);
        let header = RequestHeader::read(&mut reader, |_| Some(k03_metadata::KEY.first_flexible))?;
        k03_metadata::answer(&header, reader, &image, listener)
    }

    fn run_timers(&mut self) {
        while let Some(Reverse((deadline_ms, token, slot))) = self.timers.peek().copied() {
            if deadline_ms > self.now_ms {
                return;
            }
            self.timers.pop();
            self.settle(token, slot, true);
        }
    }

    /// Once a second: late Produce requests, idle connections, a listener that looked away.
    fn keep_house(&mut self) {
        self.next_housekeeping_ms = self.now_ms + HOUSEKEEPING_MS;
        if !self.accepts && self.stop_deadline_ms.is_none() {
            self.listen(true);
        }
        let idle_ms_max = self.shared.settings.idle_ms_max;
        for index in 0..self.places.len() {
            let token = self.token_of(index);
            let Some(connection) = &mut self.places[index].connection else {
                continue;
            };
            let is_idle = connection.session.is_idle();
            if is_idle && self.now_ms.saturating_sub(connection.last_active_ms) > idle_ms_max {
                self.close(index);
                continue;
            }
            let mut late = Vec::new();
            for (slot, state) in connection.session.open_slots() {
                if let Slot::Produce {
                    produce,
                    deadline_ms,
                } = state
                    && *deadline_ms <= self.now_ms
                {
                    late.push((slot, vec![Chunk::Bytes(produce.answer())]));
                }
            }
            for (slot, chunks) in late {
                let parked = self.parked(token, slot);
                if let Some(session) = self.session(index) {
                    if let Some(state) = session.slot(slot) {
                        deregister(state, parked);
                    }
                    session.answer(slot, chunks);
                }
                self.touched.push(token);
            }
        }
    }

    /// Takes no more requests, answers the fetches that wait, and gives the others their time.
    fn stop(&mut self) {
        self.stop_deadline_ms = Some(self.now_ms + STOP_WAIT_MS);
        self.listeners.clear();
        for index in 0..self.places.len() {
            let token = self.token_of(index);
            let Some(connection) = &mut self.places[index].connection else {
                continue;
            };
            connection.is_blocked = true;
            let open: Vec<u64> = connection
                .session
                .open_slots()
                .map(|(slot, _)| slot)
                .collect();
            for slot in open {
                self.settle(token, slot, true);
            }
            self.touched.push(token);
        }
    }

    // --- appending -------------------------------------------------------------------------------

    /// Appends what is staged, one call per partition, and answers or parks the requests.
    fn commit(&mut self) {
        let mut staged = std::mem::take(&mut self.staged);
        let mut buffers = std::mem::take(&mut self.staged_buffers);
        self.staged_bytes = 0;
        append_all(&mut staged, &mut buffers, self.shared.wall_ms());
        for buffer in buffers {
            self.recycle(buffer);
        }
        for Staged {
            token,
            slot,
            produce,
            ..
        } in staged
        {
            let Some(index) = self.place_of(token) else {
                continue;
            };
            let Some(slot) = slot else {
                // The only way to tell a producer with acks 0.
                if produce.has_error() {
                    self.close(index);
                }
                continue;
            };
            let parked = self.parked(token, slot);
            let deadline_ms = self.now_ms + u64::try_from(produce.timeout_ms).unwrap_or(0);
            let Some(session) = self.session(index) else {
                continue;
            };
            match settle_produce(&produce, parked) {
                Some(chunks) => {
                    session.answer(slot, chunks);
                    self.touched.push(token);
                }
                None => {
                    if let Some(state) = session.slot(slot) {
                        *state = Slot::Produce {
                            produce,
                            deadline_ms,
                        };
                    }
                }
            }
        }
    }

    // --- sending ---------------------------------------------------------------------------------

    /// Group write and sending, until no connection can go on.
    fn finish_turn(&mut self) {
        loop {
            if !self.staged.is_empty() {
                self.commit();
            }
            if self.touched.is_empty() {
                return;
            }
            for token in std::mem::take(&mut self.touched) {
                if let Some(index) = self.place_of(token) {
                    self.advance(index);
                }
            }
        }
    }

    /// Sends what is due, goes on with frames that waited, and tells the poller what to watch.
    fn advance(&mut self, index: usize) {
        let is_stopping = self.stop_deadline_ms.is_some();
        let Some(connection) = &mut self.places[index].connection else {
            return;
        };
        let before = connection.session.outbox.queued_bytes();
        let flushed = connection.session.outbox.flush(&connection.stream);
        let sent = before - connection.session.outbox.queued_bytes();
        self.shared
            .counts
            .sent_bytes
            .fetch_add(sent as u64, Ordering::Relaxed);
        let Ok(flushed) = flushed else {
            self.close(index);
            return;
        };
        if connection.is_blocked && !is_stopping {
            connection.is_blocked = false;
            let input = std::mem::take(&mut connection.session.input);
            let filled = input.len();
            if self.process(index, input, filled).is_err() {
                self.close(index);
                return;
            }
        }
        let token = self.token_of(index);
        let Some(connection) = &mut self.places[index].connection else {
            return;
        };
        let has_staged = self.staged.iter().any(|staged| staged.token == token);
        if connection.has_ended && !connection.is_blocked && !has_staged {
            self.close(index);
            return;
        }
        let interest = Readiness {
            readable: !connection.is_blocked && !connection.has_ended,
            writable: flushed == Flushed::Part,
            peer_closed: connection.is_blocked && !connection.peer_has_closed,
            hung_up: false,
        };
        if interest != connection.interest {
            connection.interest = interest;
            let descriptor = connection.stream.as_raw_fd();
            if self.poller.change(descriptor, token, interest).is_err() {
                self.close(index);
            }
        }
    }
}

/// The answer if it is due; else the request is registered at its partitions.
fn settle_fetch(
    fetch: &k01_fetch::Fetch,
    parked: Parked,
    is_over: bool,
    shared: &Shared,
    image: &Image,
) -> Option<Vec<Chunk>> {
    let answer =
        |looked| fetch.answer(looked, &shared.fetch_sessions, image, shared.monotonic_ms());
    let looked = fetch.look();
    if is_over || fetch.is_due(&looked) {
        deregister_fetch(fetch, parked);
        return Some(answer(looked));
    }
    deregister_fetch(fetch, parked);
    for (partition, wait_for) in fetch.wait_for(&looked) {
        partition.waiters.register(parked, wait_for);
    }
    // What came between the look and the registration woke nobody.
    let looked = fetch.look();
    if !fetch.is_due(&looked) {
        return None;
    }
    deregister_fetch(fetch, parked);
    Some(answer(looked))
}

fn settle_produce(produce: &Produce, parked: Parked) -> Option<Vec<Chunk>> {
    if produce.acks == -1 {
        while let Some((partition, target)) = produce.uncommitted() {
            partition
                .waiters
                .register(parked, crate::park::WaitFor::Committed(target));
            if partition.log.offsets().high_watermark < target && !partition.waiters.has_failed() {
                return None;
            }
            partition.waiters.deregister(parked);
        }
    }
    Some(vec![Chunk::Bytes(produce.answer())])
}

fn deregister(slot: &Slot, parked: Parked) {
    match slot {
        Slot::Fetch(fetch) => deregister_fetch(fetch, parked),
        Slot::Produce { produce, .. } => {
            for partition in &produce.partitions {
                if let Outcome::Appended(partition, _) = &partition.outcome {
                    partition.waiters.deregister(parked);
                }
            }
        }
        Slot::Staged | Slot::Control(_) | Slot::Answered(_) => {}
    }
}

fn deregister_fetch(fetch: &k01_fetch::Fetch, parked: Parked) {
    for partition in fetch.parked_at() {
        partition.waiters.deregister(parked);
    }
}

/// Records of one partition in one staged request.
struct Piece<'a> {
    staged: usize,
    at: usize,
    partition: Arc<Partition>,
    records: &'a mut [u8],
}

/// Appends all pending records, those of one partition in the order of their requests by one call.
fn append_all(staged: &mut [Staged], buffers: &mut [Vec<u8>], now_ms: i64) {
    let mut pieces = pieces(staged, buffers);
    // A stable sort keeps the order of the requests.
    pieces.sort_by_key(|piece| Arc::as_ptr(&piece.partition).addr());
    let mut results = Vec::with_capacity(pieces.len());
    for group in pieces.chunk_by_mut(|one, other| Arc::ptr_eq(&one.partition, &other.partition)) {
        let Some(partition) = group.first().map(|piece| piece.partition.clone()) else {
            continue;
        };
        let mut requests: Vec<AppendRequest<'_>> = group
            .iter_mut()
            .map(|piece| AppendRequest {
                records: &mut *piece.records,
                origin: AppendOrigin::Client,
                leader_epoch: partition.leader_epoch,
                transaction_version: None,
            })
            .collect();
        let appended = partition.log.append(&mut requests, now_ms);
        drop(requests);
        if partition.log.config().acks_fsync {
            partition.request_flush();
        }
        for (piece, result) in group.iter().zip(appended) {
            results.push((piece.staged, piece.at, result));
        }
    }
    for (index, at, result) in results {
        staged[index].produce.partitions[at].apply(result);
    }
}

/// Cuts the buffers into the records of the requests. Ranges grow within a buffer, and buffers from
/// request to request, because that is how they were received.
fn pieces<'a>(staged: &[Staged], buffers: &'a mut [Vec<u8>]) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let mut requests = staged.iter().enumerate().peekable();
    for (number, buffer) in buffers.iter_mut().enumerate() {
        let mut rest: &mut [u8] = buffer;
        let mut rest_at = 0;
        while let Some((index, request)) = requests.next_if(|(_, each)| each.buffer == number) {
            for (at, each) in request.produce.partitions.iter().enumerate() {
                let Outcome::Pending(partition) = &each.outcome else {
                    continue;
                };
                let start = request.base + each.records.start;
                let (_, tail) = std::mem::take(&mut rest).split_at_mut(start - rest_at);
                let (records, tail) = tail.split_at_mut(each.records.len());
                rest = tail;
                rest_at = start + each.records.len();
                pieces.push(Piece {
                    staged: index,
                    at,
                    partition: partition.clone(),
                    records,
                });
            }
        }
    }
    pieces
}
