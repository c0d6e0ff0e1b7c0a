//! A replica on this node, in one role and one leader epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::batch::AppendOrigin;
use crate::batch::header::NO_LEADER_EPOCH;
use crate::error::{Error, Result};
use crate::image::PartitionRegistration;
use crate::log::append::{AppendInfo, AppendRequest};
use crate::log::directory::LogDirectory;
use crate::log::log::Log;
use crate::replica::home::Home;
use crate::replica::leading::Leading;
use crate::replica::park::{StopReason, Waiters};
use crate::replica::replication::Replication;
use crate::replica::turns::Turns;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    Follower,
}

impl Role {
    fn of(registration: &PartitionRegistration, node_id: i32) -> Role {
        if registration.leader_id == node_id {
            Role::Leader
        } else {
            Role::Follower
        }
    }
}

/// See the module. `role` and `leader_epoch` are those of the metadata in which it was published.
pub struct Partition {
    pub index: i32,
    pub role: Role,
    pub leader_epoch: i32,
    /// The log's number of this role in this epoch (`Log::begin_role`).
    pub(super) role_number: u64,
    /// The high watermark of the leader that this replica follows, as told last; -1: not yet.
    pub(super) leader_high_watermark: AtomicI64,
    pub log: Arc<Log>,
    pub waiters: Arc<Waiters>,
    /// Of records that were put off since it takes long to judge them, by the replica before this
    /// one too: they are for the same log.
    turns: Arc<Turns>,
    home: Home,
    /// Its knowledge of the other replicas, where it leads them. `None`: there is no other.
    pub(super) leading: Option<Leading>,
    pub(super) replication: Arc<Replication>,
}

/// Batches for a partition, by who brings them.
pub enum Batches<'a> {
    /// `guard`: that of the verification of its transaction, if there is one. `acks_all`: the
    /// client waits until all in-sync replicas have them.
    OfClient {
        records: &'a mut [u8],
        guard: u64,
        acks_all: bool,
    },
    /// `transaction_version`: of the transactions that markers among them end. `decided_in`: the
    /// leader epoch in which the coordinator has decided them, by what the log held until then:
    /// they are taken in no other; `None`: in any.
    OfCoordinator {
        records: &'a mut [u8],
        transaction_version: Option<i16>,
        decided_in: Option<i32>,
    },
}

impl Partition {
    /// Puts a log into the role that `registration` gives this node, from which it knows the leader
    /// epoch and whom to tell what becomes of it.
    ///
    /// The waiters are those of `older`, the replica that was in this place before, if both lead:
    /// whoever waits there waits on. What comes to `older` still is refused. The caller publishes
    /// the replica, and then calls `succeed`.
    pub fn new(
        (directory, log): (Arc<LogDirectory>, Arc<Log>),
        registration: &PartitionRegistration,
        replication: &Arc<Replication>,
        older: Option<&Partition>,
        new_waiters: impl FnOnce() -> Waiters,
    ) -> Partition {
        let leader_epoch = registration.leader_epoch;
        let role = Role::of(registration, replication.node_id);
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
        if let Some(leading) = older.and_then(|older| older.leading.as_ref()) {
            leading.end();
        }
        let is_alone = role == Role::Leader && registration.replicas.len() == 1;
        if !is_alone {
            // Before anything is appended in the new role: what counted as replicated in the
            // one before says nothing.
            log.set_replicated_offset(log.high_watermark());
        }
        log.lead(match role {
            Role::Leader => leader_epoch,
            Role::Follower => NO_LEADER_EPOCH,
        });
        let leads_others = role == Role::Leader && !is_alone;
        let replica = Partition {
            index: log.partition(),
            role,
            leader_epoch,
            role_number,
            leader_high_watermark: AtomicI64::new(-1),
            log,
            waiters,
            turns: older.map_or_else(Arc::default, |older| older.turns.clone()),
            home: Home::new(directory),
            leading: leads_others.then(|| Leading::new(replication.node_id, registration)),
            replication: replication.clone(),
        };
        if is_alone {
            replica.log.set_replicated_offset(i64::MAX);
        } else {
            replica.look_again();
        }
        replica
    }

    /// Where the log lies.
    pub fn directory(&self) -> &Arc<LogDirectory> {
        self.home.directory()
    }

    /// The log lies there from now on (`Log::replace_by`).
    pub fn move_to(&self, directory: &Arc<LogDirectory>) {
        self.waiters.move_to(directory.health().clone());
        self.home.move_to(directory);
    }

    /// The metadata has come to this; nothing of it may make another replica of this one (`is_of`).
    pub fn on_registration(&self, registration: &PartitionRegistration) {
        debug_assert!(self.is_of(registration));
        if let Some(leading) = &self.leading {
            leading.on_registration(self, registration);
        }
    }

    /// The replica that this node has by `registration` is this one still.
    pub fn is_of(&self, registration: &PartitionRegistration) -> bool {
        let is_led_so = self.role == Role::of(registration, self.replication.node_id)
            && self.leader_epoch == registration.leader_epoch;
        let leads_others = self.role == Role::Leader && registration.replicas.len() > 1;
        is_led_so && (self.leading.is_some() || !leads_others)
    }

    /// Has those who wait at `older` look again, after this replica was published in its place.
    /// A Fetch that names its leader epoch may be of the epoch before; what a leader has
    /// promised, a follower cannot keep.
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
        self.directory().health().is_offline()
    }

    /// The leader epoch at this moment, which may be a later one than `leader_epoch`.
    ///
    /// Errors: `NotLeader`, `LogDeleted`.
    pub fn leading_epoch(&self) -> Result<i32> {
        match (self.waiters.ended(), self.log.leading_epoch()) {
            (None, NO_LEADER_EPOCH) | (Some(StopReason::NotLeader { .. }), _) => {
                Err(self.not_leader())
            }
            (Some(StopReason::Deleted), _) => Err(self.deleted()),
            (None, leader_epoch) => Ok(leader_epoch),
        }
    }

    /// Records that were appended here, up to `last_offset`, are committed.
    /// `None`: they may still be.
    ///
    /// Errors: why they never will be, as far as this node can tell: `NotLeader`, `LogDeleted`,
    /// that of a log directory that has failed.
    pub fn committed(&self, last_offset: i64) -> Option<Result<()>> {
        // Before it is asked who leads: it is told here that another one does before records
        // of that one can move it.
        let is_passed = self.log.high_watermark() > last_offset;
        let ended = self.waiters.ended();
        if matches!(ended, Some(StopReason::NotLeader { .. })) {
            // Whatever the high watermark has reached: the records may be another leader's.
            return Some(Err(self.not_leader()));
        }
        if is_passed {
            return Some(Ok(()));
        }
        match ended {
            Some(_) => Some(Err(self.deleted())),
            None => self.directory().health().check().err().map(Err),
        }
    }

    fn not_leader(&self) -> Error {
        Error::NotLeader {
            topic: self.log.topic().to_owned(),
            partition: self.index,
        }
    }

    /// As `committed`, for a client that wants as many replicas to have them as
    /// `min.insync.replicas` asks for.
    ///
    /// Errors: as `committed`; `NotEnoughReplicasAfterAppend`.
    pub fn acknowledged(&self, last_offset: i64) -> Option<Result<()>> {
        let committed = self.committed(last_offset)?;
        let is_under = || {
            let leading = self.leading.as_ref();
            leading.is_some_and(|leading| {
                leading.is_maximal_under_min_isr(self.min_in_sync_replicas())
            })
        };
        match committed {
            Ok(()) if is_under() => Some(Err(self.not_enough_replicas_after_append())),
            committed => Some(committed),
        }
    }

    pub(super) fn min_in_sync_replicas(&self) -> usize {
        self.log.config().min_in_sync_replicas as usize
    }

    /// Errors: `NotEnoughReplicas`, where records that all in-sync replicas
    /// are to have are not taken.
    fn check_in_sync(&self) -> Result<()> {
        let is_under = self
            .leading
            .as_ref()
            .is_some_and(|leading| leading.is_under_min_isr(self.min_in_sync_replicas()));
        if is_under {
            Err(Error::NotEnoughReplicas {
                topic: self.log.topic().to_owned(),
                partition: self.index,
            })
        } else {
            Ok(())
        }
    }

    fn not_enough_replicas_after_append(&self) -> Error {
        Error::NotEnoughReplicasAfterAppend {
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

    /// Nothing for this partition was put off that has not been appended since.
    pub fn nobody_waits(&self) -> bool {
        self.turns.nobody_waits()
    }

    /// Pieces that are put off, for any partition of this node.
    pub fn turns_open(&self) -> usize {
        self.replication.turns_open.load(Ordering::Relaxed)
    }

    /// A turn for records that are put off, which has to end (`Turns::take`).
    pub fn take_turn(&self) -> u64 {
        self.replication.turns_open.fetch_add(1, Ordering::Relaxed);
        self.turns.take()
    }

    pub fn is_at(&self, turn: u64) -> bool {
        self.turns.is_at(turn)
    }

    pub fn end_turn(&self, turn: u64) {
        self.turns.end(turn);
        self.replication.turns_open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Appends batches in the leader epoch of the moment at which the append lock is had, each
    /// an answer in their order. A change of role or epoch does not wait for an append that is
    /// under way, since its log directory may not answer: that one ends as it began, and the
    /// next one sees the change.
    ///
    /// Errors, of each: as `leading_epoch`, and as `Log::append`; `NotLeader` of all,
    /// where one of them was decided in another epoch; `NotEnoughReplicas`, where it is to
    /// be on all in-sync replicas.
    pub fn append<'a>(
        &self,
        batches: impl ExactSizeIterator<Item = Batches<'a>>,
        now_ms: i64,
    ) -> Vec<Result<AppendInfo>> {
        let mut any_bytes = usize::MAX;
        self.append_within(batches, now_ms, &mut any_bytes)
    }

    /// As `append`, but no more than `inflated_bytes_left` are inflated for it; what was is taken
    /// away. Those for which that is not enough, and those behind them, are `TooCostly`.
    pub fn append_within<'a>(
        &self,
        batches: impl ExactSizeIterator<Item = Batches<'a>>,
        now_ms: i64,
        inflated_bytes_left: &mut usize,
    ) -> Vec<Result<AppendInfo>> {
        // Before the batches are looked at, as in Kafka; what counts is the answer under the lock.
        if let Err(error) = self.leading_epoch() {
            return batches.map(|_| Err(error.clone())).collect();
        }
        if let Err(error) = self.check_in_sync() {
            return self.append_without_acks_all(batches, now_ms, inflated_bytes_left, &error);
        }
        self.append_all(batches, now_ms, inflated_bytes_left)
    }

    /// Refuses those that all in-sync replicas are to have, and appends the others.
    fn append_without_acks_all<'a>(
        &self,
        batches: impl ExactSizeIterator<Item = Batches<'a>>,
        now_ms: i64,
        inflated_bytes_left: &mut usize,
        refusal: &Error,
    ) -> Vec<Result<AppendInfo>> {
        let mut answers = Vec::with_capacity(batches.len());
        let mut taken = Vec::new();
        for each in batches {
            match each {
                Batches::OfClient {
                    acks_all: false, ..
                } => {
                    answers.push(None);
                    taken.push(each);
                }
                _ => answers.push(Some(Err(refusal.clone()))),
            }
        }
        let appended = self.append_all(taken.into_iter(), now_ms, inflated_bytes_left);
        let mut appended = appended.into_iter();
        let answers = answers
            .into_iter()
            .filter_map(|refused| refused.or_else(|| appended.next()));
        answers.collect()
    }

    fn append_all<'a>(
        &self,
        batches: impl ExactSizeIterator<Item = Batches<'a>>,
        now_ms: i64,
        inflated_bytes_left: &mut usize,
    ) -> Vec<Result<AppendInfo>> {
        let leader_epoch = NO_LEADER_EPOCH;
        let mut epochs = Vec::new();
        let requests = batches.map(|batches| match batches {
            Batches::OfClient { records, guard, .. } => AppendRequest {
                records,
                origin: AppendOrigin::Client,
                leader_epoch,
                transaction_version: None,
                guard: Some(guard),
            },
            Batches::OfCoordinator {
                records,
                transaction_version,
                decided_in,
            } => {
                epochs.extend(decided_in);
                AppendRequest {
                    records,
                    origin: AppendOrigin::Coordinator,
                    leader_epoch,
                    transaction_version,
                    guard: None,
                }
            }
        });
        let mut requests: Vec<AppendRequest<'_>> = requests.collect();
        let leading_epoch = || {
            let leader_epoch = self.leading_epoch()?;
            if epochs.iter().all(|epoch| *epoch == leader_epoch) {
                Ok(leader_epoch)
            } else {
                Err(self.not_leader())
            }
        };
        self.log
            .append_as_leader(&mut requests, now_ms, inflated_bytes_left, leading_epoch)
    }

    /// Asks for a flush of what was appended so far. Does not wait.
    pub fn request_flush(&self) {
        self.directory().request_flush(&self.log);
    }

    /// Waits until what was appended so far is on disk, or the directory has failed.
    pub fn flush(&self) {
        self.directory().flush_here(&self.log);
    }
}
