//! Calls of logs for Python, and how the control thread goes on when one does not answer: appends of
//! its coordinators, and whatever `rust/src/py/log_calls.rs` asks; logs are made and deleted in
//! `log_lifecycle.rs`.
//!
//! ```text
//! Python       requests, timers ── call: queued ──┐                           ┌── answers
//! `wait`       the turn is left on its handoff, pwrite ┘  flushed or not needed: └ the call's number
//! ```
//!
//! The control thread makes the calls of its turn itself when it comes for more to do: it holds
//! neither the GIL nor any state of Python's there, so the spare thread can have the turn if a log
//! directory does not answer (`handoff.rs`). While that is so, or there is no spare thread, the calls
//! are the affair of each directory's own thread (`directory_queue.rs`). Either way Python is woken once there is
//! an answer, that of an append once its records are committed, or will never be: a frozen directory
//! holds up its own coordinators only.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::AppendOrigin;
use crate::error::{Error, Result};
use crate::image::Partition;
use crate::log::append::{AppendInfo, AppendRequest};
use crate::log::log::Log;
use crate::net::control::queue::{ControlQueue, Taken, Turn};
use crate::net::poller;
use crate::net::shared::Shared;
use crate::net::storage_call::StorageCall;
use crate::park::{CONTROL_THREAD, Parked, WaitFor};

/// A call of a partition's log, and the number by which Python knows it.
pub struct LogCall {
    pub partition: Arc<Partition>,
    pub call: Call,
    pub number: u64,
}

pub enum Call {
    /// Appends records of a coordinator. The answer comes once they are committed, or lost.
    Append(Vec<u8>),
    /// Asks the log something, and keeps the answer as the caller wants it.
    Ask(Ask),
}

type Ask = Box<dyn FnOnce(&Log) -> Result<Kept> + Send>;

/// An answer that only its caller knows the type of.
pub type Kept = Box<dyn Any + Send>;

/// The end of a call, for Python.
pub enum Answer {
    /// The first offset of records that are committed.
    Offset(i64),
    Kept(Kept),
    /// Logs were made or deleted, or metadata is durable.
    Done,
}

/// What became of a call, until Python asks.
pub struct LogAnswer {
    result: Result<Answered>,
}

enum Answered {
    Appended(Arc<Partition>, AppendInfo),
    Ended(Answer),
}

/// What the control thread has to do next: makes the calls that were queued, and blocks until there
/// is something, at most `timeout`. A thread that had to wait for its turn gets what there is then.
/// `None`: the plane has stopped.
pub fn wait(timeout: Option<Duration>, shared: &Arc<Shared>) -> Option<Taken> {
    let control = shared.control();
    loop {
        let turn = control.turn()?;
        // Which timer is due next was another thread's to know.
        let timeout = if turn.is_new {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        if call_all(turn, shared).is_some() {
            return control.take(timeout);
        }
    }
}

/// `None`: one took so long that another thread has gone on with the turn.
fn call_all(mut turn: Turn, shared: &Arc<Shared>) -> Option<Turn> {
    while let Some(work) = shared.control().next_call() {
        turn = perform(work, turn, shared)?;
    }
    Some(turn)
}

/// Makes the call here, or has the directory's own thread make it. `None` as above.
fn perform(mut work: StorageCall, turn: Turn, shared: &Arc<Shared>) -> Option<Turn> {
    let control = shared.control();
    let Some(queue) = work.queue(&shared.queues).cloned() else {
        work.run(shared, None, false);
        return Some(turn);
    };
    if !queue.is_open() || !control.has_spare() {
        work = match queue.put(work, CONTROL_THREAD, shared) {
            None => return Some(turn),
            Some(work) => work,
        };
    }
    let thread_id = poller::thread_id();
    let call = control
        .handoff
        .leave(turn, thread_id, queue.clone(), &shared.watch);
    work.run(shared, Some(queue.directory), false);
    let turn = control.handoff.back(call);
    if turn.is_none() {
        queue.recover();
    }
    turn
}

impl LogCall {
    /// Has it made by the next `wait`.
    pub fn queue(self, control: &ControlQueue) {
        control.call(StorageCall::LogCall(self));
    }

    pub fn run(self, control: &ControlQueue, now_ms: i64) {
        let LogCall {
            partition,
            call,
            number,
        } = self;
        let result = match call {
            Call::Append(records) => append(&partition, records, now_ms)
                .map(|info| Answered::Appended(partition.clone(), info)),
            Call::Ask(ask) => ask(&partition.log).map(|kept| Answered::Ended(Answer::Kept(kept))),
        };
        let end_offset = match &result {
            Ok(Answered::Appended(_, info)) => Some(info.last_offset + 1),
            _ => None,
        };
        // Before Python can be woken.
        control.answer(number, LogAnswer { result });
        match end_offset {
            Some(end_offset) => wake_once_committed(&partition, end_offset, number, control),
            None => control.wake(number),
        }
    }
}

fn append(partition: &Partition, mut records: Vec<u8>, now_ms: i64) -> Result<AppendInfo> {
    let mut requests = [AppendRequest {
        records: &mut records,
        origin: AppendOrigin::Coordinator,
        leader_epoch: partition.leader_epoch,
        transaction_version: None,
    }];
    let answer = partition.log.append(&mut requests, now_ms).into_iter();
    let none = || Err(Error::InvalidArgument("no records".to_owned()));
    answer.last().unwrap_or_else(none)
}

fn wake_once_committed(
    partition: &Arc<Partition>,
    end_offset: i64,
    number: u64,
    control: &ControlQueue,
) {
    if partition.log.config().acks_fsync {
        partition.request_flush();
    }
    let parked = Parked {
        thread: CONTROL_THREAD,
        connection: 0,
        slot: number,
    };
    let waiters = &partition.waiters;
    waiters.register(parked, WaitFor::Committed(end_offset));
    // What came before the registration woke nobody.
    let is_due = partition.log.high_watermark() >= end_offset || waiters.has_failed();
    if is_due && waiters.deregister(parked) {
        control.wake(number);
    }
}

impl LogAnswer {
    /// The end of a call that has nothing to say but whether it was made.
    pub fn done(result: Result<()>) -> LogAnswer {
        LogAnswer {
            result: result.map(|()| Answered::Ended(Answer::Done)),
        }
    }

    /// The answer. Errors: why the call was refused; why records are lost.
    pub fn take(self) -> Result<Answer> {
        let (partition, info) = match self.result? {
            Answered::Appended(partition, info) => (partition, info),
            Answered::Ended(answer) => return Ok(answer),
        };
        if partition.log.high_watermark() > info.last_offset {
            return Ok(Answer::Offset(info.first_offset));
        }
        partition.directory.health().check()?;
        Err(Error::LogDeleted {
            topic: partition.log.topic().to_owned(),
            partition: partition.index,
        })
    }
}
