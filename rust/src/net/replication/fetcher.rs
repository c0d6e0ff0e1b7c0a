//! One thread that replicates from one leader: it carries the bytes between the leader and a
//! `FollowerSession`, and has what was appended flushed before it asks for more.

use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::inbox::Inbox;
use crate::clock::{Now, monotonic_ms};
use crate::limits::{
    FETCHER_LINGER, FETCHER_SILENCE, FLUSH_RETRY, FOLLOWER_ANSWER_EXCESS_BYTES,
    FOLLOWER_BUFFER_KEPT_BYTES,
};
use crate::log::directory::LogDirectory;
use crate::log::log::Log;
use crate::net::connection::{Address, Connection, Patience};
use crate::replica::Partition;
use crate::replica::follower::{
    FETCH_VERSION_MAX, FETCH_VERSION_MIN, FollowerSession, FollowerSettings, LIST_OFFSETS_VERSION,
    Request, Troubles,
};
use crate::wire::header::{FETCH, LIST_OFFSETS};

/// How brokers are fetched from.
#[derive(Clone, Debug)]
pub struct ReplicationSettings {
    pub follower: FollowerSettings,
    /// `num.replica.fetchers`
    pub fetchers: usize,
    /// `replica.socket.timeout.ms`
    pub socket_timeout: Duration,
    /// The place of the inter-broker listener among this node's.
    pub listener: usize,
}

/// The broker around a fetcher, as far as it is known there.
pub(super) trait Surroundings: Send {
    /// Where its leader is reached, if that is alive and has the listener.
    fn address(&self) -> Option<Address>;
    /// Takes the fetcher, which has nothing to follow, out of use. False:
    /// something has come meanwhile.
    fn retire(&self) -> bool;
    /// Has the log say something.
    fn warn(&self, sentence: String);
}

/// See the module.
pub(super) struct Fetcher {
    settings: ReplicationSettings,
    leader_id: i32,
    client_id: String,
    inbox: Arc<Inbox>,
    around: Box<dyn Surroundings>,
    session: FollowerSession,
    connection: Option<Connection>,
    /// The last answer; as long as the longest was.
    answer: Vec<u8>,
    troubles: Troubles<String>,
}

impl Fetcher {
    pub fn new(
        settings: ReplicationSettings,
        (leader_id, number): (i32, usize),
        inbox: Arc<Inbox>,
        around: Box<dyn Surroundings>,
    ) -> Fetcher {
        let session = FollowerSession::new(settings.follower.clone(), leader_id);
        let client_id = format!("broker-{}-fetcher-{number}", settings.follower.node_id);
        Fetcher {
            settings,
            leader_id,
            client_id,
            inbox,
            around,
            session,
            connection: None,
            answer: Vec::new(),
            troubles: Troubles::default(),
        }
    }

    /// The body of the thread.
    pub fn run(mut self) {
        let mut wait = Duration::ZERO;
        while let Some(changes) = self.inbox.take(wait) {
            let assigned = changes.values().flatten();
            let assigned: Vec<_> = assigned.map(|each| &each.partition).collect();
            // Whatever they have from the leader before: the next one may count on it.
            flush_now(&assigned);
            for (key, change) in changes {
                match change {
                    Some(assignment) => self.session.assign(assignment),
                    None => self.session.remove(key),
                }
            }
            if self.session.is_empty() && wait == FETCHER_LINGER {
                if self.around.retire() {
                    return;
                }
                wait = Duration::ZERO;
                continue;
            }
            wait = self.turn();
        }
    }

    /// Asks once, and takes the answer. Returns how long to wait before the next turn.
    fn turn(&mut self) -> Duration {
        if self.session.is_empty() {
            return FETCHER_LINGER;
        }
        let due = Instant::now() + self.settings.socket_timeout;
        match self.connected(due).and_then(|()| self.ask(due)) {
            Ok(wait) => {
                self.shrink_buffer();
                wait
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Connects to where the leader is now, unless that is so.
    fn connected(&mut self, due: Instant) -> IoResult<()> {
        let address = self.around.address().ok_or_else(|| {
            let sentence = "it is fenced, or has no inter-broker listener of this name";
            IoError::new(ErrorKind::NotFound, sentence)
        })?;
        let known = self.connection.as_ref().map(Connection::address);
        if known == Some(&address) {
            return Ok(());
        }
        self.connection = None;
        self.session.on_failure();
        let connection = Connection::open(&address, &self.client_id, due)?;
        if self.inbox.set_socket(Some(connection.socket()?)) {
            self.connection = Some(connection);
        } else {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    fn ask(&mut self, due: Instant) -> IoResult<Duration> {
        let Some(connection) = &mut self.connection else {
            return Err(ErrorKind::NotConnected.into());
        };
        let around = &self.around;
        let mut tell = |sentence: String| around.warn(sentence);
        let Some(request) = self.session.next_request(Now::read(), &mut tell) else {
            let due_ms = self.session.next_due_ms();
            let left_ms = due_ms.map(|due_ms| due_ms.saturating_sub(monotonic_ms()).max(1));
            return Ok(left_ms.map_or(FETCHER_LINGER, |left_ms| {
                Duration::from_millis(left_ms.cast_unsigned())
            }));
        };
        let (key, version, body) = match &request {
            Request::Fetch(body) => {
                let version = connection.version_of(FETCH, FETCH_VERSION_MAX);
                (FETCH, version.unwrap_or(0).max(FETCH_VERSION_MIN), body)
            }
            Request::ListOffsets(body) => (LIST_OFFSETS, LIST_OFFSETS_VERSION, body),
        };
        let asked = self.settings.follower.response_bytes_max;
        let bytes_max = usize::try_from(asked).unwrap_or(0) + FOLLOWER_ANSWER_EXCESS_BYTES;
        let wait_ms = u64::try_from(self.settings.follower.max_wait_ms).unwrap_or(0);
        let inbox = &self.inbox;
        let patience = Patience {
            due,
            silence: Duration::from_millis(wait_ms) + FETCHER_SILENCE,
            // A connection that is dead without a word would keep what is new waiting.
            gives_up: &|| inbox.is_waiting(),
        };
        let behind_header =
            connection.exchange(key, version, body, &patience, &mut self.answer, bytes_max)?;
        let answer = &mut self.answer[behind_header];
        let touched = self.session.on_answer(answer, Now::read(), &mut tell);
        let touched =
            touched.map_err(|error| IoError::new(ErrorKind::InvalidData, error.to_string()))?;
        flush(&touched);
        Ok(Duration::ZERO)
    }

    /// The leader cannot be asked. Returns how long to wait before it is tried again.
    fn fail(&mut self, error: &IoError) -> Duration {
        self.connection = None;
        self.session.on_failure();
        let is_going_on = self.inbox.set_socket(None);
        let backoff_ms = self.settings.follower.backoff_ms;
        let trouble = error.to_string();
        if is_going_on && let Some(more) = self.troubles.note(trouble.clone(), monotonic_ms()) {
            let count = self.session.len();
            self.around.warn(format!(
                "{count} partition(s) cannot be replicated from broker {}, which is tried again every \
                 {backoff_ms} ms: {trouble}{more}",
                self.leader_id
            ));
        }
        Duration::from_millis(u64::try_from(backoff_ms).unwrap_or(0).max(1))
    }

    /// One batch may have been as large as a batch can be: its memory is not kept.
    fn shrink_buffer(&mut self) {
        let asked = usize::try_from(self.settings.follower.response_bytes_max).unwrap_or(0);
        if self.answer.len() > 2 * asked + FOLLOWER_BUFFER_KEPT_BYTES {
            self.answer = Vec::new();
        }
    }
}

/// Has what was appended on disk, where that is asked for: the next fetch offset says so to the
/// leader. One group commit a log directory. A partition whose leader has committed more than it
/// has is not waited for: until it has come so far it is in no in-sync replicas, and nothing is
/// committed or elected by what it says.
fn flush(touched: &[Arc<Partition>]) {
    let (behind, near): (Vec<_>, Vec<_>) = touched
        .iter()
        .partition(|each| each.lag().is_some_and(|lag| lag > 0));
    for each in behind.into_iter().filter(|each| is_unflushed(each)) {
        each.request_flush();
    }
    flush_now(&near);
}

/// As `flush`, of all. Returns when they are on disk, or their directories have failed. One that
/// follows no more is not waited for, but flushed all the same: if it leads by now, its high
/// watermark waits for that, and no append need come that would ask for it.
fn flush_now(partitions: &[&Arc<Partition>]) {
    let mut left: Vec<&Arc<Partition>> = partitions.to_vec();
    loop {
        let is_left = |each: &&Arc<Partition>| is_unflushed(each) && !each.is_offline();
        left.retain(is_left);
        let (following, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|each| each.is_following());
        others.iter().for_each(|each| each.request_flush());
        left = following;
        let Some(first) = left.first() else {
            return;
        };
        let directory: Arc<LogDirectory> = first.directory().clone();
        let its = left
            .iter()
            .filter(|each| Arc::ptr_eq(each.directory(), &directory));
        let logs: Vec<Arc<Log>> = its.map(|each| each.log.clone()).collect();
        directory.flush_all_here(&logs);
        if left.iter().all(is_left) {
            // There was no descriptor for a file: there may be one soon.
            thread::sleep(FLUSH_RETRY);
        }
    }
}

/// Something is to be on disk that is not.
fn is_unflushed(partition: &Partition) -> bool {
    let offsets = partition.log.offsets();
    offsets.flushed_offset < offsets.log_end_offset && partition.log.config().acks_fsync
}
