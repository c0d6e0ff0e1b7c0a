//! The threads that replicate partitions from the brokers that lead them.
//!
//! ```text
//! Node::publish ── assign, remove ──► Fetchers ──► inbox of (leader, number) ──► its thread: fetcher.rs
//!                                                                               session ⇄ connection
//! ```
//!
//! A leader has `num.replica.fetchers` threads for each log directory, over which its partitions
//! there are spread, each with a connection and a fetch session of its own. A thread waits for the
//! disk before it asks for more: one that served two directories would keep the replicas of both
//! out of the in-sync ones while either does not answer. Where a replica moves, it stays with its
//! thread until its next leader epoch: two threads must not follow in one. A thread that has
//! nothing left to follow ends, and is started anew when it is wanted. No Python is in the way of a
//! fetch. Kafka: `AbstractFetcherManager`, `ReplicaFetcherManager`.

mod fetcher;
mod inbox;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ahash::RandomState;
use parking_lot::Mutex;

use crate::crash::or_end_process;
use crate::limits::FETCHER_STOP_WAIT;
use crate::log::directory::LogDirectory;
use crate::net::connection::Address;
use crate::net::control::queue::ControlQueue;
use crate::node::Node;
use crate::replica::follower::{Assignment, Followers};
use crate::uuid::Uuid;
pub use fetcher::ReplicationSettings;
use fetcher::{Fetcher, Surroundings};
use inbox::Inbox;

/// A leader and the number of a fetcher of it.
type Place = (i32, usize);

#[derive(Default)]
struct Running {
    fetchers: HashMap<Place, Arc<Inbox>>,
    /// The directories that hold following replicas, in the order in which they came up.
    directories: Vec<Arc<LogDirectory>>,
    /// Where each partition is followed, by topic id and index.
    places: HashMap<(Uuid, i32), Place, RandomState>,
    threads: Vec<JoinHandle<()>>,
    /// The places whose thread could not be started.
    without_thread: BTreeSet<Place>,
    is_stopped: bool,
}

impl Running {
    /// The number of a directory here.
    fn number_of(&mut self, directory: &Arc<LogDirectory>) -> usize {
        let is_its = |known: &Arc<LogDirectory>| Arc::ptr_eq(known, directory);
        let known = self.directories.iter().position(is_its);
        known.unwrap_or_else(|| {
            self.directories.push(directory.clone());
            self.directories.len() - 1
        })
    }
}

/// Starts a thread, of which the system may have none to give.
pub type StartThread = dyn Fn(thread::Builder, Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>
    + Send
    + Sync;

/// See the module.
pub struct Fetchers {
    settings: ReplicationSettings,
    node: Weak<Node>,
    control: Arc<ControlQueue>,
    running: Mutex<Running>,
    spawn: Box<StartThread>,
    /// Itself, for its threads.
    this: Weak<Fetchers>,
}

impl Fetchers {
    /// Has the replicas of `node` follow their leaders from now on, until `stop`.
    pub fn start(
        settings: ReplicationSettings,
        node: &Arc<Node>,
        control: Arc<ControlQueue>,
    ) -> Arc<Fetchers> {
        let spawn = Box::new(|thread: thread::Builder, work| thread.spawn(work));
        Fetchers::start_by(settings, node, control, spawn)
    }

    /// As `start`, with threads that `spawn` starts.
    pub fn start_by(
        settings: ReplicationSettings,
        node: &Arc<Node>,
        control: Arc<ControlQueue>,
        spawn: Box<StartThread>,
    ) -> Arc<Fetchers> {
        let fetchers = Arc::new_cyclic(|this| Fetchers {
            settings,
            node: Arc::downgrade(node),
            control,
            running: Mutex::default(),
            spawn,
            this: this.clone(),
        });
        node.set_followers(fetchers.clone());
        fetchers
    }

    /// Ends all threads: what they have of an answer goes into the logs, and
    /// nothing is asked any more.
    pub fn stop(&self) {
        let threads = {
            let mut running = self.running.lock();
            running.is_stopped = true;
            for inbox in running.fetchers.values() {
                inbox.stop();
            }
            std::mem::take(&mut running.threads)
        };
        let due = Instant::now() + FETCHER_STOP_WAIT;
        for each in threads {
            while !each.is_finished() && Instant::now() < due {
                thread::sleep(Duration::from_millis(1));
            }
            if each.is_finished() {
                // None of them panics (`crash.rs`).
                let _ = each.join();
            }
        }
    }

    /// Where a broker is reached by others, if it is alive and has the listener.
    fn address_of(&self, leader_id: i32) -> Option<Address> {
        let image = self.node.upgrade()?.image();
        let (_, endpoint) = image.reachable(leader_id, self.settings.listener)?;
        Some((endpoint.host.clone(), u16::try_from(endpoint.port).ok()?))
    }

    /// The fetcher of a leader that follows a partition.
    fn place_of(&self, running: &mut Running, assignment: &Assignment) -> Place {
        let fetchers = self.settings.fetchers.max(1);
        let bytes = assignment.topic_id.0.iter();
        let of_topic = bytes.fold(0_usize, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
        });
        let index = usize::try_from(assignment.partition.index).unwrap_or(0);
        let number = of_topic.wrapping_add(index) % fetchers;
        let directory = running.number_of(assignment.partition.directory());
        (assignment.leader_id, directory * fetchers + number)
    }

    /// Has a fetcher follow these from its next request on, all of them.
    fn assign_to(&self, running: &mut Running, place: Place, assigned: Vec<Assignment>) {
        if let Some(known) = running.fetchers.get(&place) {
            return known.assign(assigned);
        }
        let inbox = Arc::new(Inbox::default());
        inbox.assign(assigned);
        running.fetchers.insert(place, inbox.clone());
        self.start_thread(running, place, &inbox);
    }

    /// Starts the thread of a fetcher; where that cannot be, it is tried again from time to time
    /// (`look_again`), and what is to be followed waits in its inbox.
    fn start_thread(&self, running: &mut Running, place: Place, inbox: &Arc<Inbox>) {
        let Some(fetchers) = self.this.upgrade() else {
            return;
        };
        let around = Around {
            fetchers,
            place,
            inbox: inbox.clone(),
        };
        let (of_thread, settings) = (inbox.clone(), self.settings.clone());
        let name = format!("fetch-{}-{}", place.0, place.1);
        let work = move || {
            let around = Box::new(around);
            or_end_process(|| Fetcher::new(settings, place, of_thread, around).run());
        };
        match (self.spawn)(thread::Builder::new().name(name), Box::new(work)) {
            Ok(thread) => {
                running.threads.retain(|each| !each.is_finished());
                running.threads.push(thread);
                running.without_thread.remove(&place);
            }
            Err(error) => {
                if running.without_thread.insert(place) {
                    self.control.notice(format!(
                        "what broker {} leads is not replicated until there is a thread for it, which is \
                         tried again every half of replica.lag.time.max.ms: {error} (are there limits of \
                         processes, such as ulimit -u or TasksMax?)",
                        place.0
                    ));
                }
            }
        }
    }

    /// Takes a fetcher that has nothing to follow out of use. False: something has come meanwhile.
    fn retire(&self, place: Place, inbox: &Arc<Inbox>) -> bool {
        let mut running = self.running.lock();
        if !inbox.is_empty() {
            return false;
        }
        let is_its = |known: &Arc<Inbox>| Arc::ptr_eq(known, inbox);
        if running.fetchers.get(&place).is_some_and(is_its) {
            running.fetchers.remove(&place);
        }
        true
    }
}

impl Followers for Fetchers {
    fn assign(&self, assigned: Vec<Assignment>, removed: Vec<(Uuid, i32)>) {
        let mut running = self.running.lock();
        if running.is_stopped {
            return;
        }
        for key in removed {
            if let Some(place) = running.places.remove(&key)
                && let Some(inbox) = running.fetchers.get(&place)
            {
                inbox.remove(key);
            }
        }
        let mut by_place: BTreeMap<Place, Vec<Assignment>> = BTreeMap::new();
        for assignment in assigned {
            let key = (assignment.topic_id, assignment.partition.index);
            let place = self.place_of(&mut running, &assignment);
            if let Some(before) = running.places.insert(key, place)
                && before != place
                && let Some(inbox) = running.fetchers.get(&before)
            {
                inbox.remove(key);
            }
            by_place.entry(place).or_default().push(assignment);
        }
        for (place, assigned) in by_place {
            self.assign_to(&mut running, place, assigned);
        }
    }

    fn look_again(&self) {
        let mut running = self.running.lock();
        for place in running.without_thread.clone() {
            if let Some(inbox) = running.fetchers.get(&place).cloned()
                && !running.is_stopped
            {
                self.start_thread(&mut running, place, &inbox);
            }
        }
    }

    fn brokers_changed(&self) {
        for inbox in self.running.lock().fetchers.values() {
            inbox.wake();
        }
    }
}

/// Fetchers around one of them.
struct Around {
    fetchers: Arc<Fetchers>,
    place: Place,
    inbox: Arc<Inbox>,
}

impl Surroundings for Around {
    fn address(&self) -> Option<Address> {
        self.fetchers.address_of(self.place.0)
    }

    fn retire(&self) -> bool {
        self.fetchers.retire(self.place, &self.inbox)
    }

    fn warn(&self, sentence: String) {
        self.fetchers.control.warn(sentence);
    }
}
