//! The state that network threads share: the node, and the limits that hold
//! for all of them together.

use std::sync::Arc;

use crate::arrow::serve::Descriptors;
use crate::clock::monotonic_ms;
use crate::image::Image;
use crate::net::admission::{Admission, ConnectionLimits};
use crate::net::control::queue::ControlQueue;
use crate::net::counts::Counts;
use crate::net::mailbox::{Excess, Mailboxes, Message};
use crate::net::memory::Memory;
use crate::net::request_context::RequestContext;
use crate::net::storage_io::StorageIo;
use crate::node::Node;

pub struct Shared {
    pub context: Arc<RequestContext>,
    pub mailboxes: Arc<Mailboxes>,
    pub node: Arc<Node>,
    pub counts: Counts,
    pub admission: Admission,
    pub memory: Arc<Memory>,
    pub storage: Arc<StorageIo>,
}

impl Shared {
    pub fn image(&self) -> Arc<Image> {
        self.node.image()
    }

    pub fn control(&self) -> &Arc<ControlQueue> {
        &self.mailboxes.control
    }

    /// Sets limits of connections from now on: whoever waits for room may ask again, and
    /// those that are too many go.
    pub fn set_connection_limits(&self, limits: ConnectionLimits) {
        self.admission.set_limits(limits);
        self.mailboxes.post(0, Message::Room);
        let excess = Message::Excess(Excess::default());
        self.mailboxes.post(0, excess);
    }

    /// The most bytes of records that the answer to a Fetch holds in memory now: 0 while answers
    /// hold files.
    pub fn copied_bytes_max(&self) -> u64 {
        if self.node.is_crowded() {
            self.context.settings.fetch_bytes_max
        } else {
            0
        }
    }

    pub fn listener_name(&self, listener: usize) -> Arc<str> {
        let names = &self.context.settings.listener_names;
        let name = names.get(listener).cloned();
        name.unwrap_or_else(|| "PLAINTEXT".into())
    }

    /// Milliseconds of a clock that is not set back, for time-outs.
    pub fn monotonic_ms(&self) -> u64 {
        monotonic_ms().cast_unsigned()
    }
}

/// Connections of the Arrow endpoint take descriptors as those of clients do.
impl Descriptors for Shared {
    fn take(&self) -> bool {
        self.admission.enter_beside()
    }

    fn give_back(&self) {
        if self.admission.leave_beside() {
            self.mailboxes.post(0, Message::Room);
        }
    }
}
