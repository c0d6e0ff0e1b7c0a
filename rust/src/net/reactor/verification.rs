//! Produce requests whose transaction is not open in a log yet: the coordinator is asked,
//! by Python, and meanwhile nothing that follows on the connection is begun, so that no
//! batch overtakes another.

use crate::api::k00_produce::{Produce, Verification};
use crate::codes;
use crate::limits::CONTROL_REQUEST_BYTES;
use crate::net::control::queue::ControlFrame;
use crate::net::memory::HeldMemory;
use crate::net::reactor::Reactor;
use crate::net::session::{Slot, Verifying};

/// As one broker asks another.
const ADD_PARTITIONS_TO_TXN: (i16, i16) = (24, 5);

impl Reactor {
    /// Has the coordinator asked; a request that was large has its slot already.
    pub(super) fn verify(
        &mut self,
        index: usize,
        produce: Produce,
        content: Vec<u8>,
        verification: Verification,
        at: Option<u64>,
    ) {
        let token = self.connections.token_of(index);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        let Verification { body, asked } = verification;
        let deadline_ms = self.now_ms + produce.wait_ms();
        let verifying = Slot::Verifying(Box::new(Verifying {
            produce,
            content,
            asked,
            deadline_ms,
        }));
        let slot = connection.session.place(at, verifying);
        let (listener, peer) = (connection.listener, connection.peer);
        let identity = connection.session.identity().clone();
        let session = connection.session.life();
        self.account_owed(index);
        let (api_key, api_version) = ADD_PARTITIONS_TO_TXN;
        let memory_bytes = CONTROL_REQUEST_BYTES + body.len();
        self.set_late_timer(token, deadline_ms);
        let parked = self.parked(token, slot);
        self.shared.control().put(ControlFrame {
            parked,
            api_key,
            api_version,
            correlation_id: 0,
            client_id: None,
            listener,
            listener_name: self.shared.listener_name(listener),
            identity,
            peer,
            session,
            is_internal: true,
            body,
            memory: HeldMemory::new(&self.shared.memory, memory_bytes),
        });
    }

    /// The coordinator has not answered in the request's time: who writes its log may hang. What it
    /// says later is heard by nobody.
    pub(super) fn end_verification(&mut self, token: u64, slot: u64) {
        let Some(Slot::Verifying(verifying)) = self.slot(token, slot) else {
            return;
        };
        let codes = vec![codes::COORDINATOR_NOT_AVAILABLE; verifying.asked.len()];
        if let Some(index) = self.connections.place_of(token) {
            self.on_verified(index, slot, &codes);
        }
    }

    /// The coordinator has answered: goes on with the partitions that it lets pass.
    pub(super) fn on_verified(&mut self, index: usize, slot: u64, codes: &[i16]) {
        let token = self.connections.token_of(index);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        if !matches!(connection.session.slot(slot), Some(Slot::Verifying(_))) {
            return;
        }
        let nothing = Slot::ReadingRequest { memory_bytes: 0 };
        let Some(Slot::Verifying(verifying)) = connection.session.take(slot, nothing) else {
            return;
        };
        let Verifying {
            mut produce,
            content,
            asked,
            deadline_ms,
        } = *verifying;
        produce.verified(&asked, codes);
        let left_ms = deadline_ms.saturating_sub(self.now_ms);
        produce.timeout_ms = i32::try_from(left_ms).unwrap_or(i32::MAX);
        let begun = self.begin_produce(index, produce, &content, 0, Some(slot));
        if let Some(buffer) = self.calls.end_buffer(content) {
            self.buffers.recycle(buffer);
        }
        if let Err(why) = begun {
            self.log_disconnect(index, &why);
            self.end(token);
        }
        if self.connections.place_of(token).is_some() {
            self.account_owed(index);
            // What follows has waited for this.
            self.touch(token);
        }
    }
}
