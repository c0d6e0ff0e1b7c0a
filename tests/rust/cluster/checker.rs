//! What must hold after each event, and at the end. The truth of a partition is what any leader's high watermark has ever
//! covered: whoever shows it or acknowledges by it has promised it.
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
//! ```
//! After an unclean election the truth is what the new leader has of it: older leaders are believed no more.

use std::collections::{BTreeMap, HashMap, HashSet};

use kafkalite::log::read::ReadIsolation;
use kafkalite::replica::{Partition, Role};

use super::bytes::{Entry, TOPIC, entries};
use super::controller::NO_LEADER;
use super::plan::Plan;
use super::seam;
use super::world::World;

/// A replica's log as it was last looked at.
#[derive(Default)]
struct Mirror {
    life: u64,
    truncations: u64,
    entries: Vec<Entry>,
    /// So many are those that are committed, at this turn of the truth.
    matched: usize,
    turn: u64,
}

#[derive(Default)]
struct Truth {
    committed: Vec<Entry>,
    /// How often an unclean election has cut it.
    turn: u64,
    /// Leaders of earlier epochs are not believed.
    since_epoch: i32,
    /// An unclean election has been decided, and its leader does not lead yet.
    is_open: bool,
    /// The value behind which each record stands, by epoch and offset.
    written: HashMap<(i32, i64), (u64, u64)>,
    leaders: BTreeMap<i32, i32>,
}

pub struct Checker {
    partitions: Vec<Truth>,
    mirrors: BTreeMap<(i32, usize), Mirror>,
    told: HashMap<(i32, usize, i32), i64>,
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

impl Checker {
    pub fn new(plan: &Plan) -> Checker {
        Checker {
            partitions: (0..plan.partitions).map(|_| Truth::default()).collect(),
            mirrors: BTreeMap::new(),
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
    pub fn on_told(&mut self, (id, index): (i32, usize), leader_epoch: i32, high_watermark: i64) {
        let told = self.told.entry((id, index, leader_epoch)).or_insert(-1);
        require!(
            high_watermark >= *told,
            "Monotonic: broker {id} tells {high_watermark} of t-{index} in epoch {leader_epoch}, after {told}"
        );
        *told = high_watermark;
    }
}

impl World {
    /// All that must hold now.
    pub fn check(&mut self) {
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
        mirrors.for_each(|(_, mirror)| mirror.match_with(truth));
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

    // --- the end ----------------------------------------------------------------------------------

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
            if let Some(consumer) = self.consumers.iter().find(|it| it.lags(index, end)) {
                return Some(format!("consumer {} has not read all", consumer.number));
            }
        }
        None
    }

    pub fn check_end(&mut self) {
        if let Some(sentence) = self.unrest() {
            panic!("Converges: {sentence}");
        }
        for (index, state) in self.controller.metadata().partitions.iter().enumerate() {
            let bytes_of = |id: &i32| {
                let replica = self.brokers[id].replica(index).expect("at rest");
                bytes_from(&replica, 0)
            };
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

fn bytes_from(replica: &Partition, from: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = from;
    while next < replica.log.offsets().log_end_offset {
        let range = replica.log.read(next, 1 << 20, true, ReadIsolation::LogEnd);
        let part = range.unwrap().to_vec().unwrap();
        let found = entries(&part, next);
        let Some(last) = found.last() else {
            panic!(
                "Readable: nothing of t-{} can be read at {next}, {:?}, segments {:?}",
                replica.index,
                replica.log.offsets(),
                replica
                    .log
                    .segments()
                    .iter()
                    .map(|it| (it.base_offset(), it.end()))
                    .collect::<Vec<_>>()
            );
        };
        next = last.offset + 1;
        bytes.extend(part);
    }
    bytes
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
        let mirror = self.mirrors.entry((id, index)).or_default();
        let is_cut = mirror.life == life && mirror.truncations != log.truncations();
        if (mirror.life, mirror.truncations) != (life, log.truncations())
            || offsets.log_end_offset < mirror.entries.len() as i64
        {
            *mirror = Mirror {
                life,
                truncations: log.truncations(),
                turn: truth.turn,
                ..Mirror::default()
            };
        }
        let known = mirror.entries.len() as i64;
        if offsets.log_end_offset > known {
            let before = mirror.entries.last().map_or(0, |entry| entry.value);
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
        mirror.match_with(truth);
        let high_watermark = offsets.high_watermark as usize;
        let is_leader = partition.role == Role::Leader;
        if is_leader && high_watermark > truth.committed.len() {
            require!(
                mirror.matched == truth.committed.len(),
                "LeaderCompleteness: broker {id} leads t-{index} in epoch {epoch} with {:?} at {}, where {:?} is \
                 committed",
                mirror.entries.get(mirror.matched),
                mirror.matched,
                truth.committed.get(mirror.matched)
            );
            let more = &mirror.entries[truth.committed.len()..high_watermark];
            truth.committed.extend_from_slice(more);
            mirror.matched = high_watermark;
        }
        if truth.turn > 0 && !is_leader && !is_in_sync {
            // It was told more by the leader before, and has not met this one.
            return u64::from(is_cut);
        }
        if truth.turn > 0 && !is_leader && high_watermark > mirror.matched {
            // Or it has: that one holds the same, and has not committed it once more.
            let known = mirror.entries.get(..high_watermark).map(<[Entry]>::to_vec);
            let leader = truth.leaders.last_key_value().map(|(_, leader)| *leader);
            let leaders = leader.and_then(|leader| self.mirrors.get(&(leader, index)));
            let same = leaders.and_then(|leaders| leaders.entries.get(..high_watermark));
            if same.is_some() && same == known.as_deref() {
                return u64::from(is_cut);
            }
        }
        let mirror = &self.mirrors[&(id, index)];
        require!(
            high_watermark <= mirror.matched,
            "LogMatching: broker {id} ({:?} of epoch {epoch}) has high watermark {high_watermark} of t-{index}; of {} \
             committed records it has {} as they are, then {:?} for {:?}",
            partition.role,
            truth.committed.len(),
            mirror.matched,
            mirror.entries.get(mirror.matched),
            truth.committed.get(mirror.matched)
        );
        u64::from(is_cut)
    }
}

impl Mirror {
    fn match_with(&mut self, truth: &Truth) {
        if self.turn != truth.turn {
            (self.turn, self.matched) = (truth.turn, 0);
        }
        let both = self.entries.iter().zip(&truth.committed).skip(self.matched);
        self.matched += both.take_while(|(own, committed)| own == committed).count();
    }
}

impl Truth {
    /// Each record of an epoch at an offset is one record, behind one other: with that, logs that agree in one place
    /// agree in all before it.
    fn note_written(&mut self, index: usize, mut before: u64, new: &[Entry]) {
        for entry in new {
            let place = (entry.leader_epoch, entry.offset);
            let known = *self.written.entry(place).or_insert((entry.value, before));
            require!(
                known == (entry.value, before),
                "OneWriter: t-{index} has {entry:?} behind {before} in one log, {} behind {} in another",
                known.0,
                known.1
            );
            before = entry.value;
        }
    }

    /// An unclean election: what its leader does not have is lost.
    fn cut_to(&mut self, mirror: &Mirror, epoch: i32) {
        let both = mirror.entries.iter().zip(&self.committed);
        let kept = both.take_while(|(own, committed)| own == committed).count();
        self.committed.truncate(kept);
        (self.turn, self.since_epoch, self.is_open) = (self.turn + 1, epoch, false);
    }
}
