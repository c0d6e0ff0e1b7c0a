//! The memory that connections take of the budget for all, and those that are closed when it is short.

use std::sync::atomic::Ordering;

use crate::net::reactor::Reactor;
use crate::net::reactor::connections::counted;

impl Reactor {
    /// Brings what a connection takes of the budget up to date. A frame reserves its whole size; if
    /// there is no room for it, it is not received further.
    pub(super) fn account(&mut self, index: usize) {
        self.account_owed(index);
        let shared = &self.shared;
        let request_bytes_max = shared.context.settings.request_bytes_max;
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
            shared.memory.release(left_over);
        }
        if target <= connection.held_bytes {
            shared.memory.release(connection.held_bytes - target);
            connection.held_bytes = target;
        } else if shared.memory.reserve(target - connection.held_bytes) {
            connection.held_bytes = target;
        } else if (1..target).contains(&present)
            && connection.session.may_go_on(self.now_ms)
            && (connection.exceeds_memory || shared.memory.exceed())
        {
            shared.memory.charge(target - connection.held_bytes);
            connection.held_bytes = target;
            connection.exceeds_memory = true;
        } else {
            // What has come in is in memory, room or not.
            shared.memory.charge(present - connection.held_bytes);
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
            self.shared.memory.charge(owed_bytes - before_bytes);
        } else {
            self.shared.memory.release(before_bytes - owed_bytes);
        }
    }

    /// When there is no memory left, those go that hold some and make no progress, and the one that took
    /// more and keeps others from that, for as long as a log directory hangs. A large Fetch that
    /// waits for records, which is nobody's fault, is answered with what there is.
    pub(super) fn ease_shortage(&mut self) {
        if !self.shared.memory.is_exhausted() {
            return;
        }
        let now_ms = self.now_ms;
        let queues = &self.shared.storage;
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
