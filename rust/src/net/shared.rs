//! What the network threads share: the node, the settings, and the limits that hold for all of them together.

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::access::Authorizer;
use crate::api::ApiKey;
use crate::api::fetch_sessions::FetchSessions;
use crate::image::Image;
use crate::net::admission::{Admission, ConnectionLimits};
use crate::net::control::queue::ControlQueue;
use crate::net::counts::Counts;
use crate::net::mailbox::{Excess, Mailboxes, Message};
use crate::net::memory::budget::ReceiveBudget;
use crate::net::reactor::Reactor;
use crate::net::settings::Settings;
use crate::net::storage_io::directory_queue::StorageQueues;
use crate::net::storage_io::handoff::{Handoff, Watch};
use crate::node::Node;
use crate::quota::Quotas;

/// What the network threads share.
pub struct Shared {
    pub settings: Settings,
    pub mailboxes: Arc<Mailboxes>,
    pub node: Arc<Node>,
    pub counts: Counts,
    pub fetch_sessions: FetchSessions,
    pub authorizer: Box<dyn Authorizer>,
    pub quotas: Box<dyn Quotas>,
    pub admission: Admission,
    pub budget: ReceiveBudget,
    pub queues: StorageQueues,
    /// One for each network thread.
    pub handoffs: Vec<Handoff<Box<Reactor>>>,
    pub watch: Watch,
    /// All keys that are answered, in their order.
    pub keys: Vec<ApiKey>,
    pub by_key: Vec<Option<ApiKey>>,
    pub started: Instant,
}

impl Shared {
    pub fn image(&self) -> Arc<Image> {
        self.node.image()
    }

    pub fn control(&self) -> &ControlQueue {
        &self.mailboxes.control
    }

    pub fn key(&self, key: i16) -> Option<ApiKey> {
        *self.by_key.get(usize::try_from(key).ok()?)?
    }

    pub fn post(&self, thread: usize, message: Message) {
        self.post_all(thread, [message]);
    }

    pub fn post_all(&self, thread: usize, messages: impl IntoIterator<Item = Message>) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            mailbox.post(messages);
        }
    }

    /// Limits of connections from now on: whoever waits for room may ask again, and those that are too
    /// many go.
    pub fn set_connection_limits(&self, limits: ConnectionLimits) {
        self.admission.set_limits(limits);
        self.post(0, Message::Room);
        self.post(0, Message::Excess(Excess::default()));
    }

    pub fn listener_name(&self, listener: usize) -> Arc<str> {
        let name = self.settings.listener_names.get(listener).cloned();
        name.unwrap_or_else(|| "PLAINTEXT".into())
    }

    /// Gives memory of the budget back, and tells those who wait for some.
    pub fn release_memory(&self, bytes: usize) {
        if bytes > 0 && self.budget.release(bytes) {
            self.tell_of_memory();
        }
    }

    /// Another frame may exceed the budget.
    pub fn end_exceeding(&self) {
        if self.budget.end_exceeding() {
            self.tell_of_memory();
        }
    }

    fn tell_of_memory(&self) {
        for thread in 0..self.mailboxes.len() {
            self.post(thread, Message::Memory);
        }
    }

    /// Milliseconds since the start, for time-outs.
    pub fn monotonic_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// Memory of the budget that is given back when this is dropped, by whatever thread.
pub struct HeldMemory {
    shared: Weak<Shared>,
    bytes: usize,
}

impl HeldMemory {
    /// Takes so many bytes, whatever is left: they are in memory already.
    pub fn new(shared: &Arc<Shared>, bytes: usize) -> HeldMemory {
        shared.budget.charge(bytes);
        HeldMemory {
            shared: Arc::downgrade(shared),
            bytes,
        }
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.release_memory(self.bytes);
        }
    }
}
