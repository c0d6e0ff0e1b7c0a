//! Appends of Python's coordinators. The control thread hands records over and goes on: the log
//! directory's own thread appends them (`gate.rs`), and Python is woken once they are committed, or
//! will never be. A directory that does not answer so holds up its own coordinators only.

use std::sync::Arc;

use super::control::ControlQueue;
use super::plane::Shared;
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

impl CoordinatorAppend {
    /// Returns at once. Those of one partition are appended in the order of the calls.
    pub fn begin(self, shared: &Arc<Shared>) {
        let work = Work::Coordinate(self);
        let left = match work.gate(&shared.gates).cloned() {
            Some(gate) => gate.put(work, CONTROL_THREAD, shared),
            None => Some(work),
        };
        // Without a thread to be had, the caller's must do.
        if let Some(work) = left {
            work.run(shared);
        }
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
