//! In-sync replicas of the partitions that this node leads, between its leaders and the control
//! thread. That asks the controller for changes of them
//! (`python/kafkalite/replication/proposals/isr.py`).

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::state::BrokerState;
use crate::py::door::enter;
use crate::replica::isr_changes::IsrChange;
use crate::replica::leader::IsrAnswer;
use crate::uuid::Uuid;

/// `kafkalite.replication.proposals.isr.IsrChange`, as a tuple: topic id, partition, number, leader
/// epoch, partition epoch, and the brokers with their epochs.
type GivenChange<'py> = (Bound<'py, PyBytes>, i32, u64, i32, i32, Vec<(i32, i64)>);

#[pyclass(frozen, module = "kafkalite._native")]
pub struct Leaders {
    broker: Arc<BrokerState>,
}

#[pymethods]
impl Leaders {
    /// Takes the changes that leaders have proposed since.
    fn take_changes<'py>(&self, py: Python<'py>) -> Vec<GivenChange<'py>> {
        let changes = self.broker.node.replication().isr_changes.take();
        let given = changes.into_iter().map(|change| {
            let IsrChange {
                topic_id,
                partition,
                proposal,
            } = change;
            (
                PyBytes::new(py, &topic_id.0),
                partition,
                proposal.number,
                proposal.leader_epoch,
                proposal.partition_epoch,
                proposal.in_sync_replicas,
            )
        });
        given.collect()
    }

    /// The controller has carried out a change, and says what holds now.
    fn accept(
        &self,
        py: Python<'_>,
        change: ([u8; 16], i32, u64),
        leader_epoch: i32,
        partition_epoch: i32,
        in_sync_replicas: Vec<i32>,
    ) -> PyResult<()> {
        let accepted = IsrAnswer::Accepted {
            leader_epoch,
            partition_epoch,
            in_sync_replicas,
        };
        self.answer(py, change, accepted)
    }

    /// The controller will not carry out a change.
    fn refuse(&self, py: Python<'_>, change: ([u8; 16], i32, u64)) -> PyResult<()> {
        self.answer(py, change, IsrAnswer::Refused)
    }

    /// A change is to be asked for again, if its leader still wants it.
    fn retry(&self, py: Python<'_>, change: ([u8; 16], i32, u64)) -> PyResult<()> {
        self.answer(py, change, IsrAnswer::Retry)
    }

    /// Has followers that are not caught up leave the in-sync replicas.
    fn sweep(&self, py: Python<'_>) -> PyResult<()> {
        let now_ms = self.broker.started(py)?.shared.monotonic_ms();
        enter(py, || {
            let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
            self.broker.node.sweep_in_sync_replicas(now_ms);
            Ok(())
        })
    }
}

impl Leaders {
    pub fn new(broker: Arc<BrokerState>) -> Leaders {
        Leaders { broker }
    }

    fn answer(
        &self,
        py: Python<'_>,
        (topic_id, partition, number): ([u8; 16], i32, u64),
        answer: IsrAnswer,
    ) -> PyResult<()> {
        enter(py, || {
            let node = &self.broker.node;
            node.settle_in_sync_replicas(&Uuid(topic_id), partition, number, answer);
            Ok(())
        })
    }
}
