//! A node starts whose log directories are not as its last process left them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::image::PartitionRegistration;
use kafkalite::log::compact::cleaner_checkpoint;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::offset_checkpoint::OffsetCheckpoint;
use kafkalite::log::names;
use kafkalite::log::storage::{Storage, replace_file};
use kafkalite::node::{Claimed, Loaded, Node, NodeOptions, TopicPlan};
use kafkalite::replica::HostedPartition;
use kafkalite::replica::park::{Parked, Wake};
use kafkalite::uuid::Uuid;

use crate::log::{append, batch};
use crate::log_directory::NOW_MS;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const TOPIC_ID: Uuid = Uuid([7; 16]);

struct Nobody;

impl Wake for Nobody {
    fn wake(&self, _: &[Parked]) {}
}

/// Node 1 with these log directories.
fn claim(storage: &MemoryStorage, paths: &[&str]) -> Claimed {
    let options = NodeOptions {
        node_id: 1,
        cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        metadata_path: PathBuf::from("/meta"),
        paths: paths.iter().map(PathBuf::from).collect(),
        recovery_threads: 1,
        flush_threads: 1,
        open_segments_max: 64,
        now_ms: NOW_MS,
    };
    Claimed::open_in(Arc::new(storage.clone()), options).unwrap()
}

/// A topic `t`, of which node 1 has a partition in each of these directories.
fn plan(id: Uuid, homes: &[Uuid]) -> TopicPlan {
    let partitions = homes.iter().map(|home| PartitionRegistration {
        leader_id: 1,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: [*home].into(),
        in_sync_replicas: [1].into(),
        replicas: [1].into(),
    });
    TopicPlan {
        name: "t".to_owned(),
        id,
        is_internal: false,
        config: LogConfig::default(),
        partitions: partitions.collect(),
    }
}

fn load(claimed: Claimed, plan: TopicPlan) -> Loaded {
    Node::load(claimed, &[plan], Arc::new(Nobody)).unwrap()
}

fn id_of(claimed: &Claimed, number: usize) -> Uuid {
    let identity = claimed.directories()[number].identity();
    identity.directory_id.unwrap()
}

/// The load failed, again and again, and so nothing freed the directory.
#[test]
fn a_log_that_cannot_be_made_is_offline_and_the_others_are_served() {
    let storage = MemoryStorage::default();
    let claimed = claim(&storage, &["/one"]);
    let home = id_of(&claimed, 0);
    let fault = Fault::of(Operation::CreateDirectory, "/one/t-1", Failure::NoSpace);
    storage.inject(fault.lasting());
    let loaded = load(claimed, plan(TOPIC_ID, &[home, home]));
    assert_eq!(loaded.unmade, [("t".to_owned(), 1)]);
    assert!(loaded.notes.iter().any(|note| note.contains("t-1")));
    let image = loaded.node.image();
    let hosted = image.topic("t").unwrap().hosted();
    assert!(matches!(
        hosted,
        [HostedPartition::Online(_), HostedPartition::Offline]
    ));
}

fn has(storage: &MemoryStorage, path: &str) -> bool {
    storage.files().contains_key(Path::new(path))
}

/// A process with the topic, killed once the checkpoint files name its partition; then
/// something befalls the storage.
fn killed(storage: &MemoryStorage) -> Uuid {
    let claimed = claim(storage, &["/one"]);
    let home = id_of(&claimed, 0);
    let node = load(claimed, plan(TOPIC_ID, &[home])).node;
    node.directories()[0].write_checkpoints().unwrap();
    let epoch = Path::new("/one/kafkalite-broker-epoch");
    replace_file(storage, epoch, b"7\n").unwrap();
    home
}

/// The start was stopped before it said that the log was gone, and the next one found an empty
/// log, and nothing missing.
#[test]
fn a_log_that_is_gone_is_not_made_before_the_epoch_of_its_process_is_forgotten() {
    let storage = MemoryStorage::default();
    let home = killed(&storage);
    storage.remove_directory_all(Path::new("/one/t-0")).unwrap();
    let fault = Fault::of(Operation::RemoveFile, "kafkalite-broker-epoch", Failure::Io);
    storage.inject(fault.lasting());
    let topics = [plan(TOPIC_ID, &[home])];
    let refused = Node::load(claim(&storage, &["/one"]), &topics, Arc::new(Nobody));
    assert!(refused.is_err());
    assert!(!has(&storage, "/one/t-0/partition.metadata"));
    storage.heal();
    let loaded = load(claim(&storage, &["/one"]), plan(TOPIC_ID, &[home]));
    assert_eq!(loaded.lost, [("t".to_owned(), 0)]);
    assert!(has(&storage, "/one/t-0/partition.metadata"));
    assert!(!has(&storage, "/one/kafkalite-broker-epoch"));
}

/// It was told as one whose records are lost.
#[test]
fn a_topic_that_was_made_anew_lacks_nothing_of_the_older_one() {
    let storage = MemoryStorage::default();
    let home = killed(&storage);
    let newer = plan(Uuid([8; 16]), &[home]);
    let loaded = load(claim(&storage, &["/one"]), newer);
    assert_eq!(loaded.lost, []);
    assert!(has(&storage, "/one/kafkalite-broker-epoch"));
}

/// Given back in another directory while its own was away, it lay in both when that came
/// back, and no start went on.
#[test]
fn of_two_logs_of_a_partition_the_one_that_the_metadata_names_is_served() {
    for number in [0, 1] {
        let storage = MemoryStorage::default();
        let claimed = claim(&storage, &["/one", "/two"]);
        let ids = [0, 1].map(|number| id_of(&claimed, number));
        drop(load(claimed, plan(TOPIC_ID, &[ids[0]])));
        let only_two = load(claim(&storage, &["/two"]), plan(TOPIC_ID, &[ids[1]]));
        drop(only_two);
        let loaded = load(
            claim(&storage, &["/one", "/two"]),
            plan(TOPIC_ID, &[ids[number]]),
        );
        let image = loaded.node.image();
        let replica = image.topic("t").unwrap().replica(0).unwrap();
        let home = replica.directory().identity().directory_id;
        assert_eq!(home, Some(ids[number]));
        let (kept, left) = [("/one/t-0", "/two/t-0"), ("/two/t-0", "/one/t-0")][number];
        let has = |path: &str, ends: &str| {
            let mut files = storage.files().into_keys();
            files.any(|each| {
                let name = each.parent().unwrap().to_string_lossy().into_owned();
                name.starts_with(path) && name.ends_with(ends)
            })
        };
        assert!(has(kept, "t-0") && !has(left, "t-0") && has(left, "-stray"));
        assert!(loaded.notes.iter().any(|note| note.contains(left)));
    }
}

/// The files went on saying them: a topic that was made anew there had its records deleted below
/// the older one's log start, or counted as clean what no cleaner had met.
#[test]
fn a_log_that_was_set_aside_leaves_its_offsets_to_nobody() {
    let storage = MemoryStorage::default();
    let claimed = claim(&storage, &["/one", "/two"]);
    let ids = [0, 1].map(|number| id_of(&claimed, number));
    let node = load(claimed, plan(TOPIC_ID, &[ids[0]])).node;
    let one = &node.directories()[0];
    let log = one.log("t", 0).unwrap();
    append(&log, &mut batch(0, 5)).unwrap();
    log.flush().unwrap();
    log.advance_log_start_offset(3).unwrap();
    cleaner_checkpoint::set(one, &log, 5, 0).unwrap();
    one.write_checkpoints().unwrap();
    drop(node);
    drop(load(claim(&storage, &["/two"]), plan(TOPIC_ID, &[ids[1]])));
    let both = claim(&storage, &["/one", "/two"]);
    let node = load(both, plan(TOPIC_ID, &[ids[1]])).node;
    let one = &node.directories()[0];
    let id = Uuid([8; 16]);
    one.create_log("t", 0, id, LogConfig::default(), NOW_MS)
        .unwrap();
    for name in names::OFFSET_CHECKPOINTS {
        let path = Path::new("/one").join(name);
        let known = OffsetCheckpoint::read(&storage, &path).unwrap();
        assert!(known.offsets.is_empty(), "{name}");
    }
}

#[test]
fn of_two_logs_of_a_partition_none_is_taken_where_the_metadata_names_neither() {
    let storage = MemoryStorage::default();
    let claimed = claim(&storage, &["/one", "/two"]);
    let ids = [0, 1].map(|number| id_of(&claimed, number));
    drop(load(claimed, plan(TOPIC_ID, &[ids[0]])));
    drop(load(claim(&storage, &["/two"]), plan(TOPIC_ID, &[ids[1]])));
    let topics = [plan(TOPIC_ID, &[Uuid([9; 16])])];
    let refused = Node::load(
        claim(&storage, &["/one", "/two"]),
        &topics,
        Arc::new(Nobody),
    );
    let sentence = refused.err().unwrap().to_string();
    assert!(sentence.contains("remove the directory t-0"), "{sentence}");
}
