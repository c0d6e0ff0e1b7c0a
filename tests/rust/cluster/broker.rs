//! A broker: a disk, and a process on it that is killed and started again. The process is the
//! engine (`Node`, its logs, its replicas); what its network threads and its control thread
//! are otherwise is played by `membership.rs`, `serving.rs`, `fetcher.rs`, and here for
//! timers and AlterPartition.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use kafkalite::api::fetch_sessions::FetchSessions;
use kafkalite::clock::Now;
use kafkalite::error::Error;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::directory::meta_properties::{META_PROPERTIES_FILE, MetaProperties};
use kafkalite::node::{Claimed, Node, NodeOptions};
use kafkalite::replica::Partition;
use kafkalite::replica::park::{Parked, Wake};
use kafkalite::uuid::Uuid;
use parking_lot::Mutex;

use super::bytes::TOPIC;
use super::fetcher::Fetcher;
use super::membership::CONTROLLER_MS;
use super::plan::Plan;
use super::seam::{self, Asked};
use super::serving::Waiting;
use super::world::{CONTROLLER, World};
use crate::log_directory::NOW_MS;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;

const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

pub struct Broker {
    pub id: i32,
    pub storage: MemoryStorage,
    paths: Vec<PathBuf>,
    metadata_path: PathBuf,
    /// The file `kafkalite-broker-epoch`: what is on disk is what the process of
    /// this epoch had acknowledged.
    pub stored_epoch: i64,
    /// Counts processes and their ends: an event of another one is dropped.
    pub life: u64,
    pub process: Option<Process>,
    pub paused_until_ms: i64,
    /// Its clock is so much ahead.
    pub clock_ms: i64,
}

pub struct Process {
    pub claimed: Option<Claimed>,
    /// `None` until the metadata has been caught up with.
    pub node: Option<Arc<Node>>,
    pub sessions: FetchSessions,
    pub woken: Arc<Woken>,
    pub broker_epoch: i64,
    pub previous_broker_epoch: i64,
    /// The metadata that is in force.
    pub version: i64,
    pub wants_stop: bool,
    pub is_fenced: bool,
    pub fetchers: BTreeMap<i32, Fetcher>,
    pub waiting: BTreeMap<u64, Waiting>,
    pub slots: u64,
    /// Partitions of which a flush is due.
    pub flushes: BTreeSet<usize>,
    /// The log directories of replicas, of which the controller was told last.
    pub places: BTreeMap<usize, Uuid>,
    isr_queue: VecDeque<Asked>,
    isr_is_asked: bool,
    /// What was asked last for each partition.
    asked: BTreeMap<usize, Asked>,
}

impl Process {
    /// The in-sync replicas that a leader has proposed in these epochs.
    pub fn proposed(
        &self,
        index: usize,
        leader_epoch: i32,
        partition_epoch: i32,
    ) -> Option<Vec<i32>> {
        let request = self.asked.get(&index)?.request(0, 0);
        let is_its =
            (request.leader_epoch, request.partition_epoch) == (leader_epoch, partition_epoch);
        is_its.then(|| request.isr.iter().map(|(id, _)| *id).collect())
    }
}

/// Slots of requests that may go on.
#[derive(Default)]
pub struct Woken(pub Mutex<Vec<u64>>);

impl Wake for Woken {
    fn wake(&self, parked: &[Parked]) {
        let of_requests = parked.iter().filter(|each| each.thread == 0);
        self.0.lock().extend(of_requests.map(|each| each.slot));
    }
}

impl Broker {
    pub fn new(id: i32, plan: &Plan) -> Broker {
        let has_two = plan.has_two_directories();
        let names: &[&str] = if has_two {
            &["/m", "/a", "/b"]
        } else {
            &["/a"]
        };
        let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        let identity = |number| MetaProperties {
            version: 1,
            cluster_id: Some(CLUSTER_ID.to_owned()),
            node_id: Some(id),
            directory_id: Some(directory_id(number)),
        };
        let files = paths.iter().enumerate().map(|(number, path)| {
            let text = identity(number).print(NOW_MS).into_bytes();
            (path.join(META_PROPERTIES_FILE), text)
        });
        let files: Vec<(PathBuf, Vec<u8>)> = files.collect();
        let files = files
            .iter()
            .map(|(path, text)| (path.as_path(), text.as_slice()));
        Broker {
            id,
            storage: MemoryStorage::with_files(files),
            metadata_path: paths[0].clone(),
            paths: if has_two { paths[1..].to_vec() } else { paths },
            stored_epoch: -1,
            life: 0,
            process: None,
            paused_until_ms: 0,
            clock_ms: 0,
        }
    }

    fn options(&self, now_ms: i64) -> NodeOptions {
        NodeOptions {
            node_id: self.id,
            cluster_id: CLUSTER_ID.to_owned(),
            paths: self.paths.clone(),
            metadata_path: self.metadata_path.clone(),
            recovery_threads: 1,
            flush_threads: 1,
            open_segments_max: 64,
            now_ms,
        }
    }

    pub fn node(&self) -> Option<&Arc<Node>> {
        self.process.as_ref()?.node.as_ref()
    }

    /// Its replica of a partition, as it is published.
    pub fn replica(&self, index: usize) -> Option<Arc<Partition>> {
        let topic = self.node()?.image().topic(TOPIC)?.clone();
        topic.replica(index as i32).cloned()
    }
}

/// Partitions lie in the directories by turns.
pub fn directory_id(number: usize) -> Uuid {
    Uuid([100 + number as u8; 16])
}

impl World {
    pub fn broker(&mut self, id: i32) -> &mut Broker {
        self.brokers.get_mut(&id).expect("a broker of the plan")
    }

    pub fn process(&mut self, id: i32) -> Option<&mut Process> {
        self.broker(id).process.as_mut()
    }

    /// The time as a broker's clock has it.
    pub fn clock_of(&self, id: i32) -> i64 {
        NOW_MS + self.now_ms + self.brokers[&id].clock_ms
    }

    /// Both clocks of a broker, of which one is never set back.
    pub fn now_of(&self, id: i32) -> Now {
        Now {
            wall_ms: self.clock_of(id),
            monotonic_ms: self.now_ms,
        }
    }

    // --- life and death
    // ---------------------------------------------------------------------------

    pub fn start_broker(&mut self, id: i32) {
        let now_ms = self.clock_of(id);
        let is_durable = self.plan.is_durable;
        let broker = self.broker(id);
        if broker.process.is_some() {
            return;
        }
        broker.life += 1;
        let options = broker.options(now_ms);
        let claimed = Claimed::open_in(Arc::new(broker.storage.clone()), options).unwrap();
        let directories = claimed.directories();
        let was_clean = directories.iter().all(|each| each.was_clean());
        let left_epoch = directories[0].previous_broker_epoch();
        let previous_broker_epoch = match (was_clean, is_durable) {
            (true, _) => left_epoch.unwrap_or(-1),
            (false, true) => broker.stored_epoch,
            (false, false) => -1,
        };
        let seed = broker.life * 100 + id as u64;
        broker.process = Some(Process {
            claimed: Some(claimed),
            node: None,
            sessions: FetchSessions::new(1_000, seed),
            woken: Arc::default(),
            broker_epoch: -1,
            previous_broker_epoch,
            version: -1,
            wants_stop: false,
            is_fenced: true,
            fetchers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            slots: 0,
            flushes: BTreeSet::new(),
            places: BTreeMap::new(),
            isr_queue: VecDeque::new(),
            isr_is_asked: false,
            asked: BTreeMap::new(),
        });
        self.note(|| format!("broker {id} starts, previous broker epoch {previous_broker_epoch}"));
        self.register(id);
    }

    /// The process is gone at once; another one starts a while later.
    pub fn kill(&mut self, id: i32, crash: Crash) {
        let broker = self.broker(id);
        if broker.process.is_none() {
            return;
        }
        broker.storage = broker.storage.crash(crash);
        self.note(|| format!("broker {id} ends: {crash:?}"));
        self.see(if crash == Crash::Kill {
            "kill"
        } else {
            "power cut"
        });
        self.end_process(id);
    }

    fn end_process(&mut self, id: i32) {
        let broker = self.broker(id);
        broker.process = None;
        broker.life += 1;
        broker.paused_until_ms = 0;
        let pause_ms = if self.chance(300) {
            self.draw(10, 100)
        } else {
            self.draw(100, 4_000)
        };
        self.after(pause_ms, id, move |world| world.start_broker(id));
    }

    /// The broker asks the controller for leave to stop.
    pub fn begin_stop(&mut self, id: i32) {
        if let Some(process) = self.process(id)
            && process.node.is_some()
        {
            process.wants_stop = true;
            self.note(|| format!("broker {id} wants to stop"));
        }
    }

    pub fn stop(&mut self, id: i32) {
        let Some(process) = self.process(id) else {
            return;
        };
        let broker_epoch = process.broker_epoch;
        if let Some(node) = &process.node {
            node.close(broker_epoch);
        }
        // What it flushes last may be committed by that.
        self.check();
        // Steps that are due hold the lock still.
        let broker = self.broker(id);
        broker.storage = broker.storage.crash(Crash::Kill);
        self.note(|| format!("broker {id} has stopped"));
        self.see("controlled stop");
        self.end_process(id);
    }

    /// A directory with replicas fails; the broker goes on until it is started again.
    pub fn fail_directory(&mut self, id: i32) {
        let which = self.random.below(2) as usize;
        let directories = self
            .broker(id)
            .node()
            .map(|node| node.directories().to_vec());
        let Some(directory) = directories.and_then(|all| all.get(which).cloned()) else {
            return;
        };
        self.note(|| format!("{} of broker {id} fails", directory.path().display()));
        self.see("directory failure");
        directory.health().fail(&Error::LoadStopped);
        let node = self.broker(id).node().expect("it runs");
        if node.directories().iter().all(is_offline) {
            return self.kill(id, Crash::Kill);
        }
        let pause_ms = self.draw(500, 4_000);
        self.after(pause_ms, id, move |world| world.kill(id, Crash::Kill));
    }

    /// Whoever stands still goes on, whoever is dead starts, whoever has a failed
    /// disk gets another process.
    pub fn heal(&mut self) {
        for id in 1..=self.plan.brokers {
            self.broker(id).paused_until_ms = 0;
            let node = self.broker(id).node();
            if node.is_some_and(|node| node.directories().iter().any(is_offline)) {
                self.kill(id, Crash::Kill);
            }
            self.start_broker(id);
        }
    }

    // --- timers
    // -----------------------------------------------------------------------------------

    pub fn sweep(&mut self, id: i32) {
        let now_ms = self.clock_of(id);
        if let Some(node) = self.broker(id).node() {
            seam::sweep(node, now_ms);
        }
        self.after(self.plan.lag_ms / 2, id, move |world| world.sweep(id));
    }

    pub fn checkpoint(&mut self, id: i32) {
        let now_ms = self.clock_of(id);
        if let Some(node) = self.broker(id).node() {
            for directory in node.directories() {
                let written = directory.write_checkpoints();
                assert!(
                    written.is_ok() || is_offline(directory),
                    "{:?}",
                    written.err()
                );
                for log in directory.logs() {
                    let deleted = log.delete_old_segments(now_ms);
                    assert!(
                        deleted.is_ok() || is_offline(directory),
                        "{:?}",
                        deleted.err()
                    );
                }
                let removed = directory.remove_condemned(now_ms);
                assert!(
                    removed.is_ok() || is_offline(directory),
                    "{:?}",
                    removed.err()
                );
            }
        }
        self.after(self.plan.checkpoint_ms, id, move |world| {
            world.checkpoint(id)
        });
    }

    // --- AlterPartition
    // ---------------------------------------------------------------------------

    /// What the leaders of a broker want of the controller is asked, one request at a time.
    pub fn take_isr_changes(&mut self, id: i32) {
        let Some(process) = self.process(id) else {
            return;
        };
        if let Some(node) = &process.node {
            for change in seam::take_isr_changes(node) {
                process.asked.insert(change.partition(), change.clone());
                process.isr_queue.push_back(change);
            }
        }
        if !process.isr_is_asked && !process.isr_queue.is_empty() {
            process.isr_is_asked = true;
            let asked: Vec<Asked> = process.isr_queue.drain(..).collect();
            self.ask_isr_changes(id, asked);
        }
    }

    fn ask_isr_changes(&mut self, id: i32, asked: Vec<Asked>) {
        for each in &asked {
            let sentence = format!("broker {id} proposes {each}");
            self.note(|| sentence);
        }
        let broker_epoch = self.process(id).expect("alive").broker_epoch;
        let requests: Vec<_> = asked
            .iter()
            .map(|each| each.request(id, broker_epoch))
            .collect();
        self.call(
            (id, CONTROLLER),
            CONTROLLER_MS,
            move |world, reply| {
                let controller = &mut world.controller;
                let answers = requests.iter().map(|each| controller.alter_partition(each));
                let answers = answers.collect::<Vec<_>>();
                let codes: Vec<i16> = answers.iter().map(|each| each.error_code).collect();
                let sentence = format!("the controller answers broker {id} {codes:?}");
                world.note(|| sentence);
                reply(world, answers);
            },
            move |world, answers| {
                let Some(answers) = answers else {
                    return world.after(50, id, move |world| world.ask_isr_changes(id, asked));
                };
                world.process(id).expect("alive").isr_is_asked = false;
                let node = world.broker(id).node().expect("it leads");
                let mut joined = 0;
                for (each, answer) in asked.into_iter().zip(answers) {
                    joined += usize::from(answer.isr.len() > 1);
                    seam::settle(node, each, &answer);
                }
                if joined > 0 {
                    world.see("joined the ISR");
                }
            },
        );
    }

    /// What an event has set in motion: requests that may go on, proposals, metadata
    /// that somebody waits for.
    pub fn settle(&mut self) {
        let version = self.controller.version();
        let waits = |(known, _): &(i64, _)| *known >= version;
        let (wait, due): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pulls).into_iter().partition(waits);
        self.pulls = wait;
        for (_, reply) in due {
            reply(self, version);
        }
        for id in 1..=self.plan.brokers {
            self.wake_requests(id);
            self.take_isr_changes(id);
        }
    }
}

pub fn is_offline(directory: &Arc<LogDirectory>) -> bool {
    directory.health().is_offline()
}
