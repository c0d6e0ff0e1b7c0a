//! The broker core as a whole: starts the network threads with what they share, and stops them.

use std::fmt::Display;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::ApiKey;
use crate::api::fetch_sessions::FetchSessions;
use crate::clock::wall_ms;
use crate::error::{Error, Result};
use crate::limits::STOP_WAIT_MS;
use crate::net::admission::Admission;
use crate::net::counts::Counts;
use crate::net::mailbox::{Mailboxes, Message};
use crate::net::memory::Memory;
use crate::net::memory::budget::{ReceiveBudget, memory_bytes};
use crate::net::reactor::Reactor;
use crate::net::replication::Fetchers;
use crate::net::request_context::{ApiKeys, RequestContext};
use crate::net::settings::Settings;
use crate::net::shared::Shared;
use crate::net::storage_io::StorageIo;
use crate::net::threads::{Spares, Threads};
use crate::node::{Node, random_u64};

pub struct BrokerCore {
    pub shared: Arc<Shared>,
    /// `None`: the node is alone.
    fetchers: Option<Arc<Fetchers>>,
    threads: Arc<Threads>,
}

impl BrokerCore {
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
    ) -> Result<BrokerCore> {
        let seed = random_u64()?;
        let fetch_sessions = FetchSessions::new(settings.fetch_sessions_max, seed);
        let budget = ReceiveBudget::new(settings.queued_bytes_max, memory_bytes());
        let told = Arc::downgrade(&mailboxes);
        let tell = move || {
            if let Some(mailboxes) = told.upgrade() {
                mailboxes.tell_of_memory();
            }
        };
        let limits = settings.connections.clone();
        let replication = settings.replication.clone();
        node.replication()
            .set_lag_ms_max(settings.replica_lag_ms_max);
        node.replication().set_rack_aware(settings.is_rack_aware);
        node.replication()
            .set_throttle_samples(settings.throttle_samples);
        let shared = Arc::new(Shared {
            context: Arc::new(RequestContext {
                settings,
                keys: ApiKeys::new(control_keys),
                fetch_sessions,
            }),
            admission: Admission::new(limits, node.connections_max()),
            memory: Memory::new(budget, tell),
            storage: Arc::new(StorageIo::new(node.directories())),
            mailboxes,
            node,
            counts: Counts::default(),
        });
        let mut core = BrokerCore {
            threads: Threads::new(shared.control().clone()),
            fetchers: None,
            shared,
        };
        let failed = Error::io("start a network thread", std::path::Path::new("/proc/self"));
        core.spawn(listeners).map_err(failed)?;
        let control = core.shared.control();
        let notices = control.clone();
        let (settings, moves) = (&core.shared.context.settings, core.shared.node.moves());
        let moving_threads = settings.moving_threads.max(1);
        moves.set_samples(settings.moving_samples);
        moves.set_rate(settings.moving_rate_bytes);
        core.shared
            .node
            .resume_moves(moving_threads, move |trouble| notices.notice(trouble));
        let start = |settings| Fetchers::start(settings, &core.shared.node, control.clone());
        core.fetchers = replication.map(start);
        Ok(core)
    }

    fn spawn(&self, listeners: Vec<TcpListener>) -> std::io::Result<()> {
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let mut listeners = Some(listeners);
        let storage = self.shared.storage.clone();
        let mut watchdog = storage.watchdog();
        watchdog.add(self.shared.control().clone());
        for index in 0..self.shared.mailboxes.len() {
            let listeners = listeners.take().unwrap_or_default();
            let reactor = Reactor::new(index, self.shared.clone(), listeners)?;
            watchdog.add(Spares {
                threads: self.threads.clone(),
                handoff: reactor.handoff(),
            });
            self.threads.add(Box::new(reactor))?;
        }
        let threads = self.threads.clone();
        let handle = watchdog.start(move || {
            let have_threads = threads.staff();
            storage.start_threads() && have_threads
        })?;
        self.threads.wait_for(handle);
        let shared = self.shared.clone();
        let tell = move |trouble: &dyn Display| shared.control().notice(trouble.to_string());
        let settings = &self.shared.context.settings;
        self.shared.node.start_background_work(
            settings.intervals,
            settings.cleaner,
            wall_ms(),
            tell,
        )?;
        Ok(())
    }

    /// Takes no more connections and requests, has parked requests answered (Python must still
    /// answer its own), and ends the threads. Takes little more than `STOP_WAIT_MS` at most.
    pub fn stop(&self) {
        for index in 0..self.shared.mailboxes.len() {
            self.shared.mailboxes.post(index, Message::Stop);
        }
        // A little longer than the reactors themselves take.
        let timeout = Duration::from_millis(STOP_WAIT_MS + STOP_WAIT_MS / 4);
        let deadline = Instant::now() + timeout;
        let storage = &self.shared.storage;
        if let Some(fetchers) = &self.fetchers {
            fetchers.stop();
        }
        self.shared.node.stop_moves(timeout);
        self.threads.stop(timeout, || storage.end_watchdog());
        // Nobody else would delete the logs of a topic that is gone from the metadata.
        storage.wait_for_changes(deadline);
        storage.end();
        self.shared.control().close();
    }

    /// After the threads of Python have ended, which may have brought the last of their changes of
    /// logs to the directories only then. Takes `STOP_WAIT_MS` at most.
    pub fn finish_changes(&self) {
        let deadline = Instant::now() + Duration::from_millis(STOP_WAIT_MS);
        self.shared.storage.wait_for_changes(deadline);
    }

    /// Returns once the metadata on its way to disk is there, or is known not to be. As long as the
    /// directory hangs, what a stop writes there next would, too.
    pub fn finish_metadata(&self) {
        self.shared.storage.wait_for_metadata();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::Command;

    use super::*;
    use crate::log::maintain::housekeeper::{CleanerSettings, Intervals};
    use crate::net::admission::ConnectionLimits;
    use crate::net::control::queue::ControlAnswer;
    use crate::node::{Claimed, NodeOptions};
    use crate::replica::throttle::THROTTLE_SAMPLES;
    use crate::wire::Writer;
    use std::net::TcpStream;

    /// A key that Python answers.
    const CONTROL_KEY: ApiKey = ApiKey {
        key: 16,
        advertised_min: 0,
        min: 0,
        max: 0,
        first_flexible: 3,
    };
    /// In the tests below.
    const ANSWER_BYTES_MAX: i32 = 500;

    /// An argument of the process that is to end, in front of its log directory; to the test
    /// harness it is one more name of tests, and there is none of that name.
    const PANIC_IN: &str = "panic-in=";

    fn started(path: std::path::PathBuf, listeners: Vec<TcpListener>) -> BrokerCore {
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
            is_rack_aware: false,
            replica_lag_ms_max: 30_000,
            throttle_samples: THROTTLE_SAMPLES,
            intervals: Intervals::default(),
            cleaner: CleanerSettings::default(),
            moving_threads: 1,
            moving_rate_bytes: i64::MAX,
            moving_samples: THROTTLE_SAMPLES,
            replication: None,
        };
        let mailboxes = Mailboxes::new(1).expect("an eventfd");
        let claimed = claimed.expect("an empty directory");
        let loaded = Node::load(claimed, &[], mailboxes.clone()).expect("a node");
        let keys = vec![CONTROL_KEY];
        BrokerCore::start(settings, mailboxes, Arc::new(loaded.node), keys, listeners)
            .expect("a core")
    }

    /// A request that its network thread could not stand ended that thread only: the process went
    /// on, and nobody who came was answered.
    #[test]
    fn a_panic_of_a_network_thread_ends_the_broker() {
        let mut arguments = std::env::args();
        if let Some(path) = arguments.find_map(|each| Some(each.strip_prefix(PANIC_IN)?.into())) {
            let core = started(path, Vec::new());
            core.shared.mailboxes.post(0, Message::Panic);
            // Until it is ended; who wakes by chance has failed.
            std::thread::park_timeout(Duration::from_secs(60));
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let this_test = "net::broker_core::tests::a_panic_of_a_network_thread_ends_the_broker";
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

    /// An answer beyond 2 GiB, as only a large `socket.request.max.bytes` lets a client ask
    /// for one, ended the broker.
    #[test]
    fn who_asks_for_a_larger_answer_than_a_frame_holds_is_closed_and_nobody_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let core = started(directory.path().to_path_buf(), vec![listener]);
        let connect = || {
            let stream = TcpStream::connect(address).expect("it listens");
            let limit = Some(Duration::from_secs(60));
            stream.set_read_timeout(limit).expect("a limit");
            stream
        };
        let control = core.shared.control();
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
        let answer = ControlAnswer::Response(response, None);
        core.shared
            .mailboxes
            .post(0, Message::Control(frame.parked, answer));
        assert_eq!(told(&mut large), 0);
        assert!(words[0][0].contains("its answer takes"), "{words:?}");
        // Nobody else hears of that.
        let mut small = connect();
        ask(&mut small, 18, 0, |_| {});
        let mut size = [0; 4];
        small.read_exact(&mut size).expect("an answer");
        core.stop();
    }
}
