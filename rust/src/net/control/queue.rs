//! The queue of Python's control thread. Network threads put requests in, appends and flushes put
//! in what Python waits for in a log; the control thread blocks here, without the GIL, until there
//! is something or one of its timers is due, and takes everything at once.
//!
//! Two threads of Python take turns at being the control thread. The spare one waits for the turn
//! until the other does not come back from a log directory (`wait.rs`).

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::access::Identity;
use crate::error::Error;
use crate::limits::{CONTROL_PROMPT, STORAGE_NOTICE_MS};
use crate::net::control::answer::LogAnswer;
use crate::net::disconnect::{DisconnectReason, Refusals};
use crate::net::memory::HeldMemory;
use crate::net::memory::large_answer::LargeAnswer;
use crate::net::storage_io::{Handoff, QueueId, StorageIo, Successor};
use crate::replica::park::Parked;

/// A request for Python.
pub struct ControlFrame {
    /// The parked request that waits for the answer.
    pub parked: Parked,
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Arc<str>>,
    /// Index of the listener that the client came in by.
    pub listener: usize,
    /// Its name, as in `listeners`.
    pub listener_name: Arc<str>,
    /// The client's identity.
    pub identity: Arc<Identity>,
    /// The client's address and port.
    pub peer: SocketAddr,
    /// Is gone once the connection is (`Session::life`).
    pub session: Weak<()>,
    /// It is a question of the broker's own, answered by `Verified`.
    pub is_internal: bool,
    /// The bytes behind the header.
    pub body: Vec<u8>,
    /// The memory that all that takes, whatever becomes of the connection,
    /// until Python lets go of it.
    pub memory: HeldMemory,
}

/// Python's answer to a frame.
pub enum ControlAnswer {
    /// The response, with room for its size in front; a large one is known as that until it is
    /// sent.
    Response(Vec<u8>, Option<LargeAnswer>),
    /// The code that a transaction's coordinator gives each partition of a Produce request.
    Verified(Vec<i16>),
    /// The key is one that Rust answers, and what was missing has been made.
    Again,
    /// The request cannot be answered: the connection is closed.
    Close,
    /// The connection is closed, and Python has not told the log why.
    Refused(Error),
}

/// Work for the control thread.
#[derive(Default)]
pub struct Taken {
    /// Requests, in the order of their coming.
    pub frames: Vec<ControlFrame>,
    /// Numbers that Python gave to what it waits for (`ControlQueue::wake`).
    pub woken: Vec<u64>,
    pub notices: Notices,
}

/// Sentences for the log, by how grave they are.
#[derive(Default)]
pub struct Notices {
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

impl Notices {
    fn is_empty(&self) -> bool {
        self.errors.is_empty() && self.warnings.is_empty()
    }
}

/// A call of a log or a log directory that Python asks for. Whoever makes it tells
/// the queue what came of it.
pub trait ControlCall: Send {
    /// The queue that it has to pass.
    fn queue(&self, storage: &StorageIo) -> QueueId;
    fn run(self: Box<Self>, control: &ControlQueue, now_ms: i64);
}

/// The right to be the control thread, kept from one `take` to the next.
pub struct Turn {
    /// Another thread had it before.
    pub is_new: bool,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<ControlFrame>,
    woken: Vec<u64>,
    /// Calls of logs that Python asked for, in its order, and calls that undo their parts.
    calls: VecDeque<Box<dyn ControlCall>>,
    /// Answers to calls, by their numbers, until Python asks.
    answers: HashMap<u64, LogAnswer>,
    /// Sentences for the log that Python writes.
    notices: Notices,
    refusals: Refusals,
    /// When the next one may come of records that could not be stored.
    storage_notice_due_ms: u64,
    /// Which thread has the turn.
    owner: Option<ThreadId>,
    /// Threads that wait for it.
    spares: usize,
    /// Since when whoever has it has not come for more to do.
    away_since: Option<Instant>,
    is_closed: bool,
}

impl Queue {
    /// There is nothing to do for the control thread.
    fn is_empty(&self) -> bool {
        let has_work = !self.frames.is_empty() || !self.woken.is_empty() || !self.calls.is_empty();
        !has_work && self.notices.is_empty()
    }
}

#[derive(Default)]
pub struct ControlQueue {
    queue: Mutex<Queue>,
    has_frames: Condvar,
    is_free: Condvar,
    /// Where the turn is left during a call of a log.
    pub handoff: Handoff<Turn>,
}

impl ControlQueue {
    pub fn put(&self, frame: ControlFrame) {
        let mut queue = self.queue.lock();
        queue.frames.push_back(frame);
        if queue.frames.len() == 1 {
            self.has_frames.notify_one();
        }
    }

    /// Tells Python that what it knows by `number` may go on.
    pub fn wake(&self, number: u64) {
        let mut queue = self.queue.lock();
        queue.woken.push(number);
        if queue.woken.len() == 1 {
            self.has_frames.notify_one();
        }
    }

    /// Queues a call of a log or a log directory, made when the control
    /// thread comes for more to do.
    pub fn call(&self, call: impl ControlCall + 'static) {
        self.queue.lock().calls.push_back(Box::new(call));
        self.has_frames.notify_one();
    }

    pub fn next_call(&self) -> Option<Box<dyn ControlCall>> {
        self.queue.lock().calls.pop_front()
    }

    /// Notes what became of a call; `wake` with its number follows.
    pub fn answer(&self, number: u64, answer: LogAnswer) {
        self.queue.lock().answers.insert(number, answer);
    }

    /// Takes the answer to a call; once.
    pub fn take_answer(&self, number: u64) -> Option<LogAnswer> {
        self.queue.lock().answers.remove(&number)
    }

    /// Has Python log that something of ours has failed.
    pub fn notice(&self, sentence: String) {
        self.queue.lock().notices.errors.push(sentence);
        self.has_frames.notify_one();
    }

    /// Has Python log something that may be for an operator to look at.
    pub fn warn(&self, sentence: String) {
        self.queue.lock().notices.warnings.push(sentence);
        self.has_frames.notify_one();
    }

    /// Has Python log why records could not be stored, unless it did so a moment ago.
    pub fn storage_notice(&self, error: &Error, now_ms: u64) {
        let mut queue = self.queue.lock();
        if now_ms >= queue.storage_notice_due_ms {
            queue.storage_notice_due_ms = now_ms + STORAGE_NOTICE_MS;
            let sentence = format!("records are refused: {error}");
            queue.notices.errors.push(sentence);
            self.has_frames.notify_one();
        }
    }

    /// Has Python log why a client's connection is ended, unless the client has gone, or others
    /// were told of a moment ago.
    pub fn end_notice(&self, peer: SocketAddr, end: &DisconnectReason, now_ms: u64) {
        let mut queue = self.queue.lock();
        if let Some(line) = queue.refusals.line(peer, end, now_ms) {
            queue.notices.warnings.push(line);
            self.has_frames.notify_one();
        }
    }

    /// Blocks until the calling thread has the turn, if it does not have it still. `None`: another
    /// has it, and the queue is closed.
    pub fn turn(&self) -> Option<Turn> {
        let mut queue = self.queue.lock();
        let caller = thread::current().id();
        if queue.owner == Some(caller) {
            return Some(Turn { is_new: false });
        }
        while queue.owner.is_some() {
            if queue.is_closed {
                return None;
            }
            queue.spares += 1;
            self.is_free.wait(&mut queue);
            queue.spares -= 1;
        }
        queue.owner = Some(caller);
        Some(Turn { is_new: true })
    }

    /// A thread waits for the turn.
    pub fn has_spare(&self) -> bool {
        self.queue.lock().spares > 0
    }

    /// The owner of the turn is stuck: another thread takes over.
    pub fn pass(&self, _turn: Turn) {
        self.queue.lock().owner = None;
        self.is_free.notify_one();
    }

    /// Python has not come for more to do for a while: it waits for a directory of which it reads,
    /// most likely, and what is put here waits with it.
    pub fn is_held_up(&self) -> bool {
        let away_since = self.queue.lock().away_since;
        away_since.is_some_and(|since| since.elapsed() >= CONTROL_PROMPT)
    }

    /// Everything that waits; blocks until there is something, at most `timeout` (`None`: for
    /// ever). Nothing in it means that the time is over, or that there are calls. `None`: the
    /// queue is closed and empty.
    pub fn take(&self, timeout: Option<Duration>) -> Option<Taken> {
        let mut queue = self.queue.lock();
        queue.away_since = None;
        if queue.is_empty() && !queue.is_closed {
            match timeout {
                Some(timeout) => {
                    self.has_frames.wait_for(&mut queue, timeout);
                }
                None => self.has_frames.wait(&mut queue),
            }
        }
        queue.away_since = Some(Instant::now());
        if queue.is_closed && queue.is_empty() {
            None
        } else {
            Some(Taken {
                frames: queue.frames.drain(..).collect(),
                woken: std::mem::take(&mut queue.woken),
                notices: std::mem::take(&mut queue.notices),
            })
        }
    }

    /// Nothing more is put in.
    pub fn is_closed(&self) -> bool {
        self.queue.lock().is_closed
    }

    /// `take` returns at once from now on.
    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.has_frames.notify_all();
        self.is_free.notify_all();
    }
}

impl Successor for Arc<ControlQueue> {
    type Left = Turn;

    fn handoff(&self) -> &Handoff<Turn> {
        &self.handoff
    }

    fn has_thread(&self) -> bool {
        self.has_spare()
    }

    fn take_over(&self, turn: Turn) {
        self.pass(turn);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A failure while the broker stopped was in no log.
    #[test]
    fn a_closed_queue_gives_the_sentences_that_are_left() {
        let control = ControlQueue::default();
        control.notice("the disk has failed".to_owned());
        control.close();
        let taken = control.take(None).expect("a sentence");
        assert_eq!(taken.notices.errors, ["the disk has failed"]);
        assert!(control.take(None).is_none());
    }

    #[test]
    fn the_turn_stays_with_its_thread_until_that_is_stuck_and_is_had_by_one_at_a_time() {
        let control = Arc::new(ControlQueue::default());
        let ours = control.turn().expect("nobody has it");
        assert!(ours.is_new);
        assert!(!control.turn().expect("we have it").is_new);
        let (turns, taken) = mpsc::channel();
        let spare = {
            let control = control.clone();
            thread::spawn(move || turns.send(control.turn().map(|turn| turn.is_new)))
        };
        while !control.has_spare() {
            thread::yield_now();
        }
        assert!(taken.try_recv().is_err(), "one at a time");
        control.pass(ours);
        assert_eq!(taken.recv(), Ok(Some(true)));
        assert!(!control.has_spare());
        assert!(spare.join().is_ok());
        // We were the one that was stuck: now we wait, and hear of the end.
        control.close();
        assert!(control.turn().is_none());
    }
}
