//! `_native.ArrowServer`: the Arrow endpoint for Python, in a broker or in a process of its own.
#![expect(
    unsafe_code,
    reason = "Python hands over a listening socket as a descriptor"
)]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow::PythonSource;
use super::door::enter;
use crate::arrow::serve::{
    ArrowServer, Descriptors, Home, LiveHome, LogFiles, Losses, ReadRequest, Rows, ServerSettings,
};
use crate::arrow::{FetchedStream, Isolation};
use crate::error::{Error, Result};
use crate::net::memory::budget::memory_bytes;
use crate::net::shared::Shared;

/// An endpoint that serves until `stop`; see `_native.pyi`.
#[pyclass(frozen, name = "ArrowServer", module = "kafkalite._native")]
pub struct PyArrowServer {
    server: ArrowServer,
}

#[pymethods]
impl PyArrowServer {
    /// Takes the descriptor over; see `_native.pyi`.
    #[new]
    #[pyo3(signature = (listener, *, open, answer, roots, any_path, idle_ms_max, secret=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        listener: RawFd,
        open: Py<PyAny>,
        answer: Py<PyAny>,
        roots: Vec<PathBuf>,
        any_path: bool,
        idle_ms_max: i64,
        secret: Option<String>,
    ) -> PyResult<PyArrowServer> {
        let home = PythonHome {
            open,
            answer,
            files: LogFiles::new(roots, any_path),
        };
        let settings = ServerSettings {
            secret,
            ..settings(idle_ms_max)
        };
        start(py, listener, Box::new(home), settings, None)
    }

    /// Connections that are open.
    #[getter]
    fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Takes no more clients, cuts answers off with a sentence, ends the threads; returns
    /// whether all have ended in time.
    fn stop(&self, py: Python<'_>) -> PyResult<bool> {
        enter(py, || Ok(self.server.stop()))
    }
}

/// The endpoint of a broker, which reads the logs of its node. Takes the descriptor over.
pub fn serve_node(
    py: Python<'_>,
    shared: &Arc<Shared>,
    listener: RawFd,
    idle_ms_max: i64,
) -> PyResult<PyArrowServer> {
    let home = LiveHome::new(shared.node.clone());
    start(
        py,
        listener,
        Box::new(home),
        settings(idle_ms_max),
        Some(shared.clone()),
    )
}

/// Fetches and plans in Python; files are read without.
struct PythonHome {
    open: Py<PyAny>,
    answer: Py<PyAny>,
    files: LogFiles,
}

impl Home for PythonHome {
    fn plans(&self) -> bool {
        true
    }

    fn read(&self, request: ReadRequest, losses: &Losses) -> Result<Rows> {
        let place = &request.place;
        let has_servers = place.bootstrap_servers.is_some();
        if has_servers && place.path.is_some() {
            return Err(Error::InvalidArgument(
                "a read names bootstrap.servers or a path, not both".to_owned(),
            ));
        }
        if place.path.is_some() || (!has_servers && self.files.has_roots()) {
            return self.files.read(&request, losses);
        }
        let source = Python::attach(|py| {
            let opened = self.open.call1(py, arguments(&request));
            opened.map_err(|error| sentence_of(py, &error))
        })?;
        let source = PythonSource(source);
        let stream = FetchedStream::new(source, &request.shape, request.bounds);
        Ok(Box::new(stream.telling_progress()))
    }

    fn answer(&self, _op: &str, request: &[u8]) -> Result<Vec<u8>> {
        Python::attach(|py| {
            let answer = self.answer.call1(py, (PyBytes::new(py, request),));
            let bytes = answer.and_then(|answer| answer.extract::<Vec<u8>>(py));
            bytes.map_err(|error| sentence_of(py, &error))
        })
    }
}

/// Arguments with which Python's `open` is called.
type OpenArguments = (
    String,
    i32,
    Option<i64>,
    Option<i64>,
    &'static str,
    Option<String>,
    BTreeMap<String, String>,
    bool,
);

fn arguments(request: &ReadRequest) -> OpenArguments {
    (
        request.topic.clone(),
        request.partition,
        request.start,
        request.stop,
        match request.isolation {
            Isolation::ReadUncommitted => "read_uncommitted",
            Isolation::ReadCommitted => "read_committed",
        },
        request.place.bootstrap_servers.clone(),
        request.place.client.clone(),
        request.fail_on_data_loss,
    )
}

fn sentence_of(py: Python<'_>, error: &PyErr) -> Error {
    Error::InvalidArgument(error.value(py).to_string())
}

fn settings(idle_ms_max: i64) -> ServerSettings {
    ServerSettings {
        // A negative limit is none, as in Kafka; zero would be none to the system.
        idle: u64::try_from(idle_ms_max)
            .ok()
            .map(|idle_ms| Duration::from_millis(idle_ms.max(1))),
        memory_bytes: memory_bytes(),
        ..ServerSettings::default()
    }
}

fn start(
    py: Python<'_>,
    listener: RawFd,
    home: Box<dyn Home>,
    settings: ServerSettings,
    descriptors: Option<Arc<dyn Descriptors>>,
) -> PyResult<PyArrowServer> {
    // SAFETY: the caller gives up the descriptor, that of a listening TCP socket.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(listener) });
    let server = enter(py, || {
        ArrowServer::start(listener, home, settings, descriptors)
    })?;
    Ok(PyArrowServer { server })
}
