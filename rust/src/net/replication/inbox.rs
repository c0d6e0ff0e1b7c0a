//! Where a fetcher is told what to follow, by threads that must not wait for it.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::replica::follower::Assignment;
use crate::uuid::Uuid;

/// The last change of each partition, by topic id and index; `None`: it is not followed any more.
/// No more than there are partitions, however long the thread waits for a disk.
pub(super) type ByPartition = BTreeMap<(Uuid, i32), Option<Assignment>>;

/// The changes of what a fetcher follows, from its next request on.
#[derive(Default)]
struct Changes {
    changes: ByPartition,
    is_stopping: bool,
    /// Something has happened for which it may look again.
    is_woken: bool,
    /// The socket of the connection, so that a stop need not wait for an answer.
    socket: Option<TcpStream>,
}

/// Where a fetcher is told what to follow. Never waits for its thread.
#[derive(Default)]
pub(super) struct Inbox {
    changes: Mutex<Changes>,
    changed: Condvar,
}

impl Inbox {
    /// The next request is for all of them.
    pub fn assign(&self, assigned: Vec<Assignment>) {
        self.put(|changes| {
            let by_key = assigned.into_iter().map(|assignment| {
                let key = (assignment.topic_id, assignment.partition.index);
                (key, Some(assignment))
            });
            changes.changes.extend(by_key);
        });
    }

    pub fn remove(&self, key: (Uuid, i32)) {
        self.put(|changes| drop(changes.changes.insert(key, None)));
    }

    /// Has it look again, if it waits after a failure.
    pub fn wake(&self) {
        self.put(|_| ());
    }

    /// Ends it, and what it waits for.
    pub fn stop(&self) {
        self.put(|changes| {
            changes.is_stopping = true;
            if let Some(socket) = &changes.socket {
                // Where it is closed already nobody waits for it.
                let _ = socket.shutdown(Shutdown::Both);
            }
        });
    }

    pub fn is_empty(&self) -> bool {
        self.changes.lock().changes.is_empty()
    }

    /// Something else is to be followed than its thread knows, or nothing any more.
    pub fn is_waiting(&self) -> bool {
        let changes = self.changes.lock();
        changes.is_stopping || !changes.changes.is_empty()
    }

    fn put(&self, change: impl FnOnce(&mut Changes)) {
        let mut changes = self.changes.lock();
        change(&mut changes);
        changes.is_woken = true;
        self.changed.notify_one();
    }

    /// Takes what has come; waits for it at most `wait`. `None`: the fetcher is to end.
    pub fn take(&self, wait: Duration) -> Option<ByPartition> {
        let due = Instant::now() + wait;
        let mut changes = self.changes.lock();
        while !changes.is_woken && !changes.is_stopping {
            if self.changed.wait_until(&mut changes, due).timed_out() {
                break;
            }
        }
        changes.is_woken = false;
        if changes.is_stopping {
            None
        } else {
            Some(std::mem::take(&mut changes.changes))
        }
    }

    /// False: the fetcher is to end.
    pub fn set_socket(&self, socket: Option<TcpStream>) -> bool {
        let mut changes = self.changes.lock();
        changes.socket = socket;
        !changes.is_stopping
    }
}
