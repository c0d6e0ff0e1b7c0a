//! The queue of requests that Python answers. Network threads put frames in; Python's control thread
//! blocks here, without the GIL, until frames or its timers wait, and takes them all at once.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

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

#[derive(Default)]
struct Queue {
    frames: VecDeque<ControlFrame>,
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

    /// Has Python log a sentence.
    pub fn notice(&self, sentence: String) {
        self.queue.lock().notices.push(sentence);
        self.has_frames.notify_one();
    }

    /// The sentences to be logged.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.queue.lock().notices)
    }

    /// All frames that wait; blocks until there is one, at most `timeout` (`None`: for ever). An empty
    /// list means that the time is over or that there are notices. `None`: the queue is closed and empty.
    pub fn take(&self, timeout: Option<Duration>) -> Option<Vec<ControlFrame>> {
        let mut queue = self.queue.lock();
        if queue.frames.is_empty() && queue.notices.is_empty() && !queue.is_closed {
            match timeout {
                Some(timeout) => {
                    self.has_frames.wait_for(&mut queue, timeout);
                }
                None => self.has_frames.wait(&mut queue),
            }
        }
        match queue.is_closed && queue.frames.is_empty() {
            true => None,
            false => Some(queue.frames.drain(..).collect()),
        }
    }

    /// `take` returns at once from now on.
    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.has_frames.notify_all();
    }
}
