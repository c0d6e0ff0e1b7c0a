//! The data plane as a whole: network threads, what they share, start and stop.

use std::fmt::Display;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::admission::{Admission, ConnectionLimits};
use super::budget::{ReceiveBudget, memory_bytes};
use super::control::{ControlAnswer, ControlQueue};
use super::gate::Gates;
use super::poller::WakeUp;
use super::reactor::Reactor;
use super::seat::{Seat, Threads, Watch};
use super::work::Done;
use crate::access::{AllowAll, Authorizer};
use crate::api::fetch_sessions::FetchSessions;
use crate::api::{ApiKey, HOT_KEYS};
use crate::clock::wall_ms;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::limits::STOP_WAIT_MS;
use crate::log::housekeeper::{CleanerSettings, Intervals};
use crate::node::{Node, random_u64};
use crate::park::{Parked, Wake};
use crate::quota::{Quotas, Unlimited};
use crate::wire::frame;

/// Settings of the data plane; the names of Kafka's keys are in `python/kafkalite/config/`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `num.network.threads`
    pub network_threads: usize,
    /// `kafkalite.busy.poll.us`
    pub busy_poll: Duration,
    /// `socket.request.max.bytes`
    pub request_bytes_max: usize,
    /// Of an answer; who asks for a larger one is closed.
    pub answer_bytes_max: i32,
    /// Names of the listeners, in their order.
    pub listener_names: Vec<Arc<str>>,
    pub connections: ConnectionLimits,
    /// `queued.max.request.bytes`; not positive: a share of the memory.
    pub queued_bytes_max: i64,
    /// `connections.max.idle.ms`
    pub idle_ms_max: u64,
    /// `fetch.max.bytes`
    pub fetch_bytes_max: u64,
    /// `max.incremental.fetch.session.cache.slots`
    pub fetch_sessions_max: usize,
    /// `auto.create.topics.enable`
    pub auto_create_topics: bool,
    /// How often the logs are looked after.
    pub intervals: Intervals,
    pub cleaner: CleanerSettings,
}

/// The search for the connection that has been used least recently, which goes from thread to thread.
#[derive(Clone, Copy, Default)]
pub struct Excess {
    /// Threads that have said theirs.
    pub looked: usize,
    /// When it was used, and whose it is.
    pub oldest: Option<(u64, usize)>,
}

/// What a network thread is told from outside.
pub enum Message {
    Accepted {
        stream: TcpStream,
        peer: SocketAddr,
        listener: usize,
    },
    /// A parked request may go on.
    Woken(Parked),
    /// Python's answer.
    Control(Parked, ControlAnswer),
    /// What became of a storage call.
    Done(Done),
    /// A connection was closed for which a listener waits, or there may be more than before.
    Room,
    /// There may be more connections than the broker may have.
    Excess(Excess),
    /// Those that wait for memory may ask again.
    Memory,
    Stop,
    #[cfg(test)]
    Panic,
}

/// Messages for one thread; posting wakes it if it has left the box empty to wait for its sockets.
pub struct Mailbox {
    messages: Mutex<Vec<Message>>,
    is_left: AtomicBool,
    pub wake_up: WakeUp,
}

impl Mailbox {
    fn new() -> std::io::Result<Mailbox> {
        Ok(Mailbox {
            messages: Mutex::default(),
            is_left: AtomicBool::new(false),
            wake_up: WakeUp::new()?,
        })
    }

    fn post(&self, further: impl IntoIterator<Item = Message>) {
        self.messages.lock().extend(further);
        if self.is_left.swap(false, Ordering::Relaxed) {
            self.wake_up.wake();
        }
    }

    /// Before the thread waits for its sockets. True: there is nothing, and who posts from now on until
    /// `take` wakes it.
    pub fn is_left_empty(&self) -> bool {
        // The lock orders this and the look at it: either the message is seen here, or this there.
        self.is_left.store(true, Ordering::Relaxed);
        self.messages.lock().is_empty()
    }

    pub fn take(&self) -> Vec<Message> {
        self.is_left.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.messages.lock())
    }
}

/// The mailboxes of all network threads, and the queue of the control thread: what wakes whoever is
/// parked.
pub struct Mailboxes {
    threads: Vec<Mailbox>,
    pub control: ControlQueue,
}

impl Mailboxes {
    pub fn new(count: usize) -> std::io::Result<Arc<Mailboxes>> {
        let threads = (0..count.max(1)).map(|_| Mailbox::new());
        Ok(Arc::new(Mailboxes {
            threads: threads.collect::<std::io::Result<_>>()?,
            control: ControlQueue::default(),
        }))
    }
}

impl std::ops::Deref for Mailboxes {
    type Target = [Mailbox];
    fn deref(&self) -> &[Mailbox] {
        &self.threads
    }
}

impl Wake for Mailboxes {
    fn wake(&self, parked: &[Parked]) {
        for (thread, mailbox) in self.threads.iter().enumerate() {
            let its = parked.iter().filter(|each| each.thread == thread);
            let mut its = its.map(|each| Message::Woken(*each)).peekable();
            if its.peek().is_some() {
                mailbox.post(its);
            }
        }
        let of_python = |each: &&Parked| each.thread >= self.threads.len();
        for each in parked.iter().filter(of_python) {
            self.control.wake(each.slot);
        }
    }
}

/// Keys are below; Kafka 4.3's highest is 92.
pub const COUNTED_KEYS: usize = 128;

/// Counters since the start; the names are in `python/kafkalite/metrics.py`.
pub struct Counts {
    /// Begun, by their key.
    pub requests: [AtomicU64; COUNTED_KEYS],
    pub received_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    /// Storage calls that did not return in time, so that another thread went on.
    pub hand_overs: AtomicU64,
    /// Connections closed: at once, for their address had too many; idle; holding memory when it was
    /// short.
    pub refused_connections: AtomicU64,
    pub idle_closed: AtomicU64,
    pub hoarders_closed: AtomicU64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            requests: std::array::from_fn(|_| AtomicU64::default()),
            received_bytes: AtomicU64::default(),
            sent_bytes: AtomicU64::default(),
            hand_overs: AtomicU64::default(),
            refused_connections: AtomicU64::default(),
            idle_closed: AtomicU64::default(),
            hoarders_closed: AtomicU64::default(),
        }
    }
}

impl Counts {
    /// Another request has begun. `frame` is all of it, from its size on.
    pub fn note_request(&self, frame: &[u8]) {
        if let Some(low_byte) = frame.get(KEY_BYTE)
            && let Some(count) = self.requests.get(usize::from(*low_byte))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The lower of the two that the key is, behind the size of the frame.
const KEY_BYTE: usize = frame::SIZE_BYTES + 1;

/// What the network threads share.
pub struct Shared {
    pub settings: Settings,
    pub mailboxes: Arc<Mailboxes>,
    pub node: Arc<Node>,
    pub counts: Counts,
    pub fetch_sessions: FetchSessions,
    pub authorizer: Box<dyn Authorizer>,
    pub quotas: Box<dyn Quotas>,
    pub admission: Admission,
    pub budget: ReceiveBudget,
    pub gates: Gates,
    /// One for each network thread.
    pub seats: Vec<Seat<Box<Reactor>>>,
    pub watch: Watch,
    /// All keys that are answered, in their order.
    pub keys: Vec<ApiKey>,
    by_key: Vec<Option<ApiKey>>,
    started: Instant,
}

impl Shared {
    pub fn image(&self) -> Arc<Image> {
        self.node.image()
    }

    pub fn control(&self) -> &ControlQueue {
        &self.mailboxes.control
    }

    pub fn key(&self, key: i16) -> Option<ApiKey> {
        *self.by_key.get(usize::try_from(key).ok()?)?
    }

    pub fn post(&self, thread: usize, message: Message) {
        self.post_all(thread, [message]);
    }

    pub fn post_all(&self, thread: usize, messages: impl IntoIterator<Item = Message>) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            mailbox.post(messages);
        }
    }

    /// Limits of connections from now on: whoever waits for room may ask again, and those that are too
    /// many go.
    pub fn set_connection_limits(&self, limits: ConnectionLimits) {
        self.admission.set_limits(limits);
        self.post(0, Message::Room);
        self.post(0, Message::Excess(Excess::default()));
    }

    pub fn listener_name(&self, listener: usize) -> Arc<str> {
        let name = self.settings.listener_names.get(listener).cloned();
        name.unwrap_or_else(|| "PLAINTEXT".into())
    }

    /// Gives memory of the budget back, and tells those who wait for some.
    pub fn release_memory(&self, bytes: usize) {
        if bytes > 0 && self.budget.release(bytes) {
            self.tell_of_memory();
        }
    }

    /// Another frame may exceed the budget.
    pub fn end_exceeding(&self) {
        if self.budget.end_exceeding() {
            self.tell_of_memory();
        }
    }

    fn tell_of_memory(&self) {
        for thread in 0..self.mailboxes.len() {
            self.post(thread, Message::Memory);
        }
    }

    /// Milliseconds since the start, for time-outs.
    pub fn monotonic_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// Memory of the budget that is given back when this is dropped, by whatever thread.
pub struct HeldMemory {
    shared: Weak<Shared>,
    bytes: usize,
}

impl HeldMemory {
    /// Takes so many bytes, whatever is left: they are in memory already.
    pub fn new(shared: &Arc<Shared>, bytes: usize) -> HeldMemory {
        shared.budget.charge(bytes);
        HeldMemory {
            shared: Arc::downgrade(shared),
            bytes,
        }
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.release_memory(self.bytes);
        }
    }
}

pub struct Plane {
    pub shared: Arc<Shared>,
    threads: Arc<Threads>,
}

impl Plane {
    /// Starts the threads; from here on clients are served. `control_keys` are those that Python
    /// answers; `listeners` are bound and listening.
    ///
    /// Errors: `Io` if a thread or a poller cannot be had.
    pub fn start(
        settings: Settings,
        mailboxes: Arc<Mailboxes>,
        node: Arc<Node>,
        control_keys: Vec<ApiKey>,
        listeners: Vec<TcpListener>,
    ) -> Result<Plane> {
        let mut keys: Vec<ApiKey> = HOT_KEYS.to_vec();
        keys.extend(control_keys);
        keys.sort_by_key(|key| key.key);
        let mut by_key = vec![None; keys.last().map_or(0, |key| key.key as usize + 1)];
        for key in &keys {
            by_key[key.key as usize] = Some(*key);
        }
        let seed = random_u64()?;
        let shared = Arc::new(Shared {
            fetch_sessions: FetchSessions::new(settings.fetch_sessions_max, seed),
            authorizer: Box::new(AllowAll),
            quotas: Box::new(Unlimited),
            admission: Admission::new(settings.connections.clone(), node.connections_max()),
            budget: ReceiveBudget::new(settings.queued_bytes_max, memory_bytes()),
            gates: Gates::new(node.directories()),
            seats: mailboxes.iter().map(|_| Seat::default()).collect(),
            watch: Watch::default(),
            settings,
            mailboxes,
            node,
            counts: Counts::default(),
            keys,
            by_key,
            started: Instant::now(),
        });
        let plane = Plane {
            shared: shared.clone(),
            threads: Arc::default(),
        };
        let failed = Error::io("start a network thread", std::path::Path::new("/proc/self"));
        plane.spawn(listeners).map_err(failed)?;
        Ok(plane)
    }

    fn spawn(&self, listeners: Vec<TcpListener>) -> std::io::Result<()> {
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let mut listeners = Some(listeners);
        for index in 0..self.shared.mailboxes.len() {
            let listeners = listeners.take().unwrap_or_default();
            let reactor = Reactor::new(index, self.shared.clone(), listeners)?;
            self.threads.add(Box::new(reactor))?;
        }
        self.threads.start(&self.shared)?;
        let shared = self.shared.clone();
        let tell = move |trouble: &dyn Display| shared.control().notice(trouble.to_string());
        let settings = &self.shared.settings;
        self.shared
            .node
            .keep_house(settings.intervals, settings.cleaner, wall_ms(), tell)?;
        Ok(())
    }

    /// Takes no more connections and requests, has parked requests answered (Python must still
    /// answer its own), and ends the threads. Takes little more than `STOP_WAIT_MS` at most.
    pub fn stop(&self) {
        for index in 0..self.shared.mailboxes.len() {
            self.shared.post(index, Message::Stop);
        }
        // A little longer than the reactors themselves take.
        let timeout = Duration::from_millis(STOP_WAIT_MS + STOP_WAIT_MS / 4);
        let deadline = Instant::now() + timeout;
        self.threads.stop(timeout, &self.shared);
        // Nobody else would delete the logs of a topic that is gone from the metadata.
        self.shared.gates.wait_for_changes(deadline);
        self.shared.gates.end();
        self.shared.control().close();
    }

    /// After the threads of Python have ended, which may have brought the last of their changes of logs to
    /// the directories only then. Takes `STOP_WAIT_MS` at most.
    pub fn finish_changes(&self) {
        let deadline = Instant::now() + Duration::from_millis(STOP_WAIT_MS);
        self.shared.gates.wait_for_changes(deadline);
    }

    /// As well: what of the metadata is on its way to disk is there, or is known not to be. As long as the
    /// directory hangs, what a stop writes there next would, too.
    pub fn finish_metadata(&self) {
        self.shared.gates.wait_for_metadata();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::Command;

    use super::super::poller::Poller;
    use super::*;
    use crate::node::{Claimed, NodeOptions};
    use crate::park::CONTROL_THREAD;
    use crate::wire::Writer;

    /// Of a key that Python answers.
    const CONTROL_KEY: ApiKey = ApiKey {
        key: 16,
        advertised_min: 0,
        min: 0,
        max: 0,
        first_flexible: 3,
    };
    /// In the tests below.
    const ANSWER_BYTES_MAX: i32 = 500;

    #[test]
    fn whoever_is_woken_is_told_by_the_mailbox_of_its_thread() {
        let mailboxes = Mailboxes::new(2).expect("two eventfds");
        let parked = |(slot, thread)| Parked {
            thread,
            connection: 0,
            slot,
        };
        let woken = (1..).zip([0, CONTROL_THREAD, 1, 0]).map(parked);
        mailboxes.wake(&woken.collect::<Vec<_>>());
        let told = mailboxes.iter().map(|mailbox| {
            let messages = mailbox.take().into_iter();
            let slots = messages.map(|message| match message {
                Message::Woken(parked) => parked.slot,
                _ => 0,
            });
            slots.collect()
        });
        assert_eq!(told.collect::<Vec<Vec<u64>>>(), [vec![1, 4], vec![3]]);
        let taken = mailboxes.control.take(None).expect("it is open");
        assert_eq!(taken.woken, [2]);
    }

    /// Each answer of Python's cost two system calls to wake a thread that was awake.
    #[test]
    fn who_posts_wakes_a_thread_once_and_only_one_that_waits() {
        let mailbox = Mailbox::new().expect("an eventfd");
        let mut poller = Poller::new().expect("a poller");
        poller.add_wake_up(&mailbox.wake_up, 7).expect("it is new");
        let mut is_woken = || {
            let mut events = Vec::new();
            poller.wait(0, &mut events).expect("events");
            !events.is_empty()
        };
        let post = || mailbox.post([Message::Room]);
        post();
        assert!(!is_woken(), "it is awake");
        assert!(!mailbox.is_left_empty(), "it must not wait");
        post();
        assert!(is_woken(), "it was about to");
        assert_eq!(mailbox.take().len(), 2);
        post();
        assert!(!is_woken(), "it is awake again");
        assert_eq!(mailbox.take().len(), 1);
        for _ in 0..2 {
            assert!(mailbox.is_left_empty());
            assert!(!is_woken(), "nothing has come");
            post();
            post();
            assert!(is_woken());
            assert!(!is_woken(), "once");
            assert_eq!(mailbox.take().len(), 2);
        }
    }

    /// An argument of the process that is to end, in front of its log directory; to the test harness it is
    /// one more name of tests, and there is none of that name.
    const PANIC_IN: &str = "panic-in=";

    fn started(path: std::path::PathBuf, listeners: Vec<TcpListener>) -> Plane {
        let claimed = Claimed::open(NodeOptions {
            node_id: 1,
            cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
            paths: vec![path.clone()],
            metadata_path: path,
            recovery_threads: 1,
            flush_threads: 1,
            open_segments_max: 10,
            now_ms: 0,
        });
        let settings = Settings {
            network_threads: 1,
            busy_poll: Duration::ZERO,
            request_bytes_max: 1000,
            answer_bytes_max: ANSWER_BYTES_MAX,
            listener_names: Vec::new(),
            connections: ConnectionLimits::default(),
            queued_bytes_max: -1,
            idle_ms_max: u64::MAX,
            fetch_bytes_max: 1000,
            fetch_sessions_max: 1,
            auto_create_topics: false,
            intervals: Intervals::default(),
            cleaner: CleanerSettings::default(),
        };
        let mailboxes = Mailboxes::new(1).expect("an eventfd");
        let claimed = claimed.expect("an empty directory");
        let loaded = Node::load(claimed, &[], mailboxes.clone()).expect("a node");
        let keys = vec![CONTROL_KEY];
        Plane::start(settings, mailboxes, Arc::new(loaded.node), keys, listeners).expect("a plane")
    }

    /// A request that its network thread could not stand ended that thread only: the process went on, and
    /// nobody who came was answered.
    #[test]
    fn a_panic_of_a_network_thread_ends_the_broker() {
        let mut arguments = std::env::args();
        if let Some(path) = arguments.find_map(|each| Some(each.strip_prefix(PANIC_IN)?.into())) {
            let plane = started(path, Vec::new());
            plane.shared.post(0, Message::Panic);
            // Until it is ended; who wakes by chance has failed.
            std::thread::park_timeout(Duration::from_secs(60));
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let this_test = "net::plane::tests::a_panic_of_a_network_thread_ends_the_broker";
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", this_test, "--nocapture"])
            .arg(format!("{PANIC_IN}{}", directory.path().display()))
            .output()
            .expect("a process");
        let log = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.code().is_none(), "it went on: {log}");
        for told in [
            "a request that no thread can stand",
            "the thread network-0 panicked",
        ] {
            assert!(log.contains(told), "{log}");
        }
    }

    fn ask(stream: &mut TcpStream, key: i16, version: i16, body: impl FnOnce(&mut Writer)) {
        let mut writer = Writer::default();
        writer.i16(key);
        writer.i16(version);
        writer.i32(7);
        writer.nullable_string(None, false);
        body(&mut writer);
        let size = (writer.bytes.len() as u32).to_be_bytes();
        let sent = stream.write_all(&[&size[..], &writer.bytes].concat());
        sent.expect("it listens");
    }

    /// All that comes until the connection is closed.
    fn told(stream: &mut TcpStream) -> usize {
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        read.expect("the end, in time")
    }

    /// An answer beyond 2 GiB, as only a large `socket.request.max.bytes` lets a client ask for one, ended
    /// the broker.
    #[test]
    fn who_asks_for_a_larger_answer_than_a_frame_holds_is_closed_and_nobody_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let plane = started(directory.path().to_path_buf(), vec![listener]);
        let connect = || {
            let stream = TcpStream::connect(address).expect("it listens");
            let limit = Some(Duration::from_secs(60));
            stream.set_read_timeout(limit).expect("a limit");
            stream
        };
        let control = plane.shared.control();
        let take = |timeout| control.take(Some(timeout)).expect("it is open");
        let notices = || take(Duration::ZERO).notices.warnings;
        // Of this many partitions it would have more than so many bytes.
        let count = 25;
        let partitions = |writer: &mut Writer, rest: &[u8]| {
            writer.array_length(1, false);
            writer.string("t", false);
            writer.array_length(count, false);
            for index in 0..count {
                writer.i32(index as i32);
                writer.bytes.extend_from_slice(rest);
            }
        };
        let produce = |writer: &mut Writer| {
            writer.nullable_string(None, false);
            writer.i16(1);
            writer.i32(1000);
            partitions(writer, &(-1_i32).to_be_bytes());
        };
        let list_offsets = |writer: &mut Writer| {
            writer.i32(-1);
            partitions(writer, &(-1_i64).to_be_bytes());
        };
        let metadata = |writer: &mut Writer| {
            writer.array_length(count, false);
            for index in 0..count {
                writer.string(&format!("a topic called {index}"), false);
            }
        };
        let mut large = connect();
        ask(&mut large, 0, 3, produce);
        assert_eq!(told(&mut large), 0);
        let words = [notices()];
        let mut large = connect();
        ask(&mut large, 2, 1, list_offsets);
        assert_eq!(told(&mut large), 0);
        let mut large = connect();
        ask(&mut large, 3, 1, metadata);
        assert_eq!(told(&mut large), 0);
        let mut large = connect();
        ask(&mut large, CONTROL_KEY.key, 0, |_| {});
        let until = Instant::now() + Duration::from_secs(60);
        let frame = loop {
            // It may be woken for words on the clients before.
            if let Some(frame) = take(Duration::from_secs(1)).frames.into_iter().next() {
                break frame;
            }
            assert!(Instant::now() < until, "no request for Python has come");
        };
        let response = vec![0; 5 + ANSWER_BYTES_MAX as usize];
        let answer = ControlAnswer::Response(response);
        plane.shared.post(0, Message::Control(frame.parked, answer));
        assert_eq!(told(&mut large), 0);
        assert!(words[0][0].contains("its answer takes"), "{words:?}");
        // Nobody else hears of that.
        let mut small = connect();
        ask(&mut small, 18, 0, |_| {});
        let mut size = [0; 4];
        small.read_exact(&mut size).expect("an answer");
        plane.stop();
    }
}
