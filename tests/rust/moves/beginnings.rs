//! Moves begin while a disk does not answer: those that do not need it go on, the
//! others are refused in time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use kafkalite::log::directory::{LogDirectory, NewLog};
use kafkalite::log::storage::Storage;
use kafkalite::node::{Claimed, MoveRefusal, MoveRequest, Node, NodeOptions};
use parking_lot::Mutex;

use super::{Nobody, PIECE_BYTES, TOPIC_ID, move_to, plan};
use crate::log::{append, batch};
use crate::log_directory::NOW_MS;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const PATHS: [&str; 3] = ["/one", "/two", "/three"];

/// Node 1, with three partitions in the first directory.
fn node(storage: &MemoryStorage) -> Arc<Node> {
    node_in(storage, 0)
}

fn node_in(storage: &MemoryStorage, leader_epoch: i32) -> Arc<Node> {
    for path in PATHS.iter().chain(&["/meta"]) {
        storage.create_directory_all(path.as_ref()).unwrap();
    }
    let options = NodeOptions {
        node_id: 1,
        cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        metadata_path: PathBuf::from("/meta"),
        paths: PATHS.map(PathBuf::from).to_vec(),
        recovery_threads: 1,
        flush_threads: 1,
        open_segments_max: 64,
        now_ms: NOW_MS,
    };
    let claimed = Claimed::open_in(Arc::new(storage.clone()), options).unwrap();
    let home = claimed.directories()[0].identity().directory_id.unwrap();
    let mut plan = plan(1, leader_epoch, home);
    plan.partitions = vec![plan.partitions[0].clone(); 3];
    let loaded = Node::load(claimed, &[plan], Arc::new(Nobody)).unwrap();
    Arc::new(loaded.node)
}

/// The second directory, whose checkpoint files are written before the future replica of the first
/// partition is made there: they may name one that is gone.
fn expect_checkpoint_files(node: &Node) -> &Arc<LogDirectory> {
    let two = &node.directories()[1];
    let config = super::config();
    two.create_log("t", 0, TOPIC_ID, config, NOW_MS).unwrap();
    two.forget("t", 0).unwrap();
    two
}

/// The second one had waited for the first, and each later request for it, on a thread of its own.
#[test]
fn a_disk_that_does_not_answer_hinders_no_move_into_another_one() {
    let node = node(&MemoryStorage::default());
    let move_to = |partition: i32, path: &str| super::move_to(&node, partition, path);
    let two = expect_checkpoint_files(&node);
    thread::scope(|scope| {
        let does_not_answer = two.checkpoint_files();
        let hangs = scope.spawn(|| move_to(0, "/two"));
        let deadline = Instant::now() + Duration::from_secs(60);
        // It lies there: nothing comes of it, once its turn is there.
        while move_to(0, "/one") == Ok(()) {
            assert!(Instant::now() < deadline, "it has not begun");
        }
        let of_the_same = move_to(0, "/three");
        assert!(matches!(of_the_same, Err(MoveRefusal::Offline(_))));
        assert_eq!(move_to(1, "/three"), Ok(()));
        assert!(!hangs.is_finished());
        drop(does_not_answer);
        assert_eq!(hangs.join().unwrap(), Ok(()));
    });
    assert_eq!(move_to(2, "/two"), Ok(()));
}

/// The future replica there was renamed first, for as long as that took.
#[test]
fn a_move_that_ends_one_to_a_disk_that_does_not_answer_asks_nothing_of_it() {
    let storage = MemoryStorage::default();
    let node = node(&storage);
    // Nobody takes a step meanwhile.
    node.resume_moves(0, |_| ());
    assert_eq!(move_to(&node, 0, "/two"), Ok(()));
    let call = Fault::at_call(1, Failure::Io);
    storage.inject(Fault {
        path_part: "/two".to_owned(),
        ..call.lasting()
    });
    assert_eq!(move_to(&node, 0, "/three"), Ok(()));
    assert!(!storage.has_struck());
    let futures = node.futures();
    assert_eq!(futures.len(), 1);
    assert_eq!(futures[0].path, Path::new("/three"));
    // The housekeeper of the directory asks.
    storage.heal();
    node.directories()[1].delete_given_up(NOW_MS).unwrap();
    assert_eq!(node.directories()[1].future_names().unwrap(), []);
}

/// It had its turn in the new directory while it waited for the old one.
#[test]
fn a_move_that_ends_one_whose_disk_does_not_answer_hinders_no_other_into_the_new_directory() {
    let storage = MemoryStorage::default();
    let node = node(&storage);
    // Who moves takes the steps.
    node.resume_moves(0, |_| ());
    let move_to = |partition: i32, path: &str| super::move_to(&node, partition, path);
    let image = node.image();
    let replica = image.topic("t").unwrap().replica(0).unwrap();
    append(&replica.log, &mut batch(0, 5)).unwrap();
    assert_eq!(move_to(0, "/two"), Ok(()));
    thread::scope(|scope| {
        let (asks, is_asked) = mpsc::channel();
        let (does_not_answer, answer) = mpsc::channel::<()>();
        storage.before(Operation::Write, "/two/t-0", move || {
            asks.send(()).unwrap();
            // It comes by an end of the channel.
            assert!(answer.recv().is_err());
        });
        let hangs = scope.spawn(|| node.step_moves(PIECE_BYTES, NOW_MS));
        is_asked.recv_timeout(Duration::from_secs(60)).unwrap();
        let waits = scope.spawn(|| move_to(0, "/three"));
        while !waits.is_finished() {
            assert_eq!(move_to(1, "/three"), Ok(()));
            assert_eq!(move_to(1, "/one"), Ok(()));
            thread::sleep(Duration::from_millis(10)); // A poll.
        }
        assert!(matches!(
            waits.join().unwrap(),
            Err(MoveRefusal::Offline(_))
        ));
        assert!(!hangs.is_finished());
        drop(does_not_answer);
        hangs.join().unwrap();
    });
    assert_eq!(move_to(0, "/three"), Ok(()));
}

/// A future replica that an earlier process has left.
fn left() -> NewLog {
    NewLog {
        topic: Arc::from("t"),
        partition: 0,
        topic_id: TOPIC_ID,
        config: super::config(),
        leader_epoch: None,
    }
}

/// Its future replica stood until the next start, and nobody knew why.
#[test]
fn a_move_that_is_not_resumed_since_another_one_hangs_is_told() {
    let node = node(&MemoryStorage::default());
    node.directories()[2].create_future(left(), NOW_MS).unwrap();
    let two = expect_checkpoint_files(&node);
    let move_to = |path: &str| super::move_to(&node, 0, path);
    let told = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let does_not_answer = two.checkpoint_files();
        let hangs = scope.spawn(|| move_to("/two"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while move_to("/one") == Ok(()) {
            assert!(Instant::now() < deadline, "it has not begun");
        }
        let lines = told.clone();
        node.resume_moves(0, move |line| lines.lock().push(line));
        assert_eq!(node.moves().count(), 0);
        drop(does_not_answer);
        assert_eq!(hangs.join().unwrap(), Ok(()));
    });
    let told = told.lock();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("the move of t-0 to /three is not resumed"));
}

/// The client had been told that they are not moved. They moved all the same when the disk answered
/// again, and undid what another request had been granted since.
#[test]
fn what_was_refused_for_a_disk_that_does_not_answer_does_not_move_when_it_does() {
    let node = node(&MemoryStorage::default());
    node.resume_moves(0, |_| ());
    let (one, two) = (&node.directories()[0], expect_checkpoint_files(&node));
    let (begun, hung, waits) = (
        MoveRequest::default(),
        MoveRequest::default(),
        MoveRequest::default(),
    );
    let three = Path::new("/three");
    assert_eq!(node.alter_log_dir("t", 2, three, &begun, NOW_MS), Ok(()));
    let ask = |request| node.alter_log_dir("t", 0, two.path(), request, NOW_MS);
    thread::scope(|scope| {
        let does_not_answer = two.checkpoint_files();
        let hangs = scope.spawn(|| ask(&hung));
        let deadline = Instant::now() + Duration::from_secs(60);
        while move_to(&node, 0, "/one") == Ok(()) {
            assert!(Instant::now() < deadline, "it has not begun");
        }
        let of_the_same = scope.spawn(|| ask(&waits));
        assert_eq!((hung.answer(), waits.answer()), (vec![], vec![]));
        drop(does_not_answer);
        for refused in [hangs, of_the_same] {
            // The one that waits may have been refused for the other.
            refused.join().unwrap().unwrap_err();
        }
    });
    let begun = begun.answer();
    assert_eq!(begun, [(("t".to_owned(), 2), Ok(()))]);
    assert_eq!(node.moves().count(), 1, "the one that was granted");
    assert_eq!(node.futures().len(), 1);
    let image = node.image();
    let replica = image.topic("t").unwrap().replica(0).unwrap();
    assert!(!replica.log.is_moving() && Arc::ptr_eq(replica.directory(), one));
    two.delete_given_up(NOW_MS).unwrap();
    assert_eq!(two.future_names().unwrap(), []);
    // None of it hinders the next one.
    assert_eq!(move_to(&node, 0, "/two"), Ok(()));
}

/// Its future replica in the directory of before was found first, and the newer one was deleted.
#[test]
fn the_last_of_two_moves_goes_on_after_a_kill() {
    let storage = MemoryStorage::default();
    let node = node(&storage);
    node.resume_moves(0, |_| ());
    for path in ["/two", "/three"] {
        assert_eq!(move_to(&node, 0, path), Ok(()));
    }
    let again = node_in(&storage.crash(Crash::Kill), 1);
    again.resume_moves(0, |_| ());
    let futures = again.futures();
    assert_eq!((futures.len(), again.moves().count()), (1, 1));
    assert_eq!(futures[0].path, Path::new("/three"));
}

/// The start deleted the second one, and waited for its disk.
#[test]
fn a_start_that_finds_two_future_replicas_asks_no_disk() {
    let storage = MemoryStorage::default();
    let node = node(&storage);
    for directory in &node.directories()[1..] {
        directory.create_future(left(), NOW_MS).unwrap();
    }
    storage.inject(Fault::at_call(1, Failure::Panic).lasting());
    node.resume_moves(0, |_| ());
    assert!(!storage.has_struck());
    storage.heal();
    assert_eq!(node.futures()[0].path, Path::new("/two"));
    assert_eq!((node.futures().len(), node.moves().count()), (1, 1));
    node.directories()[2].delete_given_up(NOW_MS).unwrap();
    assert_eq!(node.directories()[2].future_names().unwrap(), []);
}
