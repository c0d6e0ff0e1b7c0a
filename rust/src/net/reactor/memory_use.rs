//! The rule of `net/memory` where it is kept: what connections take of the budget, which requests
//! are not begun while memory is short, and which connections are closed then.

use std::sync::atomic::Ordering;

use crate::api::k00_produce::{Outcome, Produce, ProducePartition};
use crate::error::Result;
use crate::limits::{FRAME_WAIT_MS, MEMORY_FREE_BYTES};
use crate::net::memory::connection::counted;
use crate::net::memory::slow_client::{ClientProgress, ClosingReason, SlowClientCheck};
use crate::net::reactor::Reactor;
use crate::net::reactor::dispatch::LONG_ANSWERS;
use crate::net::reactor::state::buffers::next_bytes;
use crate::net::reactor::state::connections::Connection;
use crate::net::shared::Shared;
use crate::net::storage_io::{QueueId, QueueKind};
use crate::wire::header::FETCH;

impl Reactor {
    /// Brings what a connection takes of the budget up to date. If there is no room for what is to
    /// be received next of a frame, it is not received further.
    pub(super) fn account(&mut self, index: usize) {
        self.account_owed(index);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        let waited = std::mem::take(&mut connection.memory.waits);
        if waited && !connection.is_full {
            connection.memory.slow_client.pause();
        }
        let waits_since_ms = connection.memory.frame_waits_since_ms.take();
        let has_room = self.reserve(index);
        let request_bytes_max = self.shared.context.settings.request_bytes_max;
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        if has_room {
            if waited {
                // It could send nothing so far.
                connection.traffic.last_active_ms = self.now_ms;
            }
            return;
        }
        connection.memory.waits = true;
        connection.memory.frame_waits_since_ms = waits_since_ms.or(Some(self.now_ms));
        let is_cut_off = connection.is_cut_off(connection.wanted_bytes(request_bytes_max));
        let token = self.connections.token_of(index);
        if is_cut_off {
            self.end(token)
        } else {
            self.queue.wait_for_memory(token)
        }
    }

    /// Brings up to date what a connection takes for the frame that arrives, and for answers that
    /// are not read. Of a frame that is what its buffer takes, and is to take before more is
    /// received. False: there is no room for that.
    pub(super) fn reserve(&mut self, index: usize) -> bool {
        let request_bytes_max = self.shared.context.settings.request_bytes_max;
        let Some(connection) = self.connections.get(index) else {
            return true;
        };
        let input = &connection.session.input;
        let has_bytes = if input.is_empty() {
            0
        } else {
            input.buffer.len()
        };
        let next_bytes = match (has_bytes, connection.is_blocked) {
            (0, _) | (_, true) => has_bytes,
            _ => next_bytes(input, connection.wanted_bytes(request_bytes_max)).max(has_bytes),
        };
        let unsent = if connection.is_full {
            counted(connection.session.outbox.memory_bytes())
        } else {
            0
        };
        let target = counted(next_bytes) + unsent;
        let present = counted(has_bytes) + unsent;
        let may_exceed = connection.session.may_continue(self.now_ms);
        let memory = &self.shared.memory;
        connection
            .memory
            .account(memory, target, present, may_exceed)
    }

    /// Brings up to date what waits on our side: it is in memory, room or not.
    pub(super) fn account_owed(&mut self, index: usize) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        connection.session.forget_long_name();
        // Behind what another thread sends.
        let queued_bytes = if connection.is_sending {
            connection.session.outbox.memory_bytes()
        } else {
            0
        };
        let owed_bytes = counted(connection.session.waiting_bytes())
            + counted(connection.memory.sending_bytes)
            + counted(queued_bytes)
            + counted(connection.session.client_id_bytes());
        connection.memory.owe(&self.shared.memory, owed_bytes);
    }

    /// The frame that was arriving is whole, or there is none any more.
    pub(super) fn end_exceeding(&mut self, index: usize) {
        if let Some(connection) = self.connections.get(index) {
            connection.has_moved();
            connection.memory.end_exceeding(&self.shared.memory);
        }
    }

    /// Holds a request back while memory is short, if it may take much of it, `ahead_bytes`, while
    /// it waits for its answer, or stands behind others that do. True: it is not begun now.
    pub(super) fn hold_for_memory(
        &mut self,
        index: usize,
        api_key: i16,
        ahead_bytes: impl FnOnce(&Shared) -> Result<usize>,
    ) -> Result<bool> {
        let token = self.connections.token_of(index);
        let shared = &self.shared;
        let Some(connection) = self.connections.get(index) else {
            return Ok(true);
        };
        if shared.memory.is_exhausted() && !connection.memory.exceeds {
            let bytes = connection.session.waiting_bytes() + ahead_bytes(shared)?;
            // Whoever is refused here is told when there is room again.
            let is_refused = bytes > MEMORY_FREE_BYTES && !shared.memory.reserve(0);
            // Its answer itself may take much.
            let is_for_long =
                LONG_ANSWERS.contains(&api_key) || api_key == FETCH && shared.node.is_crowded();
            let memory = &mut connection.memory;
            if is_refused && memory.request_waits(&shared.memory, is_for_long, self.now_ms) {
                self.queue.wait_for_memory(token);
                return Ok(true);
            }
        }
        connection.memory.request_has_begun();
        Ok(false)
    }

    /// Half of the memory is used, and the request has records for a log directory that does not
    /// answer, or for a partition where others wait to be judged: they would wait in memory.
    pub(super) fn waits_for_directory(&self, produce: &Produce) -> bool {
        let (storage, memory) = (&self.shared.storage, &self.shared.memory);
        let is_stuck = |each: &ProducePartition| match &each.outcome {
            Outcome::Accepted(partition, _) => {
                let number = storage.number_of(partition.directory());
                !partition.nobody_waits()
                    || !storage.is_open(QueueId::Directory(QueueKind::Writes, number))
            }
            _ => false,
        };
        memory.is_half_used() && produce.partitions.iter().any(is_stuck)
    }

    /// Holds a request for Python back while half of the memory is used and Python does not come
    /// for requests. True: it waits.
    pub(super) fn hold_for_python(&mut self, index: usize) -> bool {
        let waits = self.shared.memory.is_half_used() && self.shared.control().is_held_up();
        if waits {
            self.queue.wait_for_others(self.connections.token_of(index));
        }
        waits
    }

    /// When there is no memory left, those go that hold some and make no progress, and the one that
    /// took more and keeps others from that, for as long as a log directory hangs. While others
    /// wait, so do those who take long, until some memory is left. A large Fetch that waits for
    /// records, which is nobody's fault, is answered with what there is.
    pub(super) fn ease_shortage(&mut self) {
        if !self.shared.memory.is_exhausted() {
            return;
        }
        let now_ms = self.now_ms;
        let queues = &self.shared.storage;
        let is_stuck = !queues.are_open() || queues.are_changes_stuck();
        let has_hung = is_stuck || self.shared.control().is_held_up();
        let others_wait = self.shared.memory.is_waited_for(now_ms);
        let mut to_close = Vec::new();
        for index in 0..self.connections.places() {
            let Some(connection) = self.connections.get(index) else {
                continue;
            };
            if connection.memory.owed_bytes > 0 {
                self.end_waits(index);
            }
            let Some(connection) = self.connections.get(index) else {
                continue;
            };
            if has_hung
                && connection
                    .memory
                    .is_in_the_way(connection.is_blocked, now_ms)
            {
                self.close_hoarder(index);
                continue;
            }
            if connection.closing_reason(others_wait, now_ms).is_none() {
                continue;
            }
            if connection.is_full && !connection.session.outbox.has_files() {
                // The poller tells of room only once there is much.
                self.advance(index);
            }
            let Some(connection) = self.connections.get(index) else {
                continue;
            };
            if let Some(reason) = connection.closing_reason(others_wait, now_ms) {
                to_close.push((reason, index));
            }
        }
        to_close.sort_unstable();
        for (reason, index) in to_close {
            if reason.is_certain() || self.shared.memory.is_exhausted() {
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

impl Connection {
    /// It has memory of the budget that its client can do something about. An answer is not there
    /// to be read while another thread sends, or before what lies in another log directory.
    fn holds_memory(&self) -> bool {
        let has_unread = self.is_full && self.session.outbox.has_large_answer();
        !self.is_sending && (self.memory.held_bytes > 0 || has_unread)
    }

    /// How far the client has come with what is for it to do so that memory becomes free: to read
    /// its answers, whatever else it has asked for, or to send the rest of a frame. One that waits
    /// for a log directory, for memory or for an answer of ours is not to blame.
    fn duty(&self) -> Option<ClientProgress> {
        let (memory, traffic) = (&self.memory, &self.traffic);
        if !self.holds_memory() {
            return None;
        }
        if self.is_full {
            return Some(ClientProgress {
                moved_bytes: traffic.sent_bytes,
                moved_ms: traffic.last_sent_ms,
            });
        }
        if self.is_blocked || memory.waits {
            return None;
        }
        Some(ClientProgress {
            moved_bytes: traffic.received_bytes,
            moved_ms: traffic.last_active_ms,
        })
    }

    /// A frame is whole. That is no merit where the client does not read its answers.
    pub(super) fn has_moved(&mut self) {
        if !self.is_full {
            self.memory.slow_client = SlowClientCheck::default();
        }
    }

    /// The client will send no more, and the frame of `wanted` bytes that arrives will never be
    /// whole: the rest of it is not in the socket either.
    pub(super) fn is_cut_off(&self, wanted: usize) -> bool {
        let received = self.session.input.end - self.session.input.start;
        self.peer_has_closed
            && !self.has_ended
            && self
                .transport
                .pending_bytes()
                .is_ok_and(|pending| received + pending < wanted.max(1))
    }

    /// The size of the frame that arrives. What cannot be a frame is refused when it is read.
    fn wanted_bytes(&self, request_bytes_max: usize) -> usize {
        let wanted = self.session.wanted_bytes(request_bytes_max).unwrap_or(0);
        wanted.max(self.session.input.bytes().len())
    }

    /// The client holds memory that is short, and does not go on, or hardly; it takes long for what
    /// is for it to do, and others wait; or it has most likely given up what it waits for.
    pub(super) fn closing_reason(
        &mut self,
        others_wait: bool,
        now_ms: u64,
    ) -> Option<ClosingReason> {
        let (holds_memory, duty) = (self.holds_memory(), self.duty());
        let memory = &mut self.memory;
        if duty.is_some_and(|duty| memory.slow_client.is_too_slow(duty, now_ms)) {
            return Some(ClosingReason::TooSlow);
        }
        let rate = others_wait.then(|| memory.slow_client.overdue_rate(duty, now_ms));
        if let Some(Some(rate)) = rate
            && holds_memory
            && (duty.is_some() || memory.waits)
        {
            return Some(if memory.exceeds {
                ClosingReason::Exceeding
            } else {
                ClosingReason::Slow(rate)
            });
        }
        let since_ms = memory.frame_waits_since_ms.filter(|_| holds_memory)?;
        let is_late = now_ms.saturating_sub(since_ms) > FRAME_WAIT_MS;
        is_late.then_some(ClosingReason::Waiting(since_ms))
    }
}
