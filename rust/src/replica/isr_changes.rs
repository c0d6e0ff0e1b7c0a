//! Changes of in-sync replicas on their way from the leaders of this node to the controller:
//! gathered here, and taken by the control thread, which asks for them in AlterPartition requests
//! (`python/kafkalite/replication/proposals/isr.py`).

use std::sync::Arc;

use parking_lot::Mutex;

use crate::replica::leader::Proposal;
use crate::replica::park::{CONTROL_THREAD, Parked, Wake};
use crate::replica::wake_numbers::ISR_CHANGES_NUMBER;
use crate::uuid::Uuid;

/// A proposal, with the partition that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrChange {
    pub topic_id: Uuid,
    pub partition: i32,
    pub proposal: Proposal,
}

pub struct IsrChanges {
    gathered: Mutex<Vec<IsrChange>>,
    waker: Arc<dyn Wake>,
}

impl IsrChanges {
    pub fn new(waker: Arc<dyn Wake>) -> IsrChanges {
        IsrChanges {
            gathered: Mutex::default(),
            waker,
        }
    }

    /// Never waits for whoever takes them.
    pub fn add(&self, change: IsrChange) {
        let mut gathered = self.gathered.lock();
        let is_first = gathered.is_empty();
        gathered.push(change);
        drop(gathered);
        if is_first {
            self.waker.wake(&[Parked {
                thread: CONTROL_THREAD,
                connection: 0,
                slot: ISR_CHANGES_NUMBER,
            }]);
        }
    }

    /// All that have come since, in their order.
    pub fn take(&self) -> Vec<IsrChange> {
        std::mem::take(&mut *self.gathered.lock())
    }
}
