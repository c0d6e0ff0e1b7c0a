//! Appends of Python's coordinators, and how the control thread goes on when one does not return.
//!
//! ```text
//! Python       requests, timers ── append: queued ──┐                         ┌── answers
//! `wait`       the turn is left on its seat, pwrite ┘  flushed or not needed: └ the append's number
//! ```
//!
//! The control thread makes the appends of its turn itself when it comes for more to do: it holds
//! neither the GIL nor any state of Python's there, so the spare thread can have the turn if a log
//! directory does not answer (`seat.rs`). While that is so, or there is no spare thread, the appends
//! are the affair of each directory's own thread (`gate.rs`). Either way Python is woken once its
//! records are committed, or will never be: a frozen directory holds up its own coordinators only.

use std::sync::Arc;
use std::time::Duration;

use super::control::{ControlQueue, Taken, Turn};
use super::plane::Shared;
use super::poller;
use super::work::Work;
use crate::batch::AppendOrigin;
use crate::error::{Error, Result};
use crate::image::Partition;
use crate::log::log::{AppendInfo, AppendRequest};
use crate::park::{CONTROL_THREAD, Parked, WaitFor};

/// Records for one partition, and by which number Python knows them.
pub struct CoordinatorAppend {
    pub partition: Arc<Partition>,
    pub records: Vec<u8>,
    pub number: u64,
}

/// What became of them.
pub struct CoordinatorAppended {
    partition: Arc<Partition>,
    result: Result<AppendInfo>,
}

/// What the control thread has to do next: makes the appends that were queued, and blocks until there
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
        if append_all(turn, shared).is_some() {
            return control.take(timeout);
        }
    }
}

/// `None`: one took so long that another thread has gone on with the turn.
fn append_all(mut turn: Turn, shared: &Arc<Shared>) -> Option<Turn> {
    while let Some(append) = shared.control().next_append() {
        turn = append.perform(turn, shared)?;
    }
    Some(turn)
}

impl CoordinatorAppend {
    /// Makes the append here, or has the directory's own thread make it. `None` as above.
    fn perform(self, turn: Turn, shared: &Arc<Shared>) -> Option<Turn> {
        let control = shared.control();
        let mut work = Work::Coordinate(self);
        let Some(gate) = work.gate(&shared.gates).cloned() else {
            work.run(shared, None, false);
            return Some(turn);
        };
        if !gate.is_open() || !control.has_spare() {
            work = match gate.put(work, CONTROL_THREAD, shared) {
                None => return Some(turn),
                Some(work) => work,
            };
        }
        let thread_id = poller::thread_id();
        let call = control
            .seat
            .leave(turn, thread_id, gate.clone(), &shared.watch);
        work.run(shared, Some(gate.directory), false);
        let turn = control.seat.back(call);
        if turn.is_none() {
            gate.recover();
        }
        turn
    }

    pub fn run(mut self, control: &ControlQueue, now_ms: i64) {
        let (partition, number) = (self.partition, self.number);
        let mut requests = [AppendRequest {
            records: &mut self.records,
            origin: AppendOrigin::Coordinator,
            leader_epoch: partition.leader_epoch,
            transaction_version: None,
        }];
        let answer = partition.log.append(&mut requests, now_ms).into_iter();
        let none = || Err(Error::InvalidArgument("no records".to_owned()));
        let result = answer.last().unwrap_or_else(none);
        let end_offset = result.as_ref().ok().map(|info| info.last_offset + 1);
        // Before Python can be woken.
        control.appended(
            number,
            CoordinatorAppended {
                partition: partition.clone(),
                result,
            },
        );
        let Some(end_offset) = end_offset else {
            return control.wake(number);
        };
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
        let is_due = partition.log.offsets().high_watermark >= end_offset || waiters.has_failed();
        if is_due && waiters.deregister(parked) {
            control.wake(number);
        }
    }
}

impl CoordinatorAppended {
    /// The first offset of records that are committed. Errors: why they were refused; why they are
    /// lost.
    pub fn first_offset(self) -> Result<i64> {
        let info = self.result?;
        if self.partition.log.offsets().high_watermark > info.last_offset {
            return Ok(info.first_offset);
        }
        self.partition.directory.health().check()?;
        Err(Error::LogDeleted {
            topic: self.partition.log.topic().to_owned(),
            partition: self.partition.index,
        })
    }
}
