//! One network thread: it waits for its sockets, receives, takes frames, has them answered, appends
//! what was produced, sends. It never needs Python and shares nothing hot with the other threads.
//!
//! A turn of the loop:
//!
//! ```text
//! wait ─► mailbox: wake-ups, Python's answers, new connections ─► timers
//!      ─► receive, take frames (`receive.rs`, `dispatch.rs`)
//!      ─► storage calls: group write, the logs looked at for fetches (`storage_call.rs`), and what became of
//!         them (`delayed_operations.rs`)
//!      ─► send; a connection that waited for its answers goes on with its next frames
//! ```
//!
//! `drive` makes the storage calls, and only there: before each the reactor goes to its handoff, so that
//! another thread can go on with it if the call does not return (`handoff.rs`).
//!
//! Receive buffers belong to the thread, so an idle connection costs its bookkeeping only; a buffer
//! that holds records to be appended stays aside until they are written. A connection that may not go
//! on (`Session::may_begin`) is not read: level-triggered polling would spin on what it left.

mod accept;
mod append_batching;
mod buffers;
mod busy_poll;
mod connections;
mod delayed_operations;
mod dispatch;
mod idle;
pub mod large_requests;
mod receive;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::api::k00_produce;
use crate::image::Image;
use crate::limits::{
    ALONE_FLUSH_BYTES_MAX, ALONE_MS, HOUSEKEEPING_MS, MEMORY_FREE_BYTES, STOP_WAIT_MS, TIMERS_FREE,
    TIMERS_PER_CONNECTION, WORKS_PER_ROUND,
};
use crate::net::mailbox::{Mailbox, Message};
use crate::net::memory::slow_client::SlowClientCheck;
use crate::net::outbox::{Flushed, SpareAnswers};
use crate::net::poller::{self, Event, Poller, Readiness};
use crate::net::reactor::accept::Listeners;
use crate::net::reactor::append_batching::PendingAppends;
use crate::net::reactor::buffers::Buffers;
use crate::net::reactor::busy_poll::BusyPoll;
use crate::net::reactor::connections::Connections;
use crate::net::reactor::idle::{DueConnections, LeastRecent};
use crate::net::session::Slot;
use crate::net::shared::Shared;
use crate::net::storage_call::{AppendBatch, StorageCall};
use crate::net::storage_io::directory_queue::{DirectoryQueue, StorageQueues};

const WAKE_TOKEN: u64 = u64::MAX;
/// Token of the first listener; the others follow downwards.
pub(super) const LISTENER_TOKEN: u64 = u64::MAX - 1;

/// What a timer of a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The time of a Fetch, in its slot, is over.
    Fetch(u64),
    /// The time of a Produce request may be over.
    Late,
    /// A client that was held back may go on.
    Unmute,
    /// The client has closed its side, and its requests had come so far (`Connection::progress`).
    GiveUp(u64),
}

pub struct Reactor {
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) poller: Poller,
    /// The first thread has them, the others none.
    listeners: Listeners,
    pub(super) connections: Connections,
    /// Receive buffers to be used again.
    pub(super) buffers: Buffers,
    /// Memory of requests and of answers, to be used again.
    pub(super) spare_requests: k00_produce::Spare,
    pub(super) spare_answers: SpareAnswers,
    pub(super) appends: PendingAppends,
    /// A large request in the buffer that is being looked at: its slot, and where it lies.
    pub(super) aside: Option<(u64, Range<usize>)>,
    pub(super) work: VecDeque<StorageCall>,
    events: Vec<Event>,
    next_event: usize,
    /// Connections to be sent to and gone on with, next and after those.
    current: VecDeque<u64>,
    pub(super) touched: Vec<u64>,
    /// Connections that had their share of this turn and go on in the next.
    pub(super) yielded: Vec<u64>,
    pub(super) wait_for_memory: Vec<u64>,
    /// Soonest first; an entry may be of a connection or slot long gone.
    timers: BinaryHeap<Reverse<(u64, u64, Timer)>>,
    /// The connection that had the last event, and when another one had one.
    busy: u64,
    others_busy_ms: u64,
    busy_poll: BusyPoll,
    pub(super) image: Arc<Image>,
    pub(super) turn: u64,
    pub(super) now_ms: u64,
    next_housekeeping_ms: u64,
    /// When connections may have been idle for too long.
    pub(super) due_connections: DueConnections,
    pub(super) least_recent: LeastRecent,
    pub(super) stop_deadline_ms: Option<u64>,
    thread_id: i32,
}

/// Why a thread let go of its reactor.
pub enum Ended {
    /// Another thread goes on with it.
    HandedOver,
    Stopped(io::Result<()>),
}

/// Runs a reactor until the plane stops, its poller fails, or another thread takes it over.
pub fn drive(mut reactor: Box<Reactor>) -> Ended {
    reactor.thread_id = poller::thread_id();
    loop {
        while reactor.step() {
            while let Some(work) = reactor.next_work() {
                match perform(reactor, work) {
                    Some(back) => reactor = back,
                    None => return Ended::HandedOver,
                }
            }
        }
        if reactor.is_stopped() {
            reactor.close_all();
            return Ended::Stopped(Ok(()));
        }
        if let Err(error) = reactor.begin_turn() {
            return Ended::Stopped(Err(error));
        }
    }
}

/// Makes a storage call here, or has the directory's own thread make it. `None`: it took so long that
/// another thread has gone on with the reactor.
fn perform(mut reactor: Box<Reactor>, mut work: StorageCall) -> Option<Box<Reactor>> {
    let shared = reactor.shared.clone();
    let index = reactor.index;
    shared.budget.charge(work.size_bytes());
    let queue = work.queue(&shared.queues).cloned();
    if let Some(queue) = &queue
        && let Some(elsewhere) = elsewhere(&work, queue, &shared.queues, reactor.others_wait())
    {
        work = match elsewhere.put(work, index, &shared) {
            None => return Some(reactor),
            Some(work) => work,
        };
    }
    let directory = queue.as_ref().map(|queue| queue.directory);
    let Some((queue, handoff)) = queue.zip(shared.handoffs.get(index)) else {
        // Nothing of it lies in a log directory; or, which cannot be, there is no handoff to leave.
        let done = work.run(&shared, directory, false);
        reactor.complete(done);
        return Some(reactor);
    };
    let thread_id = reactor.thread_id;
    let call = handoff.leave(reactor, thread_id, queue.clone(), &shared.watch);
    let done = work.run(&shared, Some(queue.directory), false);
    match handoff.back(call) {
        Some(mut reactor) => {
            reactor.complete(done);
            Some(reactor)
        }
        None => {
            shared.post(index, Message::CallResult(done));
            queue.recover();
            None
        }
    }
}

/// What was produced goes first, since a Fetch of the same round gives it, but behind what was produced
/// before: with several log directories some of a full appends may wait here still.
fn put_append(work: &mut VecDeque<StorageCall>, batch: AppendBatch) {
    let is_append = |each: &&StorageCall| matches!(each, StorageCall::Append(_));
    let at = work.iter().take_while(is_append).count();
    work.insert(at, StorageCall::Append(batch));
}

/// The queue whose thread is to make the call, if it is not for the network thread.
fn elsewhere(
    work: &StorageCall,
    queue: &Arc<DirectoryQueue>,
    queues: &StorageQueues,
    others_wait: bool,
) -> Option<Arc<DirectoryQueue>> {
    if !queue.is_open() || work.is_long() {
        return Some(queue.clone());
    }
    let idle = work
        .long_answer_queue(queues, others_wait)
        .filter(|thread| thread.is_open());
    idle.cloned()
}

impl Reactor {
    /// A thread's state. `listeners` are bound, listening and non-blocking.
    pub fn new(
        index: usize,
        shared: Arc<Shared>,
        listeners: Vec<TcpListener>,
    ) -> io::Result<Reactor> {
        let poller = Poller::new()?;
        let readable = Readiness {
            readable: true,
            ..Readiness::default()
        };
        if let Some(mailbox) = shared.mailboxes.get(index) {
            poller.add_wake_up(&mailbox.wake_up, WAKE_TOKEN)?;
        }
        for (number, listener) in listeners.iter().enumerate() {
            let token = LISTENER_TOKEN - number as u64;
            poller.add(listener.as_raw_fd(), token, readable)?;
        }
        Ok(Reactor {
            index,
            image: shared.image(),
            poller,
            listeners: Listeners::new(listeners),
            connections: Connections::default(),
            buffers: Buffers::default(),
            spare_requests: k00_produce::Spare::default(),
            spare_answers: SpareAnswers::default(),
            appends: PendingAppends::default(),
            aside: None,
            work: VecDeque::new(),
            events: Vec::new(),
            next_event: 0,
            current: VecDeque::new(),
            touched: Vec::new(),
            yielded: Vec::new(),
            wait_for_memory: Vec::new(),
            timers: BinaryHeap::new(),
            busy: WAKE_TOKEN,
            others_busy_ms: 0,
            busy_poll: BusyPoll::new(shared.settings.busy_poll),
            turn: 0,
            now_ms: 0,
            next_housekeeping_ms: 0,
            due_connections: DueConnections::default(),
            least_recent: LeastRecent::default(),
            stop_deadline_ms: None,
            thread_id: 0,
            shared,
        })
    }

    pub fn index(&self) -> usize {
        self.index
    }

    // --- a turn ----------------------------------------------------------------------------------

    fn begin_turn(&mut self) -> io::Result<()> {
        let shared = self.shared.clone();
        let mailbox = shared.mailboxes.get(self.index);
        let may_sleep = mailbox.is_none_or(Mailbox::is_left_empty);
        let timeout_ms = if may_sleep { self.timeout_ms() } else { 0 };
        let may_look = timeout_ms != 0 && self.is_one_alone_busy();
        if !may_look || !self.busy_poll.finds(&mut self.poller, &mut self.events)? {
            self.poller.wait(timeout_ms, &mut self.events)?;
        }
        self.next_event = 0;
        self.turn += 1;
        self.now_ms = self.shared.monotonic_ms();
        self.image = self.shared.image();
        self.touched.append(&mut self.yielded);
        self.empty_mailbox();
        self.run_timers();
        if self.now_ms >= self.next_housekeeping_ms {
            self.keep_house();
        }
        self.close_idle();
        if self.now_ms >= self.listeners.due_ms {
            self.listen_again();
        }
        Ok(())
    }

    fn timeout_ms(&self) -> i32 {
        if !self.yielded.is_empty() {
            return 0;
        }
        let timer = self
            .timers
            .peek()
            .map(|Reverse((deadline_ms, ..))| *deadline_ms);
        let due_ms = timer
            .unwrap_or(u64::MAX)
            .min(self.next_housekeeping_ms)
            .min(self.due_connections.next_ms())
            .min(self.listeners.due_ms);
        // Rounded up, so as not to spin through the last millisecond.
        due_ms
            .saturating_sub(self.shared.monotonic_ms())
            .min(HOUSEKEEPING_MS) as i32
    }

    /// The next bit of the turn. False: the turn is over.
    fn step(&mut self) -> bool {
        if let Some(event) = self.events.get(self.next_event).copied() {
            self.next_event += 1;
            self.on_event(event);
            return true;
        }
        if let Some(token) = self.current.pop_front() {
            if let Some(index) = self.connections.place_of(token) {
                self.advance(index);
            }
            return true;
        }
        if !self.appends.is_empty() || !self.work.is_empty() {
            return true;
        }
        self.current.extend(self.touched.drain(..));
        !self.current.is_empty()
    }

    /// Some of a round of events or connections is left.
    fn is_mid_round(&self) -> bool {
        self.next_event < self.events.len() || !self.current.is_empty()
    }

    /// Of the connections of this turn, others than that of the call at hand have yet to be served.
    fn others_wait(&self) -> bool {
        !self.work.is_empty() || self.is_mid_round()
    }

    /// The next storage call, once the round of events or connections is through, or much is waiting.
    fn next_work(&mut self) -> Option<StorageCall> {
        if self.is_mid_round() && !self.appends.is_full() && self.work.len() < WORKS_PER_ROUND {
            return None;
        }
        for mut batch in self.appends.take() {
            batch.flushes = self.may_flush(&batch);
            put_append(&mut self.work, batch);
        }
        self.work.pop_front()
    }

    /// No more than one connection has moved for a while.
    fn is_one_alone_busy(&self) -> bool {
        self.now_ms >= self.others_busy_ms + ALONE_MS
    }

    /// Whether this thread may make the records durable itself, which saves two changes of thread: it
    /// has nothing else to do, since one small request waits for it, its connection is the only one
    /// that has moved for a while, and the disk answers before the watchdog looks twice.
    fn may_flush(&mut self, batch: &AppendBatch) -> bool {
        let [piece] = &batch.pieces[..] else {
            return false;
        };
        let is_alone =
            self.busy == piece.connection && self.is_one_alone_busy() && self.work.is_empty();
        if !is_alone
            || piece.length > ALONE_FLUSH_BYTES_MAX
            || !piece.partition.directory.flushes_fast()
        {
            return false;
        }
        let slot = piece
            .slot
            .and_then(|slot| self.slot(piece.connection, slot));
        matches!(slot, Some(Slot::Produce { produce, .. }) if produce.acks == -1)
    }

    fn is_stopped(&mut self) -> bool {
        let Some(deadline_ms) = self.stop_deadline_ms else {
            return false;
        };
        let is_busy = |connection: &mut crate::net::reactor::connections::Connection| {
            connection.session.has_open_slots()
                || !connection.session.outbox.is_empty()
                || connection.is_sending
        };
        self.now_ms >= deadline_ms || !self.connections.all().any(is_busy)
    }

    fn close_all(&mut self) {
        for index in 0..self.connections.places() {
            self.close(index);
        }
    }

    fn on_event(&mut self, event: Event) {
        if event.token == WAKE_TOKEN {
            return; // the mailbox has been emptied already
        }
        let listener = (LISTENER_TOKEN - event.token) as usize;
        if listener < self.listeners.len() {
            self.accept(listener);
            return;
        }
        let Some(index) = self.connections.place_of(event.token) else {
            return;
        };
        if event.token != self.busy {
            self.busy = event.token;
            self.others_busy_ms = self.now_ms;
        }
        let ready = event.readiness;
        if let Some(connection) = self.connections.get(index) {
            connection.last_active_ms = self.now_ms;
        }
        if ready.peer_closed {
            self.on_peer_closed(index);
        }
        if ready.readable {
            self.receive(index);
        } else if ready.hung_up {
            self.close(index);
            return;
        }
        self.touch(event.token);
    }

    fn empty_mailbox(&mut self) {
        let mailbox = self.shared.mailboxes.get(self.index);
        for message in mailbox.map(Mailbox::take).unwrap_or_default() {
            self.on_message(message);
        }
    }

    pub(super) fn on_message(&mut self, message: Message) {
        match message {
            Message::Accepted {
                stream,
                peer,
                listener,
            } => self.open(stream, peer, listener),
            Message::Woken(parked) => self.wake(parked.connection, parked.slot),
            Message::Control(parked, answer) => self.on_control_answer(parked, answer),
            Message::CallResult(done) => self.complete(done),
            Message::Room => self.listen_again(),
            Message::Excess(excess) => self.close_excess(excess),
            Message::Memory => {
                let waiting = std::mem::take(&mut self.wait_for_memory);
                self.touched.extend(waiting);
            }
            Message::Stop => self.stop(),
            #[cfg(test)]
            Message::Panic => panic!("a request that no thread can stand"),
        }
    }

    // --- timers ----------------------------------------------------------------------------------

    pub(super) fn set_timer(&mut self, deadline_ms: u64, token: u64, timer: Timer) {
        self.timers.push(Reverse((deadline_ms, token, timer)));
        if self.timers.len() > TIMERS_FREE + TIMERS_PER_CONNECTION * self.connections.places() {
            self.drop_dead_timers();
        }
    }

    /// Most timers are of requests that were answered before their time.
    fn drop_dead_timers(&mut self) {
        let timers = std::mem::take(&mut self.timers).into_vec();
        let alive = timers
            .into_iter()
            .filter(|Reverse((deadline_ms, token, timer))| {
                let connection = self.connections.by_token(*token);
                connection.is_some_and(|connection| match timer {
                    Timer::Fetch(slot) => connection.session.slot(*slot).is_some(),
                    Timer::Late => connection.late_timer_ms == *deadline_ms,
                    Timer::Unmute => connection.session.muted_until_ms() == *deadline_ms,
                    Timer::GiveUp(_) => true,
                })
            });
        self.timers = alive.collect();
    }

    fn run_timers(&mut self) {
        while let Some(Reverse((deadline_ms, token, timer))) = self.timers.peek().copied() {
            if deadline_ms > self.now_ms {
                return;
            }
            self.timers.pop();
            match timer {
                Timer::Fetch(slot) => self.end_wait(token, slot),
                Timer::Late => self.on_late_timer(token),
                Timer::Unmute => self.touch(token),
                Timer::GiveUp(progress) => self.give_up(token, progress),
            }
        }
    }

    /// Once a second: a listener that looked away, and memory that is or was short.
    fn keep_house(&mut self) {
        self.next_housekeeping_ms = self.now_ms + HOUSEKEEPING_MS;
        self.listen_again();
        // A directory may answer again, for which requests wait when memory is short.
        self.touched.append(&mut self.wait_for_memory);
        self.ease_shortage();
    }

    /// Answers Produce requests whose time is over, and sets the timer for the next one.
    fn on_late_timer(&mut self, token: u64) {
        let now_ms = self.now_ms;
        let Some(connection) = self.connections.by_token(token) else {
            return;
        };
        if connection.late_timer_ms > now_ms {
            return;
        }
        connection.late_timer_ms = u64::MAX;
        let mut late = Vec::new();
        let mut next_ms = u64::MAX;
        for (slot, state) in connection.session.open_slots() {
            match state {
                Slot::Produce { deadline_ms, .. } if *deadline_ms <= now_ms => late.push(slot),
                Slot::Produce { deadline_ms, .. } => next_ms = next_ms.min(*deadline_ms),
                _ => {}
            }
        }
        for slot in late {
            self.answer_produce(token, slot);
        }
        if next_ms < u64::MAX {
            self.set_late_timer(token, next_ms);
        }
    }

    pub(super) fn set_late_timer(&mut self, token: u64, deadline_ms: u64) {
        if let Some(connection) = self.connections.by_token(token)
            && deadline_ms < connection.late_timer_ms
        {
            connection.late_timer_ms = deadline_ms;
            self.set_timer(deadline_ms, token, Timer::Late);
        }
    }

    /// Takes no more requests, answers the fetches that wait, and gives the others their time.
    fn stop(&mut self) {
        self.stop_deadline_ms = Some(self.now_ms + STOP_WAIT_MS);
        self.listeners.close();
        for index in 0..self.connections.places() {
            let Some(connection) = self.connections.get(index) else {
                continue;
            };
            connection.is_blocked = true;
            self.end_waits(index);
            self.touch(self.connections.token_of(index));
        }
    }

    // --- sending ---------------------------------------------------------------------------------

    /// Sends what is due, and goes on with frames that waited.
    pub(super) fn advance(&mut self, index: usize) {
        let token = self.connections.token_of(index);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        connection.is_touched = false;
        if connection.is_sending {
            // Its socket may have room, again and again, while another thread fills it.
            self.watch_connection(index);
            return;
        }
        if connection.session.outbox.has_files() {
            connection.is_sending = true;
            connection.sending_bytes = connection.session.outbox.memory_bytes();
            let is_much = connection.sending_bytes > MEMORY_FREE_BYTES;
            self.work.push_back(StorageCall::Send {
                connection: token,
                stream: connection.stream.clone(),
                outbox: std::mem::take(&mut connection.session.outbox),
            });
            if is_much {
                self.account_owed(index);
            }
            return;
        }
        let outbox = &mut connection.session.outbox;
        let before = outbox.queued_bytes();
        let result = outbox.flush(&*connection.stream, &mut self.spare_answers);
        let sent_bytes = before - outbox.queued_bytes();
        self.after_flush(index, sent_bytes, result);
    }

    pub(super) fn after_flush(
        &mut self,
        index: usize,
        sent_bytes: usize,
        result: io::Result<Flushed>,
    ) {
        let counts = &self.shared.counts;
        counts
            .sent_bytes
            .fetch_add(sent_bytes as u64, Ordering::Relaxed);
        let is_stopping = self.stop_deadline_ms.is_some();
        let token = self.connections.token_of(index);
        let (Ok(flushed), Some(connection)) = (result, self.connections.get(index)) else {
            self.close(index);
            return;
        };
        let is_full = flushed == Flushed::Part;
        let turns = std::mem::replace(&mut connection.is_full, is_full) != is_full;
        if turns {
            connection.slow_client = SlowClientCheck::default();
        }
        connection.sent_bytes += sent_bytes as u64;
        // One that waits for memory is looked at again and again, and is idle meanwhile.
        if sent_bytes > 0 || turns || !(is_full || connection.waits_for_memory) {
            connection.last_sent_ms = self.now_ms;
        }
        if flushed == Flushed::Elsewhere {
            // In its next turn: with many small ranges here and there this may go on for long.
            self.yielded.push(token);
        }
        if connection.is_blocked && !is_stopping && !connection.has_ended {
            connection.is_blocked = false;
            let input = std::mem::take(&mut connection.session.input);
            self.process(index, input);
        }
        self.account(index);
        self.watch_connection(index);
    }

    /// Closes a connection that is through, and tells the poller what to watch of one that is not.
    fn watch_connection(&mut self, index: usize) {
        let token = self.connections.token_of(index);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        let has_answers = connection.session.has_open_slots()
            || !connection.session.outbox.is_empty()
            || connection.is_sending;
        if connection.has_ended && !connection.is_blocked && !has_answers {
            self.close(index);
            return;
        }
        let reads = !connection.is_blocked && !connection.has_ended && !connection.waits_for_memory;
        let interest = Readiness {
            readable: reads,
            writable: connection.is_full && !connection.is_sending,
            peer_closed: !reads && !connection.peer_has_closed && !connection.has_ended,
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

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::net::outbox::Outbox;

    /// Of a appends that was full in mid-round one directory's batch was made and the other's was not.
    /// The next full appends went in front of that, and so did requests of a connection that were later.
    #[test]
    fn what_is_produced_later_is_appended_later_and_before_other_calls() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = Arc::new(TcpStream::connect(address).expect("a connection"));
        let mut work = VecDeque::from([StorageCall::Send {
            connection: 0,
            stream,
            outbox: Outbox::default(),
        }]);
        for directory in 0..3 {
            let batch = AppendBatch {
                directory,
                ..AppendBatch::default()
            };
            put_append(&mut work, batch);
        }
        let directory_of = |each: StorageCall| match each {
            StorageCall::Append(batch) => Some(batch.directory),
            _ => None,
        };
        let order: Vec<Option<usize>> = work.into_iter().map(directory_of).collect();
        assert_eq!(order, [Some(0), Some(1), Some(2), None]);
    }
}
