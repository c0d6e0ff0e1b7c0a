//! A leader's knowledge of its followers: how far each has come, who of them is in sync, and with
//! that how far the records of the partition are replicated (`kafka.cluster.Partition`, `Replica`).
//! Pure: no clock, no log, no socket.
//!
//! ```text
//! a follower's Fetch ──► on_fetch ──┐                ┌─► replicated_offset, which bounds the high watermark of the log
//! a timer            ──► sweep    ──┼─► LeaderState ─┤
//! the controller     ──► on_answer ─┤                └─► Proposal: in-sync replicas for AlterPartition
//! the metadata       ──► on_registration
//!
//! committed ISR ── expand or shrink ──► proposed ISR ── answer or metadata ──► committed ISR
//! ```
//!
//! - **Maximal ISR**, committed ∪ proposed: a record counts as replicated when all of these have
//!   it, so that it is safe whichever of both the controller holds to be true (KIP-497).
//! - **Strict min ISR**: with fewer committed in-sync replicas than `min.insync.replicas` the high
//!   watermark stands still (KIP-966), for a replica that has left may be elected again.
//! - One change of the in-sync replicas is under way at most; an answer to any other is dropped.

use std::collections::BTreeMap;

use crate::log::state::ends::LogOffsets;
use crate::replica::brokers::RegisteredBrokers;

/// A replica that has not fetched in this leader epoch yet.
const UNKNOWN_OFFSET: i64 = -1;
const NEVER_MS: i64 = i64::MIN;

/// The circumstances by which a leader judges: its own log, the cluster, the settings and the time.
#[derive(Clone, Copy)]
pub struct Circumstances<'a> {
    pub offsets: LogOffsets,
    /// Where this leader epoch begins.
    pub epoch_start_offset: i64,
    pub brokers: &'a RegisteredBrokers,
    /// `min.insync.replicas`
    pub min_in_sync_replicas: usize,
    /// `replica.lag.time.max.ms`
    pub lag_ms_max: i64,
    /// The time, of a clock that is never set back.
    pub now_ms: i64,
}

/// The word of a follower's Fetch about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaFetch {
    pub replica_id: i32,
    /// -1: it does not say.
    pub broker_epoch: i64,
    /// It has everything below.
    pub fetch_offset: i64,
    pub log_start_offset: i64,
    /// The leader's log end before its records were read: what the answer may bring, and
    /// not what came meanwhile.
    pub leader_end_offset: i64,
}

/// Why a follower's Fetch does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchRefusal {
    /// This replica does not lead any more.
    NotLeader,
    /// The broker has no replica of the partition, as far as the metadata has come here.
    NotAssigned,
    /// The broker has registered anew since the process that fetches was started.
    OldBrokerEpoch,
}

/// In-sync replicas that the controller is asked for (`AlterPartition`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Which of all proposals for the partition it is, in whatever leader epoch.
    pub number: u64,
    pub leader_epoch: i32,
    /// The one that it is to replace.
    pub partition_epoch: i32,
    /// Each with the broker epoch in which it fetched, -1 where that is not known.
    pub in_sync_replicas: Vec<(i32, i64)>,
}

/// The controller's answer to a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsrAnswer {
    Accepted {
        leader_epoch: i32,
        partition_epoch: i32,
        in_sync_replicas: Vec<i32>,
    },
    /// It has not been carried out, and will not be.
    Refused,
    /// It may or may not have been: the metadata will say.
    Uncertain,
    /// It is to be asked again.
    Retry,
}

/// The consequences of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// All that is needed have the records below; `i64::MAX`: nobody else is.
    pub replicated_offset: i64,
    pub proposal: Option<Proposal>,
}

/// How many times the in-sync replicas have become fewer and more, by word of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IsrChangeCounts {
    pub shrinks: u64,
    pub expands: u64,
}

/// Another replica of the partition, as its leader knows it (`ReplicaState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Its log end: it has everything below.
    pub log_end_offset: i64,
    pub log_start_offset: i64,
    pub last_fetch_ms: i64,
    /// The leader's log end when it fetched last.
    pub leader_end_at_last_fetch: i64,
    /// When it had all that its leader had.
    pub last_caught_up_ms: i64,
    pub broker_epoch: i64,
}

impl Follower {
    const UNKNOWN: Follower = Follower {
        log_end_offset: UNKNOWN_OFFSET,
        log_start_offset: UNKNOWN_OFFSET,
        last_fetch_ms: NEVER_MS,
        leader_end_at_last_fetch: i64::MAX,
        last_caught_up_ms: NEVER_MS,
        broker_epoch: -1,
    };

    /// It has what the leader has, or had it a short while ago.
    fn is_caught_up(&self, at: &Circumstances<'_>) -> bool {
        self.log_end_offset == at.offsets.log_end_offset
            || at.now_ms.saturating_sub(self.last_caught_up_ms) <= at.lag_ms_max
    }

    /// By the leader's end at the fetch before as well: a follower that is as quick as the
    /// producers is never at the end of now.
    fn note_fetch(&mut self, fetch: &ReplicaFetch, at: &Circumstances<'_>) {
        let leader_end = fetch.leader_end_offset;
        if fetch.fetch_offset >= leader_end {
            self.last_caught_up_ms = self.last_caught_up_ms.max(at.now_ms);
        } else if fetch.fetch_offset >= self.leader_end_at_last_fetch {
            self.last_caught_up_ms = self.last_caught_up_ms.max(self.last_fetch_ms);
        }
        self.log_end_offset = fetch.fetch_offset;
        self.log_start_offset = fetch.log_start_offset;
        self.leader_end_at_last_fetch = leader_end;
        self.last_fetch_ms = at.now_ms;
        self.broker_epoch = fetch.broker_epoch;
    }
}

/// A change that the controller has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    number: u64,
    proposed: Box<[i32]>,
    is_sent: Proposal,
}

/// See the module. Of one leader epoch.
#[derive(Clone, Debug)]
pub struct LeaderState {
    node_id: i32,
    leader_epoch: i32,
    partition_epoch: i32,
    in_sync_replicas: Box<[i32]>,
    pending: Option<Pending>,
    /// All other replicas, by their ids.
    followers: BTreeMap<i32, Follower>,
    /// When this leader was first told the time: those in sync were caught up then.
    since_ms: Option<i64>,
    /// The number of the last proposal.
    proposals: u64,
    counts: IsrChangeCounts,
}

impl LeaderState {
    pub fn new(
        node_id: i32,
        leader_epoch: i32,
        partition_epoch: i32,
        replicas: &[i32],
        in_sync_replicas: &[i32],
    ) -> LeaderState {
        let mut state = LeaderState {
            node_id,
            leader_epoch,
            partition_epoch,
            in_sync_replicas: in_sync_replicas.into(),
            pending: None,
            followers: BTreeMap::new(),
            since_ms: None,
            proposals: u64::from(leader_epoch.unsigned_abs()) << 32,
            counts: IsrChangeCounts::default(),
        };
        state.assign(replicas);
        state
    }

    // --- events ----------------------------------------------------------------------------------

    /// A follower fetches, and was refused nothing: its log is this one's up to its fetch offset.
    pub fn on_fetch(
        &mut self,
        fetch: &ReplicaFetch,
        at: &Circumstances<'_>,
    ) -> Result<Effects, FetchRefusal> {
        self.note_time(at.now_ms);
        let id = fetch.replica_id;
        let follower = self.followers.get_mut(&id);
        let follower = follower.ok_or(FetchRefusal::NotAssigned)?;
        if at.brokers.has_gone(id, fetch.broker_epoch) {
            return Err(FetchRefusal::OldBrokerEpoch);
        }
        follower.note_fetch(fetch, at);
        let joins = self.may_join(id, at);
        let proposal = joins.then(|| {
            let mut proposed = self.in_sync_replicas.to_vec();
            proposed.push(id);
            self.propose(proposed, at)
        });
        Ok(self.effects(proposal, at))
    }

    /// Followers that have not been caught up for a while leave the in-sync replicas. To be called
    /// every half of `replica.lag.time.max.ms`.
    pub fn sweep(&mut self, at: &Circumstances<'_>) -> Effects {
        self.note_time(at.now_ms);
        let stays = |id: &i32| {
            let follower = self.followers.get(id);
            *id == self.node_id || follower.is_some_and(|each| each.is_caught_up(at))
        };
        let stay = self.in_sync_replicas.iter().copied().filter(stays);
        let stay: Vec<i32> = stay.collect();
        let shrinks = self.pending.is_none() && stay.len() < self.in_sync_replicas.len();
        let proposal = shrinks.then(|| self.propose(stay, at));
        self.effects(proposal, at)
    }

    /// The controller has answered the proposal of this number. An answer to what is not asked
    /// any more changes nothing.
    pub fn on_answer(&mut self, number: u64, answer: IsrAnswer, at: &Circumstances<'_>) -> Effects {
        let pending = self.pending.take_if(|pending| pending.number == number);
        let Some(pending) = pending else {
            return self.effects(None, at);
        };
        let mut again = None;
        match answer {
            IsrAnswer::Accepted {
                leader_epoch,
                partition_epoch,
                in_sync_replicas,
            } if leader_epoch == self.leader_epoch && partition_epoch >= self.partition_epoch => {
                self.commit(partition_epoch, in_sync_replicas.into());
            }
            // Of another leadership, of which the metadata will tell: the
            // maximal ISR stays what it is.
            IsrAnswer::Accepted { .. } | IsrAnswer::Uncertain => self.pending = Some(pending),
            IsrAnswer::Refused => {}
            IsrAnswer::Retry => {
                again = Some(pending.is_sent.clone());
                self.pending = Some(pending);
            }
        }
        self.effects(again, at)
    }

    /// The metadata has come to another partition epoch in this leader epoch. An older one changes
    /// nothing, and that of an answer which came first only who the replicas are: the change that
    /// it accepted may have ended a reassignment.
    pub fn on_registration(
        &mut self,
        partition_epoch: i32,
        replicas: &[i32],
        in_sync_replicas: &[i32],
        at: &Circumstances<'_>,
    ) -> Effects {
        if partition_epoch > self.partition_epoch {
            self.commit(partition_epoch, in_sync_replicas.into());
        }
        if partition_epoch >= self.partition_epoch {
            self.assign(replicas);
        }
        self.effects(None, at)
    }

    // --- what follows from them ------------------------------------------------------------------

    /// All that are needed have the records below: the maximal ISR, and whoever is caught up and
    /// about to join it, so that it need not catch up again with each record
    /// (`Partition.maybeIncrementLeaderHW`).
    pub fn replicated_offset(&self, at: &Circumstances<'_>) -> i64 {
        if self.is_under_min_isr(at.min_in_sync_replicas) {
            return at.offsets.high_watermark;
        }
        let is_needed = |(id, follower): &(&i32, &Follower)| {
            let joins_soon = || {
                let is_eligible = at.brokers.is_eligible(**id, follower.broker_epoch);
                is_eligible && follower.is_caught_up(at)
            };
            self.is_in_maximal_isr(**id) || joins_soon()
        };
        let needed = self.followers.iter().filter(is_needed);
        let ends = needed.map(|(_, follower)| follower.log_end_offset);
        ends.min().unwrap_or(i64::MAX)
    }

    /// `min.insync.replicas`, which counts for no more than the replicas that there
    /// are (`effectiveMinIsr`).
    fn effective_min_isr(&self, min_in_sync_replicas: usize) -> usize {
        min_in_sync_replicas.min(self.followers.len() + 1)
    }

    /// Fewer replicas are in sync than `min.insync.replicas` asks for: acks=all is refused.
    pub fn is_under_min_isr(&self, min_in_sync_replicas: usize) -> bool {
        self.in_sync_replicas.len() < self.effective_min_isr(min_in_sync_replicas)
    }

    /// With one in-sync replica less, acks=all would be refused.
    pub fn is_at_min_isr(&self, min_in_sync_replicas: usize) -> bool {
        self.in_sync_replicas.len() == self.effective_min_isr(min_in_sync_replicas)
    }

    /// Records that were committed just now are on fewer replicas than
    /// `min.insync.replicas` asks for.
    pub fn is_maximal_under_min_isr(&self, min_in_sync_replicas: usize) -> bool {
        let proposed = self.pending.iter().flat_map(|pending| &pending.proposed);
        let further = proposed.filter(|id| !self.in_sync_replicas.contains(id));
        let maximal = self.in_sync_replicas.len() + further.count();
        maximal < self.effective_min_isr(min_in_sync_replicas)
    }

    /// The least log start of the replicas that live, this one's among them: below it a record is
    /// deleted everywhere (`Partition.lowWatermarkIfLeader`).
    pub fn low_watermark(&self, at: &Circumstances<'_>) -> i64 {
        let lives = |id: &i32| at.brokers.get(*id).is_some_and(|broker| !broker.is_fenced);
        let living = self.followers.iter().filter(|(id, _)| lives(id));
        let starts = living.map(|(_, follower)| follower.log_start_offset);
        starts.min().map_or(at.offsets.log_start_offset, |least| {
            least.min(at.offsets.log_start_offset)
        })
    }

    /// The in-sync replica in a consumer's rack that is furthest, if the leader is in another one
    /// and the replica has the offset (`RackAwareReplicaSelector`,
    /// `ReplicaManager.findPreferredReadReplica`).
    pub fn preferred_read_replica(
        &self,
        rack: &str,
        fetch_offset: i64,
        brokers: &RegisteredBrokers,
    ) -> Option<i32> {
        let is_near = |id: i32| {
            let broker = brokers.get(id).filter(|broker| !broker.is_fenced);
            broker.is_some_and(|broker| broker.rack.as_deref() == Some(rack))
        };
        if is_near(self.node_id) {
            return None;
        }
        let near = self.followers.iter().filter(|(id, each)| {
            let has_offset = (each.log_start_offset..=each.log_end_offset).contains(&fetch_offset);
            has_offset && self.in_sync_replicas.contains(id) && is_near(**id)
        });
        near.max_by_key(|(id, each)| (each.log_end_offset, each.last_caught_up_ms, **id))
            .map(|(id, _)| *id)
    }

    // --- for those who look ----------------------------------------------------------------------

    pub fn partition_epoch(&self) -> i32 {
        self.partition_epoch
    }

    /// The in-sync replicas that the controller has committed.
    pub fn in_sync_replicas(&self) -> &[i32] {
        &self.in_sync_replicas
    }

    /// Says whether a replica may be in sync for the controller: committed or proposed.
    pub fn is_in_maximal_isr(&self, id: i32) -> bool {
        let proposed = self.pending.as_ref().map(|pending| &pending.proposed);
        self.in_sync_replicas.contains(&id) || proposed.is_some_and(|ids| ids.contains(&id))
    }

    /// A change has been proposed, and the controller has not answered.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Some replica is not in sync.
    pub fn is_under_replicated(&self) -> bool {
        self.in_sync_replicas.len() <= self.followers.len()
    }

    pub fn follower(&self, id: i32) -> Option<&Follower> {
        self.followers.get(&id)
    }

    pub fn counts(&self) -> IsrChangeCounts {
        self.counts
    }

    // --- within ----------------------------------------------------------------------------------

    /// Takes the replicas in sync when leadership begins as caught up until then,
    /// as far as anybody knows.
    fn note_time(&mut self, now_ms: i64) {
        if self.since_ms.is_some() {
            return;
        }
        self.since_ms = Some(now_ms);
        for id in &self.in_sync_replicas {
            if let Some(follower) = self.followers.get_mut(id) {
                follower.last_caught_up_ms = now_ms;
            }
        }
    }

    fn assign(&mut self, replicas: &[i32]) {
        self.followers.retain(|id, _| replicas.contains(id));
        for id in replicas.iter().filter(|id| **id != self.node_id) {
            self.followers.entry(*id).or_insert(Follower::UNKNOWN);
        }
    }

    fn commit(&mut self, partition_epoch: i32, in_sync_replicas: Box<[i32]>) {
        let (before, after) = (self.in_sync_replicas.len(), in_sync_replicas.len());
        self.counts.shrinks += u64::from(after < before);
        self.counts.expands += u64::from(after > before);
        self.partition_epoch = partition_epoch;
        self.in_sync_replicas = in_sync_replicas;
        self.pending = None;
    }

    /// A follower has what is committed, and has fetched in this epoch's part of the log: of
    /// the part before, a leader in between may have committed more than the high watermark
    /// of here says (KAFKA-7128).
    fn may_join(&self, id: i32, at: &Circumstances<'_>) -> bool {
        let Some(follower) = self.followers.get(&id) else {
            return false;
        };
        let end = follower.log_end_offset;
        // While the high watermark stands still, it says little of who is far behind (KAFKA-19996).
        let is_near = !self.is_under_min_isr(at.min_in_sync_replicas) || follower.is_caught_up(at);
        self.pending.is_none()
            && !self.in_sync_replicas.contains(&id)
            && end >= at.offsets.high_watermark
            && end >= at.epoch_start_offset
            && is_near
            && at.brokers.is_eligible(id, follower.broker_epoch)
    }

    fn propose(&mut self, proposed: Vec<i32>, at: &Circumstances<'_>) -> Proposal {
        assert!(self.pending.is_none(), "one change at a time");
        self.proposals += 1;
        let with_epoch = |id: &i32| {
            let of_follower = self.followers.get(id).map(|each| each.broker_epoch);
            let broker_epoch = of_follower.unwrap_or_else(|| at.brokers.broker_epoch(*id));
            (*id, broker_epoch)
        };
        let proposal = Proposal {
            number: self.proposals,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            in_sync_replicas: proposed.iter().map(with_epoch).collect(),
        };
        self.pending = Some(Pending {
            number: self.proposals,
            proposed: proposed.into(),
            is_sent: proposal.clone(),
        });
        proposal
    }

    fn effects(&self, proposal: Option<Proposal>, at: &Circumstances<'_>) -> Effects {
        Effects {
            replicated_offset: self.replicated_offset(at),
            proposal,
        }
    }
}
