//! The threads that follow a leader, which here is a socket that answers
//! what the test has it answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use kafkalite::image::{Broker, Endpoint};
use kafkalite::log::config::LogConfig;
use kafkalite::log::log::{Log, LogObserver};
use kafkalite::log::state::ends::LogOffsets;
use kafkalite::net::control::queue::ControlQueue;
use kafkalite::net::replication::{Fetchers, ReplicationSettings};
use kafkalite::node::{Claimed, MetadataDelta, Node, NodeOptions, TopicPlan};
use kafkalite::replica::follower::FollowerSettings;
use kafkalite::replica::park::{Parked, Wake};
use kafkalite::uuid::Uuid;
use parking_lot::Mutex;

use crate::follower::{Fetch, answer, led, part, settings};
use crate::log_directory::NOW_MS;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::faults::Operation;
use crate::node::{World, plan};

const WAIT: Duration = Duration::from_secs(60);
const LEADER: i32 = 2;
const SESSION: i32 = 5;

/// Each Fetch that comes, with the id of the client, and where its answer is put.
struct Leader {
    listener: TcpListener,
    fetches: Receiver<(String, Fetch)>,
    answers: Sender<Vec<u8>>,
}

impl Leader {
    /// Of several connections the first one that asks is answered first.
    fn start() -> Leader {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (asked, fetches) = channel();
        let (answers, told) = channel::<Vec<u8>>();
        let accepting = listener.try_clone().unwrap();
        let told = Arc::new(Mutex::new(told));
        thread::spawn(move || {
            for socket in accepting.incoming() {
                let (socket, asked, told) = (socket.unwrap(), asked.clone(), told.clone());
                // It ends when the follower, or the test, does.
                thread::spawn(move || drop(serve(socket, &asked, &told)));
            }
        });
        Leader {
            listener,
            fetches,
            answers,
        }
    }

    fn port(&self) -> i32 {
        i32::from(self.listener.local_addr().unwrap().port())
    }

    fn next(&self) -> (String, Fetch) {
        self.fetches.recv_timeout(WAIT).unwrap()
    }
}

fn serve(
    mut socket: TcpStream,
    asked: &Sender<(String, Fetch)>,
    told: &Mutex<Receiver<Vec<u8>>>,
) -> std::io::Result<()> {
    loop {
        let mut size = [0; 4];
        socket.read_exact(&mut size)?;
        let mut request = vec![0; usize::try_from(u32::from_be_bytes(size)).unwrap()];
        socket.read_exact(&mut request)?;
        let end = 10 + usize::from(u16::from_be_bytes([request[8], request[9]]));
        let client_id = String::from_utf8(request[10..end].to_vec()).unwrap();
        let body = match request[1] {
            // ApiVersions: no error, Fetch up to 18 and ListOffsets up to 7.
            18 => vec![
                0, 0, 3, 0, 1, 0, 4, 0, 18, 0, 0, 2, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0,
            ],
            _ => {
                asked
                    .send((client_id, Fetch::read(&request[end + 1..])))
                    .unwrap();
                let Ok(answer) = told.lock().recv() else {
                    return Ok(());
                };
                [&[0][..], &answer].concat()
            }
        };
        let content = [&request[4..8], &body].concat();
        socket.write_all(&u32::try_from(content.len()).unwrap().to_be_bytes())?;
        socket.write_all(&content)?;
    }
}

/// Node 1 follows broker 2, which is reached at this port.
fn follow(
    port: i32,
    partitions: &[(i32, i32, &[i32])],
) -> (World, Arc<Fetchers>, Arc<ControlQueue>) {
    follow_with(replication(), port, partitions)
}

fn follow_with(
    settings: ReplicationSettings,
    port: i32,
    partitions: &[(i32, i32, &[i32])],
) -> (World, Arc<Fetchers>, Arc<ControlQueue>) {
    let world = World::new(partitions);
    reach(&world, port);
    let control = Arc::new(ControlQueue::default());
    let fetchers = Fetchers::start(settings, &world.node, control.clone());
    (world, fetchers, control)
}

/// The fetcher waits for an answer as long as the test does, whatever it is to follow meanwhile.
fn patient() -> ReplicationSettings {
    let mut settings = replication();
    settings.follower.max_wait_ms = i32::try_from(WAIT.as_millis()).unwrap();
    settings
}

fn replication() -> ReplicationSettings {
    ReplicationSettings {
        follower: FollowerSettings {
            backoff_ms: 20,
            ..settings()
        },
        fetchers: 1,
        socket_timeout: WAIT,
        listener: 0,
    }
}

fn reach(world: &World, port: i32) {
    world.node.set_brokers(vec![broker_at(port)]);
}

fn broker_at(port: i32) -> Broker {
    Broker {
        node_id: LEADER,
        rack: None,
        endpoints: vec![Some(Endpoint {
            host: "127.0.0.1".to_owned(),
            port,
        })],
    }
}

fn end_offset(world: &World, index: i32) -> (i64, i64) {
    let topic = world.node.image().topic("t").unwrap().clone();
    let offsets = topic.replica(index).unwrap().log.offsets();
    (offsets.log_end_offset, offsets.flushed_offset)
}

struct Nobody;

impl Wake for Nobody {
    fn wake(&self, _parked: &[Parked]) {}
}

/// Each partition lies in a directory of its own.
fn in_two_directories(partitions: &[(i32, i32, &[i32])], ids: &[Uuid], epoch: i32) -> TopicPlan {
    let mut plan = plan(partitions, ids[0], epoch);
    for (partition, id) in plan.partitions.iter_mut().zip(ids) {
        partition.directories = vec![*id; partition.replicas.len()].into();
    }
    plan
}

/// The thread of a leader waited for the disks of all that it follows: while one did not answer,
/// the replicas on the others left the in-sync ones, too.
#[test]
fn a_directory_that_does_not_answer_holds_up_its_own_replicas_only() {
    let storage = MemoryStorage::default();
    let options = NodeOptions {
        node_id: 1,
        cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        paths: vec!["/one".into(), "/two".into()],
        metadata_path: "/one".into(),
        recovery_threads: 1,
        flush_threads: 1,
        open_segments_max: 16,
        now_ms: NOW_MS,
    };
    let claimed = Claimed::open_in(Arc::new(storage.clone()), options).unwrap();
    let ids = claimed.place(2);
    let before = in_two_directories(&[(LEADER, 4, &[1, 2]), (1, 4, &[1, 2])], &ids, 0);
    let node = Node::load(claimed, &[before], Arc::new(Nobody)).unwrap();
    let node = Arc::new(node.node);
    let leader = Leader::start();
    node.set_brokers(vec![broker_at(leader.port())]);
    let control = Arc::new(ControlQueue::default());
    let fetchers = Fetchers::start(replication(), &node, control.clone());

    let (stuck, _) = leader.next();
    let (is_held, held) = channel();
    let (let_go, until) = channel::<()>();
    storage.before(Operation::SyncData, "t-0/0", move || {
        is_held.send(()).unwrap();
        // An error: the test has failed.
        let _ = until.recv();
    });
    let told = answer(0, SESSION, &[part(0, 0, led(0, 5, 4))]);
    leader.answers.send(told).unwrap();
    held.recv_timeout(WAIT).unwrap();

    let changed = in_two_directories(&[(LEADER, 4, &[1, 2]), (LEADER, 5, &[1, 2])], &ids, 1);
    let (deleted, changed) = (&[][..], &[changed][..]);
    node.publish(MetadataDelta { deleted, changed }).unwrap();
    for asked in [0, 5, 10] {
        let (going, fetch) = leader.next();
        assert_ne!(going, stuck);
        assert_eq!(fetch.wanted[&1].1, asked);
        if asked < 10 {
            let told = answer(0, SESSION, &[part(1, asked, led(asked, 5, 5))]);
            leader.answers.send(told).unwrap();
        }
    }
    drop(let_go);
    let (late, fetch) = leader.next();
    assert_eq!((late, fetch.wanted[&0].1), (stuck, 5));
    fetchers.stop();
    node.close(1);
}

#[test]
fn a_fetch_offset_says_what_is_on_disk() {
    let leader = Leader::start();
    let (world, fetchers, _control) = follow(leader.port(), &[(LEADER, 4, &[1, 2])]);
    world.node.set_topic_config("t", &LogConfig::default());
    for round in 0..5 {
        let (client_id, fetch) = leader.next();
        assert_eq!(client_id, "broker-1-fetcher-0");
        let asked = round * 5;
        let last_epoch = if round == 0 { -1 } else { 4 };
        assert_eq!(fetch.wanted[&0], (4, asked, last_epoch, 0));
        assert_eq!(end_offset(&world, 0), (asked, asked));
        // It has what is committed, so that all that comes counts.
        let records = led(asked, 5, 4);
        let told = answer(0, SESSION, &[part(0, asked, records)]);
        leader.answers.send(told).unwrap();
    }
    leader.next();
    fetchers.stop();
    world.node.close(1);
}

#[test]
fn a_leader_that_is_lost_is_named_once_and_asked_anew() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = i32::from(gone.local_addr().unwrap().port());
    drop(gone);
    let (world, fetchers, control) = follow(port, &[(LEADER, 4, &[1, 2]), (LEADER, 4, &[1, 2])]);
    let told = control.take(Some(WAIT)).unwrap().notices.warnings;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("partition(s) cannot be replicated from broker 2"),
        "{told:?}"
    );
    // Its endpoint is another one by now.
    let leader = Leader::start();
    reach(&world, leader.port());
    let (_, fetch) = leader.next();
    assert_eq!(fetch.wanted.len(), 2);
    fetchers.stop();
    world.node.close(1);
}

/// Where a process may have no more threads, a leader's partitions were followed by nobody
/// until the metadata changed.
#[test]
fn a_fetcher_that_got_no_thread_is_started_by_a_later_sweep() {
    let leader = Leader::start();
    let world = World::new(&[(LEADER, 4, &[1, 2]), (LEADER, 4, &[1, 2])]);
    reach(&world, leader.port());
    let control = Arc::new(ControlQueue::default());
    let (has_room, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (room, count) = (has_room.clone(), asked.clone());
    let fetchers = Fetchers::start_by(
        replication(),
        &world.node,
        control.clone(),
        Box::new(move |thread, work| {
            count.fetch_add(1, Ordering::SeqCst);
            if room.load(Ordering::SeqCst) {
                return thread.spawn(work);
            }
            Err(std::io::ErrorKind::WouldBlock.into())
        }),
    );
    for _ in 0..3 {
        world.node.sweep_in_sync_replicas(0);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    has_room.store(true, Ordering::SeqCst);
    world.node.sweep_in_sync_replicas(0);
    // Both partitions have waited, and a thread that runs is not started again.
    assert_eq!(leader.next().1.wanted.len(), 2);
    world.node.sweep_in_sync_replicas(0);
    assert_eq!(asked.load(Ordering::SeqCst), 5);
    let told = control.take(Some(WAIT)).unwrap().notices.errors;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("what broker 2 leads is not replicated until there is a thread"),
        "{told:?}"
    );
    fetchers.stop();
    world.node.close(1);
}

#[test]
fn a_partition_that_this_node_leads_by_now_is_not_fetched() {
    let leader = Leader::start();
    let partitions: &[(i32, i32, &[i32])] = &[(LEADER, 4, &[1, 2]), (LEADER, 4, &[1, 2])];
    let (world, fetchers, _control) = follow_with(patient(), leader.port(), partitions);
    assert_eq!(leader.next().1.wanted.len(), 2);
    world.publish(&[(1, 5, &[1, 2]), (LEADER, 4, &[1, 2])]);
    let both = [part(0, 0, led(0, 5, 4)), part(1, 0, led(0, 5, 4))];
    leader.answers.send(answer(0, SESSION, &both)).unwrap();
    let (_, fetch) = leader.next();
    assert_eq!(fetch.wanted.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!((end_offset(&world, 0).0, end_offset(&world, 1).0), (0, 5));
    fetchers.stop();
    world.node.close(1);
}

/// Has node 1 elected as soon as five records are in its log, before whoever appends them goes on,
/// and tells how far the log is flushed from then on.
struct ElectedMeanwhile {
    world: Mutex<Option<Arc<World>>>,
    flushed: Sender<i64>,
}

impl LogObserver for ElectedMeanwhile {
    fn advanced(&self, log: &Log, offsets: LogOffsets) {
        if offsets.log_end_offset == 5
            && let Some(world) = self.world.lock().take()
        {
            world.publish(&[(1, 5, &[1, 2])]);
            log.set_observer(Arc::new(ElectedMeanwhile {
                world: Mutex::default(),
                flushed: self.flushed.clone(),
            }));
        }
        // Nobody listens once the test has ended.
        let _ = self.flushed.send(offsets.flushed_offset);
    }
}

/// They were on no disk until something else was appended: the new leader's high watermark stood
/// below its epoch, and who asked for the latest offset was put off for ever.
#[test]
fn records_that_came_just_before_an_election_are_flushed() {
    let leader = Leader::start();
    let (world, fetchers, _control) =
        follow_with(patient(), leader.port(), &[(LEADER, 4, &[1, 2])]);
    let world = Arc::new(world);
    let topic = world.node.image().topic("t").unwrap().clone();
    let log = topic.replica(0).unwrap().log.clone();
    let (flushed, told) = channel();
    log.set_observer(Arc::new(ElectedMeanwhile {
        world: Mutex::new(Some(world.clone())),
        flushed,
    }));
    leader.next();
    let records = answer(0, SESSION, &[part(0, 0, led(0, 5, 4))]);
    leader.answers.send(records).unwrap();
    while told.recv_timeout(WAIT).unwrap() != 5 {}
    assert_eq!(log.leading_epoch(), 5);
    fetchers.stop();
    world.node.close(1);
}

/// What was assigned waited for the answer of a leader that was silent,
/// `replica.socket.timeout.ms` long.
#[test]
fn a_connection_that_is_dead_does_not_keep_what_is_new_waiting() {
    let leader = Leader::start();
    let partitions: &[(i32, i32, &[i32])] = &[(LEADER, 4, &[1, 2]), (1, 4, &[1, 2])];
    let (world, fetchers, _control) = follow(leader.port(), partitions);
    assert_eq!(leader.next().1.wanted.len(), 1);
    let began = Instant::now();
    world.publish(&[(LEADER, 4, &[1, 2]), (LEADER, 5, &[1, 2])]);
    assert_eq!(leader.next().1.wanted.len(), 2);
    assert!(began.elapsed() < WAIT / 2);
    fetchers.stop();
    world.node.close(1);
}

#[test]
fn a_replica_that_leaves_the_in_sync_ones_of_a_stopping_node_is_fetched_no_more() {
    let leader = Leader::start();
    let partitions: &[(i32, i32, &[i32])] = &[(LEADER, 4, &[1, 2]), (LEADER, 4, &[1, 2])];
    let (world, fetchers, _control) = follow(leader.port(), partitions);
    assert_eq!(leader.next().1.wanted.len(), 2);
    world.publish_in_sync(partitions, &[&[2], &[1, 2]]);
    leader.answers.send(answer(0, SESSION, &[])).unwrap();
    // While it does not stop, it comes back.
    assert_eq!(leader.next().1.wanted.len(), 0);
    world.node.begin_controlled_shutdown();
    world.publish_in_sync(partitions, &[&[2], &[1, 2]]);
    let both = [part(0, 0, led(0, 5, 4)), part(1, 0, led(0, 5, 4))];
    leader.answers.send(answer(0, SESSION, &both)).unwrap();
    let (_, fetch) = leader.next();
    assert_eq!(fetch.wanted.keys().copied().collect::<Vec<_>>(), [1]);
    fetchers.stop();
    world.node.close(1);
}

/// A stop would wait for the answer of a leader that is silent, half a minute.
#[test]
fn a_stop_does_not_wait_for_a_leader() {
    let leader = Leader::start();
    let (world, fetchers, _control) = follow(leader.port(), &[(LEADER, 4, &[1, 2])]);
    leader.next();
    let began = Instant::now();
    fetchers.stop();
    assert!(began.elapsed() < WAIT / 2);
    world.node.close(1);
}
