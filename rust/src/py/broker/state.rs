//! The node, shared by the objects that Python has of it.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::Error;
use crate::net::broker_core::BrokerCore;
use crate::net::mailbox::Mailboxes;
use crate::node::Node;
use crate::py::door::raise;

/// The node, and from `start` on what serves it: shared by the objects of one `BrokerCore`.
pub struct BrokerState {
    pub node: Arc<Node>,
    pub mailboxes: Arc<Mailboxes>,
    pub core: Mutex<Option<Arc<BrokerCore>>>,
}

impl BrokerState {
    pub fn started(&self, py: Python<'_>) -> PyResult<Arc<BrokerCore>> {
        let not_started = || Error::InvalidArgument("the node has not started".to_owned());
        let core = self.core.lock().clone();
        core.ok_or_else(|| raise(py, &not_started()))
    }
}
