//! What a leader makes of its followers' fetches, of time, of the controller's
//! answers and of the metadata.

use kafkalite::log::state::ends::LogOffsets;
use kafkalite::replica::brokers::{RegisteredBroker, RegisteredBrokers};
use kafkalite::replica::leader::{
    Circumstances, Effects, FetchRefusal, IsrAnswer, IsrChangeCounts, LeaderState, Proposal,
    ReplicaFetch,
};
use proptest::prelude::*;

const LAG_MS: i64 = 1_000;
/// That of the first proposal.
const FIRST: u64 = (5 << 32) + 1;

/// The leader, broker 1, with its surroundings. Brokers are registered in the
/// epoch of ten times their ids.
struct World {
    state: LeaderState,
    brokers: Vec<RegisteredBroker>,
    log_end_offset: i64,
    high_watermark: i64,
    epoch_start_offset: i64,
    min_in_sync_replicas: usize,
    now_ms: i64,
    latest: Option<Proposal>,
}

fn registered(node_id: i32) -> RegisteredBroker {
    RegisteredBroker {
        node_id,
        broker_epoch: i64::from(node_id) * 10,
        is_fenced: false,
        in_controlled_shutdown: false,
        rack: None,
        endpoint: None,
    }
}

impl World {
    /// Leads at offset 100, up to which all is committed, with these in sync
    /// among replicas 1, 2 and 3.
    fn new(in_sync_replicas: &[i32]) -> World {
        World {
            state: LeaderState::new(1, 5, 7, &[1, 2, 3], in_sync_replicas),
            brokers: vec![registered(1), registered(2), registered(3)],
            log_end_offset: 100,
            high_watermark: 100,
            epoch_start_offset: 100,
            min_in_sync_replicas: 2,
            now_ms: 50_000,
            latest: None,
        }
    }

    fn on<T>(&mut self, event: impl FnOnce(&mut LeaderState, &Circumstances<'_>) -> T) -> T {
        let brokers = RegisteredBrokers::new(self.brokers.clone());
        let offsets = LogOffsets {
            log_start_offset: 0,
            log_end_offset: self.log_end_offset,
            flushed_offset: self.log_end_offset,
            high_watermark: self.high_watermark,
            last_stable_offset: self.high_watermark,
            recovery_point: 0,
        };
        let at = Circumstances {
            offsets,
            epoch_start_offset: self.epoch_start_offset,
            brokers: &brokers,
            min_in_sync_replicas: self.min_in_sync_replicas,
            lag_ms_max: LAG_MS,
            now_ms: self.now_ms,
        };
        event(&mut self.state, &at)
    }

    /// As `Log::set_replicated_offset` does.
    fn apply(&mut self, effects: Effects) -> Option<Proposal> {
        let target = effects.replicated_offset.min(self.log_end_offset);
        self.high_watermark = self.high_watermark.max(target);
        self.latest = effects.proposal.clone().or(self.latest.take());
        effects.proposal
    }

    fn try_fetch(&mut self, id: i32, offset: i64, broker_epoch: i64) -> Result<(), FetchRefusal> {
        let fetch = ReplicaFetch {
            replica_id: id,
            broker_epoch,
            fetch_offset: offset,
            log_start_offset: 0,
            leader_end_offset: self.log_end_offset,
        };
        let effects = self.on(|state, at| state.on_fetch(&fetch, at))?;
        self.apply(effects);
        Ok(())
    }

    /// Broker `id` fetches from `offset` on. Returns the in-sync replicas that are proposed.
    fn fetch(&mut self, id: i32, offset: i64) -> Option<Vec<(i32, i64)>> {
        let fetch = ReplicaFetch {
            replica_id: id,
            broker_epoch: i64::from(id) * 10,
            fetch_offset: offset,
            log_start_offset: 0,
            leader_end_offset: self.log_end_offset,
        };
        let effects = self.on(|state, at| state.on_fetch(&fetch, at)).unwrap();
        self.apply(effects).map(|each| each.in_sync_replicas)
    }

    fn sweep(&mut self) -> Option<Proposal> {
        let effects = self.on(|state, at| state.sweep(at));
        self.apply(effects)
    }

    fn answer(&mut self, number: u64, answer: IsrAnswer) -> Option<Proposal> {
        let effects = self.on(|state, at| state.on_answer(number, answer, at));
        self.apply(effects)
    }

    fn accept(&mut self, number: u64, partition_epoch: i32, in_sync_replicas: &[i32]) {
        let answer = IsrAnswer::Accepted {
            leader_epoch: 5,
            partition_epoch,
            in_sync_replicas: in_sync_replicas.into(),
        };
        assert_eq!(self.answer(number, answer), None);
    }

    fn register(&mut self, partition_epoch: i32, replicas: &[i32], in_sync_replicas: &[i32]) {
        let effects = self
            .on(|state, at| state.on_registration(partition_epoch, replicas, in_sync_replicas, at));
        self.apply(effects);
    }
}

#[test]
fn records_are_replicated_when_all_in_sync_replicas_have_fetched_behind_them() {
    let mut world = World::new(&[1, 2, 3]);
    world.log_end_offset = 110;
    assert_eq!(world.fetch(2, 110), None);
    assert_eq!(world.high_watermark, 100);
    assert_eq!(world.fetch(3, 105), None);
    assert_eq!(world.high_watermark, 105);
    assert_eq!(world.fetch(3, 110), None);
    assert_eq!(world.high_watermark, 110);
}

#[test]
fn a_replica_that_has_not_fetched_in_this_epoch_holds_the_high_watermark_back() {
    let mut world = World::new(&[1, 2, 3]);
    world.log_end_offset = 110;
    world.fetch(2, 110);
    assert_eq!(world.high_watermark, 100);
    assert_eq!(world.on(|state, at| state.replicated_offset(at)), -1);
}

#[test]
fn a_follower_that_does_not_fetch_leaves_after_the_lag_and_counts_until_the_controller_says_so() {
    let mut world = World::new(&[1, 2, 3]);
    world.fetch(2, 100);
    world.fetch(3, 100);
    world.log_end_offset = 110;
    world.now_ms += LAG_MS;
    world.fetch(2, 110);
    assert_eq!(world.sweep(), None, "not longer than the lag");
    world.now_ms += 1;
    let proposal = world.sweep().unwrap();
    assert_eq!(proposal.in_sync_replicas, [(1, 10), (2, 20)]);
    assert_eq!((proposal.leader_epoch, proposal.partition_epoch), (5, 7));
    assert_eq!(world.sweep(), None, "one change at a time");
    assert_eq!(world.high_watermark, 100, "the maximal ISR is the old one");
    world.accept(proposal.number, 8, &[1, 2]);
    assert_eq!(world.high_watermark, 110);
    assert_eq!(world.state.in_sync_replicas(), [1, 2]);
    let shrunk = IsrChangeCounts {
        shrinks: 1,
        expands: 0,
    };
    assert_eq!(world.state.counts(), shrunk);
}

/// With records all the time a follower is never at the leader's end of the
/// moment at which it fetches.
#[test]
fn a_follower_is_caught_up_by_the_log_end_of_its_fetch_before() {
    let mut world = World::new(&[1, 2]);
    world.fetch(2, 100);
    for _ in 0..10 {
        world.log_end_offset += 10;
        world.now_ms += LAG_MS / 2;
        let end_before = world.log_end_offset - 10;
        world.fetch(2, end_before);
        assert_eq!(world.sweep(), None);
    }
    // Reads that stay behind the end of the time before.
    for _ in 0..3 {
        world.log_end_offset += 10;
        world.now_ms += LAG_MS / 2;
        world.fetch(2, 150);
    }
    assert!(world.sweep().is_some());
}

/// A record that came while an answer was made was missed in the follower's next
/// fetch, and so with each one.
#[test]
fn what_comes_while_an_answer_is_made_is_not_asked_of_the_follower() {
    let mut world = World::new(&[1, 2]);
    let mut fetch = ReplicaFetch {
        replica_id: 2,
        broker_epoch: 20,
        fetch_offset: 100,
        log_start_offset: 0,
        leader_end_offset: 100,
    };
    for _ in 0..10 {
        world.now_ms += LAG_MS / 2;
        world.log_end_offset += 10;
        world.on(|state, at| state.on_fetch(&fetch, at)).unwrap();
        assert_eq!(world.sweep(), None);
        fetch.fetch_offset = fetch.leader_end_offset;
        fetch.leader_end_offset = world.log_end_offset;
    }
}

#[test]
fn a_follower_that_has_what_is_committed_joins_and_counts_from_the_proposal_on() {
    let mut world = World::new(&[1, 2]);
    world.log_end_offset = 110;
    world.fetch(2, 110);
    assert_eq!(world.high_watermark, 110);
    assert_eq!(world.fetch(3, 109), None, "below the high watermark");
    world.log_end_offset = 120;
    let proposed = world.fetch(3, 115).unwrap();
    assert_eq!(proposed, [(1, 10), (2, 20), (3, 30)]);
    world.fetch(2, 120);
    assert_eq!(world.high_watermark, 115);
    assert_eq!(world.fetch(3, 118), None, "one change at a time");
    world.accept(FIRST, 8, &[1, 2, 3]);
    world.fetch(3, 120);
    assert_eq!(world.high_watermark, 120);
    assert_eq!(world.state.counts().expands, 1);
}

/// Of the part of the log before, a leader in between may have committed more (KAFKA-7128).
#[test]
fn a_follower_joins_only_when_it_has_come_to_where_the_leader_epoch_begins() {
    let mut world = World::new(&[1, 2]);
    world.high_watermark = 90;
    assert_eq!(world.fetch(3, 99), None);
    assert!(world.fetch(3, 100).is_some());
}

/// KIP-841, KAFKA-15021.
#[test]
fn a_broker_that_is_fenced_or_stops_neither_joins_nor_holds_the_high_watermark_back() {
    for change in [
        |broker: &mut RegisteredBroker| broker.is_fenced = true,
        |broker: &mut RegisteredBroker| broker.in_controlled_shutdown = true,
    ] {
        let mut world = World::new(&[1, 2]);
        change(&mut world.brokers[2]);
        assert_eq!(world.fetch(3, 100), None);
        world.log_end_offset = 110;
        world.fetch(2, 110);
        assert_eq!(world.high_watermark, 110);
    }
}

#[test]
fn a_broker_that_is_not_registered_does_not_join() {
    let mut world = World::new(&[1, 2]);
    world.brokers.pop();
    assert_eq!(world.fetch(3, 100), None);
    world.brokers.push(registered(3));
    assert!(world.fetch(3, 100).is_some());
}

/// KIP-903, KAFKA-15221: the epoch of the fetch is judged and proposed with
/// the offset that it brought.
#[test]
fn a_process_of_before_does_not_count_and_a_new_one_joins_in_its_own_epoch() {
    let mut world = World::new(&[1, 2]);
    world.brokers[2].broker_epoch = 31;
    let old = world.try_fetch(3, 100, 30);
    assert_eq!(old, Err(FetchRefusal::OldBrokerEpoch));
    assert_eq!(world.state.follower(3).unwrap().log_end_offset, -1);
    // The metadata here has not come to its registration.
    assert_eq!(world.try_fetch(3, 100, 32), Ok(()));
    assert!(!world.state.is_pending());
    assert_eq!(world.try_fetch(3, 100, 31), Ok(()));
    assert!(world.state.is_pending());
}

#[test]
fn a_fetch_that_tells_no_broker_epoch_is_judged_without() {
    let mut world = World::new(&[1, 2]);
    assert_eq!(world.try_fetch(3, 100, -1), Ok(()));
    assert!(world.state.is_in_maximal_isr(3));
}

#[test]
fn who_is_not_assigned_is_refused_and_the_leader_itself_is_no_follower() {
    let mut world = World::new(&[1, 2]);
    for id in [1, 4, -7, i32::MAX] {
        let refused = world.try_fetch(id, 100, -1);
        assert_eq!(refused, Err(FetchRefusal::NotAssigned));
    }
}

/// KIP-966. And KAFKA-19996: who is far behind would join at once, since the high watermark stands.
/// Those that it was moved from counted as replicas for good: where more in-sync replicas are
/// wanted than there are, acks=all was refused.
#[test]
fn replicas_that_go_with_an_accepted_change_are_none_any_more() {
    let mut world = World::new(&[1]);
    world.min_in_sync_replicas = 3;
    assert!(world.fetch(2, 100).is_some());
    world.accept(FIRST, 8, &[1, 2]);
    assert!(world.state.is_under_min_isr(3));
    world.register(8, &[1, 2], &[1, 2]);
    assert!(!world.state.is_under_min_isr(3));
    assert_eq!(world.state.in_sync_replicas(), [1, 2]);
}

#[test]
fn below_min_insync_replicas_the_high_watermark_stands_until_one_that_is_caught_up_has_joined() {
    let mut world = World::new(&[1]);
    assert!(world.state.is_under_min_isr(2));
    assert_eq!(world.sweep(), None);
    world.log_end_offset = 200;
    assert_eq!(world.fetch(2, 110), None, "far behind");
    assert_eq!(world.high_watermark, 100);
    assert!(world.fetch(2, 200).is_some());
    assert_eq!(world.high_watermark, 100, "not committed yet");
    world.accept(FIRST, 8, &[1, 2]);
    assert_eq!(world.high_watermark, 200);
}

#[test]
fn min_insync_replicas_count_for_no_more_than_the_replicas_that_there_are() {
    let state = LeaderState::new(1, 0, 0, &[1, 2], &[1, 2]);
    assert!(!state.is_under_min_isr(5));
    assert!(!state.is_maximal_under_min_isr(5));
    let state = LeaderState::new(1, 0, 0, &[1, 2], &[1]);
    assert!(state.is_under_min_isr(5));
    assert!(state.is_maximal_under_min_isr(5));
}

#[test]
fn a_leader_that_is_alone_in_sync_commits_by_itself_where_that_is_enough() {
    let mut world = World::new(&[1]);
    world.min_in_sync_replicas = 1;
    assert_eq!(world.on(|state, at| state.replicated_offset(at)), i64::MAX);
    // Whoever is about to join is waited for, as long as it is quick.
    world.log_end_offset = 110;
    world.brokers[1].broker_epoch = 21;
    world.try_fetch(2, 105, 22).unwrap();
    world.brokers[1].broker_epoch = 22;
    assert_eq!(world.on(|state, at| state.replicated_offset(at)), i64::MAX);
    world.try_fetch(2, 110, 22).unwrap();
    world.log_end_offset = 120;
    assert_eq!(world.on(|state, at| state.replicated_offset(at)), 110);
}

#[test]
fn an_answer_takes_a_proposal_back_leaves_it_open_or_has_it_sent_again() {
    let mut world = World::new(&[1, 2]);
    let proposed = world.fetch(3, 100);
    assert_eq!(world.answer(9, IsrAnswer::Refused), None);
    assert!(world.state.is_pending(), "of another proposal");
    let again = world.answer(FIRST, IsrAnswer::Retry).unwrap();
    assert_eq!(
        (again.number, Some(again.in_sync_replicas)),
        (FIRST, proposed)
    );
    world.answer(FIRST, IsrAnswer::Uncertain);
    assert!(world.state.is_in_maximal_isr(3));
    world.answer(FIRST, IsrAnswer::Refused);
    assert!(!world.state.is_in_maximal_isr(3));
    assert!(world.fetch(3, 100).is_some(), "it asks anew");
    let of_another_leadership = IsrAnswer::Accepted {
        leader_epoch: 6,
        partition_epoch: 9,
        in_sync_replicas: vec![1, 3],
    };
    world.answer(FIRST + 1, of_another_leadership);
    assert_eq!(world.state.in_sync_replicas(), [1, 2]);
    assert!(world.state.is_pending());
}

#[test]
fn metadata_takes_the_place_of_an_open_proposal_and_older_metadata_of_nothing() {
    let mut world = World::new(&[1, 2]);
    world.fetch(3, 100);
    world.register(7, &[1, 2, 3], &[1, 2]);
    assert!(world.state.is_pending(), "nothing new");
    world.register(8, &[1, 2, 3, 4], &[1]);
    assert!(!world.state.is_pending());
    assert_eq!(world.state.in_sync_replicas(), [1]);
    assert!(world.state.follower(4).is_some());
    world.accept(FIRST, 9, &[1, 2, 3]);
    assert_eq!(world.state.in_sync_replicas(), [1], "it was overtaken");
    world.register(9, &[1, 2], &[1, 2]);
    assert!(world.state.follower(3).is_none());
    // The answer came before the metadata that says the same.
    assert!(world.fetch(2, 100).is_none());
}

/// DeleteRecords waits for it.
#[test]
fn the_low_watermark_is_the_least_log_start_of_the_replicas_that_live() {
    let mut world = World::new(&[1, 2, 3]);
    assert_eq!(world.on(|state, at| state.low_watermark(at)), -1);
    world.fetch(2, 100);
    world.fetch(3, 100);
    assert_eq!(world.on(|state, at| state.low_watermark(at)), 0);
}

proptest! {
    /// Whatever happens: what is committed is on all that the controller may take for
    /// in sync, and only goes up.
    #[test]
    fn what_is_committed_is_on_all_of_the_maximal_isr(
        events in prop::collection::vec((0..6_u8, 2..4_i32, 0..40_i64), 1..200)
    ) {
        let mut world = World::new(&[1, 2]);
        let mut partition_epoch = 7;
        let mut has: [i64; 4] = [0; 4];
        for (event, id, amount) in events {
            let before = world.high_watermark;
            match event {
                0 => world.log_end_offset += amount,
                1 => {
                    let at = usize::try_from(id).unwrap();
                    has[at] = (has[at] + amount).max(80).min(world.log_end_offset);
                    let offset = has[at];
                    world.fetch(id, offset);
                }
                2 => world.now_ms += amount * 40,
                3 => {
                    world.sweep();
                }
                4 if world.state.is_pending() => {
                    let Proposal { number, in_sync_replicas, .. } = world.latest.take().unwrap();
                    partition_epoch += 1;
                    let ids = in_sync_replicas.iter().map(|each| each.0);
                    world.answer(number, match amount % 3 {
                        0 => IsrAnswer::Refused,
                        _ => IsrAnswer::Accepted {
                            leader_epoch: 5,
                            partition_epoch,
                            in_sync_replicas: ids.collect(),
                        },
                    });
                    prop_assert!(!world.state.is_pending());
                }
                _ => {
                    let broker = &mut world.brokers[usize::try_from(id).unwrap() - 1];
                    broker.is_fenced = amount % 2 == 0;
                }
            }
            prop_assert!(world.high_watermark >= before);
            if world.high_watermark > before {
                for id in 2..4 {
                    let end = world.state.follower(id).unwrap().log_end_offset;
                    let is_needed = world.state.is_in_maximal_isr(id);
                    prop_assert!(!is_needed || end >= world.high_watermark);
                }
            }
        }
    }
}
