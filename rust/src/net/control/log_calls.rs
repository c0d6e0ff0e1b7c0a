//! What Python asks of logs, and how the control thread goes on when one does not answer: appends of
//! its coordinators, DeleteRecords, DescribeProducers; and that logs be made and deleted (`log_lifecycle.rs`).
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

use std::sync::Arc;
use std::time::Duration;

use crate::batch::AppendOrigin;
use crate::error::{Error, Result};
use crate::image::Partition;
use crate::log::log::{AppendInfo, AppendRequest};
use crate::log::state::producers::ProducerState;
use crate::net::control::queue::{ControlQueue, Taken, Turn};
use crate::net::poller;
use crate::net::shared::Shared;
use crate::net::storage_call::StorageCall;
use crate::park::{CONTROL_THREAD, Parked, WaitFor};

/// What Python asks of a partition's log, and by which number Python knows it.
pub struct LogCall {
    pub partition: Arc<Partition>,
    pub asked: Asked,
    pub number: u64,
}

pub enum Asked {
    /// To append records of a coordinator.
    Append(Vec<u8>),
    /// To let go of the records below an offset.
    DeleteRecords(i64),
    /// What it knows of its producers.
    Producers,
}

/// What became of it.
pub struct LogAnswer {
    result: Result<Answered>,
}

enum Answered {
    Appended(Arc<Partition>, AppendInfo),
    LogStartOffset(i64),
    Producers(ProducerState),
    /// Logs have been made or deleted.
    Changed,
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
            asked,
            number,
        } = self;
        let log = &partition.log;
        let result = match asked {
            Asked::Append(records) => append(&partition, records, now_ms)
                .map(|info| Answered::Appended(partition.clone(), info)),
            Asked::DeleteRecords(offset) => log
                .advance_log_start_offset(offset)
                .map(Answered::LogStartOffset),
            Asked::Producers => Ok(Answered::Producers(log.producers())),
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
    /// Of logs that were to be made or deleted.
    pub fn changed(result: Result<()>) -> LogAnswer {
        LogAnswer {
            result: result.map(|()| Answered::Changed),
        }
    }

    /// Why they were not.
    pub fn change(self) -> Result<()> {
        match self.result? {
            Answered::Changed => Ok(()),
            _ => Err(not_asked()),
        }
    }

    /// The first offset of records that are committed. Errors: why they were refused; why they are
    /// lost.
    pub fn first_offset(self) -> Result<i64> {
        let Answered::Appended(partition, info) = self.result? else {
            return Err(not_asked());
        };
        if partition.log.high_watermark() > info.last_offset {
            return Ok(info.first_offset);
        }
        partition.directory.health().check()?;
        Err(Error::LogDeleted {
            topic: partition.log.topic().to_owned(),
            partition: partition.index,
        })
    }

    /// Where the log begins after DeleteRecords.
    pub fn log_start_offset(self) -> Result<i64> {
        match self.result? {
            Answered::LogStartOffset(offset) => Ok(offset),
            _ => Err(not_asked()),
        }
    }

    pub fn producers(self) -> Result<ProducerState> {
        match self.result? {
            Answered::Producers(state) => Ok(state),
            _ => Err(not_asked()),
        }
    }
}

fn not_asked() -> Error {
    Error::InvalidArgument("something else was asked under this number".to_owned())
}
