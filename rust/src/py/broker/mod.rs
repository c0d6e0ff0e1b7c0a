//! The node for Python: its start, its stop, and the objects that hold the rest.
#![expect(
    unsafe_code,
    reason = "Python hands over listening sockets as descriptors"
)]

pub mod claim;
pub mod figures;
pub mod leaders;
pub mod log_calls;
pub mod moves;
pub mod requests;
mod settings;
mod state;
pub mod topics;

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::api::{ApiKey, HOT_KEYS};
use crate::codec::Message;
use crate::error::{Error, Result};
use crate::log::maintain::housekeeper::CleanerSettings;
use crate::net::broker_core::BrokerCore;
use crate::net::mailbox::Mailboxes;
use crate::net::settings::Settings;
use crate::node::{Loaded, LostRecords, Moved, Node};
use crate::py::arrow_server::{PyArrowServer, serve_node};
use crate::py::door::{enter, raise};
use claim::ClaimedDirectories;
use figures::Figures;
use leaders::Leaders;
use log_calls::Logs;
use moves::Moves;
use requests::Requests;
use settings::{GivenCleaner, GivenLimits, GivenSettings};
use state::BrokerState;
use topics::{GivenTopic, Topics, topic_plans};

/// One node: its log directories, and from `start` to `stop` its network threads.
#[pyclass(frozen, name = "BrokerCore", module = "kafkalite._native")]
pub struct PyBrokerCore {
    broker: Arc<BrokerState>,
    #[pyo3(get)]
    requests: Py<Requests>,
    #[pyo3(get)]
    logs: Py<Logs>,
    #[pyo3(get)]
    leaders: Py<Leaders>,
    #[pyo3(get)]
    moves: Py<Moves>,
    #[pyo3(get)]
    topics: Py<Topics>,
    /// Repairs at the start, a sentence each.
    #[pyo3(get)]
    repairs: Vec<String>,
    /// Topic and index of each partition that lacks records which were on
    /// disk, or had no log at all.
    #[pyo3(get)]
    lost: Vec<LostRecords>,
    /// Topic and index of each partition whose log could not be made at the start.
    #[pyo3(get)]
    unmade: Vec<(String, i32)>,
    moved: Vec<Moved>,
    settings: GivenSettings,
    cleaner: CleanerSettings,
}

#[pymethods]
impl PyBrokerCore {
    /// Takes over the log directories and loads the logs of `topics`.
    #[new]
    #[pyo3(signature = (*, claimed, topics, settings, cleaner))]
    fn new(
        py: Python<'_>,
        claimed: &ClaimedDirectories,
        topics: HashMap<String, GivenTopic>,
        settings: HashMap<String, i64>,
        cleaner: GivenCleaner,
    ) -> PyResult<PyBrokerCore> {
        let settings = GivenSettings::new(settings);
        let (loaded, mailboxes) = enter(py, || {
            let mailboxes = Mailboxes::new(settings.network_threads()?)
                .map_err(Error::io("eventfd", std::path::Path::new("/proc/self")))?;
            let plans = topic_plans(topics)?;
            let loaded = Node::load(claimed.take()?, &plans, mailboxes.clone())?;
            Ok((loaded, mailboxes))
        })?;
        let Loaded {
            node,
            notes,
            moved,
            lost,
            unmade,
        } = loaded;
        let broker = Arc::new(BrokerState {
            node: Arc::new(node),
            mailboxes,
            core: Mutex::new(None),
        });
        Ok(PyBrokerCore {
            requests: Py::new(py, Requests::new(broker.clone()))?,
            logs: Py::new(py, Logs::new(broker.clone()))?,
            leaders: Py::new(py, Leaders::new(broker.clone()))?,
            moves: Py::new(py, Moves::new(broker.clone()))?,
            topics: Py::new(py, Topics::new(broker.clone()))?,
            broker,
            repairs: notes,
            lost,
            unmade,
            moved,
            settings,
            cleaner: cleaner.into(),
        })
    }

    /// Topic id and index of each partition that lay in another directory than `topics` said, and
    /// the id of that directory.
    #[getter]
    fn moved<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, i32, Bound<'py, PyBytes>)> {
        let moved = self.moved.iter();
        moved
            .map(|each| {
                let topic_id = PyBytes::new(py, &each.topic_id.0);
                let directory_id = PyBytes::new(py, &each.directory_id.0);
                (topic_id, each.partition, directory_id)
            })
            .collect()
    }

    /// The cluster id in the log directories.
    #[getter]
    fn cluster_id(&self) -> String {
        self.broker.node.image().cluster_id.clone()
    }

    /// The api keys that Rust answers, with their names.
    #[staticmethod]
    fn native_keys() -> HashMap<i16, &'static str> {
        let named = |key: &ApiKey| (key.key, Message::name_of_key(key.key).unwrap_or_default());
        HOT_KEYS.iter().map(named).collect()
    }

    /// Serves clients from now on.
    ///
    /// `listeners` are descriptors of listening sockets, which this takes over; `endpoints` what
    /// clients of each are told; `control_keys` (key, advertised lowest, lowest, highest, first
    /// flexible version) of the keys that Python answers; `names` those of the listeners, and
    /// `limits` those of their connections. A broker among others gives its `registration`,
    /// which is its broker epoch and the place of its inter-broker listener: from now on its
    /// replicas follow their leaders.
    #[pyo3(signature = (listeners, control_keys, *, names, limits, registration=None))]
    fn start(
        &self,
        py: Python<'_>,
        listeners: Vec<RawFd>,
        control_keys: Vec<(i16, i16, i16, i16, i16)>,
        names: Vec<String>,
        limits: GivenLimits,
        registration: Option<(i64, usize)>,
    ) -> PyResult<()> {
        let settings = self.started_with(&names, limits, registration);
        let settings = settings.map_err(|error| raise(py, &error))?;
        // SAFETY: the caller gives up the descriptors, each of a listening TCP socket.
        let listeners: Vec<TcpListener> = listeners
            .into_iter()
            .map(|descriptor| unsafe { TcpListener::from(OwnedFd::from_raw_fd(descriptor)) })
            .collect();
        let keys = control_keys
            .into_iter()
            .map(|(key, advertised_min, min, max, flexible)| ApiKey {
                key,
                advertised_min,
                min,
                max,
                first_flexible: flexible,
            });
        let keys = keys.collect();
        enter(py, || {
            let mut core = self.broker.core.lock();
            if core.is_some() {
                return Err(Error::InvalidArgument(
                    "the node has started already".to_owned(),
                ));
            }
            *core = Some(Arc::new(BrokerCore::start(
                settings,
                self.broker.mailboxes.clone(),
                self.broker.node.clone(),
                keys,
                listeners,
            )?));
            Ok(())
        })
    }

    /// Serves ranges of this node's logs as Arrow on a listening socket, which this takes over.
    fn serve_arrow(
        &self,
        py: Python<'_>,
        listener: RawFd,
        idle_ms_max: i64,
    ) -> PyResult<PyArrowServer> {
        let shared = &self.broker.started(py)?.shared;
        serve_node(py, shared, listener, idle_ms_max)
    }

    /// Limits of connections from now on.
    fn set_connection_limits(&self, py: Python<'_>, limits: GivenLimits) -> PyResult<()> {
        let shared = &self.broker.started(py)?.shared;
        let limits = limits.parsed().map_err(|error| raise(py, &error))?;
        shared.set_connection_limits(limits);
        Ok(())
    }

    /// How the cleaners work from now on.
    fn set_cleaner(&self, py: Python<'_>, cleaner: GivenCleaner) -> PyResult<()> {
        enter(py, || {
            self.broker.node.set_cleaner(cleaner.into());
            Ok(())
        })
    }

    /// Bytes a second that go to throttled replicas, and come to them, from now on at most.
    fn set_replication_throttles(&self, leader_rate: i64, follower_rate: i64) {
        let replication = self.broker.node.replication();
        let (leader, follower) = (&replication.leader_throttle, &replication.follower_throttle);
        leader.set_bytes_per_second_max(leader_rate);
        follower.set_bytes_per_second_max(follower_rate);
    }

    /// Replicas that leave the in-sync ones from now on are fetched no more.
    fn begin_controlled_shutdown(&self) {
        self.broker.node.begin_controlled_shutdown();
    }

    /// The log directories that could not be taken, or have failed since.
    fn offline_log_dirs(&self) -> Vec<String> {
        let paths = self.broker.node.offline_log_dirs();
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    /// Counts and sizes of the node, from `start` on.
    fn figures(&self, py: Python<'_>) -> PyResult<Figures> {
        Ok(Figures::new(
            self.broker.node.clone(),
            self.broker.started(py)?,
        ))
    }

    /// Takes no more requests, has those that are parked answered, and ends the threads. Frames
    /// that Python has must be answered meanwhile, by another thread; then `wait` gives None.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.broker.core.lock().clone();
        enter(py, || {
            if let Some(core) = core {
                core.stop();
            }
            Ok(())
        })
    }

    /// The clean stop of the log directories, after `stop`: everything on disk,
    /// checkpoints, and last the marker of a clean shutdown. Returns those that could not
    /// be stopped so, with the reason.
    fn close(&self, py: Python<'_>, broker_epoch: i64) -> PyResult<Vec<(String, String)>> {
        let core = self.broker.core.lock().clone();
        enter(py, || {
            if let Some(core) = core {
                core.finish_changes();
            }
            let failed = self.broker.node.close(broker_epoch).into_iter();
            Ok(failed
                .map(|(path, error)| (path.to_string_lossy().into_owned(), error.to_string()))
                .collect())
        })
    }
}

impl PyBrokerCore {
    /// The settings with which `start` is called.
    fn started_with(
        &self,
        names: &[String],
        limits: GivenLimits,
        registration: Option<(i64, usize)>,
    ) -> Result<Settings> {
        let node_id = self.broker.node.node_id();
        let replication = registration.map(|(broker_epoch, listener)| {
            self.settings.replication(node_id, broker_epoch, listener)
        });
        let (cleaner, limits) = (self.cleaner, limits.parsed()?);
        self.settings
            .settings(cleaner, names, limits, replication.transpose()?)
    }
}
