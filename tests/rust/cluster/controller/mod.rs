//! The controller as brokers meet it: registrations with broker epochs and sessions, fencing,
//! elections out of ISR and ELR (KIP-966), AlterPartition with all its refusals, reassignment. A
//! model of Kafka 4.3.1's `ReplicationControlManager`, `ClusterControlManager` and
//! `PartitionChangeBuilder`; it never fails itself.
//!
//! Each change is a version of the whole metadata: brokers are given versions in their order, as
//! they are given offsets of `__cluster_metadata`.

mod elections;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kafkalite::uuid::Uuid;

use self::elections::Change;
pub use self::elections::Election;
use super::planted::Planted;

pub const NO_LEADER: i32 = -1;

/// Error codes of Kafka's that the controller answers.
pub mod code {
    pub const NONE: i16 = 0;
    pub const NOT_CONTROLLER: i16 = 41;
    pub const INVALID_REQUEST: i16 = 42;
    pub const FENCED_LEADER_EPOCH: i16 = 74;
    pub const STALE_BROKER_EPOCH: i16 = 77;
    pub const INVALID_UPDATE_VERSION: i16 = 95;
    pub const DUPLICATE_BROKER_REGISTRATION: i16 = 101;
    pub const INELIGIBLE_REPLICA: i16 = 107;
    pub const NEW_LEADER_ELECTED: i16 = 124;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub broker_epoch: i64,
    pub incarnation: u64,
    pub is_fenced: bool,
    pub in_controlled_shutdown: bool,
    /// Partitions whose log directory has failed there.
    pub offline: BTreeSet<usize>,
}

impl Registration {
    fn is_active(&self) -> bool {
        !self.is_fenced && !self.in_controlled_shutdown
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    pub leader: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub elr: Vec<i32>,
    pub last_known_leader: Option<i32>,
    pub is_recovering: bool,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
    /// Log directories of replicas, where brokers have said so since the partition was made.
    pub directories: BTreeMap<i32, Uuid>,
}

/// The metadata at a version.
#[derive(Clone, Debug)]
pub struct Metadata {
    pub version: i64,
    pub brokers: BTreeMap<i32, Registration>,
    pub partitions: Vec<PartitionState>,
    pub min_isr: usize,
}

impl Metadata {
    pub fn effective_min_isr(&self, partition: &PartitionState) -> usize {
        self.min_isr.min(partition.replicas.len())
    }
}

/// The answer to an AlterPartition.
#[derive(Clone, Debug)]
pub struct Altered {
    pub error_code: i16,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub isr: Vec<i32>,
}

/// An AlterPartition for one partition, as version 3 has it.
#[derive(Clone, Debug)]
pub struct AlterPartition {
    pub broker: i32,
    pub broker_epoch: i64,
    pub partition: usize,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub isr: Vec<(i32, i64)>,
    pub is_recovering: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub broker: i32,
    pub broker_epoch: i64,
    pub want_fence: bool,
    pub want_shut_down: bool,
    pub version: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    pub error_code: i16,
    pub is_fenced: bool,
    pub should_shut_down: bool,
}

struct Session {
    last_ms: i64,
    version: i64,
    /// It may stop once all have seen this version.
    shutdown_version: Option<i64>,
}

pub struct Controller {
    metadata: Metadata,
    history: Vec<Rc<Metadata>>,
    sessions: BTreeMap<i32, Session>,
    session_ms: i64,
    /// Replicas of the partitions that are made once all brokers are there.
    wanted: Vec<Vec<i32>>,
    pub planted: Option<Planted>,
    /// Elections of a leader that may lack committed records, since somebody last looked.
    pub unclean_elections: Vec<usize>,
}

impl Controller {
    /// Partitions with these replicas are made as soon as the brokers are there.
    pub fn new(replicas: Vec<Vec<i32>>, min_isr: usize, session_ms: i64) -> Controller {
        let metadata = Metadata {
            version: 0,
            brokers: BTreeMap::new(),
            partitions: Vec::new(),
            min_isr,
        };
        Controller {
            history: vec![Rc::new(metadata.clone())],
            metadata,
            sessions: BTreeMap::new(),
            session_ms,
            wanted: replicas,
            planted: None,
            unclean_elections: Vec::new(),
        }
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub fn at(&self, version: i64) -> Rc<Metadata> {
        self.history[version as usize].clone()
    }

    pub fn version(&self) -> i64 {
        self.metadata.version
    }

    fn commit(&mut self) {
        self.metadata.version += 1;
        self.history.push(Rc::new(self.metadata.clone()));
    }

    fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    fn is_active(&self, broker: i32) -> bool {
        let registered = self.metadata.brokers.get(&broker);
        registered.is_some_and(Registration::is_active)
    }

    // --- brokers
    // ----------------------------------------------------------------------------------

    /// The broker epoch, or why there is none.
    pub fn register(
        &mut self,
        broker: i32,
        incarnation: u64,
        previous_broker_epoch: i64,
        now_ms: i64,
    ) -> Result<i64, i16> {
        let known = self.metadata.brokers.get(&broker);
        let is_same = known.is_some_and(|known| known.incarnation == incarnation);
        let has_session = self
            .sessions
            .get(&broker)
            .is_some_and(|session| now_ms - session.last_ms < self.session_ms);
        if let Some(known) = known {
            if is_same {
                return Ok(known.broker_epoch);
            }
            if has_session {
                return Err(code::DUPLICATE_BROKER_REGISTRATION);
            }
            let is_clean = known.broker_epoch == previous_broker_epoch;
            self.remove_from_isr(broker, !is_clean);
        }
        let known = self.metadata.brokers.get(&broker);
        let broker_epoch = match known.filter(|_| self.has(Planted::OldBrokerEpoch)) {
            Some(known) => known.broker_epoch,
            None => self.metadata.version + 1,
        };
        let registration = Registration {
            broker_epoch,
            incarnation,
            is_fenced: true,
            in_controlled_shutdown: false,
            offline: BTreeSet::new(),
        };
        self.metadata.brokers.insert(broker, registration);
        let session = Session {
            last_ms: now_ms,
            version: -1,
            shutdown_version: None,
        };
        self.sessions.insert(broker, session);
        self.commit();
        Ok(broker_epoch)
    }

    pub fn heartbeat(&mut self, beat: Heartbeat, now_ms: i64) -> HeartbeatAnswer {
        let known = self.metadata.brokers.get(&beat.broker);
        let Some(known) = known.filter(|known| known.broker_epoch == beat.broker_epoch) else {
            return HeartbeatAnswer {
                error_code: code::STALE_BROKER_EPOCH,
                is_fenced: true,
                should_shut_down: false,
            };
        };
        let (is_fenced, is_stopping) = (known.is_fenced, known.in_controlled_shutdown);
        let least = self.least_version();
        let session = self.sessions.get_mut(&beat.broker).expect("registered");
        (session.last_ms, session.version) = (now_ms, beat.version);
        let is_caught_up = beat.version >= beat.broker_epoch;
        let mut should_shut_down = false;
        if is_fenced && !beat.want_fence && !beat.want_shut_down && is_caught_up {
            self.unfence(beat.broker);
        } else if beat.want_shut_down && is_fenced {
            should_shut_down = true;
        } else if beat.want_shut_down && !is_stopping {
            self.begin_shutdown(beat.broker);
        } else if beat.want_shut_down {
            let due = session.shutdown_version;
            should_shut_down = due.is_some_and(|due| least >= due);
            if should_shut_down {
                self.fence(beat.broker);
            }
        }
        HeartbeatAnswer {
            error_code: code::NONE,
            is_fenced: self.metadata.brokers[&beat.broker].is_fenced,
            should_shut_down,
        }
    }

    /// What all active brokers have seen.
    fn least_version(&self) -> i64 {
        let active = self.sessions.iter().filter(|(id, _)| self.is_active(**id));
        active
            .map(|(_, session)| session.version)
            .min()
            .unwrap_or(i64::MAX)
    }

    /// Partitions whose directory has failed at a broker.
    pub fn directory_failed(&mut self, broker: i32, broker_epoch: i64, offline: &[usize]) {
        let Some(known) = self.metadata.brokers.get_mut(&broker) else {
            return;
        };
        let is_news = offline.iter().any(|each| !known.offline.contains(each));
        if known.broker_epoch != broker_epoch || !is_news {
            return;
        }
        known.offline.extend(offline);
        for &partition in offline {
            let change = Change::without(&self.metadata.partitions[partition], broker, false);
            self.change(partition, change);
        }
        self.commit();
    }

    /// Fences brokers whose sessions are over.
    pub fn expire_sessions(&mut self, now_ms: i64) {
        let over = self.sessions.iter().filter(|(id, session)| {
            let is_fenced = self.metadata.brokers[id].is_fenced;
            !is_fenced && now_ms - session.last_ms >= self.session_ms
        });
        for broker in over.map(|(id, _)| *id).collect::<Vec<i32>>() {
            self.fence(broker);
        }
    }

    fn fence(&mut self, broker: i32) {
        self.remove_from_isr(broker, false);
        let known = self.metadata.brokers.get_mut(&broker).expect("registered");
        known.is_fenced = true;
        self.commit();
    }

    fn begin_shutdown(&mut self, broker: i32) {
        let known = self.metadata.brokers.get_mut(&broker).expect("registered");
        known.in_controlled_shutdown = true;
        self.remove_from_isr(broker, false);
        self.commit();
        let session = self.sessions.get_mut(&broker).expect("registered");
        session.shutdown_version = Some(self.metadata.version);
    }

    fn unfence(&mut self, broker: i32) {
        let known = self.metadata.brokers.get_mut(&broker).expect("registered");
        (known.is_fenced, known.in_controlled_shutdown) = (false, false);
        for index in 0..self.metadata.partitions.len() {
            let partition = &self.metadata.partitions[index];
            if partition.leader == NO_LEADER {
                self.change(index, Change::of(partition, Election::Online));
            }
        }
        self.make_partitions();
        self.commit();
    }

    fn make_partitions(&mut self) {
        let mut needed = self.wanted.iter().flatten();
        if !needed.all(|id| self.is_active(*id)) {
            return;
        }
        let made = self.wanted.drain(..).map(|replicas| PartitionState {
            leader: replicas[0],
            leader_epoch: 0,
            partition_epoch: 0,
            isr: replicas.clone(),
            replicas,
            elr: Vec::new(),
            last_known_leader: None,
            is_recovering: false,
            adding: Vec::new(),
            removing: Vec::new(),
            directories: BTreeMap::new(),
        });
        self.metadata.partitions.extend(made);
    }

    /// The leader of a partition, if it is made and has one.
    pub fn leader(&self, partition: usize) -> i32 {
        let made = self.metadata.partitions.get(partition);
        made.map_or(NO_LEADER, |partition| partition.leader)
    }

    fn remove_from_isr(&mut self, broker: i32, is_unclean: bool) {
        for index in 0..self.metadata.partitions.len() {
            let partition = &self.metadata.partitions[index];
            let in_elr = is_unclean && partition.elr.contains(&broker);
            if in_elr || partition.isr.contains(&broker) {
                self.change(index, Change::without(partition, broker, is_unclean));
            }
        }
    }

    // --- partitions
    // -------------------------------------------------------------------------------

    pub fn alter_partition(&mut self, asked: &AlterPartition) -> Altered {
        let partition = &self.metadata.partitions[asked.partition];
        let refused = |error_code| Altered {
            error_code,
            leader_epoch: -1,
            partition_epoch: -1,
            isr: Vec::new(),
        };
        let known = self.metadata.brokers.get(&asked.broker);
        if known.is_none_or(|known| known.broker_epoch != asked.broker_epoch) {
            return refused(code::STALE_BROKER_EPOCH);
        }
        if asked.leader_epoch > partition.leader_epoch
            || asked.partition_epoch > partition.partition_epoch
        {
            return refused(code::NOT_CONTROLLER);
        }
        if asked.leader_epoch < partition.leader_epoch {
            return refused(code::FENCED_LEADER_EPOCH);
        }
        if asked.broker != partition.leader {
            return refused(code::INVALID_REQUEST);
        }
        if asked.partition_epoch < partition.partition_epoch {
            return refused(code::INVALID_UPDATE_VERSION);
        }
        let ids: Vec<i32> = asked.isr.iter().map(|(id, _)| *id).collect();
        let are_replicas = ids.iter().all(|id| partition.replicas.contains(id));
        let is_second_recovery = asked.is_recovering && !partition.is_recovering;
        if !are_replicas
            || !ids.contains(&partition.leader)
            || (asked.is_recovering && ids.len() > 1)
            || is_second_recovery
        {
            return refused(code::INVALID_REQUEST);
        }
        let is_eligible = |(id, epoch): &(i32, i64)| {
            let registered = self.metadata.brokers.get(id);
            registered.is_some_and(|known| {
                let is_same = *epoch == -1 || *epoch == known.broker_epoch;
                known.is_active() && (is_same || self.has(Planted::NoBrokerEpochCheck))
            })
        };
        if !asked.isr.iter().all(is_eligible) {
            return refused(code::INELIGIBLE_REPLICA);
        }
        let mut change = Change::of(partition, Election::Online);
        (change.isr, change.is_recovering) = (ids, asked.is_recovering);
        let epoch_before = partition.leader_epoch;
        self.change(asked.partition, change);
        self.commit();
        let partition = &self.metadata.partitions[asked.partition];
        if partition.leader != asked.broker || partition.leader_epoch != epoch_before {
            return refused(code::NEW_LEADER_ELECTED);
        }
        Altered {
            error_code: code::NONE,
            leader_epoch: partition.leader_epoch,
            partition_epoch: partition.partition_epoch,
            isr: partition.isr.clone(),
        }
    }

    /// Returns whether anything has changed.
    pub fn elect(&mut self, partition: usize, election: Election) -> bool {
        let now = &self.metadata.partitions[partition];
        let is_wanted = match election {
            Election::Preferred => now.leader != now.replicas[0],
            _ => now.leader == NO_LEADER,
        };
        if !is_wanted || !self.change(partition, Change::of(now, election)) {
            return false;
        }
        self.commit();
        true
    }

    pub fn reassign(&mut self, partition: usize, target: &[i32]) -> bool {
        let now = &self.metadata.partitions[partition];
        let is_moving = !now.adding.is_empty() || !now.removing.is_empty();
        if is_moving || now.replicas == target {
            return false;
        }
        let adding: Vec<i32> = missing(target, &now.replicas);
        let removing: Vec<i32> = missing(&now.replicas, target);
        let next = &mut self.metadata.partitions[partition];
        next.replicas = [target, &removing].concat();
        (next.adding, next.removing) = (adding, removing);
        next.partition_epoch += 1;
        let change = Change::of(next, Election::Online);
        self.change(partition, change);
        self.commit();
        true
    }

    /// A broker says in which of its log directories a replica lies (AssignReplicasToDirs). False:
    /// it is not the process that is registered, or has no such replica.
    pub fn assign_directory(
        &mut self,
        broker: i32,
        broker_epoch: i64,
        (partition, directory): (usize, Uuid),
    ) -> bool {
        let known = self.metadata.brokers.get(&broker);
        let is_its = known.is_some_and(|known| known.broker_epoch == broker_epoch);
        let state = &mut self.metadata.partitions[partition];
        if !is_its || !state.replicas.contains(&broker) {
            return false;
        }
        if state.directories.insert(broker, directory) != Some(directory) {
            state.partition_epoch += 1;
            self.commit();
        }
        true
    }

    pub fn set_min_isr(&mut self, min_isr: usize) {
        self.metadata.min_isr = min_isr;
        for index in 0..self.metadata.partitions.len() {
            let partition = &self.metadata.partitions[index];
            self.change(index, Change::of(partition, Election::Online));
        }
        self.commit();
    }
}

/// Those of `these` that are not among `those`.
fn missing(these: &[i32], those: &[i32]) -> Vec<i32> {
    let missing = these.iter().filter(|id| !those.contains(id));
    missing.copied().collect()
}
