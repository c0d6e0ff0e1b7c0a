//! Sending: answers leave to the socket as it takes them, and a connection that
//! waited for that goes on.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use crate::limits::MEMORY_FREE_BYTES;
use crate::net::memory::slow_client::SlowClientCheck;
use crate::net::outbox::Flushed;
use crate::net::poller::Readiness;
use crate::net::reactor::Reactor;
use crate::net::storage_call::StorageCall;

impl Reactor {
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
            connection.memory.sending_bytes = connection.session.outbox.memory_bytes();
            let is_much = connection.memory.sending_bytes > MEMORY_FREE_BYTES;
            self.calls.push(StorageCall::Send {
                connection: token,
                transport: connection.transport.clone(),
                outbox: std::mem::take(&mut connection.session.outbox),
            });
            if is_much {
                self.account_owed(index);
            }
            return;
        }
        let outbox = &mut connection.session.outbox;
        let before = outbox.queued_bytes();
        let result = outbox.flush(&*connection.transport, &mut self.spare_answers);
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
            connection.memory.slow_client = SlowClientCheck::default();
        }
        connection.traffic.sent_bytes += sent_bytes as u64;
        // One that waits for memory is looked at again and again, and is idle meanwhile.
        if sent_bytes > 0 || turns || !(is_full || connection.memory.waits) {
            connection.traffic.last_sent_ms = self.now_ms;
        }
        if flushed == Flushed::Elsewhere {
            // In its next turn: with many small ranges here and there this may go on for long.
            self.queue.yield_round(token);
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
        let reads = !connection.is_blocked && !connection.has_ended && !connection.memory.waits;
        let interest = Readiness {
            readable: reads,
            writable: connection.is_full && !connection.is_sending,
            peer_closed: !reads && !connection.peer_has_closed && !connection.has_ended,
            hung_up: false,
        };
        if interest != connection.interest {
            connection.interest = interest;
            let descriptor = connection.transport.as_raw_fd();
            if self.poller.change(descriptor, token, interest).is_err() {
                self.close(index);
            }
        }
    }
}
