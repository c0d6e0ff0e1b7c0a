//! A replica moves to another log directory: what it holds stays, also where the
//! machine goes down on the way.

mod beginnings;
mod compacted;
mod copying;
mod driven;
mod whole;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::error::Result;
use kafkalite::image::PartitionRegistration;
use kafkalite::log::compact::cleaner_checkpoint;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::{LogDirectory, NewLog};
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::storage::Storage;
use kafkalite::node::{Claimed, Loaded, MoveRefusal, MoveRequest, Node, NodeOptions, TopicPlan};
use kafkalite::replica::moves::Copying;
use kafkalite::replica::park::{Parked, Wake};
use kafkalite::uuid::Uuid;

use crate::log::{append, batch};
use crate::log_directory::NOW_MS;
use crate::memory_storage::MemoryStorage;

const TOPIC_ID: Uuid = Uuid([7; 16]);
const ONE: &str = "/one";
const TWO: &str = "/two";
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
    node: Arc<Node>,
    log: Arc<Log>,
    /// The ids of the two directories.
    ids: [Uuid; 2],
}

impl World {
    /// `home`: the number of the directory in which the metadata has the log.
    fn open(storage: MemoryStorage, home: usize, leader_epoch: i32) -> World {
        let claimed = claim(&storage);
        let directories = claimed.directories().iter();
        let ids = directories.map(|each| each.identity().directory_id.unwrap());
        let ids: [Uuid; 2] = ids.collect::<Vec<_>>().try_into().unwrap();
        let loaded = load(claimed, ids[home], leader_epoch);
        let image = loaded.node.image();
        let replica = image.topic("t").unwrap().replica(0).unwrap();
        let log = replica.log.clone();
        World {
            storage,
            node: Arc::new(loaded.node),
            log,
            ids,
        }
    }

    fn empty() -> World {
        let storage = MemoryStorage::default();
        for path in ["/meta", ONE, TWO] {
            storage.create_directory_all(path.as_ref()).unwrap();
        }
        storage.sync_directory("/".as_ref()).unwrap();
        World::open(storage, 0, 0)
    }

    /// With records, all of which are on disk.
    fn filled() -> World {
        let world = World::empty();
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
        let to = self.directory(1).clone();
        let future = to.create_future(wanted, NOW_MS)?;
        Ok(self.copying(future))
    }

    fn copying(&self, future: Arc<Log>) -> Copying {
        let way = [0, 1].map(|number| self.directory(number).clone());
        Copying::new(self.log.clone(), way.into(), future)
    }

    /// The last step; `false`: it could not be made.
    fn finish(&self, copying: &mut Copying) -> Result<bool> {
        let (one, two) = (self.directory(0), self.directory(1));
        copying.prepare()?;
        two.note_futures()?;
        let future = copying.future.clone();
        let as_clean = (self.log.truncations(), copying.clean_offset);
        let aside = one.aside_name(&self.log);
        let _name = one.begin_hand_over(&self.log, two).unwrap();
        let replaced = self.log.replace_by(&future, &aside, NOW_MS, || {
            copying.finish(PIECE_BYTES, NOW_MS)
        })?;
        let Some(aside) = replaced else {
            return Ok(false);
        };
        assert!(one.hand_over(&self.log, &future, two, aside, NOW_MS));
        cleaner_checkpoint::hand_over(one, two, &self.log, as_clean)?;
        one.hand_over_offsets(two)?;
        Ok(true)
    }
}

/// Asks for a move in a request of its own.
fn move_to(node: &Arc<Node>, partition: i32, path: &str) -> std::result::Result<(), MoveRefusal> {
    let request = MoveRequest::default();
    node.alter_log_dir("t", partition, Path::new(path), &request, NOW_MS)
}

/// The log directories that can be had.
fn claim(storage: &MemoryStorage) -> Claimed {
    let options = NodeOptions {
        node_id: 1,
        cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        metadata_path: PathBuf::from("/meta"),
        paths: [ONE, TWO].map(PathBuf::from).to_vec(),
        recovery_threads: 1,
        flush_threads: 1,
        open_segments_max: 64,
        now_ms: NOW_MS,
    };
    Claimed::open_in(Arc::new(storage.clone()), options).unwrap()
}

fn load(claimed: Claimed, home: Uuid, leader_epoch: i32) -> Loaded {
    let plan = plan(1, leader_epoch, home);
    Node::load(claimed, &[plan], Arc::new(Nobody)).unwrap()
}

/// The topic as the metadata has it: who leads its partition, and in which directory node 1 has it.
fn plan(leader_id: i32, leader_epoch: i32, home: Uuid) -> TopicPlan {
    let replicas: Box<[i32]> = match leader_id {
        1 => Box::new([1]),
        other => Box::new([1, other]),
    };
    TopicPlan {
        name: "t".to_owned(),
        id: TOPIC_ID,
        is_internal: false,
        config: config(),
        partitions: vec![PartitionRegistration {
            leader_id,
            leader_epoch,
            partition_epoch: leader_epoch,
            directories: vec![home; replicas.len()].into(),
            in_sync_replicas: replicas.clone(),
            replicas,
        }],
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
