//! Connections opened, ended and closed: for what the client did, for being idle,
//! or for being one too many.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::api::k00_produce::Outcome;
use crate::limits::{GONE_WAIT_MS, IDLE_LOOKS_PER_TURN};
use crate::net::mailbox::{Excess, Message};
use crate::net::memory::connection::ConnectionMemory;
use crate::net::poller::Readiness;
use crate::net::reactor::Reactor;
use crate::net::reactor::state::connections::{Connection, Traffic};
use crate::net::reactor::state::timers::Timer;
use crate::net::session::{Session, Slot};
use crate::net::storage_call::deregister_fetch;
use crate::net::transport::Transport;
use crate::replica::park::Parked;

impl Reactor {
    pub(super) fn open(&mut self, transport: Transport, peer: SocketAddr, listener: usize) {
        if self.stop_deadline_ms.is_some() || transport.open().is_err() {
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
            .add(transport.as_raw_fd(), token, interest)
            .is_err()
        {
            self.count_out(listener, peer);
            self.connections.give_back(index);
            return;
        }
        let connection = Connection {
            session: Session::open(transport.identity(peer)),
            transport: Arc::new(transport),
            peer,
            listener,
            interest,
            is_touched: false,
            is_blocked: false,
            is_sending: false,
            is_full: false,
            has_ended: false,
            peer_has_closed: false,
            traffic: Traffic {
                last_active_ms: self.now_ms,
                last_sent_ms: self.now_ms,
                ..Traffic::default()
            },
            memory: ConnectionMemory::default(),
            late_timer_ms: u64::MAX,
            round: 0,
            work_in_round: 0,
        };
        self.connections.put(index, connection);
        let idle_ms_max = self.shared.context.settings.idle_ms_max;
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

    /// Looks at nothing more of what a client sent; its connection is closed once the answers have
    /// left, and none of them waits for more records.
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

    /// A client that has closed its side does not wait for more records, nor long for any other
    /// answer: most likely nobody reads it.
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

    /// Closes a connection whose client has closed its side if the same request is still to be
    /// begun or answered as the last time.
    pub(super) fn give_up(&mut self, token: u64, progress: u64) {
        let Some(index) = self.connections.place_of(token) else {
            return;
        };
        let waits = self.connections.get(index).is_some_and(|connection| {
            let session = &connection.session;
            // Who has yet to take answers is not gone.
            let has_answers = connection.is_sending || !session.outbox.is_empty();
            let is_held = (connection.is_blocked || connection.memory.waits) && !has_answers;
            (session.has_open_slots() || is_held) && connection.progress() == progress
        });
        if waits {
            self.close(index)
        } else {
            self.give_up_later(index)
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
        let _ = self.poller.remove(connection.transport.as_raw_fd());
        if connection.is_sending {
            connection.transport.shut_down();
        }
        connection.memory.give_back(&self.shared.memory);
        self.buffers
            .recycle(std::mem::take(&mut connection.session.input.buffer));
        self.count_out(connection.listener, connection.peer);
    }

    /// Drops the storage calls for a connection that is gone, as far as they are not under way.
    fn drop_calls(&mut self, token: u64) {
        self.shared.storage.cancel(self.index, token);
        self.calls.cancel(token);
    }

    pub(super) fn parked(&self, connection: u64, slot: u64) -> Parked {
        Parked {
            thread: self.index,
            connection,
            slot,
        }
    }

    fn count_out(&self, listener: usize, peer: SocketAddr) {
        if self.shared.admission.leave(listener, peer.ip()) {
            self.shared.mailboxes.post(0, Message::Room);
        }
    }

    /// Closes connections over which nothing has gone for `connections.max.idle.ms`, some of them a
    /// round. One that waits for an answer of ours is not idle.
    pub(super) fn close_idle(&mut self) {
        for _ in 0..IDLE_LOOKS_PER_TURN {
            let Some(token) = self.due_connections.take(self.now_ms) else {
                return;
            };
            if let Some(index) = self.connections.place_of(token) {
                self.close_if_idle(index, token);
            }
        }
    }

    fn close_if_idle(&mut self, index: usize, token: u64) {
        let (now_ms, idle_ms_max) = (self.now_ms, self.shared.context.settings.idle_ms_max);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        if connection.session.has_open_slots() {
            connection.traffic.last_active_ms = now_ms;
        }
        // What came while this process was stopped has not been looked at yet. What is not read for
        // another reason is no sign of life, and what waits for memory is as idle as in Kafka.
        let may_have_come = connection.interest.readable && !connection.memory.waits;
        let mut due_ms = connection.used_ms().saturating_add(idle_ms_max);
        if due_ms <= now_ms && may_have_come && connection.transport.has_come() {
            connection.traffic.last_active_ms = now_ms;
            due_ms = now_ms.saturating_add(idle_ms_max);
        }
        if due_ms > now_ms {
            self.due_connections.put(due_ms, token);
            return;
        }
        let counts = &self.shared.counts;
        counts.idle_closed.fetch_add(1, Ordering::Relaxed);
        self.close(index);
    }

    /// While the broker has more connections than it may, those go that have been used least
    /// recently: all threads say theirs, then the one that has the oldest closes it, and so on, so
    /// that it is not one too many (each of Kafka's processors closes its own).
    pub(super) fn close_excess(&mut self, excess: Excess) {
        if !self.shared.admission.is_exceeded() {
            self.least_recent.forget();
            return;
        }
        let threads = self.shared.mailboxes.len();
        let mine = self.least_recent();
        if excess.looked < threads {
            let mine = mine.map(|(used_ms, _)| (used_ms, self.index()));
            let oldest = [excess.oldest, mine].into_iter().flatten().min();
            let looked = excess.looked + 1;
            let next = (self.index() + 1) % threads;
            return self
                .shared
                .mailboxes
                .post(next, Message::Excess(Excess { looked, oldest }));
        }
        let Some((_, thread)) = excess.oldest else {
            return;
        };
        if thread != self.index() {
            return self.shared.mailboxes.post(thread, Message::Excess(excess));
        }
        // It may be another one by now, or none.
        if let Some((_, index)) = mine {
            self.close(index);
        }
        self.shared
            .mailboxes
            .post(thread, Message::Excess(Excess::default()));
    }

    /// When the connection was used that has been used least recently, and its place.
    fn least_recent(&mut self) -> Option<(u64, usize)> {
        let connections = &self.connections;
        let used_ms = |token| connections.used_ms(token);
        let (used_ms, token) = self.least_recent.find(used_ms, || connections.by_use())?;
        Some((used_ms, connections.place_of(token)?))
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
        Slot::Verifying(verifying) => verifying.produce.forget_verification(&verifying.asked),
        Slot::ReadingLogs { .. }
        | Slot::SearchingLogs { .. }
        | Slot::ReadingRequest { .. }
        | Slot::Control { .. }
        | Slot::Answered(_) => {}
    }
}
