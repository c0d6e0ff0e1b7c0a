//! The partitions of a node, as its metadata changes.

use std::sync::Arc;

use kafkalite::log::config::LogConfig;
use kafkalite::node::{Claimed, Node, NodeOptions, PartitionPlan, TopicPlan};
use kafkalite::park::{Parked, WaitFor, Wake};
use kafkalite::uuid::Uuid;
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

fn plan(leader_epoch: i32, directory_id: Uuid) -> TopicPlan {
    TopicPlan {
        name: "t".to_owned(),
        id: Uuid([7; 16]),
        is_internal: false,
        config: LogConfig::default(),
        partitions: vec![PartitionPlan {
            leader_epoch,
            directory_id,
        }],
    }
}

/// The partition got other waiters, and those of before were woken by nothing more.
#[test]
fn who_waits_at_a_partition_waits_on_when_its_leader_epoch_changes() {
    let home = tempfile::tempdir().unwrap();
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
    let loaded = Node::load(claimed, &[plan(4, directory_id)], woken.clone()).unwrap();
    let before = loaded.node.image().topic("t").unwrap().partitions[0].clone();
    let before = before.unwrap();
    let parked = |slot| Parked {
        thread: 0,
        connection: 1,
        slot,
    };
    let waiters = &before.waiters;
    waiters.register(parked(1), WaitFor::Committed(1));
    waiters.register(parked(2), WaitFor::HighWatermark(0));
    loaded.node.publish_topics(&[plan(4, directory_id)]);
    assert!(woken.0.lock().is_empty(), "nothing has changed");
    loaded.node.publish_topics(&[plan(6, directory_id)]);
    // Who reads looks at its epoch again.
    assert_eq!(*woken.0.lock(), [2]);
    let image = loaded.node.image();
    let after = image.topic("t").unwrap().partition(0).unwrap();
    assert_eq!((after.leader_epoch, after.log.leading_epoch()), (6, 6));
    waiters.register(parked(3), WaitFor::LastStable(0));
    append(&after.log, &mut batch(0, 1)).unwrap();
    after.log.flush().unwrap();
    let mut all = woken.0.lock().clone();
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3]);
    loaded.node.close(1);
}
