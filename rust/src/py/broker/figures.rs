//! The counts of a broker at this moment, for `kafkalite.service.metrics`: read out of
//! memory, without a lock that anybody holds across a file operation, so that it may be asked
//! at any time by any thread.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use crate::clock::monotonic_ms;
use crate::net::broker_core::BrokerCore;
use crate::net::shared::Shared;
use crate::node::Node;
use crate::py::door::enter;
use crate::replica::park::WaitFor;
use crate::replica::throttle::Throttle;
use crate::replica::{LeaderFacts, Role};

/// The figures of one node, while it runs and after.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct Figures {
    node: Arc<Node>,
    core: Arc<BrokerCore>,
}

/// A partition's log: where it begins and ends, what it takes on disk, and what has gone in and
/// out since it was opened.
#[pyclass(frozen, get_all, module = "kafkalite._native")]
pub struct PartitionFigures {
    topic: String,
    partition: i32,
    log_start_offset: i64,
    log_end_offset: i64,
    size_bytes: u64,
    segments: usize,
    appended_records: u64,
    appended_bytes: u64,
    replicated_bytes: u64,
    fetched_bytes: u64,
    committed_cuts: u64,
    lag: Option<i64>,
}

impl Figures {
    pub fn new(node: Arc<Node>, core: Arc<BrokerCore>) -> Figures {
        Figures { node, core }
    }
}

#[pymethods]
impl Figures {
    /// The counters and gauges of the broker as a whole, by name.
    fn counts(&self, py: Python<'_>) -> PyResult<HashMap<&'static str, i64>> {
        enter(py, || Ok(counts_of(&self.core.shared)))
    }

    /// Requests begun, by their key; those that have not come are left out.
    fn requests(&self, py: Python<'_>) -> PyResult<HashMap<usize, u64>> {
        enter(py, || {
            let counts = self.core.shared.counts.requests.iter().enumerate();
            let counts = counts.map(|(key, count)| (key, count.load(Ordering::Relaxed)));
            Ok(counts.filter(|(_, count)| *count > 0).collect())
        })
    }

    /// Each partition whose log directory is in use, in no order.
    fn partitions(&self, py: Python<'_>) -> PyResult<Vec<PartitionFigures>> {
        enter(py, || {
            let image = self.node.image();
            let partitions = image.topics().flat_map(|topic| topic.replicas());
            let online = partitions.filter(|partition| !partition.is_offline());
            Ok(online
                .map(|partition| {
                    let (log, offsets) = (&partition.log, partition.log.offsets());
                    let (size_bytes, segments) = log.size();
                    PartitionFigures {
                        topic: log.topic().to_owned(),
                        partition: partition.index,
                        log_start_offset: offsets.log_start_offset,
                        log_end_offset: offsets.log_end_offset,
                        size_bytes,
                        segments,
                        appended_records: log.traffic().appended_records(),
                        appended_bytes: log.traffic().appended_bytes(),
                        replicated_bytes: log.traffic().replicated_bytes(),
                        fetched_bytes: log.traffic().fetched_bytes(),
                        committed_cuts: log.traffic().committed_cuts(),
                        lag: partition.lag(),
                    }
                })
                .collect())
        })
    }

    /// Requests that wait: for records to be committed (Produce, and what coordinators write), and
    /// for records to come (Fetch).
    fn waiting(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        enter(py, || {
            let (mut writers, mut readers) = (HashSet::new(), HashSet::new());
            let image = self.node.image();
            for partition in image.topics().flat_map(|topic| topic.replicas()) {
                partition.waiters.look(|parked, wait_for| {
                    match wait_for {
                        WaitFor::Committed(_) | WaitFor::LowWatermark(_) => writers.insert(parked),
                        WaitFor::HighWatermark(_) | WaitFor::LastStable(_) | WaitFor::LogEnd(_) => {
                            readers.insert(parked)
                        }
                    };
                });
            }
            Ok((writers.len(), readers.len()))
        })
    }

    /// Path of each log directory in use, how many flushes have ended there, and what they have
    /// taken together, seconds.
    fn flushes(&self, py: Python<'_>) -> PyResult<Vec<(PathBuf, u64, f64)>> {
        enter(py, || {
            let directories = self.node.directories().iter();
            Ok(directories
                .map(|directory| {
                    let totals = directory.flush_totals();
                    let path = directory.path().to_path_buf();
                    (path, totals.count, totals.time.as_secs_f64())
                })
                .collect())
        })
    }
}

fn counts_of(shared: &Shared) -> HashMap<&'static str, i64> {
    let counts = &shared.counts;
    let (sessions, session_partitions, evicted) = shared.context.fetch_sessions.counts();
    let of = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let leading = LeadingCounts::of(&shared.node);
    let replication = shared.node.replication();
    HashMap::from([
        ("at_min_isr_partitions", leading.at_min_isr),
        ("connections", shared.admission.count() as i64),
        ("fetch_session_partitions", session_partitions as i64),
        ("fetch_sessions", sessions as i64),
        ("fetch_sessions_evicted", evicted as i64),
        ("held_bytes", shared.memory.used_bytes()),
        ("held_bytes_max", shared.memory.size_bytes()),
        (
            "hoarding_closed_connections",
            of(counts.hoarders_closed.load(Ordering::Relaxed)),
        ),
        (
            "idle_closed_connections",
            of(counts.idle_closed.load(Ordering::Relaxed)),
        ),
        (
            "isr_expands",
            of(replication.isr_expands.load(Ordering::Relaxed)),
        ),
        (
            "isr_shrinks",
            of(replication.isr_shrinks.load(Ordering::Relaxed)),
        ),
        ("leaders", leading.leaders),
        ("moved_bytes", of(shared.node.moves().copied_bytes())),
        ("moves", shared.node.moves().count() as i64),
        ("moves_lag_max", shared.node.moves().lag_max()),
        (
            "moving_bytes_per_second",
            rate_of(shared.node.moves().throttle()),
        ),
        (
            "received_bytes",
            of(counts.received_bytes.load(Ordering::Relaxed)),
        ),
        (
            "refused_connections",
            of(counts.refused_connections.load(Ordering::Relaxed)),
        ),
        (
            "replicated_bytes_per_second",
            rate_of(&replication.follower_throttle),
        ),
        (
            "replicating_bytes_per_second",
            rate_of(&replication.leader_throttle),
        ),
        ("sent_bytes", of(counts.sent_bytes.load(Ordering::Relaxed))),
        ("storage_hand_overs", of(shared.storage.hand_overs())),
        ("under_min_isr_partitions", leading.under_min_isr),
        ("under_replicated_partitions", leading.under_replicated),
    ])
}

/// The bytes a second that go for throttled replicas.
fn rate_of(throttle: &Throttle) -> i64 {
    throttle.bytes_per_second(monotonic_ms()).round() as i64
}

/// The figures of the partitions that this node leads.
#[derive(Default)]
struct LeadingCounts {
    leaders: i64,
    under_replicated: i64,
    under_min_isr: i64,
    at_min_isr: i64,
}

impl LeadingCounts {
    fn of(node: &Node) -> LeadingCounts {
        let mut counts = LeadingCounts::default();
        let image = node.image();
        let replicas = image.topics().flat_map(|topic| topic.replicas());
        for replica in replicas.filter(|replica| replica.role == Role::Leader) {
            // One that is alone is in sync, and that is all it may be asked for.
            let facts = replica.leader_facts().unwrap_or(LeaderFacts {
                is_at_min_isr: true,
                ..LeaderFacts::default()
            });
            counts.leaders += 1;
            counts.under_replicated += i64::from(facts.is_under_replicated);
            counts.under_min_isr += i64::from(facts.is_under_min_isr);
            counts.at_min_isr += i64::from(facts.is_at_min_isr);
        }
        counts
    }
}
