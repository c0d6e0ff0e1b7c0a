//! Moves as a node drives them, by threads of its own and with a controller's word: what ends one,
//! what becomes of the replica then, and what the next process goes on with.

use std::io::{Error as IoError, ErrorKind};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use kafkalite::error::Error;
use kafkalite::log::directory::NewLog;
use kafkalite::node::{Loaded, MetadataDelta, MoveRefusal, Node};
use kafkalite::replica::{HostedPartition, Partition, Role};
use kafkalite::uuid::Uuid;

use super::{Nobody, ONE, RECORDS, TOPIC_ID, TWO, World, bytes_of, claim, config, load, plan};
use crate::follower::{fetched_from, led};
use crate::log::{append, batch};
use crate::log_directory::NOW_MS;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const LIMIT: Duration = Duration::from_secs(120);

fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(Duration::from_millis(1)); // A poll.
    }
}

/// All of this log directory fails from now on.
fn fail(storage: &MemoryStorage, path: &str) {
    storage.inject(Fault {
        path_part: path.to_owned(),
        ..Fault::at_call(1, Failure::Io).lasting()
    });
}

impl World {
    /// Goes on with what the last process has left.
    fn resume(&self) {
        self.node.resume_moves(1, |_| ());
    }

    fn move_to(&self, path: &str) -> Result<(), MoveRefusal> {
        super::move_to(&self.node, 0, path)
    }

    /// A move whose copy has all that the log has, and which waits for the
    /// metadata to say the directory.
    fn about_to_move() -> World {
        let world = World::filled();
        world.move_to(TWO).unwrap();
        assert_eq!(world.told(), world.ids[1]);
        world
    }

    fn replica(&self) -> Arc<Partition> {
        let image = self.node.image();
        image.topic("t").unwrap().replica(0).unwrap().clone()
    }

    fn publish(&self, leader_id: i32, leader_epoch: i32, home: Uuid) {
        let changed = &[plan(leader_id, leader_epoch, home)];
        let deleted = &[];
        let delta = MetadataDelta { deleted, changed };
        self.node.publish(delta).unwrap();
    }

    /// The directory that the controller is told next.
    fn told(&self) -> Uuid {
        let assignments = &self.node.moves().assignments;
        let mut told = Vec::new();
        let deadline = Instant::now() + LIMIT;
        while told.is_empty() {
            assert!(Instant::now() < deadline, "it is told nothing");
            thread::sleep(Duration::from_millis(1)); // A poll.
            told = assignments.take();
        }
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].topic_id, told[0].partition), (TOPIC_ID, 0));
        told[0].directory_id
    }

    fn wait_for_end(&self) {
        wait_until(|| self.node.moves().count() == 0);
    }

    fn wait_until_it_lies_in(&self, path: &str) {
        wait_until(|| self.replica().directory().path() == Path::new(path));
        self.wait_for_end();
        assert!(self.log.directory().starts_with(path));
    }

    /// Does what the housekeeper of the second directory is woken for.
    fn keep_house(&self) {
        self.directory(1).delete_given_up(NOW_MS).unwrap();
    }

    fn has_future_in(&self, path: &str) -> bool {
        has_future_in(&self.storage, path)
    }
}

fn has_future_in(storage: &MemoryStorage, path: &str) -> bool {
    let files = storage.files().into_keys();
    let mut directories = files.filter_map(|file| Some(file.parent()?.to_path_buf()));
    directories.any(|each| each.starts_with(path) && each.to_string_lossy().ends_with("-future"))
}

fn is_online(loaded: &Loaded) -> bool {
    let image = loaded.node.image();
    let hosted = image.topic("t").unwrap().hosted_partition(0);
    matches!(hosted, Some(HostedPartition::Online(_)))
}

#[test]
fn a_move_ends_when_the_metadata_says_the_directory_and_not_before() {
    let world = World::about_to_move();
    append(&world.log, &mut batch(RECORDS, 5)).unwrap();
    assert_eq!(world.node.moves().count(), 1);
    assert!(world.log.directory().starts_with(ONE));
    world.publish(1, 0, world.ids[1]);
    world.wait_until_it_lies_in(TWO);
    assert_eq!(world.log.offsets().log_end_offset, RECORDS + 5);
    assert!(!world.has_future_in(TWO));
    assert!(!world.log.is_moving(), "it is compacted again");
}

#[test]
fn a_move_whose_target_fails_ends_and_the_replica_stays() {
    let world = World::about_to_move();
    fail(&world.storage, TWO);
    append(&world.log, &mut batch(RECORDS, 5)).unwrap();
    world.wait_for_end();
    assert_eq!(world.told(), world.ids[0], "it stays where it was");
    assert!(world.node.futures().is_empty() && !world.log.is_moving());
    assert!(matches!(world.move_to(TWO), Err(MoveRefusal::Offline(_))));
    assert_eq!(world.move_to(ONE), Ok(()), "it is there");
    append(&world.log, &mut batch(RECORDS + 5, 5)).unwrap();
    world.log.flush().unwrap();
    assert!(!world.replica().is_offline());
    // The next process finds what was copied, and goes on.
    world.storage.heal();
    let bytes = bytes_of(&world.log);
    let again = World::open(world.storage.crash(Crash::Kill), 0, 1);
    again.resume();
    assert_eq!(again.told(), again.ids[1]);
    again.publish(1, 1, again.ids[1]);
    again.wait_until_it_lies_in(TWO);
    assert!(bytes_of(&again.log) == bytes);
}

/// It was tried again for ever: nothing else was written there.
#[test]
fn a_target_that_cannot_be_written_is_out_of_use_and_one_that_is_full_is_waited_for() {
    for failure in [Failure::Io, Failure::NoSpace] {
        let world = World::filled();
        world.storage.inject(Fault {
            path_part: "-future/leader-epoch-checkpoint".to_owned(),
            ..Fault::at_call(1, failure).lasting()
        });
        world.move_to(TWO).unwrap();
        wait_until(|| world.storage.has_struck());
        if failure == Failure::Io {
            world.wait_for_end();
            assert!(world.directory(1).health().is_offline());
        } else {
            world.storage.heal();
            assert_eq!(world.told(), world.ids[1]);
        }
        assert!(!world.replica().is_offline());
    }
}

#[test]
fn a_replica_whose_directory_fails_in_the_middle_of_its_move_is_offline() {
    let world = World::about_to_move();
    let error = IoError::from(ErrorKind::Other);
    let error = Error::io("write", Path::new(ONE))(error);
    world.directory(0).health().fail(&error);
    append(&world.log, &mut batch(RECORDS, 5)).unwrap_err();
    world.wait_for_end();
    assert_eq!(world.told(), world.ids[0], "the metadata sees it offline");
    assert!(world.replica().is_offline());
    assert!(matches!(world.move_to(TWO), Err(MoveRefusal::Offline(_))));
    assert!(world.has_future_in(TWO));
    let (lag, futures) = (-1, world.node.futures());
    assert_eq!(futures[0].lag, lag, "of what it lacks nothing is known");
    // While its directory is gone nobody takes the copy for it, unless the metadata says so.
    for (home, is_promoted) in [(0, false), (1, true)] {
        let left = world.storage.crash(Crash::LoseUnsynced);
        fail(&left, ONE);
        let loaded = load(claim(&left), world.ids[home], 1);
        assert_eq!(is_online(&loaded), is_promoted);
        assert_eq!(has_future_in(&left, TWO), !is_promoted);
        let is_lost = loaded.lost.contains(&("t".to_owned(), 0));
        assert_eq!(is_lost, is_promoted, "it may lack the last records");
    }
    // With both directories the move goes on.
    let again = World::open(world.storage.crash(Crash::LoseUnsynced), 0, 1);
    again.resume();
    assert_eq!(again.told(), again.ids[1]);
    again.publish(1, 1, again.ids[1]);
    again.wait_until_it_lies_in(TWO);
    assert_eq!(again.log.offsets().log_end_offset, RECORDS);
}

/// It outlived the topic, and the checkpoint files had its offsets under the name of the
/// next one: a start took the log start of the old topic for that of the new one, and
/// deleted all records below it.
#[test]
fn the_future_replica_of_an_offline_replica_goes_with_its_topic() {
    for is_started_again in [false, true] {
        let mut world = World::about_to_move();
        let (start, future) = (20, world.directory(1).future("t", 0).unwrap());
        future.flush().unwrap();
        world.log.advance_log_start_offset(start).unwrap();
        wait_until(|| future.offsets().log_start_offset == start);
        world.directory(1).write_checkpoints().unwrap();
        if is_started_again {
            world.storage = world.storage.crash(Crash::LoseUnsynced);
            fail(&world.storage, ONE);
            let loaded = load(claim(&world.storage), world.ids[0], 1);
            assert!(!is_online(&loaded));
            world.node = Arc::new(loaded.node);
            world.resume();
        } else {
            let error = Error::io("write", Path::new(ONE))(IoError::from(ErrorKind::Other));
            world.directory(0).health().fail(&error);
            append(&world.log, &mut batch(RECORDS, 5)).unwrap_err();
            world.wait_for_end();
        }
        assert_eq!(world.node.futures().len(), 1);
        let (node, two) = (&world.node, world.node.directories().last().unwrap());
        let delta = MetadataDelta {
            deleted: &["t".to_owned()],
            changed: &[],
        };
        node.publish(delta).unwrap();
        let left = node.futures();
        let mut next = plan(1, 0, world.ids[1]);
        next.id = Uuid([8; 16]);
        let changed = &[next];
        for (directory, wanted) in node.missing_logs(changed) {
            directory.create_logs(wanted, NOW_MS).unwrap();
        }
        let deleted = &[];
        node.publish(MetadataDelta { deleted, changed }).unwrap();
        append(&world.replica().log, &mut batch(0, 5)).unwrap();
        world.replica().log.flush().unwrap();
        let bytes = bytes_of(&world.replica().log);
        two.write_checkpoints().unwrap();
        for is_stopped in [false, true] {
            if is_stopped {
                node.close(1);
            }
            let storage = world.storage.crash(Crash::Kill);
            let again = Node::load(claim(&storage), changed, Arc::new(Nobody)).unwrap();
            let image = again.node.image();
            let log = &image.topic("t").unwrap().replica(0).unwrap().log;
            assert_eq!(log.offsets().log_start_offset, 0);
            assert!(bytes_of(log) == bytes, "all records are there");
            assert!(!is_stopped || !has_future_in(&storage, TWO));
        }
        assert_eq!(left.len(), 0);
    }
}

#[test]
fn the_future_replica_of_an_offline_replica_goes_when_other_nodes_get_the_partition() {
    let world = World::about_to_move();
    let error = Error::io("write", Path::new(ONE))(IoError::from(ErrorKind::Other));
    world.directory(0).health().fail(&error);
    world.wait_for_end();
    assert_eq!(world.node.futures().len(), 1);
    let mut plan = plan(2, 1, world.ids[0]);
    plan.partitions[0].replicas = Box::new([2, 3]);
    plan.partitions[0].in_sync_replicas = Box::new([2, 3]);
    let (deleted, changed) = (&[], &[plan]);
    let delta = MetadataDelta { deleted, changed };
    world.node.publish(delta).unwrap();
    assert_eq!(world.node.futures().len(), 0);
    world.keep_house();
    world.directory(1).remove_condemned(i64::MAX).unwrap();
    let left = world.storage.files().into_keys();
    assert!(!left.into_iter().any(|file| file.starts_with("/two/t-0")));
    assert!(!world.has_future_in(TWO));
}

#[test]
fn a_move_goes_on_under_another_leader_and_loses_what_the_log_loses() {
    let world = World::about_to_move();
    world.publish(2, 1, world.ids[0]);
    let replica = world.replica();
    assert_eq!(replica.role, Role::Follower);
    replica.truncate_as_follower(RECORDS - 13, NOW_MS).unwrap();
    let end = world.log.offsets().log_end_offset;
    replica
        .append_as_follower(&mut led(end, 15, 1), fetched_from(1, end), NOW_MS)
        .unwrap();
    let bytes = bytes_of(&world.log);
    world.publish(2, 1, world.ids[1]);
    world.wait_until_it_lies_in(TWO);
    assert!(bytes_of(&world.log) == bytes);
    assert!(replica.is_following());
    replica
        .append_as_follower(&mut led(end + 15, 5, 1), fetched_from(1, end + 15), NOW_MS)
        .unwrap();
    // It leads again, from its new directory.
    world.publish(1, 2, world.ids[1]);
    append(&world.log, &mut batch(end + 20, 5)).unwrap();
    world.log.flush().unwrap();
    let bytes = bytes_of(&world.log);
    let again = World::open(world.storage.crash(Crash::LoseUnsynced), 1, 3);
    assert!(bytes_of(&again.log) == bytes);
}

#[test]
fn a_move_back_ends_the_move_and_another_one_may_begin() {
    let world = World::about_to_move();
    world.move_to(ONE).unwrap();
    assert_eq!(world.told(), world.ids[0]);
    world.keep_house();
    assert!(!world.has_future_in(TWO) && !world.log.is_moving());
    world.wait_for_end();
    world.move_to(TWO).unwrap();
    assert_eq!(world.told(), world.ids[1]);
    world.publish(1, 0, world.ids[1]);
    world.wait_until_it_lies_in(TWO);
    // And home again.
    world.move_to(ONE).unwrap();
    assert_eq!(world.told(), world.ids[0]);
    world.publish(1, 0, world.ids[0]);
    world.wait_until_it_lies_in(ONE);
    assert_eq!(world.log.offsets().log_end_offset, RECORDS);
}

/// The metadata named the one directory, the log lay in the other, until the next start.
#[test]
fn the_controller_is_told_anew_where_a_replica_lies_when_the_metadata_names_another_directory() {
    let world = World::filled();
    // It was taken away and given back in one step.
    world.publish(1, 1, world.ids[1]);
    assert_eq!(world.told(), world.ids[0]);
    assert!(world.log.directory().starts_with(ONE) && !world.replica().is_offline());
    // Once.
    world.publish(1, 2, world.ids[1]);
    world.publish(1, 3, world.ids[0]);
    assert_eq!(world.node.moves().assignments.take(), []);
}

/// It waited for ever for the metadata to say where it was to go.
#[test]
fn a_move_tells_its_directory_again_when_the_metadata_has_forgotten_it() {
    let world = World::about_to_move();
    world.publish(2, 1, world.ids[0]);
    assert_eq!(world.node.moves().assignments.take(), []);
    world.publish(2, 2, Uuid([9; 16]));
    assert_eq!(world.told(), world.ids[1]);
    world.publish(2, 3, world.ids[0]);
    assert_eq!(world.told(), world.ids[1]);
    world.publish(2, 4, world.ids[1]);
    world.wait_until_it_lies_in(TWO);
    assert_eq!(world.node.moves().assignments.take(), []);
}

#[test]
fn the_end_of_a_topic_ends_its_move() {
    let world = World::about_to_move();
    let (deleted, changed) = (&["t".to_owned()], &[]);
    let delta = MetadataDelta { deleted, changed };
    let gone = world.node.publish(delta).unwrap();
    let (directory, replicas) = &gone[0];
    // One of the same name may come at once, where the copy lies.
    let id = Uuid([8; 16]);
    let next = world.directory(1).create_log("t", 0, id, config(), NOW_MS);
    let next = next.unwrap();
    let deleted = directory.delete_forgotten(&replicas[0].log, "unique", NOW_MS);
    deleted.unwrap();
    world.wait_for_end();
    world.keep_house();
    assert!(!world.has_future_in(TWO));
    append(&next, &mut batch(0, 5)).unwrap();
    assert_eq!(world.node.moves().assignments.take().len(), 1, "it stays");
    let logs = world.directory(1).logs();
    assert!(logs.len() == 1 && Arc::ptr_eq(&logs[0], &next));
}

/// The name that the log had got in its new directory was taken for a stray one of an older topic.
/// As the deleted log, then, that of the new topic was renamed, or nothing was found, for which the
/// old directory went out of use.
#[test]
fn a_topic_that_is_deleted_between_the_two_names_of_a_move_leaves_its_place_to_the_next() {
    for is_made_first in [true, false] {
        let world = World::about_to_move();
        let mut next = plan(1, 0, world.ids[1]);
        next.id = Uuid([8; 16]);
        let changed = &[next];
        let (node, (tells, told)) = (world.node.clone(), mpsc::channel());
        let between_the_names = move || {
            let (deleted, changed) = (&["t".to_owned()], &[]);
            tells
                .send(node.publish(MetadataDelta { deleted, changed }))
                .unwrap();
        };
        let storage = &world.storage;
        storage.before(Operation::Rename, "-future", between_the_names);
        world.publish(1, 0, world.ids[1]);
        let gone = told.recv_timeout(LIMIT).unwrap().unwrap();
        let delete = || {
            for (directory, replicas) in &gone {
                let log = &replicas[0].log;
                directory.delete_forgotten(log, "unique", NOW_MS).unwrap();
                directory.sync_deleted().unwrap();
            }
        };
        let make = || {
            for (directory, wanted) in world.node.missing_logs(changed) {
                directory.create_logs(wanted, NOW_MS).unwrap();
            }
        };
        if is_made_first {
            make();
            delete();
        } else {
            delete();
            make();
        }
        let deleted = &[];
        world
            .node
            .publish(MetadataDelta { deleted, changed })
            .unwrap();
        world.wait_for_end();
        assert!(world.node.offline_log_dirs().is_empty());
        let log = world.replica().log.clone();
        append(&log, &mut batch(0, 5)).unwrap();
        log.flush().unwrap();
        let again = storage.crash(Crash::LoseUnsynced);
        let loaded = Node::load(claim(&again), changed, Arc::new(Nobody)).unwrap();
        assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
        let image = loaded.node.image();
        let replica = image.topic("t").unwrap().replica(0).unwrap();
        assert!(bytes_of(&replica.log) == bytes_of(&log));
        assert_eq!(replica.directory().path(), Path::new(TWO));
    }
}

/// The topic changes of the new directory waited for the old one's disk, without a limit.
#[test]
fn a_log_whose_name_a_move_off_a_hung_disk_has_is_refused_and_made_once_the_move_has_ended() {
    let world = World::about_to_move();
    let (asks, is_asked) = mpsc::channel();
    let (does_not_answer, answer) = mpsc::channel::<()>();
    world
        .storage
        .before(Operation::Rename, "/one/t-0", move || {
            asks.send(()).unwrap();
            // It comes by an end of the channel.
            assert!(answer.recv().is_err());
        });
    world.publish(1, 0, world.ids[1]);
    is_asked.recv_timeout(LIMIT).unwrap();
    let (deleted, changed) = (&["t".to_owned()], &[]);
    let delta = MetadataDelta { deleted, changed };
    let gone = world.node.publish(delta).unwrap();
    let new = |topic: &str| NewLog {
        topic: Arc::from(topic),
        partition: 0,
        topic_id: Uuid([8; 16]),
        config: config(),
        leader_epoch: None,
    };
    let two = world.directory(1);
    let refused = two.create_logs(vec![new("u"), new("t")], NOW_MS).err();
    let refused = refused.expect("the move has the name");
    assert!(matches!(&refused, Error::MoveNotEnded { topic, .. } if topic == "t"));
    assert!(two.logs().is_empty());
    // It keeps no other from being made, and nothing is held against the directory.
    let unmade = two.create_each(vec![new("u"), new("t")], NOW_MS);
    let unmade: Vec<String> = unmade.iter().map(|(key, _)| key.to_string()).collect();
    assert_eq!(unmade, ["t-0"]);
    assert!(two.log("u", 0).is_some());
    assert!(world.node.offline_log_dirs().is_empty());
    assert_eq!(world.node.moves().count(), 1, "it hangs");
    drop(does_not_answer);
    let (directory, replicas) = &gone[0];
    let deleted = directory.delete_forgotten(&replicas[0].log, "unique", NOW_MS);
    deleted.unwrap();
    world.wait_for_end();
    let next = two.create_logs(vec![new("t")], NOW_MS).unwrap().remove(0);
    append(&next, &mut batch(0, 5)).unwrap();
    assert!(!world.has_future_in(TWO));
    assert!(world.node.offline_log_dirs().is_empty());
}

/// The directory that it had left went out of use.
#[test]
fn a_log_that_cannot_be_deleted_where_it_has_moved_to_fails_its_new_directory() {
    let world = World::about_to_move();
    let old = world.directory(0).clone();
    world.publish(1, 0, world.ids[1]);
    world.wait_until_it_lies_in(TWO);
    let no_rename = Fault::of(Operation::Rename, "/two/t-0", Failure::Io);
    world.storage.inject(no_rename.lasting());
    old.delete_forgotten(&world.log, "unique", NOW_MS)
        .unwrap_err();
    assert_eq!(world.node.offline_log_dirs(), [Path::new(TWO)]);
}

fn has_notes(storage: &MemoryStorage) -> bool {
    let mut files = storage.files().into_keys();
    files.any(|file| file.ends_with("kafkalite-cancelled-moves"))
}

/// The next start took it up again: its future replica had still its name, since nobody waits for
/// that disk.
#[test]
fn a_move_that_was_cancelled_is_not_resumed_after_a_kill() {
    for crash in [Crash::Kill, Crash::LoseUnsynced] {
        let world = World::about_to_move();
        assert_eq!(world.move_to(ONE), Ok(()));
        assert!(world.has_future_in(TWO), "the housekeeper was not here");
        // A start that cannot have the directory keeps it in mind for the next one.
        let left = world.storage.crash(crash);
        fail(&left, TWO);
        assert!(is_online(&load(claim(&left), world.ids[0], 1)));
        left.heal();
        let again = World::open(left.crash(crash), 0, 2);
        again.resume();
        assert_eq!(again.node.moves().count(), 0);
        assert!(again.node.futures().is_empty());
        assert!(!again.has_future_in(TWO) && !has_notes(&again.storage));
        // And a new one may begin.
        assert_eq!(again.move_to(TWO), Ok(()));
        assert_eq!(again.told(), again.ids[1]);
    }
}

/// As long as the disk of a move does not answer, each of the notes stays.
#[test]
fn what_has_gone_since_it_was_cancelled_is_not_noted_again() {
    let world = World::filled();
    let lines = || {
        let files = world.storage.files();
        let text = &files[Path::new("/one/kafkalite-cancelled-moves")];
        String::from_utf8(text.clone()).unwrap().lines().count() - 2
    };
    for expected in [1, 2] {
        world.move_to(TWO).unwrap();
        world.move_to(ONE).unwrap();
        assert_eq!(lines(), expected);
    }
    world.keep_house();
    world.move_to(TWO).unwrap();
    world.move_to(ONE).unwrap();
    assert_eq!(lines(), 1);
}
