//! Bugs that the seeds have to find. The engine has none of them and no switch for them: each is
//! what a shell around it, or the controller, does wrong, or a decision of the engine's that is
//! taken here once more and wrongly, right after it.
//!
//! ```text
//! hw_by_isr                  the high watermark by the committed ISR, not by the maximal one
//! expand_without_epoch_start a follower joins with the high watermark, though its end lies before the leader's epoch
//! no_broker_epoch_check      neither leader nor controller asks in which process a follower fetched (KIP-903)
//! hw_before_truncation       a follower takes the high watermark of an answer by which it is cut (KAFKA-14704)
//! truncation_to_hw           a follower cuts its log at its high watermark first (before KIP-101)
//! no_min_isr_at_ack          the high watermark moves with fewer than min.insync.replicas (before KIP-966)
//! no_epoch_entry             a leader goes on in the epoch of the last record
//! newer_epoch_taken          a follower takes batches of an epoch that it does not know (KAFKA-18723)
//! unflushed_end              a durable follower asks for more before what it has is on disk
//! early_shrink               a shrink counts before the controller has agreed
//! success_after_demotion     acks=all succeeds once the high watermark passes, whoever leads by then
//! own_high_watermark         a follower shows consumers all that it has (KIP-392)
//! old_metadata               a broker takes a version of the metadata for applied that it has not applied
//! old_broker_epoch           the controller gives a process the broker epoch of the one before
//! old_leader_epoch           the controller elects another leader in the same epoch
//! deleted_by_leader_only     DeleteRecords succeeds when the leader's log begins there
//! move_without_last_records  a replica goes to its new directory without what came behind the last piece
//! ```

use std::rc::Rc;
use std::sync::Arc;

use kafkalite::api::k00_produce::{Outcome, Produce};
use kafkalite::batch::BatchHeader;
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::error::Result;
use kafkalite::log::append::{AppendInfo, AppendRequest};
use kafkalite::log::directory::NewLog;
use kafkalite::replica::follower::answer::FetchAnswer;
use kafkalite::replica::leader::LeaderState;
use kafkalite::replica::moves::Copying;
use kafkalite::replica::{Partition, Role};

use super::bytes::{TOPIC, TOPIC_ID, behind_header};
use super::controller::{AlterPartition, Metadata, code};
use super::faults::Fault;
use super::plan::Plan;
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    HwByIsr,
    ExpandWithoutEpochStart,
    NoBrokerEpochCheck,
    HwBeforeTruncation,
    TruncationToHw,
    NoMinIsrAtAck,
    NoEpochEntry,
    NewerEpochTaken,
    UnflushedEnd,
    EarlyShrink,
    SuccessAfterDemotion,
    OwnHighWatermark,
    OldMetadata,
    OldBrokerEpoch,
    OldLeaderEpoch,
    DeletedByLeaderOnly,
    MoveWithoutLastRecords,
}

pub const ALL: [(&str, Planted); 17] = [
    ("hw_by_isr", Planted::HwByIsr),
    (
        "expand_without_epoch_start",
        Planted::ExpandWithoutEpochStart,
    ),
    ("no_broker_epoch_check", Planted::NoBrokerEpochCheck),
    ("hw_before_truncation", Planted::HwBeforeTruncation),
    ("truncation_to_hw", Planted::TruncationToHw),
    ("no_min_isr_at_ack", Planted::NoMinIsrAtAck),
    ("no_epoch_entry", Planted::NoEpochEntry),
    ("newer_epoch_taken", Planted::NewerEpochTaken),
    ("unflushed_end", Planted::UnflushedEnd),
    ("early_shrink", Planted::EarlyShrink),
    ("success_after_demotion", Planted::SuccessAfterDemotion),
    ("own_high_watermark", Planted::OwnHighWatermark),
    ("old_metadata", Planted::OldMetadata),
    ("old_broker_epoch", Planted::OldBrokerEpoch),
    ("old_leader_epoch", Planted::OldLeaderEpoch),
    ("deleted_by_leader_only", Planted::DeletedByLeaderOnly),
    ("move_without_last_records", Planted::MoveWithoutLastRecords),
];

impl Planted {
    pub fn of_name(name: &str) -> Option<Planted> {
        let found = ALL.iter().find(|(each, _)| *each == name);
        found.map(|(_, planted)| *planted)
    }

    pub fn name(self) -> &'static str {
        let found = ALL.iter().find(|(_, each)| *each == self);
        found.map_or("", |(name, _)| *name)
    }

    /// What the bug cannot show itself without.
    pub fn adapt(self, plan: &mut Plan) {
        match self {
            Planted::UnflushedEnd => {
                (plan.is_durable, plan.fsync_ms_max) = (true, 100);
                plan.faults = vec![Fault::PowerCut, Fault::PowerCuts];
            }
            Planted::NoBrokerEpochCheck => {
                // A request of a process that has died must come when the next one is active, which
                // has not got back from its leader what it has lost.
                (plan.is_durable, plan.min_isr, plan.session_ms) = (false, 3, 1_000);
                (plan.brokers, plan.partitions, plan.replication) = (3, 1, 3);
                (plan.late_per_mille, plan.late_ms_max) = (200, 4_000);
                plan.faults = vec![Fault::PowerCut, Fault::CutOneWay, Fault::CutOneWay];
            }
            Planted::NewerEpochTaken => {
                // The leader is another one, has cut its log and has got other records, and
                // the follower has not heard.
                (plan.brokers, plan.partitions, plan.replication) = (3, 1, 3);
                (plan.reads_late, plan.is_durable, plan.events) = (true, false, 4_000);
                (plan.producers, plan.produce_pause_ms) = (4, 5);
                (plan.delay_ms_max, plan.metadata_ms_max, plan.fault_pause_ms) = (30, 600, 300);
                let moves = Fault::PreferredElection;
                plan.faults = vec![Fault::Reassign, moves, moves, Fault::CutOneWay];
            }
            Planted::NoMinIsrAtAck => plan.min_isr = plan.min_isr.max(2),
            Planted::DeletedByLeaderOnly => plan.faults.push(Fault::DeleteRecords),
            Planted::MoveWithoutLastRecords => plan.faults.push(Fault::Move),
            _ => {}
        }
    }

    /// After each event.
    pub fn after_event(self, world: &mut World) {
        for id in 1..=world.plan.brokers {
            for index in 0..world.plan.partitions {
                let Some(leader) = world.brokers[&id].replica(index) else {
                    continue;
                };
                let state = leader.leader_state();
                if let Some(state) = state.filter(|_| leader.leading_epoch().is_ok()) {
                    self.on_leader(world, id, &leader, &state);
                }
            }
        }
    }

    fn on_leader(self, world: &mut World, id: i32, leader: &Arc<Partition>, state: &LeaderState) {
        let min_isr = leader.log.config().min_in_sync_replicas as usize;
        let isr = state.in_sync_replicas();
        match self {
            Planted::HwByIsr if !state.is_under_min_isr(min_isr) => {
                move_high_watermark(id, leader, state, isr);
            }
            Planted::NoMinIsrAtAck if state.is_under_min_isr(min_isr) => {
                move_high_watermark(id, leader, state, isr);
            }
            Planted::EarlyShrink => {
                let process = world.process(id).expect("it leads");
                let index = leader.index as usize;
                let proposed =
                    process.proposed(index, leader.leader_epoch, state.partition_epoch());
                if let Some(proposed) = proposed.filter(|it| it.len() >= min_isr) {
                    move_high_watermark(id, leader, state, &proposed);
                }
            }
            Planted::ExpandWithoutEpochStart => expand(world, id, leader, state),
            _ => {}
        }
    }

    /// Before a follower takes an answer.
    pub fn before_answer(self, world: &mut World, id: i32, answer: &[u8]) {
        if self != Planted::HwBeforeTruncation {
            return;
        }
        for (partition, fetched) in followed(world, id, answer) {
            let end = partition.log.offsets().log_end_offset;
            partition.log.set_replicated_offset(fetched.0.min(end));
        }
        // Whoever reads here now is shown it.
        world.check();
    }

    /// After a follower has taken an answer.
    pub fn after_answer(self, world: &mut World, id: i32, answer: &[u8]) {
        if self == Planted::OwnHighWatermark {
            for (partition, _) in followed(world, id, answer) {
                let end = partition.log.offsets().log_end_offset;
                partition.log.set_replicated_offset(end);
            }
        }
        if self != Planted::NewerEpochTaken {
            return;
        }
        let now_ms = world.clock_of(id);
        for (partition, (_, records)) in followed(world, id, answer) {
            let mut rest = &records[..];
            while let Some(header) = BatchHeader::parse(rest).unwrap() {
                let Some((batch, behind)) = rest.split_at_checked(header.size_bytes) else {
                    break;
                };
                if header.base_offset == partition.log.offsets().log_end_offset {
                    let mut batch = batch.to_vec();
                    let request = AppendRequest {
                        records: &mut batch,
                        origin: AppendOrigin::Replication,
                        leader_epoch: header.partition_leader_epoch,
                        transaction_version: None,
                        guard: None,
                    };
                    partition
                        .log
                        .append(&mut [request], now_ms)
                        .remove(0)
                        .unwrap();
                }
                rest = behind;
            }
        }
    }

    /// A replica begins to follow.
    pub fn on_follow(self, partition: &Partition, now_ms: i64) {
        if self == Planted::TruncationToHw && !partition.is_offline() {
            let high_watermark = partition.log.high_watermark();
            partition.log.truncate_to(high_watermark, now_ms).unwrap();
        }
    }

    /// The metadata that comes into force with a version.
    pub fn applied(self, world: &World, version: i64) -> Rc<Metadata> {
        let is_old = self == Planted::OldMetadata && version % 8 == 0;
        world.controller.at(version - i64::from(is_old))
    }

    /// A leader looks at a follower's request.
    pub fn on_request(self, body: &mut [u8]) {
        if self == Planted::NoBrokerEpochCheck {
            // The replica state stands last: id, epoch, no tags.
            let end = body.len() - 1;
            body[end - 8..end].copy_from_slice(&(-1_i64).to_be_bytes());
        }
    }
}

/// A replica that an answer speaks of, with its high watermark and its records.
type Told = (Arc<Partition>, (i64, Vec<u8>));

fn followed(world: &World, id: i32, answer: &[u8]) -> Vec<Told> {
    let start = behind_header(answer).unwrap().position();
    let body = &answer[start..];
    // That of a ListOffsets cannot be read so.
    let read = FetchAnswer::read(body, 100).unwrap_or_default();
    let good = read
        .partitions
        .into_iter()
        .filter(|part| part.error_code == 0);
    let found = good.filter_map(|part| {
        let replica = world.brokers[&id].replica(part.index as usize)?;
        let records = body[part.records.clone()].to_vec();
        let follows = replica.role == Role::Follower && !replica.is_offline();
        follows.then_some((replica, (part.high_watermark, records)))
    });
    found.collect()
}

/// As if these were all that count.
fn move_high_watermark(id: i32, leader: &Partition, state: &LeaderState, needed: &[i32]) {
    let others = needed.iter().filter(|each| **each != id);
    let ends = others.map(|each| state.follower(*each).map_or(-1, |it| it.log_end_offset));
    let replicated_offset = ends.min().unwrap_or(i64::MAX);
    if replicated_offset > leader.log.high_watermark() {
        leader.log.set_replicated_offset(replicated_offset);
    }
}

fn expand(world: &mut World, id: i32, leader: &Arc<Partition>, state: &LeaderState) {
    let (high_watermark, start) = (
        leader.log.high_watermark(),
        leader.log.leading_epoch_start(),
    );
    let metadata = world.controller.metadata();
    let joins = |other: &i32| {
        let end = state.follower(*other).map_or(-1, |it| it.log_end_offset);
        let is_in = state.in_sync_replicas().contains(other);
        !is_in && end >= high_watermark && end < start
    };
    let Some(joining) = (1..=world.plan.brokers)
        .find(joins)
        .filter(|_| !state.is_pending())
    else {
        return;
    };
    let with_epoch = |other: &i32| (*other, metadata.brokers[other].broker_epoch);
    let isr = state.in_sync_replicas().iter().chain([&joining]);
    let asked = AlterPartition {
        broker: id,
        broker_epoch: world.brokers[&id]
            .process
            .as_ref()
            .expect("it leads")
            .broker_epoch,
        partition: leader.index as usize,
        leader_epoch: leader.leader_epoch,
        partition_epoch: state.partition_epoch(),
        isr: isr.map(with_epoch).collect(),
        is_recovering: false,
    };
    if world.controller.alter_partition(&asked).error_code == code::NONE {
        let metadata = world.controller.at(world.controller.version());
        world.publish(id, &metadata);
    }
}

/// Moves a replica as far as one piece, and takes that for all of it. False: it cannot be moved.
pub fn move_early(world: &World, id: i32, index: usize) -> Option<()> {
    let now_ms = world.clock_of(id);
    let broker = &world.brokers[&id];
    let replica = broker.replica(index).filter(|it| !it.is_offline())?;
    let (from, log) = (replica.directory().clone(), replica.log.clone());
    let mut directories = broker.node()?.directories().iter();
    let to = directories.find(|each| !Arc::ptr_eq(each, &from))?;
    let wanted = NewLog {
        topic: Arc::from(TOPIC),
        partition: replica.index,
        topic_id: TOPIC_ID,
        config: (*log.config()).clone(),
        leader_epoch: None,
    };
    let future = to.create_future(wanted, now_ms).ok()?;
    let mut copying = Copying::new(log.clone(), (from.clone(), to.clone()), future.clone());
    copying.step(1, now_ms).ok()?;
    let aside = from.aside_name(&log);
    let replaced = log.replace_by(&future, &aside, now_ms, || Ok(true));
    let aside = replaced.ok()??;
    from.hand_over(&log, &future, to, aside, now_ms);
    replica.move_to(to);
    Some(())
}

/// Appends in the epoch of the last record.
pub fn append(partition: &Partition, records: &mut [u8], now_ms: i64) -> Result<AppendInfo> {
    let leader_epoch = partition.leading_epoch()?;
    let request = AppendRequest {
        records,
        origin: AppendOrigin::Client,
        leader_epoch: partition.log.latest_epoch().unwrap_or(leader_epoch),
        transaction_version: None,
        guard: None,
    };
    partition.log.append(&mut [request], now_ms).remove(0)
}

/// The first offset of what was appended, once the high watermark of the log has passed
/// all of it; `None`: not yet.
pub fn success(produce: &Produce) -> Option<(usize, i64)> {
    produce
        .partitions
        .iter()
        .find_map(|each| match &each.outcome {
            Outcome::Accepted(partition, Some(info)) => {
                let has_passed = partition.log.high_watermark() > info.last_offset;
                has_passed.then_some((partition.index as usize, info.first_offset))
            }
            _ => None,
        })
}
