//! Bugs that Kafka had, each told once, without a seed.

use kafkalite::replica::follower::answer::FetchAnswer;
use kafkalite::replica::follower::{Assignment, FETCH_VERSION_MAX, FollowerSession, Request};

use super::bytes::{TOPIC_ID, behind_header};
use super::controller::Election;
use super::faults::Fault;
use super::plan::Plan;
use super::world::{CLIENT, CONTROLLER, World};
use crate::follower::at;
use crate::memory_storage::crash::Crash;
use crate::random::Random;

/// A cluster that runs, of brokers 1, 2 and 3, all in sync; broker 1 leads.
fn cluster(plan: Plan) -> World {
    let mut world = World::of(plan, Random::new(1), None, true);
    world.start_all();
    world.run_until("all are in sync", |world| {
        let state = world.controller.metadata().partitions.first();
        state.is_some_and(|state| state.leader == 1 && world.replicas_at(0) == 3)
    });
    world
}

impl World {
    /// So many brokers have the replica that the newest metadata gives them.
    fn replicas_at(&self, index: usize) -> usize {
        let version = self.controller.version();
        let is_there = |id: &i32| {
            let process = self.brokers[id].process.as_ref();
            let is_new = process.is_some_and(|process| process.version == version);
            is_new && self.brokers[id].replica(index).is_some()
        };
        self.brokers.keys().filter(|id| is_there(id)).count()
    }

    fn isr(&self) -> Vec<i32> {
        let mut isr = self.controller.metadata().partitions[0].isr.clone();
        isr.sort_unstable();
        isr
    }

    fn end_of(&self, id: i32) -> i64 {
        let replica = self.brokers[&id].replica(0);
        replica.map_or(-1, |it| it.log.offsets().log_end_offset)
    }

    fn high_watermark_of(&self, id: i32) -> i64 {
        self.brokers[&id]
            .replica(0)
            .map_or(-1, |it| it.log.high_watermark())
    }

    /// A batch of one producer is sent to whoever leads, again until it is taken.
    fn send_one(&mut self, acks: i16) {
        self.add_producer(0, acks, true);
        let number = self.producers.len() - 1;
        self.next_batch(number);
        self.after(0, CLIENT, move |world| world.send(number));
    }

    /// Sends a batch and waits until it is acknowledged.
    fn produce_one(&mut self, acks: i16) {
        self.send_one(acks);
        self.run_until("it is acknowledged", |world| {
            world
                .producers
                .iter()
                .all(|producer| !producer.is_waiting())
        });
    }

    fn cut_between(&mut self, one: i32, other: i32) {
        self.cuts.extend([(one, other), (other, one)]);
    }

    /// The process dies, and starts again only when `start_broker` says so.
    fn kill_for_long(&mut self, id: i32) {
        self.kill(id, Crash::Kill);
        self.broker(id).life += 1;
    }
}

/// KAFKA-6361: a leader that had failed over twice in a row kept records that its follower never
/// had, where truncation went by high watermarks. KAFKA-15510: the epoch of the last record was
/// forgotten when an answer held none.
#[test]
fn logs_that_parted_in_two_changes_of_leaders_are_one_again() {
    let mut world = cluster(Plan::quiet());
    world.produce_one(-1);
    // Only broker 1 gets these.
    world.cut_between(1, 2);
    world.cut_between(1, 3);
    world.cut_between(1, CONTROLLER);
    world.send_one(1);
    world.run_for(200);
    assert!(world.end_of(1) > world.end_of(2));
    world.run_until("another leads", |world| world.controller.leader(0) == 2);
    world.produce_one(-1);
    // The next leader as well has records of its own.
    world.cut_between(2, 3);
    world.cut_between(2, CONTROLLER);
    world.cuts.retain(|(from, to)| *from != 1 && *to != 1);
    world.send_one(1);
    world.run_until("broker 3 leads", |world| world.controller.leader(0) == 3);
    world.produce_one(-1);
    world.rest();
}

/// KAFKA-13916 (KIP-841): a fenced broker that still fetched was taken into
/// the ISR again and again.
#[test]
fn a_fenced_broker_that_fetches_stays_out_of_the_isr() {
    let mut world = cluster(Plan::quiet());
    world.cut_between(3, CONTROLLER);
    world.run_until("it is fenced", |world| world.isr() == [1, 2]);
    let fenced_ms = world.now_ms;
    while world.now_ms < fenced_ms + 5_000 {
        world.produce_one(-1);
        world.run_for(100);
        assert_eq!(world.isr(), [1, 2]);
    }
    let (end, own_end) = (world.end_of(1), world.end_of(3));
    world.cuts.clear();
    world.run_until("it is back", |world| world.isr() == [1, 2, 3]);
    assert_eq!(end, own_end, "it went on fetching");
}

/// KIP-903, KAFKA-15221: the Fetch of a process that was gone by then brought its successor, which
/// had lost what that Fetch said, into the ISR.
#[test]
fn a_fetch_of_a_process_that_is_gone_says_nothing_of_the_next_one() {
    let mut world = cluster(Plan {
        is_durable: false,
        ..Plan::quiet()
    });
    let old_epoch = world.controller.metadata().brokers[&3].broker_epoch;
    world.produce_one(-1);
    let partition = world.brokers[&3].replica(0).expect("it follows");
    let mut session = FollowerSession::new(world.follower_settings(3), 1);
    session.assign(Assignment {
        topic_id: TOPIC_ID,
        partition,
        leader_id: 1,
    });
    let Some(Request::Fetch(body)) = session.next_request(at(0), &mut |_| {}) else {
        panic!("it asks");
    };
    world.kill(3, Crash::LoseUnsynced);
    world.run_until("the next one is known", |world| {
        let known = world.controller.metadata().brokers[&3].broker_epoch > old_epoch;
        known && world.replicas_at(0) == 3
    });
    let leader = world.brokers[&1].replica(0).expect("it leads");
    let before = leader
        .leader_state()
        .expect("it leads")
        .follower(3)
        .copied();
    world.serve_fetch(
        1,
        FETCH_VERSION_MAX,
        &body,
        Box::new(|world: &mut World, answer| {
            let start = behind_header(&answer).unwrap().position();
            let read = FetchAnswer::read(&answer[start..], 1).unwrap();
            assert_eq!(read.partitions[0].error_code, 6, "NOT_LEADER_OR_FOLLOWER");
            world.see("refused");
        }),
    );
    assert_eq!(world.seen.get("refused"), Some(&1));
    let after = leader
        .leader_state()
        .expect("it leads")
        .follower(3)
        .copied();
    assert_eq!(before, after);
}

/// KAFKA-15021: the high watermark waited for a replica that was about to stop,
/// `replica.lag.time.max.ms` long.
#[test]
fn a_replica_that_stops_holds_no_record_back() {
    let mut world = cluster(Plan::quiet());
    world.produce_one(-1);
    world.begin_stop(3);
    world.run_until("it has left", |world| world.isr() == [1, 2]);
    world.run_for(20);
    world.cut_between(3, 1);
    let sent_ms = world.now_ms;
    world.produce_one(-1);
    let took_ms = world.now_ms - sent_ms;
    assert!(took_ms < world.plan.lag_ms / 4, "{took_ms} ms");
}

/// KAFKA-19996: with too few replicas in sync the high watermark stands still, and a replica that
/// had come as far was taken into the ISR however far it was behind.
#[test]
fn a_replica_that_is_far_behind_does_not_make_up_for_too_few() {
    let mut world = cluster(Plan::quiet());
    world.produce_one(-1);
    for id in [2, 3] {
        world.cut_between(1, id);
    }
    world.produce_one(1);
    world.run_until("it is alone", |world| world.isr() == [1]);
    for _ in 0..200 {
        world.produce_one(1);
    }
    assert!(world.high_watermark_of(1) < world.end_of(1) - 100);
    world.cuts.clear();
    world.run_until("one is back", |world| world.isr().len() > 1);
    let back = world.isr()[1];
    assert_eq!(world.end_of(back), world.end_of(1));
    world.rest();
}

/// KAFKA-19474: a follower was cut below its high watermark, and nobody was told before.
#[test]
fn a_cut_below_the_high_watermark_is_told_before() {
    let mut world = cluster(Plan {
        is_durable: false,
        ..Plan::quiet()
    });
    world.kill_for_long(3);
    world.run_until("it is out", |world| world.isr() == [1, 2]);
    for _ in 0..5 {
        world.produce_one(-1);
    }
    // The high watermarks come into the checkpoints.
    world.run_for(3_000);
    world.kill_for_long(1);
    world.kill_for_long(2);
    world.run_until("nobody leads", |world| world.controller.leader(0) < 0);
    world.start_broker(3);
    world.run_until("it serves", |world| {
        !world.controller.metadata().brokers[&3].is_fenced
    });
    world.controller.elect(0, Election::Unclean);
    world.run_until("it leads", |world| world.controller.leader(0) == 3);
    world.rest();
    let is_told = |line: &String| line.contains("below its high watermark");
    let lines = world.trace.lines();
    assert!(
        lines.iter().any(is_told),
        "{}",
        world.trace.end().join("\n")
    );
}

/// KAFKA-7414: a follower whose leader had deleted what comes next ended the broker. KAFKA-9491:
/// its high watermark was below its log start then.
#[test]
fn a_follower_below_the_start_of_its_leader_starts_anew_there() {
    let mut world = cluster(Plan::quiet());
    world.kill_for_long(3);
    world.run_until("it is out", |world| world.isr() == [1, 2]);
    for _ in 0..5 {
        world.produce_one(-1);
    }
    world.run_for(1_000);
    let start = world.high_watermark_of(1) - 1;
    for id in [1, 2] {
        let replica = world.brokers[&id].replica(0).expect("in sync");
        replica.log.advance_log_start_offset(start).unwrap();
    }
    world.start_broker(3);
    world.run_until("it is in sync", |world| world.isr() == [1, 2, 3]);
    let offsets = world.brokers[&3]
        .replica(0)
        .expect("it follows")
        .log
        .offsets();
    assert_eq!(
        (offsets.log_start_offset, offsets.log_end_offset),
        (start, world.end_of(1))
    );
}

/// KAFKA-14704, KAFKA-18723, KIP-903, and other rules: the seeds find what breaks them
/// (`planted.rs`). Here that a plan without faults ends as it began.
#[test]
fn nothing_happens_where_nothing_strikes() {
    let mut world = cluster(Plan {
        faults: vec![Fault::PreferredElection],
        ..Plan::quiet()
    });
    for _ in 0..20 {
        world.produce_one(-1);
    }
    world.run_for(10_000);
    let state = &world.controller.metadata().partitions[0];
    assert_eq!((state.leader_epoch, state.partition_epoch), (0, 0));
    world.rest();
}

/// Found by the seeds: records were deleted up to the middle of a leader's batch, where a
/// former leader had one of its own. The end of their common epoch was told as what the
/// leader's log began with, and the former leader's log ended there, in the middle of nothing,
/// and could take no batch more.
#[test]
fn a_log_that_parts_within_a_batch_below_the_start_of_its_leader_gets_all() {
    let mut world = cluster(Plan::quiet());
    world.produce_one(-1);
    let common = world.end_of(1);
    // Only broker 1 gets these, in one batch.
    world.cut_between(1, 2);
    world.cut_between(1, 3);
    world.cut_between(1, CONTROLLER);
    world.random = Random::new(3);
    while world.end_of(1) < common + 2 {
        world.send_one(1);
        world.run_for(100);
    }
    world.run_until("another leads", |world| world.controller.leader(0) == 2);
    while world.high_watermark_of(2) < common + 2 {
        world.produce_one(-1);
        world.run_for(500);
    }
    let leader = world.brokers[&2].replica(0).expect("it leads");
    leader.log.advance_log_start_offset(common + 1).unwrap();
    world.cuts.clear();
    world.run_until("it is back", |world| world.isr() == [1, 2, 3]);
    assert_eq!(world.end_of(1), world.end_of(2));
    world.rest();
}
