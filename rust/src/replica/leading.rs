//! A replica that leads others: what it knows of them (`leader.rs`) under its lock, and what
//! follows from that for its log, for those who wait, and for the controller.
//!
//! Lock order: the leader's state, then the ends of the log, which is memory only. What may wait
//! for a disk, the append lock above all, and whom it wakes, comes when the state is free again
//! (`Log::after_high_watermark`).

use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};

use crate::error::Result;
use crate::image::PartitionRegistration;
use crate::replica::Partition;
use crate::replica::brokers::RegisteredBrokers;
use crate::replica::isr_changes::IsrChange;
use crate::replica::leader::{
    Circumstances, Effects, FetchRefusal, IsrAnswer, IsrChangeCounts, LeaderState, ReplicaFetch,
};
use crate::uuid::Uuid;

/// The state of a leader. `None`: another replica has taken its place.
pub(super) struct Leading(Mutex<Option<Leader>>);

struct Leader {
    state: LeaderState,
    /// As those who wait were told last.
    low_watermark: i64,
    /// The time of the last event that had one.
    latest_ms: i64,
}

/// The figures that metrics and tools ask of a leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderFacts {
    pub is_under_replicated: bool,
    pub is_under_min_isr: bool,
    pub is_at_min_isr: bool,
}

impl Leading {
    pub fn new(node_id: i32, registration: &PartitionRegistration) -> Leading {
        let state = LeaderState::new(
            node_id,
            registration.leader_epoch,
            registration.partition_epoch,
            &registration.replicas,
            &registration.in_sync_replicas,
        );
        Leading(Mutex::new(Some(Leader {
            state,
            low_watermark: -1,
            latest_ms: 0,
        })))
    }

    /// Another replica takes the place of this one: its followers' fetches and answers to its
    /// proposals count for nothing from now on.
    pub fn end(&self) {
        *self.0.lock() = None;
    }

    pub fn is_under_min_isr(&self, min_in_sync_replicas: usize) -> bool {
        let leader = self.0.lock();
        let state = leader.as_ref().map(|leader| &leader.state);
        state.is_some_and(|state| state.is_under_min_isr(min_in_sync_replicas))
    }

    fn has_in_sync(&self, id: i32) -> bool {
        let leader = self.0.lock();
        let state = leader.as_ref().map(|leader| &leader.state);
        state.is_some_and(|state| state.in_sync_replicas().contains(&id))
    }

    pub fn is_maximal_under_min_isr(&self, min_in_sync_replicas: usize) -> bool {
        let leader = self.0.lock();
        let state = leader.as_ref().map(|leader| &leader.state);
        state.is_some_and(|state| state.is_maximal_under_min_isr(min_in_sync_replicas))
    }

    pub fn on_registration(&self, partition: &Partition, registration: &PartitionRegistration) {
        let changed = partition.change(self.0.lock(), None, |state, at| {
            state.on_registration(
                registration.partition_epoch,
                &registration.replicas,
                &registration.in_sync_replicas,
                at,
            )
        });
        debug_assert!(changed.is_some(), "the metadata knows the newest replica");
    }
}

impl Partition {
    /// A follower fetches from here, and nothing of its fetch was refused. `now_ms` is of a
    /// clock that is not set back.
    pub fn on_replica_fetch(
        &self,
        fetch: &ReplicaFetch,
        now_ms: i64,
    ) -> std::result::Result<(), FetchRefusal> {
        let Some(leading) = &self.leading else {
            return Err(FetchRefusal::NotAssigned);
        };
        let mut refusal = Ok(());
        let changed = self.change(leading.0.lock(), Some(now_ms), |state, at| {
            state.on_fetch(fetch, at).unwrap_or_else(|refused| {
                refusal = Err(refused);
                Effects {
                    replicated_offset: state.replicated_offset(at),
                    proposal: None,
                }
            })
        });
        changed.map_or(Err(FetchRefusal::NotLeader), |()| refusal)
    }

    /// Has followers that are not caught up leave the in-sync replicas, and looks at
    /// the high watermark again.
    pub fn sweep(&self, now_ms: i64) {
        if let Some(leading) = &self.leading {
            self.change(leading.0.lock(), Some(now_ms), |state, at| state.sweep(at));
        }
    }

    /// The controller has answered a proposal of this leader.
    pub fn on_isr_answer(&self, number: u64, answer: IsrAnswer) {
        if let Some(leading) = &self.leading {
            self.change(leading.0.lock(), None, |state, at| {
                state.on_answer(number, answer, at)
            });
        }
    }

    /// Has the log know how far its records are replicated by now: its configuration has changed,
    /// or what is known of other brokers.
    pub fn look_again(&self) {
        if let Some(leading) = &self.leading {
            self.change(leading.0.lock(), None, |state, at| Effects {
                replicated_offset: state.replicated_offset(at),
                proposal: None,
            });
        }
    }

    /// The least log start of the replicas that live; that of the log where there is no other.
    pub fn low_watermark(&self) -> i64 {
        let start = self.log.offsets().log_start_offset;
        let Some(leading) = &self.leading else {
            return start;
        };
        let leader = leading.0.lock();
        let brokers = self.replication.brokers.get();
        leader.as_ref().map_or(start, |leader| {
            leader
                .state
                .low_watermark(&self.circumstances(&brokers, leader.latest_ms))
        })
    }

    /// The replica from which a consumer in this rack is to read instead of this one, where
    /// `replica.selector.class` says so.
    pub fn preferred_read_replica(&self, rack: &str, fetch_offset: i64) -> Option<i32> {
        let leading = self.leading.as_ref()?;
        if !self.replication.is_rack_aware() {
            return None;
        }
        let brokers = self.replication.brokers.get();
        let leader = leading.0.lock();
        let state = &leader.as_ref()?.state;
        state.preferred_read_replica(rack, fetch_offset, &brokers)
    }

    /// Records below the offset are deleted: the low watermark, once no replica that lives has
    /// them. `None`: one may still.
    ///
    /// Errors: `NotLeader`, where another one leads meanwhile.
    pub fn deleted_below(&self, offset: i64) -> Option<Result<i64>> {
        if let Err(error) = self.leading_epoch() {
            return Some(Err(error));
        }
        let low_watermark = self.low_watermark();
        (low_watermark >= offset).then_some(Ok(low_watermark))
    }

    /// The figures of a leader of several replicas; `None` for others.
    pub fn leader_facts(&self) -> Option<LeaderFacts> {
        let min_in_sync_replicas = self.min_in_sync_replicas();
        let leader = self.leading.as_ref()?.0.lock();
        let state = &leader.as_ref()?.state;
        Some(LeaderFacts {
            is_under_replicated: state.is_under_replicated(),
            is_under_min_isr: state.is_under_min_isr(min_in_sync_replicas),
            is_at_min_isr: state.is_at_min_isr(min_in_sync_replicas),
        })
    }

    /// A follower is in sync by the controller's word.
    pub(super) fn has_in_sync(&self, follower_id: i32) -> bool {
        let leading = self.leading.as_ref();
        leading.is_some_and(|leading| leading.has_in_sync(follower_id))
    }

    /// A copy of what it knows of its followers, for those who look.
    pub fn leader_state(&self) -> Option<LeaderState> {
        let leader = self.leading.as_ref()?.0.lock();
        leader.as_ref().map(|leader| leader.state.clone())
    }

    /// Has an event change the state, and carries out what follows. `None`: this
    /// replica does not lead any more.
    fn change(
        &self,
        mut leader: MutexGuard<'_, Option<Leader>>,
        now_ms: Option<i64>,
        event: impl FnOnce(&mut LeaderState, &Circumstances<'_>) -> Effects,
    ) -> Option<()> {
        let Leader {
            state,
            low_watermark,
            latest_ms,
        } = leader.as_mut()?;
        *latest_ms = now_ms.map_or(*latest_ms, |now_ms| now_ms.max(*latest_ms));
        let brokers = self.replication.brokers.get();
        let before = state.counts();
        let at = self.circumstances(&brokers, *latest_ms);
        let effects = event(state, &at);
        let least_start = state.low_watermark(&at);
        let has_risen = least_start > std::mem::replace(low_watermark, least_start);
        self.count_changes(before, state.counts());
        // Under the lock: of two changes the later one must not be overtaken.
        let has_moved = self.log.note_replicated_offset(effects.replicated_offset);
        drop(leader);
        if has_moved {
            self.log.after_high_watermark();
        }
        if has_risen {
            self.waiters.advance_low_watermark(least_start);
        }
        if let Some(proposal) = effects.proposal {
            self.replication.isr_changes.add(IsrChange {
                topic_id: self.log.topic_id().unwrap_or(Uuid::ZERO),
                partition: self.index,
                proposal,
            });
        }
        Some(())
    }

    fn count_changes(&self, before: IsrChangeCounts, after: IsrChangeCounts) {
        if after != before {
            let (shrinks, expands) = (&self.replication.isr_shrinks, &self.replication.isr_expands);
            shrinks.fetch_add(after.shrinks - before.shrinks, Ordering::Relaxed);
            expands.fetch_add(after.expands - before.expands, Ordering::Relaxed);
        }
    }

    fn circumstances<'a>(&self, brokers: &'a RegisteredBrokers, now_ms: i64) -> Circumstances<'a> {
        Circumstances {
            offsets: self.log.offsets(),
            epoch_start_offset: self.log.leading_epoch_start(),
            brokers,
            min_in_sync_replicas: self.min_in_sync_replicas(),
            lag_ms_max: self.replication.lag_ms_max(),
            now_ms,
        }
    }
}
