//! A replica on this node, in one role and one leader epoch.

use std::sync::Arc;

use crate::batch::AppendOrigin;
use crate::error::{Error, Result};
use crate::log::append::{AppendInfo, AppendRequest};
use crate::log::directory::LogDirectory;
use crate::log::log::Log;
use crate::replica::park::{StopReason, Waiters};

/// The `leading_epoch` of a log whose replica does not lead.
const NO_EPOCH: i32 = -1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
}

/// See the module. `role` and `leader_epoch` are those of the metadata in which it was published.
pub struct Partition {
    pub index: i32,
    pub role: Role,
    pub leader_epoch: i32,
    /// That of the log for this role in this epoch (`Log::begin_role`).
    pub(super) role_number: u64,
    pub log: Arc<Log>,
    pub waiters: Arc<Waiters>,
    /// Where the log lies.
    pub directory: Arc<LogDirectory>,
}

/// Batches for a partition, by who brings them.
pub enum Batches<'a> {
    /// `guard`: that of the verification of its transaction, if there is one.
    OfClient { records: &'a mut [u8], guard: u64 },
    /// `transaction_version`: of the transactions that markers among them end.
    OfCoordinator {
        records: &'a mut [u8],
        transaction_version: Option<i16>,
    },
}

impl Partition {
    /// Puts a log into a role, from which it knows the leader epoch and whom to tell what becomes of it.
    ///
    /// The waiters are those of `older`, the replica that was in this place before, if both lead: whoever
    /// waits there waits on. The caller publishes the replica, and then calls `succeed`.
    pub fn new(
        (directory, log): (Arc<LogDirectory>, Arc<Log>),
        role: Role,
        leader_epoch: i32,
        older: Option<&Partition>,
        new_waiters: impl FnOnce() -> Waiters,
    ) -> Partition {
        assert!(leader_epoch >= 0, "an elected leader has an epoch");
        if let Some(older) = older {
            assert!(
                leader_epoch >= older.leader_epoch,
                "the leader epoch of {}-{} goes back from {} to {leader_epoch}",
                log.topic(),
                log.partition(),
                older.leader_epoch
            );
        }
        let goes_on = older.filter(|older| older.role == Role::Leader && role == Role::Leader);
        let waiters = match goes_on {
            Some(older) => older.waiters.clone(),
            None => Arc::new(new_waiters()),
        };
        log.set_observer(waiters.clone());
        let role_number = log.begin_role();
        log.lead(match role {
            Role::Leader => leader_epoch,
            Role::Follower => NO_EPOCH,
        });
        if role == Role::Follower {
            // What it appends is not committed by that: its leader says how far that is.
            log.set_replicated_offset(log.high_watermark());
        }
        Partition {
            index: log.partition(),
            role,
            leader_epoch,
            role_number,
            log,
            waiters,
            directory,
        }
    }

    /// Bounds the high watermark by the in-sync replicas of the metadata. A leader that is the only one of
    /// them commits what it has by itself; beside others nothing more is committed until they have it. A
    /// follower is told by its leader, and by nobody else.
    pub fn set_in_sync_replicas(&self, node_id: i32, in_sync_replicas: &[i32]) {
        if self.role == Role::Follower {
            return;
        }
        let is_alone = in_sync_replicas == [node_id];
        let replicated_offset = match is_alone {
            true => i64::MAX,
            false => self.log.high_watermark(),
        };
        self.log.set_replicated_offset(replicated_offset);
    }

    /// Has those who wait at `older` look again, after this replica was published in its place. A Fetch that
    /// names its leader epoch may be of the epoch before; what a leader has promised, a follower cannot keep.
    pub fn succeed(&self, older: &Partition) {
        if Arc::ptr_eq(&self.waiters, &older.waiters) {
            older.waiters.wake_readers();
        } else {
            older.end(self.leader_epoch);
        }
    }

    /// Tells those who wait here that this node does not lead any more, since this leader epoch.
    pub fn end(&self, leader_epoch: i32) {
        self.waiters.end(StopReason::NotLeader { leader_epoch });
    }

    /// Its log directory has failed. What of it is in memory is not told either, as in Kafka.
    pub fn is_offline(&self) -> bool {
        self.directory.health().is_offline()
    }

    /// The leader epoch at this moment, which may be a later one than `leader_epoch`.
    ///
    /// Errors: `NotLeader`, `LogDeleted`.
    pub fn leading_epoch(&self) -> Result<i32> {
        match (self.waiters.ended(), self.log.leading_epoch()) {
            (None, NO_EPOCH) | (Some(StopReason::NotLeader { .. }), _) => Err(self.not_leader()),
            (Some(StopReason::Deleted), _) => Err(self.deleted()),
            (None, leader_epoch) => Ok(leader_epoch),
        }
    }

    /// Records that were appended here, up to `last_offset`, are committed. `None`: they may still be.
    ///
    /// Errors: why they never will be, as far as this node can tell: `NotLeader`, `LogDeleted`, that of a
    /// log directory that has failed.
    pub fn committed(&self, last_offset: i64) -> Option<Result<()>> {
        let ended = self.waiters.ended();
        if matches!(ended, Some(StopReason::NotLeader { .. })) {
            // Whatever the high watermark has reached: the records may be another leader's.
            return Some(Err(self.not_leader()));
        }
        if self.log.high_watermark() > last_offset {
            return Some(Ok(()));
        }
        match ended {
            Some(_) => Some(Err(self.deleted())),
            None => self.directory.health().check().err().map(Err),
        }
    }

    fn not_leader(&self) -> Error {
        Error::NotLeader {
            topic: self.log.topic().to_owned(),
            partition: self.index,
        }
    }

    fn deleted(&self) -> Error {
        Error::LogDeleted {
            topic: self.log.topic().to_owned(),
            partition: self.index,
        }
    }

    /// Appends batches in the leader epoch of the moment at which the append lock is had, each an answer in
    /// their order. A change of role or epoch does not wait for an append that is under way, since its log
    /// directory may not answer: that one ends as it began, and the next one sees the change.
    ///
    /// Errors, of each: as `leading_epoch`, and as `Log::append`.
    pub fn append<'a>(
        &self,
        batches: impl ExactSizeIterator<Item = Batches<'a>>,
        now_ms: i64,
    ) -> Vec<Result<AppendInfo>> {
        // Before the batches are looked at, as in Kafka; what counts is the answer under the lock.
        if let Err(error) = self.leading_epoch() {
            return batches.map(|_| Err(error.clone())).collect();
        }
        let leader_epoch = NO_EPOCH;
        let requests = batches.map(|batches| match batches {
            Batches::OfClient { records, guard } => AppendRequest {
                records,
                origin: AppendOrigin::Client,
                leader_epoch,
                transaction_version: None,
                guard: Some(guard),
            },
            Batches::OfCoordinator {
                records,
                transaction_version,
            } => AppendRequest {
                records,
                origin: AppendOrigin::Coordinator,
                leader_epoch,
                transaction_version,
                guard: None,
            },
        });
        let mut requests: Vec<AppendRequest<'_>> = requests.collect();
        let leading_epoch = || self.leading_epoch();
        self.log
            .append_as_leader(&mut requests, now_ms, leading_epoch)
    }

    /// Asks for a flush of what was appended so far. Does not wait.
    pub fn request_flush(&self) {
        self.directory.request_flush(&self.log);
    }

    /// Waits until what was appended so far is on disk, or the directory has failed.
    pub fn flush(&self) {
        self.directory.flush_here(&self.log);
    }
}
