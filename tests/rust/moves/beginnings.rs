//! Moves begin while a disk does not answer: those that do not need it go on, the
//! others are refused in time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kafkalite::log::storage::Storage;
use kafkalite::node::{Claimed, MoveRefusal, Node, NodeOptions};

use super::{Nobody, plan};
use crate::log_directory::NOW_MS;
use crate::memory_storage::MemoryStorage;

const PATHS: [&str; 3] = ["/one", "/two", "/three"];

/// Node 1, with three partitions in the first directory.
fn node() -> Arc<Node> {
    let storage = MemoryStorage::default();
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
    let claimed = Claimed::open_in(Arc::new(storage), options).unwrap();
    let home = claimed.directories()[0].identity().directory_id.unwrap();
    let mut plan = plan(1, 0, home);
    plan.partitions = vec![plan.partitions[0].clone(); 3];
    let loaded = Node::load(claimed, &[plan], Arc::new(Nobody)).unwrap();
    Arc::new(loaded.node)
}

/// The second one had waited for the first, and each later request for it, on a thread of its own.
#[test]
fn a_disk_that_does_not_answer_hinders_no_move_into_another_one() {
    let node = node();
    let move_to = |partition: i32, path: &str| {
        let path = Path::new(path);
        node.alter_log_dir("t", partition, path, NOW_MS)
    };
    // Its file is written before the future replica is made: the topic of that name is gone.
    let two = &node.directories()[1];
    let id = node.image().topic("t").unwrap().id;
    let config = super::config();
    two.create_log("t", 0, id, config, NOW_MS).unwrap();
    two.forget("t", 0).unwrap();
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
