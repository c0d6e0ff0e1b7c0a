//! The queue of Python's control thread. Network threads put requests in, appends and flushes put in
//! what Python waits for in a log; the control thread blocks here, without the GIL, until there is
//! something or one of its timers is due, and takes everything at once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::coordinate::CoordinatorAppended;
use crate::access::Principal;
use crate::park::Parked;

/// A request for Python.
pub struct ControlFrame {
    /// Who waits for the answer.
    pub parked: Parked,
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<String>,
    /// Index of the listener that the client came in by.
    pub listener: usize,
    /// Its name, as in `listeners`.
    pub listener_name: Arc<str>,
    /// Who the client is.
    pub principal: Principal,
    /// The client's address, as `127.0.0.1:40000`.
    pub peer: String,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// What Python says to a frame.
pub enum ControlAnswer {
    /// The response from its correlation id on, without the size in front.
    Response(Vec<u8>),
    /// The key is one that Rust answers, and what was missing has been made.
    Again,
    /// The request cannot be answered: the connection is closed.
    Close,
}

/// What the control thread has to do.
#[derive(Default)]
pub struct Taken {
    /// Requests, in the order of their coming.
    pub frames: Vec<ControlFrame>,
    /// Numbers that Python gave to what it waits for (`ControlQueue::wake`).
    pub woken: Vec<u64>,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<ControlFrame>,
    woken: Vec<u64>,
    /// What became of appends, by their numbers, until Python asks.
    appended: HashMap<u64, CoordinatorAppended>,
    /// Sentences for the log that Python writes.
    notices: Vec<String>,
    is_closed: bool,
}

#[derive(Default)]
pub struct ControlQueue {
    queue: Mutex<Queue>,
    has_frames: Condvar,
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

    /// Notes what became of an append; `wake` with its number follows.
    pub fn appended(&self, number: u64, appended: CoordinatorAppended) {
        self.queue.lock().appended.insert(number, appended);
    }

    /// What became of an append; once.
    pub fn take_appended(&self, number: u64) -> Option<CoordinatorAppended> {
        self.queue.lock().appended.remove(&number)
    }

    /// Has Python log a sentence.
    pub fn notice(&self, sentence: String) {
        self.queue.lock().notices.push(sentence);
        self.has_frames.notify_one();
    }

    /// The sentences to be logged.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.queue.lock().notices)
    }

    /// Everything that waits; blocks until there is something, at most `timeout` (`None`: for ever).
    /// Nothing in it means that the time is over or that there are notices. `None`: the queue is closed
    /// and empty.
    pub fn take(&self, timeout: Option<Duration>) -> Option<Taken> {
        let mut queue = self.queue.lock();
        let is_idle = queue.frames.is_empty() && queue.woken.is_empty();
        if is_idle && queue.notices.is_empty() && !queue.is_closed {
            match timeout {
                Some(timeout) => {
                    self.has_frames.wait_for(&mut queue, timeout);
                }
                None => self.has_frames.wait(&mut queue),
            }
        }
        match queue.is_closed && queue.frames.is_empty() {
            true => None,
            false => Some(Taken {
                frames: queue.frames.drain(..).collect(),
                woken: std::mem::take(&mut queue.woken),
            }),
        }
    }

    /// `take` returns at once from now on.
    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.has_frames.notify_all();
    }
}
