//! What must hold after each event, and at the end. The truth of a partition is what any leader's
//! high watermark has ever covered: whoever shows it or acknowledges by it has promised it.
//!
//! ```text
//! StrongIsr            each running member of ISR ∪ ELR holds all that is committed
//! LeaderCompleteness   a high watermark covers what is committed, nothing else: on leaders and followers (LogMatching)
//! ConsistentRead       what was acknowledged or consumed is the committed record of that offset
//! OneWriter            an epoch has one leader, an (epoch, offset) one record behind one other
//! Durable              a high watermark lies below what is on disk
//! Controller           nobody fenced in the ISR, no ELR beside an ISR of min.insync.replicas
//! Monotonic            within an epoch no client is told a lower high watermark than before
//! Quorum               a leader's maximal ISR holds all of the controller's, in the same epoch
//! CommittedRead        no consumer is shown what the broker that answers does not know to be committed, leader or not
//! LogStart             a log begins where it did or later, and never behind its high watermark
//! Deleted              once DeleteRecords has an answer no replica in sync has the records
//! EpochsGrow, MetadataLogMatching   see `metadata_checker.rs`
//! ```
//! After an unclean election the truth is what the new leader has of it: older
//! leaders are believed no more.

use std::collections::{BTreeMap, HashMap, HashSet};

use kafkalite::replica::{Partition, Role};

use super::bytes::{Entry, TOPIC, entries};
use super::controller::{NO_LEADER, PartitionState};
use super::metadata_checker::MetadataChecker;
use super::mirrors::{MadeOf, Mirror, Start, bytes_from, check_start};
use super::plan::Plan;
use super::seam;
use super::world::World;

/// One that was deleted before anybody saw it.
const DELETED: Entry = Entry {
    offset: -1,
    leader_epoch: -1,
    value: 0,
};

#[derive(Default)]
struct Truth {
    committed: Vec<Entry>,
    /// How often an unclean election has cut it.
    turn: u64,
    /// Where the log of a leader has begun: followers may have other records before that,
    /// which no leader can tell.
    deleted: i64,
    /// Leaders of earlier epochs are not believed.
    since_epoch: i32,
    /// An unclean election has been decided, and its leader does not lead yet.
    is_open: bool,
    /// The value behind which each record stands, by epoch and offset.
    written: HashMap<(i32, i64), (u64, u64)>,
    leaders: BTreeMap<i32, i32>,
}

/// Who tells a high watermark: broker, its life, partition, leader epoch.
pub type Teller = (i32, u64, usize, i32);

pub struct Checker {
    partitions: Vec<Truth>,
    mirrors: BTreeMap<(i32, usize), Mirror>,
    starts: BTreeMap<(i32, usize), Start>,
    told: HashMap<Teller, i64>,
    pub metadata: MetadataChecker,
    /// Partition, offset and values that were acknowledged in the event that is looked at.
    acked: Vec<(usize, i64, Vec<u64>)>,
    /// Values of producers that send each once.
    pub sent_once: HashSet<u64>,
}

/// Fails the seed.
macro_rules! require {
    ($holds:expr, $($sentence:tt)*) => {
        if !$holds {
            panic!($($sentence)*);
        }
    };
}

pub(super) use require;

impl Checker {
    pub fn new(plan: &Plan) -> Checker {
        Checker {
            partitions: (0..plan.partitions).map(|_| Truth::default()).collect(),
            mirrors: BTreeMap::new(),
            starts: BTreeMap::new(),
            metadata: MetadataChecker::default(),
            told: HashMap::new(),
            acked: Vec::new(),
            sent_once: HashSet::new(),
        }
    }

    /// A broker says that these are committed from this offset on.
    pub fn on_acked(&mut self, index: usize, offset: i64, values: &[u64]) {
        self.acked.push((index, offset, values.to_vec()));
    }

    fn check_acked(&mut self) {
        for (index, offset, values) in std::mem::take(&mut self.acked) {
            let truth = &self.partitions[index];
            if truth.turn > 0 || truth.is_open {
                continue;
            }
            for (at, value) in (offset..).zip(values) {
                let found = truth.committed.get(at as usize).map(|entry| entry.value);
                require!(
                    found == Some(value),
                    "ConsistentRead: {value} is acknowledged at {at} of t-{index}, where {found:?} is committed"
                );
            }
        }
    }

    /// A consumer was given these.
    pub fn on_consumed(&mut self, index: usize, consumed: &[Entry]) {
        let truth = &self.partitions[index];
        if truth.turn > 0 || truth.is_open {
            return;
        }
        for entry in consumed {
            let found = truth.committed.get(entry.offset as usize);
            require!(
                found == Some(entry),
                "ConsistentRead: {entry:?} of t-{index} is consumed, {found:?} is committed"
            );
        }
    }

    /// A client was told this high watermark.
    pub fn on_told(&mut self, teller: Teller, high_watermark: i64) {
        let (id, _, index, leader_epoch) = teller;
        let truth = &self.partitions[index];
        if truth.turn > 0 || truth.is_open {
            // A follower may be cut below what it has told.
            return;
        }
        let told = self.told.entry(teller).or_insert(-1);
        require!(
            high_watermark >= *told,
            "Monotonic: broker {id} tells {high_watermark} of t-{index} in epoch {leader_epoch}, after {told}"
        );
        *told = high_watermark;
    }
}

/// A broker shows records to a consumer, and knows that all below this offset are committed.
pub fn require_shown(id: i32, high_watermark: i64, shown: &[Entry]) {
    let uncommitted = shown.iter().find(|entry| entry.offset >= high_watermark);
    require!(
        uncommitted.is_none(),
        "CommittedRead: broker {id} shows {uncommitted:?}, and knows {high_watermark} to be committed"
    );
}

impl World {
    /// All that must hold now.
    pub fn check(&mut self) {
        self.check_replicas();
        if self.is_checked {
            let mut metadata = std::mem::take(&mut self.checker.metadata);
            metadata.check(self);
            self.checker.metadata = metadata;
        }
    }

    /// All that must hold also while metadata comes into force.
    pub fn check_replicas(&mut self) {
        if !self.is_checked {
            return;
        }
        let mut checker = std::mem::replace(&mut self.checker, Checker::new(&self.plan));
        let mut cuts = 0;
        for index in std::mem::take(&mut self.controller.unclean_elections) {
            let epoch = self.controller.metadata().partitions[index].leader_epoch;
            let truth = &mut checker.partitions[index];
            (truth.is_open, truth.since_epoch) = (true, epoch);
            self.see("unclean election");
        }
        for (&id, broker) in &self.brokers {
            let Some(node) = broker.node() else {
                continue;
            };
            let topic = node.image().topic(TOPIC).expect("published").clone();
            for partition in topic.replicas() {
                let state = &self.controller.metadata().partitions[partition.index as usize];
                let facts = (self.plan.is_durable, state.isr.contains(&id));
                cuts += checker.check_replica((id, broker.life), partition, facts);
            }
        }
        for _ in 0..cuts {
            self.see("log cut");
        }
        checker.check_acked();
        for index in 0..self.plan.partitions {
            self.check_partition(&mut checker, index);
        }
        self.checker = checker;
    }

    fn check_partition(&self, checker: &mut Checker, index: usize) {
        let metadata = self.controller.metadata();
        let Some(state) = metadata.partitions.get(index) else {
            return;
        };
        for id in &state.isr {
            let known = metadata.brokers.get(id);
            require!(
                known.is_some_and(|known| !known.is_fenced),
                "Controller: fenced broker {id} is in sync in t-{index}"
            );
        }
        let is_under = state.isr.len() < metadata.effective_min_isr(state);
        require!(
            is_under || state.elr.is_empty(),
            "Controller: t-{index} has ISR {:?} and ELR {:?}",
            state.isr,
            state.elr
        );
        let truth = &checker.partitions[index];
        if truth.is_open {
            return;
        }
        let mirrors = checker
            .mirrors
            .iter_mut()
            .filter(|((_, of), _)| *of == index);
        mirrors
            .for_each(|(_, mirror)| mirror.match_with(truth.turn, &truth.committed, truth.deleted));
        for id in state.isr.iter().chain(&state.elr) {
            let broker = &self.brokers[id];
            let is_its = broker.process.as_ref().is_some_and(|process| {
                let known = metadata.brokers.get(id);
                known.is_some_and(|known| known.broker_epoch == process.broker_epoch)
            });
            let replica = broker
                .replica(index)
                .filter(|it| is_its && !it.is_offline());
            let mirror = checker.mirrors.get(&(*id, index));
            if let (Some(_), Some(mirror)) = (replica, mirror) {
                require!(
                    mirror.matched >= truth.committed.len(),
                    "StrongIsr: broker {id}, ISR {:?} ELR {:?} of t-{index}, has {} of {} committed records right, \
                     and not {:?}",
                    state.isr,
                    state.elr,
                    mirror.matched,
                    truth.committed.len(),
                    truth.committed.get(mirror.matched)
                );
            }
        }
        let leader = self
            .brokers
            .get(&state.leader)
            .and_then(|it| it.replica(index));
        if let Some(leader) = leader.filter(|it| it.leader_epoch == state.leader_epoch) {
            let outside = seam::outside_maximal_isr(&leader, &state.isr);
            require!(
                outside.is_empty(),
                "Quorum: broker {} leads t-{index} without counting {outside:?} of {:?}",
                state.leader,
                state.isr
            );
        }
    }

    /// The answer is that no replica that lives has records below this offset.
    pub fn check_deleted(&self, leader: &Partition, offset: i64) {
        let state = &self.controller.metadata().partitions[leader.index as usize];
        if state.leader_epoch != leader.leader_epoch {
            return; // Others may be in sync by now.
        }
        for id in &state.isr {
            let broker = &self.brokers[id];
            let known = &self.controller.metadata().brokers[id];
            let process = broker.process.as_ref();
            let is_its = process.is_some_and(|it| it.broker_epoch == known.broker_epoch);
            let replica = broker.replica(leader.index as usize);
            if let Some(replica) = replica.filter(|it| is_its && !it.is_offline()) {
                let start = replica.log.offsets().log_start_offset;
                require!(
                    start >= offset,
                    "Deleted: broker {id} has t-{} from {start} on, all below {offset} is told to be deleted",
                    leader.index
                );
            }
        }
    }

    // --- the end
    // ----------------------------------------------------------------------------------

    /// Everybody runs, is in sync and holds the same, and nobody waits.
    pub fn is_at_rest(&self) -> bool {
        self.unrest().is_none()
    }

    fn unrest(&self) -> Option<String> {
        let metadata = self.controller.metadata();
        if let Some(producer) = self.producers.iter().find(|it| it.is_waiting()) {
            return Some(format!("producer {} has no answer", producer.number));
        }
        if metadata.partitions.is_empty() {
            return Some("there is no partition".to_owned());
        }
        for (id, broker) in &self.brokers {
            let process = broker.process.as_ref().filter(|it| it.node.is_some());
            if process.is_none_or(|it| it.version < metadata.version || it.is_fenced) {
                return Some(format!("broker {id} does not serve"));
            }
        }
        for (index, state) in metadata.partitions.iter().enumerate() {
            let is_whole = state.isr.len() == state.replicas.len() && state.adding.is_empty();
            if state.leader == NO_LEADER || !is_whole {
                return Some(format!("t-{index} is {state:?}"));
            }
            let offsets = |id: &i32| self.brokers[id].replica(index).map(|it| it.log.offsets());
            let all: Vec<_> = state.replicas.iter().map(offsets).collect();
            let end = all[0].map(|offsets| offsets.log_end_offset);
            let is_even = |each: &Option<_>| {
                each.is_some_and(|each: kafkalite::log::state::ends::LogOffsets| {
                    Some(each.log_end_offset) == end && each.high_watermark == each.log_end_offset
                })
            };
            if !all.iter().all(is_even) {
                return Some(format!("replicas of t-{index} end at {all:?}"));
            }
            if let Some(sentence) = self.misplaced(index, state) {
                return Some(sentence);
            }
            if let Some(consumer) = self.consumers.iter().find(|it| it.lags(index, end)) {
                return Some(format!("consumer {} has not read all", consumer.number));
            }
        }
        None
    }

    /// A replica that is on its way to another directory, or lies elsewhere than the metadata says.
    fn misplaced(&self, index: usize, state: &PartitionState) -> Option<String> {
        state.replicas.iter().find_map(|id| {
            let broker = &self.brokers[id];
            if broker.node().is_some_and(|node| node.moves().count() > 0) {
                return Some(format!("broker {id} moves replicas"));
            }
            let replica = broker.replica(index)?;
            let lies = replica.directory().identity().directory_id;
            let topic = broker.node()?.image().topic(TOPIC)?.clone();
            let told = topic.partition(index as i32)?.directory_of(*id);
            (lies != told).then(|| format!("t-{index} of broker {id} is in {lies:?}, not {told:?}"))
        })
    }

    pub fn check_end(&mut self) {
        if let Some(sentence) = self.unrest() {
            panic!("Converges: {sentence}");
        }
        for (index, state) in self.controller.metadata().partitions.iter().enumerate() {
            let replica = |id: &i32| self.brokers[id].replica(index).expect("at rest");
            let start_of = |id: &i32| replica(id).log.offsets().log_start_offset;
            let start = state.replicas.iter().map(start_of).max().unwrap_or(0);
            let bytes_of = |id: &i32| bytes_from(&replica(id), start);
            let leaders = bytes_of(&state.leader);
            for id in &state.replicas {
                require!(
                    bytes_of(id) == leaders,
                    "Equal: the replica of t-{index} at broker {id} is not its leader's, byte for byte"
                );
            }
            let mut seen = HashSet::new();
            for entry in entries(&leaders, 0) {
                let is_new = seen.insert(entry.value);
                require!(
                    is_new || !self.checker.sent_once.contains(&entry.value),
                    "Once: {} of an idempotent producer is twice in t-{index}",
                    entry.value
                );
            }
        }
    }
}

impl Checker {
    /// Returns how often its log has been cut since it was looked at last: once or not.
    fn check_replica(
        &mut self,
        (id, life): (i32, u64),
        partition: &Partition,
        (is_durable, is_in_sync): (bool, bool),
    ) -> u64 {
        let (index, epoch) = (partition.index as usize, partition.leader_epoch);
        let log = &partition.log;
        let offsets = log.offsets();
        require!(
            !is_durable || offsets.high_watermark <= offsets.flushed_offset,
            "Durable: broker {id} has high watermark {} of t-{index}, flushed {}",
            offsets.high_watermark,
            offsets.flushed_offset
        );
        let truth = &mut self.partitions[index];
        if partition.role == Role::Leader {
            let leader = *truth.leaders.entry(epoch).or_insert(id);
            require!(
                leader == id,
                "OneWriter: brokers {leader} and {id} lead t-{index} in epoch {epoch}"
            );
        }
        if partition.role == Role::Leader {
            truth.deleted = truth.deleted.max(offsets.log_start_offset);
        }
        let is_cut_uncleanly = truth.turn > 0 || truth.is_open;
        check_start(&mut self.starts, (id, life), partition, is_cut_uncleanly);
        let mirror = self.mirrors.entry((id, index)).or_default();
        let made_of = MadeOf {
            life,
            truncations: log.truncations(),
            replacements: log.replacements(),
        };
        let is_cut =
            mirror.made_of.life == life && mirror.made_of.truncations != made_of.truncations;
        if mirror.made_of != made_of || offsets.log_end_offset < mirror.end() {
            let start = offsets.log_start_offset as usize;
            *mirror = Mirror {
                made_of,
                start,
                entries: Vec::new(),
                matched: start,
                turn: truth.turn,
            };
        }
        let known = mirror.end();
        if offsets.log_end_offset > known {
            let before = match (mirror.entries.last(), mirror.start) {
                (None, 0) => Some(0),
                (last, _) => last.map(|entry| entry.value),
            };
            let new = entries(&bytes_from(partition, known), known);
            truth.note_written(index, before, &new);
            mirror.entries.extend(new);
        }
        if partition.role == Role::Leader && truth.is_open && epoch >= truth.since_epoch {
            truth.cut_to(mirror, epoch);
        }
        if epoch < truth.since_epoch || truth.is_open {
            return u64::from(is_cut);
        }
        mirror.match_with(truth.turn, &truth.committed, truth.deleted);
        let high_watermark = offsets.high_watermark as usize;
        let is_leader = partition.role == Role::Leader;
        if is_leader && high_watermark > truth.committed.len() {
            require!(
                mirror.matched == truth.committed.len(),
                "LeaderCompleteness: broker {id} leads t-{index} in epoch {epoch} with {:?} at {}, where {:?} is \
                 committed",
                mirror.at(mirror.matched),
                mirror.matched,
                truth.committed.get(mirror.matched)
            );
            let more = mirror.entries_up_to(high_watermark, truth.committed.len());
            truth.committed.extend_from_slice(more);
            mirror.matched = high_watermark;
        }
        if truth.turn > 0 && !is_leader && !is_in_sync {
            // It was told more by the leader before, and has not met this one.
            return u64::from(is_cut);
        }
        if truth.turn > 0 && !is_leader && high_watermark > mirror.matched {
            // Or it has: that one holds the same, and has not committed it once more.
            let leader = truth.leaders.last_key_value().map(|(_, leader)| *leader);
            let leaders = leader.and_then(|leader| self.mirrors.get(&(leader, index)));
            let own = &self.mirrors[&(id, index)];
            if leaders.is_some_and(|leaders| leaders.agrees_with(own, high_watermark)) {
                return u64::from(is_cut);
            }
        }
        let mirror = &self.mirrors[&(id, index)];
        require!(
            high_watermark <= mirror.matched,
            "LogMatching: broker {id} ({:?} of epoch {epoch}) has high watermark {high_watermark} of t-{index}, from {} on; of {} \
             committed records it has {} as they are, then {:?} for {:?}",
            partition.role,
            offsets.log_start_offset,
            truth.committed.len(),
            mirror.matched,
            mirror.at(mirror.matched),
            truth.committed.get(mirror.matched)
        );
        u64::from(is_cut)
    }
}

impl Truth {
    /// Each record of an epoch at an offset is one record, behind one other: with that, logs that
    /// agree in one place agree in all before it. `before`: the value behind which the first one
    /// stands; `None` where that was deleted.
    fn note_written(&mut self, index: usize, mut before: Option<u64>, new: &[Entry]) {
        for entry in new {
            let place = (entry.leader_epoch, entry.offset);
            let known = match (self.written.get(&place), before) {
                (Some(known), _) => *known,
                (None, None) => (entry.value, 0),
                (None, Some(before)) => *self.written.entry(place).or_insert((entry.value, before)),
            };
            require!(
                known.0 == entry.value
                    && (entry.offset <= self.deleted
                        || before.is_none_or(|before| known.1 == before)),
                "OneWriter: t-{index} has {entry:?} behind {before:?} in one log, {} behind {} in another",
                known.0,
                known.1
            );
            before = Some(entry.value);
        }
    }

    /// An unclean election: what its leader does not have is lost.
    fn cut_to(&mut self, mirror: &Mirror, epoch: i32) {
        // What was deleted before its log begins was committed: whoever had it may have it still.
        let gone = mirror.start.saturating_sub(self.committed.len());
        self.committed.extend(std::iter::repeat_n(DELETED, gone));
        let both = mirror.entries.iter().zip(&self.committed[mirror.start..]);
        let kept = both.take_while(|(own, committed)| own == committed).count();
        self.committed.truncate(mirror.start + kept);
        (self.turn, self.since_epoch, self.is_open) = (self.turn + 1, epoch, false);
    }
}

#[test]
#[should_panic(expected = "CommittedRead: broker 2 shows")]
fn a_record_that_is_shown_before_it_is_committed_is_found() {
    let shown = |offset| Entry {
        offset,
        leader_epoch: 0,
        value: 1,
    };
    require_shown(2, 6, &[shown(4), shown(5)]);
    require_shown(2, 5, &[shown(4), shown(5)]);
}
