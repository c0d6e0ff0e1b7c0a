//! A node leads partitions that other brokers follow: their fetches, what is committed by them, and
//! what its clients are told meanwhile.

use kafkalite::api::fetch_sessions::FetchSessions;
use kafkalite::api::k01_fetch::{self, Fetch, FetchRead};
use kafkalite::api::{Chunk, k02_list_offsets};
use kafkalite::error::Error;
use kafkalite::log::config::{LogConfig, ThrottledReplicas};
use kafkalite::replica::brokers::{RegisteredBroker, RegisteredBrokers};
use kafkalite::replica::leader::IsrAnswer;
use kafkalite::replica::park::WaitFor;
use kafkalite::wire::{Reader, Writer};

use crate::node::{TOPIC_ID, World, append_one, header, parked, with_ask};

const EPOCH: i32 = 4;
/// An offset that no fetch here has diverged at.
const NO_RECORDS: i32 = -1;

/// Node 1 leads partition 0, with replicas 1, 2 and 3 in sync; each broker is
/// registered in ten times its id.
fn world() -> World {
    let world = World::new(&[(1, EPOCH, &[1, 2, 3])]);
    register(&world, |_| ());
    world
}

fn register(world: &World, mut change: impl FnMut(&mut RegisteredBroker)) {
    let brokers = (1..=3).map(|node_id| {
        let mut broker = RegisteredBroker {
            node_id,
            broker_epoch: i64::from(node_id) * 10,
            is_fenced: false,
            in_controlled_shutdown: false,
            rack: None,
            endpoint: None,
        };
        change(&mut broker);
        broker
    });
    let brokers = RegisteredBrokers::new(brokers);
    world.node.set_registered_brokers(brokers);
}

fn min_in_sync_replicas(world: &World, count: u32) {
    let config = LogConfig {
        min_in_sync_replicas: count,
        ..LogConfig::default()
    };
    world.node.set_topic_config("t", &config);
}

/// A follower's Fetch of partition 0.
#[derive(Clone, Copy)]
struct Asked {
    replica_id: i32,
    broker_epoch: i64,
    leader_epoch: i32,
    offset: i64,
    last_fetched_epoch: i32,
    log_start_offset: i64,
    now_ms: u64,
}

/// Broker `id` has all below `offset`.
fn follower(id: i32, offset: i64) -> Asked {
    Asked {
        replica_id: id,
        broker_epoch: i64::from(id) * 10,
        leader_epoch: EPOCH,
        offset,
        last_fetched_epoch: NO_RECORDS,
        log_start_offset: 0,
        now_ms: 1_000,
    }
}

fn request(world: &World, asked: Asked, sessions: &FetchSessions, session_epoch: i32) -> Fetch {
    let mut writer = Writer::default();
    for number in [500, 1, 1 << 20] {
        writer.i32(number);
    }
    writer.i8(0);
    writer.i32(0);
    writer.i32(session_epoch);
    writer.array_length(1, true);
    writer.uuid(&TOPIC_ID);
    writer.array_length(1, true);
    writer.i32(0);
    writer.i32(asked.leader_epoch);
    writer.i64(asked.offset);
    writer.i32(asked.last_fetched_epoch);
    writer.i64(asked.log_start_offset);
    writer.i32(1 << 20);
    writer.no_tags(true);
    writer.no_tags(true);
    writer.array_length(0, true);
    writer.string("", true);
    writer.uvarint(1);
    writer.tag(1, |state| {
        state.i32(asked.replica_id);
        state.i64(asked.broker_epoch);
        state.no_tags(true);
    });
    let mut reader = Reader::new(&writer.bytes);
    let image = world.node.image();
    with_ask(&image, |ask| {
        let bytes_max = 1 << 20;
        let header = header(1, 17, 12);
        k01_fetch::read(&header, &mut reader, ask, sessions, bytes_max, asked.now_ms).unwrap()
    })
}

/// What partition 0 is answered: error code, high watermark, bytes of records, and
/// whether the log has diverged.
fn fetch(world: &World, asked: Asked) -> (i16, i64, i32, bool) {
    let sessions = FetchSessions::new(0, 1);
    let mut request = request(world, asked, &sessions, -1);
    let mut fetch_read = FetchRead::default();
    assert!(request.read_logs(&mut fetch_read, |_| true));
    answer(world, &mut request, fetch_read, (&sessions, asked.now_ms))
}

fn answer(
    world: &World,
    request: &mut Fetch,
    fetch_read: FetchRead,
    (sessions, now_ms): (&FetchSessions, u64),
) -> (i16, i64, i32, bool) {
    let chunks = request.answer(fetch_read, sessions, &world.node.image(), now_ms);
    let bytes = chunks.into_iter().map(|chunk| match chunk {
        Chunk::Bytes(bytes) => bytes,
        Chunk::File(range, _) => range.to_vec().unwrap(),
        Chunk::Later(_) => panic!("a small request"),
    });
    let bytes = bytes.collect::<Vec<_>>().concat();
    let mut reader = Reader::new(&bytes);
    reader.take(8).unwrap();
    reader.skip_tags(true).unwrap();
    reader.take(10).unwrap();
    assert_eq!(reader.array_length(true).unwrap(), 1);
    reader.uuid().unwrap();
    assert_eq!(reader.array_length(true).unwrap(), 1);
    assert_eq!(reader.i32().unwrap(), 0);
    let (error_code, high_watermark) = (reader.i16().unwrap(), reader.i64().unwrap());
    reader.take(16).unwrap();
    assert_eq!(reader.nullable_length(true).unwrap().unwrap_or(0), 0);
    reader.i32().unwrap();
    let records = reader.nullable_bytes(true).unwrap().unwrap_or_default();
    let mut has_diverged = false;
    let read = reader.tags(|tag, _| {
        has_diverged |= tag == 0;
        Ok(())
    });
    read.unwrap();
    let size_bytes = i32::try_from(records.len()).unwrap();
    (error_code, high_watermark, size_bytes, has_diverged)
}

fn code_of(world: &World, asked: Asked) -> i16 {
    fetch(world, asked).0
}

/// The log end of follower 2 as its leader knows it.
fn known_end(world: &World) -> i64 {
    let state = world.leader(0).leader_state().unwrap();
    state.follower(2).unwrap().log_end_offset
}

#[test]
fn records_go_to_followers_before_they_are_on_disk_and_count_when_all_have_them() {
    let world = world();
    let partition = world.leader(0);
    append_one(&partition).unwrap();
    let (error_code, high_watermark, size_bytes, _) = fetch(&world, follower(2, 0));
    assert_eq!((error_code, high_watermark), (0, 0));
    assert!(size_bytes > 0, "nothing of it is flushed");
    fetch(&world, follower(2, 1));
    fetch(&world, follower(3, 1));
    assert!(partition.committed(0).is_none(), "the leader's own disk");
    partition.flush();
    assert!(matches!(partition.committed(0), Some(Ok(()))));
    append_one(&partition).unwrap();
    partition.flush();
    fetch(&world, follower(2, 2));
    assert!(partition.committed(1).is_none(), "3 has not fetched it");
    // The fetch that says so is told of it.
    assert_eq!(fetch(&world, follower(3, 2)).1, 2);
    assert!(matches!(partition.committed(1), Some(Ok(()))));
    world.node.close(1);
}

#[test]
fn a_follower_waits_for_the_log_end_and_says_what_it_has_only_once() {
    let world = world();
    let partition = world.leader(0);
    let sessions = FetchSessions::new(0, 1);
    let mut waiting = request(&world, follower(2, 0), &sessions, -1);
    let mut fetch_read = FetchRead::default();
    assert!(waiting.read_logs(&mut fetch_read, |_| true));
    assert!(!waiting.is_due(&fetch_read) && !waiting.has_moved(&fetch_read));
    for (at, wait_for) in waiting.wait_for(&fetch_read) {
        assert_eq!(wait_for, WaitFor::LogEnd(0));
        at.waiters.register(parked(7), wait_for);
    }
    append_one(&partition).unwrap();
    assert_eq!(world.woken(), [7]);
    // By now it has fetched again, by another connection; what waited is older.
    fetch(&world, follower(2, 1));
    fetch_read.clear();
    assert!(waiting.read_logs(&mut fetch_read, |_| true));
    assert!(waiting.is_due(&fetch_read));
    assert_eq!(known_end(&world), 1);
    world.node.close(1);
}

/// Replica 3 is not in sync; 2 is.
fn throttled_world(throttled: ThrottledReplicas) -> World {
    let world = world();
    let partition = world.leader(0);
    append_one(&partition).unwrap();
    fetch(&world, follower(2, 0));
    fetch(&world, follower(2, 1));
    // By now 3 has stood still for too long.
    let later = Asked {
        now_ms: 40_000,
        ..follower(2, 1)
    };
    fetch(&world, later);
    world.node.sweep_in_sync_replicas(40_000);
    let change = world.node.replication().isr_changes.take().pop().unwrap();
    let accepted = IsrAnswer::Accepted {
        leader_epoch: EPOCH,
        partition_epoch: 1,
        in_sync_replicas: vec![1, 2],
    };
    let number = change.proposal.number;
    world
        .node
        .settle_in_sync_replicas(&TOPIC_ID, 0, number, accepted);
    let config = LogConfig {
        leader_throttled: throttled,
        ..LogConfig::default()
    };
    world.node.set_topic_config("t", &config);
    world
}

#[test]
fn a_throttled_follower_that_is_not_in_sync_is_sent_nothing_until_the_rate_is_down() {
    let world = throttled_world(ThrottledReplicas::These([(0, 1)].into()));
    let throttle = &world.node.replication().leader_throttle;
    throttle.set_bytes_per_second_max(10);
    let at = |id, now_ms| Asked {
        now_ms,
        ..follower(id, 0)
    };
    let (_, _, size_bytes, _) = fetch(&world, at(3, 50_000));
    assert!(size_bytes > 20, "nothing was sent before");
    assert_eq!(fetch(&world, at(3, 50_001)), (0, 0, 0, false));
    assert!(fetch(&world, at(2, 50_001)).2 > 0, "that one is in sync");
    // It waits, and neither what is there nor what comes has it answered before its time.
    let sessions = FetchSessions::new(0, 1);
    let mut waiting = request(&world, at(3, 50_002), &sessions, -1);
    let mut fetch_read = FetchRead::default();
    assert!(waiting.read_logs(&mut fetch_read, |_| true));
    assert!(!waiting.is_due(&fetch_read) && !waiting.has_moved(&fetch_read));
    for (place, wait_for) in waiting.wait_for(&fetch_read) {
        place.waiters.register(parked(7), wait_for);
    }
    // The control thread was woken for changes of the in-sync replicas.
    world.woken();
    append_one(&world.leader(0)).unwrap();
    assert!(world.woken().is_empty());
    // Its time is over, and the rate is down.
    waiting.note_time(62_000);
    fetch_read.clear();
    assert!(waiting.read_logs(&mut fetch_read, |_| true));
    let (_, _, answered_bytes, _) = answer(&world, &mut waiting, fetch_read, (&sessions, 62_000));
    assert!(answered_bytes > size_bytes);
    // Whoever leads by now, a throttle does not hide it.
    world.publish(&[(2, EPOCH + 1, &[1, 2, 3])]);
    assert_eq!(world.woken(), [7]);
    world.node.close(1);
}

#[test]
fn a_follower_of_a_partition_that_is_not_throttled_is_sent_all_whatever_the_rate() {
    let world = throttled_world(ThrottledReplicas::These([(0, 2), (1, 1)].into()));
    let throttle = &world.node.replication().leader_throttle;
    throttle.set_bytes_per_second_max(0);
    throttle.record(1, 50_000);
    let asked = Asked {
        now_ms: 50_001,
        ..follower(3, 0)
    };
    assert!(fetch(&world, asked).2 > 0);
    world.node.close(1);
}

/// A fetch that only its first look counts must not be looked at by who may not
/// wait in the log directory.
#[test]
fn what_a_follower_has_is_noted_in_the_queue_of_the_log_directory() {
    let world = world();
    let sessions = FetchSessions::new(0, 1);
    let mut request = request(&world, follower(2, 0), &sessions, -1);
    let mut fetch_read = FetchRead::default();
    assert!(!request.read_logs(&mut fetch_read, |_| false));
    assert!(request.next_directory(&fetch_read).is_some());
    assert_eq!(known_end(&world), -1);
    assert!(request.read_logs(&mut fetch_read, |_| true));
    assert_eq!(known_end(&world), 0);
    fetch_read.clear();
    assert!(request.next_directory(&fetch_read).is_none());
    world.node.close(1);
}

#[test]
fn a_fetch_that_is_refused_or_has_diverged_says_nothing_of_its_follower() {
    let world = world();
    append_one(&world.leader(0)).unwrap();
    let good = follower(2, 1);
    let refused = [
        (
            74,
            Asked {
                leader_epoch: EPOCH - 1,
                ..good
            },
        ),
        (
            75,
            Asked {
                leader_epoch: EPOCH + 1,
                ..good
            },
        ),
        // Beyond the end.
        (1, Asked { offset: 2, ..good }),
        (
            1,
            Asked {
                offset: i64::MAX,
                ..good
            },
        ),
        (1, Asked { offset: -1, ..good }),
        (
            1,
            Asked {
                last_fetched_epoch: EPOCH + 1,
                ..good
            },
        ),
        // Of a process that is gone.
        (
            6,
            Asked {
                broker_epoch: 19,
                ..good
            },
        ),
        (
            6,
            Asked {
                broker_epoch: i64::MIN,
                ..good
            },
        ),
        // Not assigned: the leader itself, and others.
        (
            75,
            Asked {
                replica_id: 1,
                ..good
            },
        ),
        (
            75,
            Asked {
                replica_id: 9,
                ..good
            },
        ),
        (
            75,
            Asked {
                replica_id: i32::MAX,
                ..good
            },
        ),
        (
            6,
            Asked {
                replica_id: 9,
                leader_epoch: -1,
                ..good
            },
        ),
    ];
    for (error_code, asked) in refused {
        assert_eq!(code_of(&world, asked), error_code);
        assert_eq!(known_end(&world), -1);
    }
    let diverged = Asked {
        last_fetched_epoch: EPOCH - 1,
        ..good
    };
    assert_eq!(fetch(&world, diverged), (0, 0, 0, true));
    assert_eq!(known_end(&world), -1);
    let agreed = Asked {
        last_fetched_epoch: EPOCH,
        ..good
    };
    assert_eq!(fetch(&world, agreed), (0, 0, 0, false));
    assert_eq!(known_end(&world), 1);
    world.node.close(1);
}

#[test]
fn nobody_follows_a_partition_of_one_replica() {
    let world = World::new(&[(1, EPOCH, &[1])]);
    register(&world, |_| ());
    assert_eq!(code_of(&world, follower(2, 0)), 75);
    assert!(world.leader(0).leader_state().is_none());
    // Assigned in the same leader epoch, it is followed; what waits there waits on.
    let before = world.leader(0);
    before.waiters.register(parked(1), WaitFor::Committed(1));
    world.publish(&[(1, EPOCH, &[1, 2])]);
    assert_eq!(code_of(&world, follower(2, 0)), 0);
    append_one(&before).unwrap();
    before.flush();
    assert!(world.woken().is_empty());
    fetch(&world, follower(2, 1));
    assert_eq!(world.woken(), [1]);
    world.node.close(1);
}

#[test]
fn a_follower_that_stands_still_leaves_by_the_controllers_word_and_comes_back() {
    let world = world();
    let partition = world.leader(0);
    let changes = &world.node.replication().isr_changes;
    for id in [2, 3] {
        fetch(&world, follower(id, 0));
    }
    append_one(&partition).unwrap();
    partition.flush();
    fetch(
        &world,
        Asked {
            now_ms: 31_500,
            ..follower(2, 1)
        },
    );
    world.node.sweep_in_sync_replicas(31_500);
    let change = changes.take().pop().unwrap();
    assert_eq!((change.topic_id, change.partition), (TOPIC_ID, 0));
    assert_eq!(change.proposal.in_sync_replicas, [(1, 10), (2, 20)]);
    assert!(partition.committed(0).is_none());
    let settle = |number, partition_epoch, ids: &[i32]| {
        let accepted = IsrAnswer::Accepted {
            leader_epoch: EPOCH,
            partition_epoch,
            in_sync_replicas: ids.into(),
        };
        let node = &world.node;
        node.settle_in_sync_replicas(&TOPIC_ID, 0, number, accepted);
    };
    settle(change.proposal.number, 1, &[1, 2]);
    assert!(matches!(partition.committed(0), Some(Ok(()))));
    assert!(partition.leader_facts().unwrap().is_under_replicated);
    fetch(
        &world,
        Asked {
            now_ms: 31_600,
            ..follower(3, 1)
        },
    );
    let change = changes.take().pop().unwrap();
    assert_eq!(change.proposal.in_sync_replicas.len(), 3);
    settle(change.proposal.number, 2, &[1, 2, 3]);
    assert!(!partition.leader_facts().unwrap().is_under_replicated);
    // Whatever comes for a partition that is not there is dropped.
    world
        .node
        .settle_in_sync_replicas(&TOPIC_ID, 7, 1, IsrAnswer::Refused);
    world.node.close(1);
}

#[test]
fn with_too_few_in_sync_records_are_refused_before_and_after_they_are_written() {
    let world = world();
    let partition = world.leader(0);
    min_in_sync_replicas(&world, 3);
    append_one(&partition).unwrap();
    partition.flush();
    for id in [2, 3] {
        fetch(&world, follower(id, 1));
    }
    assert!(matches!(partition.committed(0), Some(Ok(()))));
    // The metadata says that one of three has left.
    min_in_sync_replicas(&world, 5);
    let state = partition.leader_state().unwrap();
    assert!(!state.is_under_min_isr(5), "of three replicas");
    shrink(&world);
    assert!(matches!(
        partition.acknowledged(0),
        Some(Err(Error::NotEnoughReplicasAfterAppend { .. }))
    ));
    // What a coordinator has written is there, whoever is in sync.
    assert!(matches!(partition.committed(0), Some(Ok(()))));
    assert!(matches!(
        append_one(&partition),
        Err(Error::NotEnoughReplicas { .. })
    ));
    assert_eq!(partition.log.offsets().log_end_offset, 2);
    min_in_sync_replicas(&world, 2);
    assert!(append_one(&partition).is_ok());
    world.node.close(1);
}

/// Broker 3 leaves the in-sync replicas.
fn shrink(world: &World) {
    let now_ms = 1_000_000;
    fetch(
        world,
        Asked {
            now_ms,
            ..follower(2, 1)
        },
    );
    let partition = world.leader(0);
    // Behind, since it has not what comes now.
    let mut records = crate::log::batch(0, 1);
    let batch = kafkalite::replica::Batches::OfClient {
        records: &mut records,
        guard: kafkalite::log::state::verification::NO_GUARD,
        acks_all: false,
    };
    let end = partition.log.offsets().log_end_offset;
    partition.append(std::iter::once(batch), crate::log_directory::NOW_MS);
    fetch(
        world,
        Asked {
            now_ms,
            ..follower(2, end + 1)
        },
    );
    world
        .node
        .sweep_in_sync_replicas(i64::try_from(now_ms).unwrap());
    let change = world.node.replication().isr_changes.take().pop().unwrap();
    let accepted = IsrAnswer::Accepted {
        leader_epoch: EPOCH,
        partition_epoch: 1,
        in_sync_replicas: vec![1, 2],
    };
    let number = change.proposal.number;
    world
        .node
        .settle_in_sync_replicas(&TOPIC_ID, 0, number, accepted);
}

/// The state of before went on, and counted what its followers had been
/// asked for by another leader.
#[test]
fn what_comes_to_a_leader_of_before_counts_for_nothing() {
    let world = world();
    let before = world.leader(0);
    append_one(&before).unwrap();
    before.flush();
    world.publish(&[(2, EPOCH + 1, &[1, 2, 3])]);
    let fetch = kafkalite::replica::leader::ReplicaFetch {
        replica_id: 2,
        broker_epoch: 20,
        fetch_offset: 1,
        log_start_offset: 0,
        leader_end_offset: 1,
    };
    assert!(before.on_replica_fetch(&fetch, 1).is_err());
    before.sweep(1);
    before.on_isr_answer(1, IsrAnswer::Refused);
    assert_eq!(before.log.high_watermark(), 0);
    assert!(matches!(
        before.committed(0),
        Some(Err(Error::NotLeader { .. }))
    ));
    world.node.close(1);
}

/// KIP-207: a consumer would see the end go back.
#[test]
fn the_end_is_told_only_when_it_is_known_how_far_the_leader_of_before_had_come() {
    let world = world();
    let partition = world.leader(0);
    append_one(&partition).unwrap();
    partition.flush();
    world.publish(&[(1, EPOCH + 1, &[1, 2, 3])]);
    let list = |version: i16, replica_id: i32, timestamp: i64| -> (i16, i64) {
        let mut writer = Writer::default();
        writer.i32(replica_id);
        writer.i8(0);
        writer.array_length(1, false);
        writer.string("t", false);
        writer.array_length(1, false);
        writer.i32(0);
        writer.i32(-1);
        writer.i64(timestamp);
        let mut reader = Reader::new(&writer.bytes);
        let mut request = with_ask(&world.node.image(), |ask| {
            k02_list_offsets::read(&header(2, version, 6), &mut reader, ask, None).unwrap()
        });
        request.search(|_| true);
        let Chunk::Bytes(answer) = request.answer().remove(0) else {
            panic!("one chunk");
        };
        // Size, correlation id, throttle time, count, name, count, index.
        let mut reader = Reader::new(&answer);
        reader.take(4 + 4 + 4 + 4 + 3 + 4 + 4).unwrap();
        let error_code = reader.i16().unwrap();
        reader.i64().unwrap();
        (error_code, reader.i64().unwrap())
    };
    let (latest, earliest) = (-1, -2);
    assert_eq!(list(5, -1, latest), (78, -1));
    assert_eq!(list(4, -1, latest), (5, -1));
    assert_eq!(list(5, -1, earliest), (0, 0));
    assert_eq!(list(5, -1, i64::MAX), (78, -1));
    assert_eq!(
        list(5, -1, 0),
        (78, -1),
        "it is not committed, as far as is known"
    );
    // Another replica sees the log as it is.
    assert_eq!(list(5, 2, latest), (0, 1));
    for id in [2, 3] {
        let asked = Asked {
            leader_epoch: EPOCH + 1,
            ..follower(id, 1)
        };
        assert_eq!(code_of(&world, asked), 0);
    }
    assert_eq!(list(5, -1, latest), (0, 1));
    world.node.close(1);
}

#[test]
fn records_are_deleted_once_no_replica_that_lives_has_them() {
    let world = world();
    let partition = world.leader(0);
    append_one(&partition).unwrap();
    partition.flush();
    for id in [2, 3] {
        fetch(&world, follower(id, 1));
    }
    partition.log.advance_log_start_offset(1).unwrap();
    let waiters = &partition.waiters;
    waiters.register(parked(1), WaitFor::LowWatermark(1));
    assert!(partition.deleted_below(1).is_none());
    fetch(
        &world,
        Asked {
            log_start_offset: 1,
            ..follower(2, 1)
        },
    );
    assert!(world.woken().is_empty());
    // The other one is fenced, and would do so when it comes back.
    register(&world, |broker| broker.is_fenced = broker.node_id == 3);
    world.node.sweep_in_sync_replicas(2_000);
    assert_eq!(world.woken(), [1]);
    assert_eq!(partition.deleted_below(1).unwrap().unwrap(), 1);
    world.publish(&[(2, EPOCH + 1, &[1, 2, 3])]);
    assert!(matches!(
        partition.deleted_below(1),
        Some(Err(Error::NotLeader { .. }))
    ));
    world.node.close(1);
}

/// Consumers had pushed out the sessions of followers, which then named all
/// partitions in each request.
#[test]
fn a_followers_session_takes_the_place_of_a_consumers_and_keeps_its_own() {
    let world = world();
    let sessions = FetchSessions::new(1, 1);
    let open = |asked: Asked| {
        let mut request = request(&world, asked, &sessions, 0);
        let mut fetch_read = FetchRead::default();
        assert!(request.read_logs(&mut fetch_read, |_| true));
        answer(&world, &mut request, fetch_read, (&sessions, 1_000));
        sessions.counts()
    };
    let consumer = follower(-1, 0);
    assert_eq!(open(consumer), (1, 1, 0));
    assert_eq!(open(consumer), (1, 1, 0), "no room for another consumer");
    assert_eq!(open(follower(2, 0)), (1, 1, 1));
    assert_eq!(open(consumer), (1, 1, 1));
    assert_eq!(open(follower(3, 0)), (1, 1, 1));
    world.node.close(1);
}

/// A consumer in this rack reads partition 0 from this offset on: error code, high watermark, bytes
/// of records, and which replica it is to read from instead.
fn consume(world: &World, rack: &str, offset: i64, version: i16) -> (i16, i64, i32, i32) {
    let sessions = FetchSessions::new(0, 1);
    let mut writer = Writer::default();
    writer.i32(-1);
    for number in [500, 1, 1 << 20] {
        writer.i32(number);
    }
    writer.i8(0);
    writer.i32(0);
    writer.i32(-1);
    writer.array_length(1, false);
    writer.string("t", false);
    writer.array_length(1, false);
    writer.i32(0);
    writer.i32(-1);
    writer.i64(offset);
    writer.i64(-1);
    writer.i32(1 << 20);
    writer.array_length(0, false);
    if version >= 11 {
        writer.string(rack, false);
    }
    let mut reader = Reader::new(&writer.bytes);
    let image = world.node.image();
    let mut request = with_ask(&image, |ask| {
        let header = header(1, version, 12);
        k01_fetch::read(&header, &mut reader, ask, &sessions, 1 << 20, 1_000).unwrap()
    });
    let mut fetch_read = FetchRead::default();
    assert!(request.read_logs(&mut fetch_read, |_| true));
    let chunks = request.answer(fetch_read, &sessions, &image, 0);
    let bytes = chunks.into_iter().map(|chunk| match chunk {
        Chunk::Bytes(bytes) => bytes,
        Chunk::File(range, _) => range.to_vec().unwrap(),
        Chunk::Later(_) => panic!("a small request"),
    });
    let bytes = bytes.collect::<Vec<_>>().concat();
    let mut reader = Reader::new(&bytes);
    // Size, correlation id, throttle time, error, session, counts and name, index.
    reader.take(4 + 4 + 4 + 2 + 4 + 4 + 3 + 4 + 4).unwrap();
    let (error_code, high_watermark) = (reader.i16().unwrap(), reader.i64().unwrap());
    reader.take(16).unwrap();
    assert_eq!(reader.nullable_length(false).unwrap().unwrap_or(0), 0);
    let preferred = if version >= 11 {
        reader.i32().unwrap()
    } else {
        -1
    };
    let records = reader.nullable_bytes(false).unwrap().unwrap_or_default();
    let size_bytes = i32::try_from(records.len()).unwrap();
    (error_code, high_watermark, size_bytes, preferred)
}

/// KIP-392.
#[test]
fn a_consumer_is_sent_to_the_replica_in_its_rack_that_has_the_offset() {
    let world = world();
    let partition = world.leader(0);
    let racks = |broker: &mut RegisteredBroker| {
        let name = ["", "a", "b", "c"][usize::try_from(broker.node_id).unwrap()];
        broker.rack = Some(name.to_owned());
    };
    register(&world, racks);
    append_one(&partition).unwrap();
    partition.flush();
    fetch(&world, follower(2, 1));
    fetch(&world, follower(3, 1));
    assert_eq!(
        consume(&world, "b", 0, 11).3,
        -1,
        "replica.selector.class is not set"
    );
    world.node.replication().set_rack_aware(true);
    assert_eq!(consume(&world, "b", 0, 11), (0, 1, 0, 2));
    assert_eq!(consume(&world, "c", 1, 11), (0, 1, 0, 3));
    // In the leader's own rack, in none, and of a version that cannot say.
    for (rack, version) in [("a", 11), ("d", 11), ("", 11), ("b", 10)] {
        let (error_code, _, size_bytes, preferred) = consume(&world, rack, 0, version);
        assert_eq!((error_code, preferred), (0, -1));
        assert!(size_bytes > 0);
    }
    append_one(&partition).unwrap();
    partition.flush();
    fetch(&world, follower(3, 2));
    assert_eq!(consume(&world, "b", 2, 11).3, -1, "2 has not come so far");
    register(&world, |broker| {
        racks(broker);
        broker.is_fenced = broker.node_id == 2;
    });
    assert_eq!(consume(&world, "b", 0, 11).3, -1);
    world.node.close(1);
}

#[test]
fn a_consumer_reads_from_a_follower_what_is_known_to_be_committed_there() {
    let world = world();
    let partition = world.leader(0);
    append_one(&partition).unwrap();
    append_one(&partition).unwrap();
    partition.flush();
    fetch(&world, follower(2, 1));
    fetch(&world, follower(3, 1));
    world.publish(&[(2, EPOCH + 1, &[1, 2, 3])]);
    let (error_code, high_watermark, size_bytes, _) = consume(&world, "", 0, 11);
    assert_eq!((error_code, high_watermark), (0, 1));
    assert!(size_bytes > 0);
    assert_eq!(
        consume(&world, "", 1, 11),
        (0, 1, 0, -1),
        "not committed, as far as is known"
    );
    assert_eq!(consume(&world, "", 3, 11).0, 1);
    assert_eq!(
        consume(&world, "", 0, 10).0,
        6,
        "it does not know of followers"
    );
    world.node.close(1);
}
