//! The replicas of a node, as the metadata of its cluster changes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use kafkalite::access::{Caller, Identity};
use kafkalite::api::Ask;
use kafkalite::error::{Error, Result};
use kafkalite::image::{Broker, Endpoint, Image, NoLeader, PartitionRegistration, Topic};
use kafkalite::log::append::AppendInfo;
use kafkalite::log::config::LogConfig;
use kafkalite::log::state::verification::NO_GUARD;
use kafkalite::node::{Claimed, MetadataDelta, Node, NodeOptions, TopicPlan};
use kafkalite::replica::park::{Parked, StopReason, WaitFor, Wake};
use kafkalite::replica::{Batches, Partition, Role};
use kafkalite::uuid::Uuid;
use kafkalite::wire::RequestHeader;
use parking_lot::Mutex;

use crate::log::{append, batch};
use crate::log_directory::NOW_MS;

#[derive(Default)]
struct Woken(Mutex<Vec<u64>>);

impl Wake for Woken {
    fn wake(&self, parked: &[Parked]) {
        self.0.lock().extend(parked.iter().map(|each| each.slot));
    }
}

pub const TOPIC_ID: Uuid = Uuid([7; 16]);

pub fn parked(slot: u64) -> Parked {
    Parked {
        thread: 0,
        connection: 1,
        slot,
    }
}

/// The header of a request of version `api_version`, flexible from `first_flexible` on.
pub fn header(api_key: i16, api_version: i16, first_flexible: i16) -> RequestHeader<'static> {
    RequestHeader {
        api_key,
        api_version,
        correlation_id: 1,
        client_id: None,
        flexible: api_version >= first_flexible,
    }
}

/// Asks as an anonymous client of this machine.
pub fn with_ask<T>(image: &Image, then: impl FnOnce(&Ask<'_>) -> T) -> T {
    let identity = Identity::anonymous(IpAddr::V4(Ipv4Addr::LOCALHOST));
    then(&Ask {
        image,
        caller: Caller {
            identity: &identity,
            client_id: None,
            listener: 0,
        },
    })
}

/// Node 1 with one log directory, in a cluster with broker 2; broker 3 is not alive.
pub struct World {
    pub node: Arc<Node>,
    woken: Arc<Woken>,
    directory_id: Uuid,
    /// Each change of the metadata brings the partitions to the next one.
    partition_epoch: AtomicI32,
    home: tempfile::TempDir,
}

impl World {
    /// Serves a topic `t`, whose partitions have these leaders, leader epochs and replicas.
    pub fn new(partitions: &[(i32, i32, &[i32])]) -> World {
        World::of(tempfile::tempdir().unwrap(), partitions)
    }

    /// Stops cleanly, and serves the topic again with these partitions.
    fn restart(self, partitions: &[(i32, i32, &[i32])]) -> World {
        assert!(self.node.close(1).is_empty());
        let World { node, home, .. } = self;
        drop(node);
        World::of(home, partitions)
    }

    fn of(home: tempfile::TempDir, partitions: &[(i32, i32, &[i32])]) -> World {
        let path = home.path().join("data");
        let options = NodeOptions {
            node_id: 1,
            cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
            paths: vec![path.clone()],
            metadata_path: path,
            recovery_threads: 1,
            flush_threads: 1,
            open_segments_max: 16,
            now_ms: NOW_MS,
        };
        let claimed = Claimed::open(options).unwrap();
        let directory_id = claimed.place(1)[0];
        let woken = Arc::new(Woken::default());
        let plan = plan(partitions, directory_id, 0);
        let loaded = Node::load(claimed, &[plan], woken.clone()).unwrap();
        let node = Arc::new(loaded.node);
        let broker = |node_id, host: &str| Broker {
            node_id,
            rack: None,
            endpoints: vec![Some(Endpoint {
                host: host.to_owned(),
                port: 9092,
            })],
        };
        node.set_brokers(vec![broker(2, "two"), broker(1, "one")]);
        World {
            node,
            woken,
            directory_id,
            partition_epoch: AtomicI32::new(0),
            home,
        }
    }

    /// The topic has these partitions from now on. Returns how many replicas are gone.
    pub fn publish(&self, partitions: &[(i32, i32, &[i32])]) -> usize {
        let partition_epoch = self.partition_epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let changed = &[plan(partitions, self.directory_id, partition_epoch)];
        let deleted = &[];
        let gone = self
            .node
            .publish(MetadataDelta { deleted, changed })
            .unwrap();
        gone.iter().map(|(_, replicas)| replicas.len()).sum()
    }

    /// As `publish`, each partition with these in-sync replicas.
    pub fn publish_in_sync(&self, partitions: &[(i32, i32, &[i32])], in_sync: &[&[i32]]) {
        let partition_epoch = self.partition_epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let mut plan = plan(partitions, self.directory_id, partition_epoch);
        for (partition, in_sync) in plan.partitions.iter_mut().zip(in_sync) {
            partition.in_sync_replicas = (*in_sync).into();
        }
        let (deleted, changed) = (&[], &[plan]);
        let delta = MetadataDelta { deleted, changed };
        self.node.publish(delta).unwrap();
    }

    fn delete(&self) -> usize {
        let deleted = &["t".to_owned()];
        let changed = &[];
        let gone = self
            .node
            .publish(MetadataDelta { deleted, changed })
            .unwrap();
        gone.iter().map(|(_, replicas)| replicas.len()).sum()
    }

    fn topic(&self) -> Arc<Topic> {
        self.node.image().topic("t").unwrap().clone()
    }

    pub fn leader(&self, index: i32) -> Arc<Partition> {
        self.topic().leader(index).unwrap().clone()
    }

    /// The slots that were woken since this was asked last.
    pub fn woken(&self) -> Vec<u64> {
        let mut woken = std::mem::take(&mut *self.woken.0.lock());
        woken.sort_unstable();
        woken
    }
}

pub fn plan(
    partitions: &[(i32, i32, &[i32])],
    directory_id: Uuid,
    partition_epoch: i32,
) -> TopicPlan {
    let registrations = partitions
        .iter()
        .map(|(leader_id, leader_epoch, replicas)| {
            let directories = vec![directory_id; replicas.len()];
            PartitionRegistration {
                leader_id: *leader_id,
                leader_epoch: *leader_epoch,
                partition_epoch,
                replicas: (*replicas).into(),
                in_sync_replicas: (*replicas).into(),
                directories: directories.into(),
            }
        });
    TopicPlan {
        name: "t".to_owned(),
        id: TOPIC_ID,
        is_internal: false,
        config: LogConfig::default(),
        partitions: registrations.collect(),
    }
}

fn of_client(records: &mut [u8]) -> Batches<'_> {
    Batches::OfClient {
        records,
        guard: NO_GUARD,
        acks_all: true,
    }
}

pub fn append_one(partition: &Partition) -> Result<AppendInfo> {
    let mut records = batch(0, 1);
    let batches = std::iter::once(&mut *records);
    let batches = batches.map(of_client);
    let mut results = partition.append(batches, NOW_MS);
    results.remove(0)
}

/// The partition got other waiters, and those of before were woken by nothing more.
#[test]
fn who_waits_at_a_partition_waits_on_when_its_leader_epoch_changes() {
    let world = World::new(&[(1, 4, &[1])]);
    let before = world.leader(0);
    let waiters = &before.waiters;
    waiters.register(parked(1), WaitFor::Committed(1));
    waiters.register(parked(2), WaitFor::HighWatermark(0));
    world.publish(&[(1, 4, &[1])]);
    assert!(world.woken().is_empty(), "nothing has changed");
    assert!(Arc::ptr_eq(&before, &world.leader(0)));
    world.publish(&[(1, 6, &[1])]);
    // Who reads looks at its epoch again.
    assert_eq!(world.woken(), [2]);
    let after = world.leader(0);
    assert_eq!((after.leader_epoch, after.log.leading_epoch()), (6, 6));
    waiters.register(parked(3), WaitFor::LastStable(0));
    append(&after.log, &mut batch(0, 1)).unwrap();
    after.log.flush().unwrap();
    assert_eq!(world.woken(), [1, 3]);
    // Records that come to the replica of before are of the epoch of now.
    assert_eq!(before.leading_epoch().unwrap(), 6);
    world.node.close(1);
}

#[test]
fn a_topic_finds_the_leader_here_or_says_why_there_is_none() {
    let world = World::new(&[
        (1, 4, &[1]),
        (2, 5, &[2, 3]),
        (2, 6, &[2, 1]),
        (-1, 2, &[3]),
    ]);
    let topic = world.topic();
    assert_eq!(topic.leader(0).map(|each| each.index), Ok(0));
    let elsewhere = |leader_epoch| Some(NoLeader::Elsewhere { leader_epoch });
    assert_eq!(topic.leader(1).err(), elsewhere(None));
    assert_eq!(topic.leader(2).err(), elsewhere(Some(6)));
    assert_eq!(topic.leader(3).err(), elsewhere(None));
    assert_eq!(topic.leader(4).err(), Some(NoLeader::Unknown));
    assert_eq!(topic.leader(-1).err(), Some(NoLeader::Unknown));
    // Only the replicas of this node have logs.
    let replicas = topic.replicas().map(|each| (each.index, each.role));
    assert_eq!(
        replicas.collect::<Vec<_>>(),
        [(0, Role::Leader), (2, Role::Follower)]
    );
    assert_eq!(topic.partition(1).unwrap().leader_id, 2);
    let follower = topic.replica(2).unwrap();
    assert!(matches!(
        append_one(follower),
        Err(Error::NotLeader { partition: 2, .. })
    ));
    topic
        .replica(0)
        .unwrap()
        .directory()
        .health()
        .fail(&Error::LoadStopped);
    assert_eq!(topic.leader(0).err(), Some(NoLeader::Offline));
    // Of a directory that has failed no epoch is told.
    assert_eq!(topic.leader(2).err(), Some(NoLeader::Offline));
}

#[test]
fn who_waits_at_a_leader_is_woken_when_another_node_leads() {
    let world = World::new(&[(1, 4, &[1, 2])]);
    let before = world.leader(0);
    let info = append_one(&before).unwrap();
    assert_eq!(info.last_offset, 0);
    before.waiters.register(parked(1), WaitFor::Committed(1));
    before.waiters.register(parked(2), WaitFor::LastStable(0));
    world.publish(&[(2, 5, &[1, 2])]);
    assert_eq!(world.woken(), [1, 2]);
    let ended = StopReason::NotLeader { leader_epoch: 5 };
    assert_eq!(before.waiters.ended(), Some(ended));
    assert!(matches!(append_one(&before), Err(Error::NotLeader { .. })));
    // Led here again: what was promised before is not answered by what has come since.
    world.publish(&[(1, 6, &[1])]);
    let after = world.leader(0);
    append_one(&after).unwrap();
    after.flush();
    assert!(matches!(after.committed(1), Some(Ok(()))));
    assert!(matches!(
        before.committed(0),
        Some(Err(Error::NotLeader { .. }))
    ));
    world.node.close(1);
}

#[test]
fn what_other_in_sync_replicas_may_lack_is_not_committed() {
    let world = World::new(&[(1, 4, &[1, 2])]);
    let partition = world.leader(0);
    append_one(&partition).unwrap();
    partition.flush();
    assert!(partition.committed(0).is_none());
    assert_eq!(partition.log.offsets().flushed_offset, 1);
    drop(partition);
    // Neither is it after a start, though everything on disk is known then.
    let world = world.restart(&[(1, 5, &[1, 2])]);
    let partition = world.leader(0);
    let offsets = partition.log.offsets();
    assert_eq!((offsets.high_watermark, offsets.log_end_offset), (0, 1));
    // Alone again, in the same epoch: the replica stays, and who waits is woken.
    partition.waiters.register(parked(1), WaitFor::Committed(1));
    world.publish(&[(1, 5, &[1])]);
    assert_eq!(world.woken(), [1]);
    assert!(Arc::ptr_eq(&partition, &world.leader(0)));
    assert!(matches!(partition.committed(0), Some(Ok(()))));
    world.node.close(1);
}

/// One that had led, lost the lead and led again within one change of the metadata wrote what it
/// had decided before another broker wrote.
#[test]
fn what_a_coordinator_has_decided_in_one_epoch_is_not_appended_in_a_later_one() {
    let world = World::new(&[(1, 4, &[1, 2])]);
    let before = world.leader(0);
    world.publish(&[(1, 6, &[1, 2])]);
    let append = |decided_in| {
        let mut records = batch(0, 1);
        let batches = std::iter::once(Batches::OfCoordinator {
            records: &mut records,
            transaction_version: None,
            decided_in,
        });
        before.append(batches, NOW_MS).remove(0)
    };
    let is_refused = |decided_in| matches!(append(decided_in), Err(Error::NotLeader { .. }));
    assert!(is_refused(Some(4)) && is_refused(Some(7)));
    assert_eq!(append(Some(6)).unwrap().last_offset, 0);
    assert_eq!(append(None).unwrap().last_offset, 1);
    world.node.close(1);
}

/// The role was looked at before the batches were taken, and not again under the append lock.
#[test]
fn a_role_that_is_lost_before_the_append_lock_is_had_appends_nothing() {
    let world = World::new(&[(1, 4, &[1, 2])]);
    let partition = world.leader(0);
    let mut records = batch(0, 1);
    let batches = std::iter::once(&mut *records).inspect(|_| {
        world.publish(&[(2, 5, &[1, 2])]);
    });
    let batches = batches.map(of_client);
    let mut results = partition.append(batches, NOW_MS);
    assert!(matches!(results.remove(0), Err(Error::NotLeader { .. })));
    assert_eq!(partition.log.offsets().log_end_offset, 0);
    world.node.close(1);
}

/// A thread read the epoch, another one appended in the next, and the first wrote its record behind
/// that one with the epoch of before: the log went back from one epoch to another.
#[test]
fn leader_epochs_of_records_only_go_up_while_leaders_change() {
    let world = World::new(&[(1, 4, &[1])]);
    let partition = world.leader(0);
    let mut records = batch(0, 1);
    let batches = std::iter::once(&mut *records).inspect(|_| {
        world.publish(&[(1, 5, &[1])]);
        append_one(&world.leader(0)).unwrap();
    });
    let batches = batches.map(of_client);
    let mut results = partition.append(batches, NOW_MS);
    assert_eq!(results.remove(0).unwrap().first_offset, 1);
    let path = partition.log.directory().join("00000000000000000000.log");
    let bytes = std::fs::read(path).unwrap();
    let (first, size_bytes) = epoch_and_size(&bytes).unwrap();
    let (second, _) = epoch_and_size(&bytes[size_bytes..]).unwrap();
    assert_eq!((first, second), (5, 5));
    world.node.close(1);
}

/// Leader epoch and size of the first batch.
fn epoch_and_size(bytes: &[u8]) -> Option<(i32, usize)> {
    let header = bytes.get(..16)?;
    let size_bytes = i32::from_be_bytes(header[8..12].try_into().unwrap()) as usize + 12;
    Some((
        i32::from_be_bytes(header[12..16].try_into().unwrap()),
        size_bytes,
    ))
}

#[test]
fn replicas_go_with_their_topic_and_where_no_replica_is_wanted_any_more() {
    let world = World::new(&[(1, 4, &[1]), (1, 4, &[1])]);
    let (moved, stays) = (world.leader(0), world.leader(1));
    moved.waiters.register(parked(1), WaitFor::Committed(1));
    stays.waiters.register(parked(2), WaitFor::Committed(1));
    assert_eq!(world.publish(&[(2, 5, &[2]), (1, 4, &[1])]), 1);
    assert_eq!(world.woken(), [1]);
    assert_eq!(
        moved.waiters.ended(),
        Some(StopReason::NotLeader { leader_epoch: 5 })
    );
    assert_eq!(world.delete(), 1);
    assert_eq!(world.woken(), [2]);
    assert_eq!(stays.waiters.ended(), Some(StopReason::Deleted));
    assert!(matches!(append_one(&stays), Err(Error::LogDeleted { .. })));
    let deleted = &["t".to_owned()];
    let changed = &[];
    assert!(
        world
            .node
            .publish(MetadataDelta { deleted, changed })
            .is_err()
    );
    world.node.close(1);
}

#[test]
#[should_panic(expected = "the leader epoch of t-0 goes back")]
fn an_epoch_that_goes_back_is_an_error_of_the_program() {
    World::new(&[(1, 4, &[1])]).publish(&[(1, 3, &[1])]);
}
