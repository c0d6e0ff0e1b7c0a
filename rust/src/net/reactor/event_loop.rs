//! The loop of a network thread: waits for events and messages, has connections served in rounds,
//! and makes the storage calls that come of each round.

use std::io;
use std::sync::Arc;

use crate::limits::{ALONE_FLUSH_BYTES_MAX, ALONE_MS, HOUSEKEEPING_MS, STOP_WAIT_MS};
use crate::net::mailbox::{Mailbox, Mailboxes, Message};
use crate::net::poller::Event;
use crate::net::reactor::state::accept::LISTENER_TOKEN;
use crate::net::reactor::state::connections::Connection;
use crate::net::reactor::state::timers::Timer;
use crate::net::reactor::{Reactor, WAKE_TOKEN};
use crate::net::session::Slot;
use crate::net::shared::Shared;
use crate::net::storage_call::append_batch::AppendBatch;
use crate::net::storage_call::{CallResult, StorageCall};
use crate::net::storage_io::{BlockingCall, Deliver, Handoff, Here, QueuedCall, Submitted};

/// Why a thread let go of its reactor.
pub enum LoopExit {
    /// Another thread goes on with it.
    HandedOver,
    Stopped(io::Result<()>),
}

/// Runs a reactor until the broker core stops, its poller fails, or another thread takes it over.
pub fn drive(mut reactor: Box<Reactor>) -> LoopExit {
    let (shared, handoff) = (reactor.shared.clone(), reactor.handoff.clone());
    loop {
        while reactor.step() {
            while let Some(call) = reactor.next_call() {
                match perform(reactor, call, &handoff, &shared) {
                    Some(back) => reactor = back,
                    None => return LoopExit::HandedOver,
                }
            }
        }
        if reactor.is_stopped() {
            reactor.close_all();
            return LoopExit::Stopped(Ok(()));
        }
        if let Err(error) = reactor.begin_turn() {
            return LoopExit::Stopped(Err(error));
        }
    }
}

/// Makes a storage call, here or by the thread of its queue. `None`: it took so long that another
/// thread has gone on with the reactor.
fn perform(
    reactor: Box<Reactor>,
    call: StorageCall,
    handoff: &Handoff<Box<Reactor>>,
    shared: &Shared,
) -> Option<Box<Reactor>> {
    shared.memory.charge(call.size_bytes());
    let thread = reactor.index;
    let route = call.route(&shared.storage, reactor.others_wait());
    let mailboxes = shared.mailboxes.clone();
    let submission = Submission {
        call,
        thread,
        mailboxes,
    };
    match shared.storage.submit(reactor, handoff, submission, route) {
        Submitted::Made(mut reactor, result) => {
            reactor.complete(result);
            Some(reactor)
        }
        Submitted::Queued(reactor) => Some(reactor),
        Submitted::HandedOver(result) => {
            shared.mailboxes.post(thread, Message::CallResult(result));
            shared.storage.returned(route);
            None
        }
    }
}

/// A call, and the thread whose mailbox gets the result if that comes later.
struct Submission {
    call: StorageCall,
    thread: usize,
    mailboxes: Arc<Mailboxes>,
}

impl BlockingCall for Submission {
    type Result = CallResult;

    fn run(self, here: &Here<'_>) -> CallResult {
        self.call.run(here)
    }

    fn queued(self) -> Box<dyn QueuedCall> {
        Box::new(self)
    }
}

impl QueuedCall for Submission {
    fn run(self: Box<Self>, here: &Here<'_>) -> Deliver {
        let Submission {
            call,
            thread,
            mailboxes,
        } = *self;
        let result = call.run(here);
        Box::new(move || mailboxes.post(thread, Message::CallResult(result)))
    }

    fn is_for(&self, thread: usize, connection: u64) -> bool {
        self.thread == thread && self.call.is_for(connection)
    }

    fn cancel(self: Box<Self>) {
        self.call.cancel();
    }
}

impl Reactor {
    fn begin_turn(&mut self) -> io::Result<()> {
        let shared = self.shared.clone();
        let mailbox = shared.mailboxes.get(self.index);
        let may_sleep = mailbox.is_none_or(Mailbox::is_left_empty);
        let timeout_ms = if may_sleep { self.timeout_ms() } else { 0 };
        let may_look = timeout_ms != 0 && self.is_one_alone_busy();
        let (poller, busy_poll) = (&mut self.poller, &mut self.busy_poll);
        self.queue.begin_round(|events| {
            if may_look && busy_poll.finds(poller, events)? {
                return Ok(());
            }
            poller.wait(timeout_ms, events)
        })?;
        self.round += 1;
        self.now_ms = self.shared.monotonic_ms();
        self.image = self.shared.image();
        self.empty_mailbox();
        self.run_timers();
        if self.now_ms >= self.next_housekeeping_ms {
            self.on_tick();
        }
        self.close_idle();
        if self.now_ms >= self.listeners.due_ms {
            self.listen_again();
        }
        Ok(())
    }

    fn run_timers(&mut self) {
        while let Some((token, timer)) = self.timers.take(self.now_ms) {
            match timer {
                Timer::Fetch(slot) => self.end_wait(token, slot),
                Timer::Late => self.on_late_timer(token),
                Timer::Unmute => self.touch(token),
                Timer::GiveUp(progress) => self.give_up(token, progress),
            }
        }
    }

    fn timeout_ms(&self) -> i32 {
        if self.queue.has_yielded() {
            return 0;
        }
        let due_ms = self
            .timers
            .next_ms()
            .min(self.next_housekeeping_ms)
            .min(self.due_connections.next_ms())
            .min(self.listeners.due_ms);
        // Rounded up, so as not to spin through the last millisecond.
        due_ms
            .saturating_sub(self.shared.monotonic_ms())
            .min(HOUSEKEEPING_MS) as i32
    }

    /// The next bit of the round. False: the round is over.
    fn step(&mut self) -> bool {
        if let Some(event) = self.queue.take_event() {
            self.on_event(event);
            return true;
        }
        if let Some(token) = self.queue.take_connection() {
            if let Some(index) = self.connections.place_of(token) {
                self.advance(index);
            }
            return true;
        }
        !self.calls.is_empty() || self.queue.begin_pass()
    }

    /// Others of this round's connections than that of the call at hand have yet to be served.
    fn others_wait(&self) -> bool {
        self.calls.has_calls() || self.queue.is_mid_pass()
    }

    /// The next storage call, once the round of events or connections is
    /// through, or much is waiting.
    fn next_call(&mut self) -> Option<StorageCall> {
        if self.queue.is_mid_pass() && !self.calls.are_due() {
            return None;
        }
        for mut batch in self.calls.take_appends() {
            batch.flushes = self.may_flush(&batch);
            self.calls.put_append(batch);
        }
        self.calls.next()
    }

    /// No more than one connection has moved for a while.
    fn is_one_alone_busy(&self) -> bool {
        self.now_ms >= self.others_busy_ms + ALONE_MS
    }

    /// This thread may make the records durable itself, which saves two changes of thread: it
    /// has nothing else to do, since one small request waits for it, its connection is the only one
    /// that has moved for a while, and the disk answers before the watchdog looks twice.
    fn may_flush(&mut self, batch: &AppendBatch) -> bool {
        let [piece] = &batch.pieces[..] else {
            return false;
        };
        let is_alone =
            self.busy == piece.connection && self.is_one_alone_busy() && !self.calls.has_calls();
        if !is_alone
            || piece.length > ALONE_FLUSH_BYTES_MAX
            || !piece.partition.directory().flushes_fast()
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
        let is_busy = |connection: &mut Connection| {
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
            let (now_ms, shared) = (self.now_ms, &self.shared);
            let own = self
                .listeners
                .accept(listener, now_ms, &self.poller, shared);
            own.into_iter().for_each(|message| self.on_message(message));
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
            connection.traffic.last_active_ms = self.now_ms;
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
                transport,
                peer,
                listener,
            } => self.open(transport, peer, listener),
            Message::Woken(parked) => self.wake(parked.connection, parked.slot),
            Message::Control(parked, answer) => self.on_control_answer(parked, answer),
            Message::CallResult(done) => self.complete(done),
            Message::Room => self.listen_again(),
            Message::Excess(excess) => self.close_excess(excess),
            Message::Memory => self.queue.memory_has_come(),
            Message::Stop => self.stop(),
            #[cfg(test)]
            Message::Panic => panic!("a request that no thread can stand"),
        }
    }

    /// Once a second: a listener that looked away, and memory that is or was short.
    fn on_tick(&mut self) {
        self.next_housekeeping_ms = self.now_ms + HOUSEKEEPING_MS;
        self.listen_again();
        if self.queue.has_waited() {
            self.shared.memory.note_waiting(self.now_ms);
        }
        // A directory may answer again, for which requests wait when memory is short.
        self.queue.memory_has_come();
        self.ease_shortage();
    }

    fn listen_again(&mut self) {
        let (now_ms, shared) = (self.now_ms, &self.shared);
        let own = self.listeners.listen_again(now_ms, &self.poller, shared);
        own.into_iter().for_each(|message| self.on_message(message));
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
}
