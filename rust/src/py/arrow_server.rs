//! `_native.ArrowServer`: the Arrow endpoint for Python, in a broker or in a process of its own.
#![expect(
    unsafe_code,
    reason = "Python hands over a listening socket as a descriptor"
)]

use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;

use super::door::enter;
use crate::access::AllowAll;
use crate::arrow::serve::{ArrowServer, Home, LiveHome, ServerSettings};
use crate::node::Node;

/// An endpoint that serves until `stop`; see `_native.pyi`.
#[pyclass(frozen, name = "ArrowServer", module = "kafkalite._native")]
pub struct PyArrowServer {
    server: ArrowServer,
}

#[pymethods]
impl PyArrowServer {
    /// Connections that are open.
    #[getter]
    fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Takes no more clients, cuts answers off with a sentence, ends the threads; returns whether all
    /// have ended in time.
    fn stop(&self, py: Python<'_>) -> PyResult<bool> {
        enter(py, || Ok(self.server.stop()))
    }
}

/// The endpoint of a broker, which reads the logs of its node. Takes the descriptor over.
pub fn serve_node(
    py: Python<'_>,
    node: Arc<Node>,
    listener: RawFd,
    idle_ms_max: i64,
) -> PyResult<PyArrowServer> {
    let home = LiveHome::new(node, Box::new(AllowAll));
    start(py, listener, Box::new(home), idle_ms_max)
}

fn start(
    py: Python<'_>,
    listener: RawFd,
    home: Box<dyn Home>,
    idle_ms_max: i64,
) -> PyResult<PyArrowServer> {
    // SAFETY: the caller gives up the descriptor, that of a listening TCP socket.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(listener) });
    let settings = ServerSettings {
        // A negative limit is none, as in Kafka; zero would be none to the system.
        idle: u64::try_from(idle_ms_max)
            .ok()
            .map(|idle_ms| Duration::from_millis(idle_ms.max(1))),
        ..ServerSettings::default()
    };
    let server = enter(py, || ArrowServer::start(listener, home, settings))?;
    Ok(PyArrowServer { server })
}
