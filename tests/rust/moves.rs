//! A replica moves to another log directory: what it holds stays, also where the machine goes down on the way.

use std::path::PathBuf;
use std::sync::Arc;

use kafkalite::batch::header::patch_offset_and_epoch;
use kafkalite::batch::validate::AppendOrigin;
use kafkalite::error::Result;
use kafkalite::image::PartitionRegistration;
use kafkalite::log::append::AppendRequest;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::{LogDirectory, NewLog};
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::storage::Storage;
use kafkalite::node::{Claimed, Node, NodeOptions, TopicPlan};
use kafkalite::replica::moves::Copying;
use kafkalite::replica::park::{Parked, Wake};
use kafkalite::uuid::Uuid;

use crate::log::{append, batch};
use crate::log_directory::NOW_MS;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault};

const TOPIC_ID: Uuid = Uuid([7; 16]);
const BATCHES: i64 = 12;
const RECORDS: i64 = BATCHES * 5;
/// About one batch.
const PIECE_BYTES: u64 = 400;

struct Nobody;

impl Wake for Nobody {
    fn wake(&self, _: &[Parked]) {}
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1_500,
        index_interval_bytes: 256,
        ..LogConfig::default()
    }
}

/// Node 1 with the log directories `/one` and `/two`, and in one of them the log `t-0`.
struct World {
    storage: MemoryStorage,
    node: Node,
    log: Arc<Log>,
}

impl World {
    /// `home`: the number of the directory in which the metadata has the log.
    fn open(storage: MemoryStorage, home: usize, leader_epoch: i32) -> World {
        let paths = vec![PathBuf::from("/one"), PathBuf::from("/two")];
        let claimed = Claimed::open_in(
            Arc::new(storage.clone()),
            NodeOptions {
                node_id: 1,
                cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
                metadata_path: paths[0].clone(),
                paths,
                recovery_threads: 1,
                flush_threads: 1,
                open_segments_max: 64,
                now_ms: NOW_MS,
            },
        )
        .unwrap();
        let directory_id = claimed.directories()[home].identity().directory_id.unwrap();
        let plan = TopicPlan {
            name: "t".to_owned(),
            id: TOPIC_ID,
            is_internal: false,
            config: config(),
            partitions: vec![PartitionRegistration {
                leader_id: 1,
                leader_epoch,
                partition_epoch: leader_epoch,
                replicas: Box::new([1]),
                in_sync_replicas: Box::new([1]),
                directories: Box::new([directory_id]),
            }],
        };
        let loaded = Node::load(claimed, &[plan], Arc::new(Nobody)).unwrap();
        let image = loaded.node.image();
        let replica = image.topic("t").unwrap().replica(0).unwrap();
        let log = replica.log.clone();
        World {
            storage,
            node: loaded.node,
            log,
        }
    }

    /// With records, all of which are on disk.
    fn filled() -> World {
        let storage = MemoryStorage::default();
        for path in ["/one", "/two"] {
            storage.create_directory_all(path.as_ref()).unwrap();
        }
        storage.sync_directory("/".as_ref()).unwrap();
        let world = World::open(storage, 0, 0);
        for number in 0..BATCHES {
            append(&world.log, &mut batch(number * 5, 5)).unwrap();
        }
        world.log.flush().unwrap();
        world
    }

    fn directory(&self, number: usize) -> &Arc<LogDirectory> {
        &self.node.directories()[number]
    }

    fn begin(&self) -> Result<Copying> {
        let wanted = NewLog {
            topic: Arc::from("t"),
            partition: 0,
            topic_id: TOPIC_ID,
            config: config(),
            leader_epoch: None,
        };
        let future = self.directory(1).create_future(wanted, NOW_MS)?;
        Ok(Copying::new(self.log.clone(), future))
    }

    /// The last step; `false`: it could not be made.
    fn finish(&self, copying: &mut Copying) -> Result<bool> {
        let (one, two) = (self.directory(0), self.directory(1));
        let future = copying.future.clone();
        let aside = one.aside_name(&self.log);
        let replaced = self.log.replace_by(&future, &aside, NOW_MS, || {
            copying.finish(PIECE_BYTES, NOW_MS)
        })?;
        let Some(aside) = replaced else {
            return Ok(false);
        };
        assert!(one.hand_over(&self.log, &future, two, aside, NOW_MS));
        one.hand_over_offsets(two)?;
        Ok(true)
    }
}

fn copy_all(copying: &mut Copying) -> Result<()> {
    while !copying.step(PIECE_BYTES, NOW_MS)?.is_near_the_end {}
    Ok(())
}

/// All batches of a log, as they lie on disk.
fn bytes_of(log: &Log) -> Vec<u8> {
    let (mut found, mut offset) = (Vec::new(), log.offsets().log_start_offset);
    while offset < log.offsets().log_end_offset {
        let range = log.read(offset, 1, true, ReadIsolation::LogEnd).unwrap();
        let bytes = range.to_vec().unwrap();
        let header = kafkalite::batch::BatchHeader::parse(&bytes)
            .unwrap()
            .unwrap();
        offset = header.next_offset();
        found.extend_from_slice(&bytes);
    }
    found
}

#[test]
fn the_log_is_the_same_to_who_has_it_and_lies_elsewhere() {
    let world = World::filled();
    let (before, offsets) = (bytes_of(&world.log), world.log.offsets());
    let reader = world.log.read(7, 1, true, ReadIsolation::LogEnd).unwrap();
    let mut copying = world.begin().unwrap();
    copy_all(&mut copying).unwrap();
    append(&world.log, &mut batch(RECORDS, 5)).unwrap();
    assert!(world.finish(&mut copying).unwrap());
    assert_eq!(world.log.directory(), PathBuf::from("/two/t-0"));
    assert_eq!(world.directory(0).logs().len(), 0);
    assert_eq!(world.directory(1).logs().len(), 1);
    assert_eq!(world.directory(1).futures().len(), 0);
    let after = world.log.offsets();
    assert_eq!(after.log_end_offset, RECORDS + 5);
    assert!(after.high_watermark >= offsets.high_watermark);
    assert!(bytes_of(&world.log).starts_with(&before));
    // Who reads the old file reads on.
    assert!(!reader.to_vec().unwrap().is_empty());
    append(&world.log, &mut batch(RECORDS + 5, 5)).unwrap();
    world.log.flush().unwrap();
    let bytes = bytes_of(&world.log);
    for crash in [Crash::Kill, Crash::LoseUnsynced] {
        let again = World::open(world.storage.crash(crash), 1, 1);
        assert_eq!(again.log.directory(), PathBuf::from("/two/t-0"));
        assert_eq!(bytes_of(&again.log), bytes, "{crash:?}");
    }
    assert!(world.node.close(1).is_empty());
}

#[test]
fn what_the_log_loses_the_future_replica_loses_too() {
    let world = World::filled();
    let mut copying = world.begin().unwrap();
    copy_all(&mut copying).unwrap();
    assert_eq!(copying.lag(), 0);
    let cut_at = RECORDS - 13;
    world.log.truncate_to(cut_at, NOW_MS).unwrap();
    let end = world.log.offsets().log_end_offset;
    // Another leader's records in their place.
    let mut records = batch(900, 15);
    patch_offset_and_epoch(&mut records, end, 8);
    let request = AppendRequest {
        records: &mut records,
        origin: AppendOrigin::Replication,
        leader_epoch: 8,
        transaction_version: None,
        guard: None,
    };
    world.log.append(&mut [request], NOW_MS).remove(0).unwrap();
    assert!(!world.finish(&mut copying).unwrap(), "it knows of the cut");
    copy_all(&mut copying).unwrap();
    assert_eq!(bytes_of(&copying.future), bytes_of(&world.log));
    assert!(world.finish(&mut copying).unwrap());
    assert_eq!(world.log.latest_epoch(), Some(8));
}

#[test]
fn a_log_whose_start_has_moved_is_copied_from_there() {
    let world = World::filled();
    let mut copying = world.begin().unwrap();
    copying.step(PIECE_BYTES, NOW_MS).unwrap();
    let start = RECORDS - 8;
    world.log.advance_log_start_offset(start).unwrap();
    copy_all(&mut copying).unwrap();
    assert!(world.finish(&mut copying).unwrap());
    let offsets = world.log.offsets();
    assert_eq!(
        (offsets.log_start_offset, offsets.log_end_offset),
        (start, RECORDS)
    );
    let again = World::open(world.storage.crash(Crash::LoseUnsynced), 1, 1);
    assert_eq!(again.log.offsets().log_start_offset, start);
}

/// Wherever the machine goes down, the next process has all records: where the metadata has the log.
#[test]
fn a_move_that_ends_at_any_call_loses_nothing() {
    let bytes = bytes_of(&World::filled().log);
    let (mut nth, mut promoted) = (1, 0);
    loop {
        let world = World::filled();
        world
            .storage
            .inject(Fault::at_call(nth, Failure::Io).lasting());
        let mut is_assigned = false;
        let moved = world.begin().and_then(|mut copying| {
            copy_all(&mut copying)?;
            copying.future.flush()?;
            is_assigned = true;
            world.finish(&mut copying)
        });
        for crash in [Crash::Kill, Crash::LoseUnsynced, Crash::Seeded(nth)] {
            let case = format!("call {nth}, {crash:?}");
            let home = usize::from(is_assigned);
            let again = World::open(world.storage.crash(crash), home, 1);
            assert_eq!(bytes_of(&again.log), bytes, "{case}");
            let lies_in_two = again.log.directory().starts_with("/two");
            promoted += usize::from(lies_in_two && moved.is_err());
            // What is left of the move goes on, or is not needed.
            if !lies_in_two {
                for future in again.directory(1).futures() {
                    let mut copying = Copying::new(again.log.clone(), future);
                    copy_all(&mut copying).unwrap();
                    assert!(again.finish(&mut copying).unwrap(), "{case}");
                    assert_eq!(bytes_of(&again.log), bytes, "{case}");
                }
            }
            assert!(again.node.close(1).is_empty(), "{case}");
        }
        if moved.is_ok() && !world.storage.has_struck() {
            break;
        }
        nth += 1;
    }
    assert!(promoted > 0, "it went down between the two names");
}
