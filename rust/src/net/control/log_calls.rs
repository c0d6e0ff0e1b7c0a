//! Calls of logs for Python: appends of its coordinators, and whatever
//! `rust/src/py/broker/log_calls.rs` asks. Python is woken by the number of a call once there is an
//! answer, that of an append once its records are committed, or will never be.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::append::AppendInfo;
use crate::log::log::Log;
use crate::net::control::answer::{Answer, Answered, Kept, LogAnswer};
use crate::net::control::queue::{ControlCall, ControlQueue};
use crate::net::storage_io::{QueueId, QueueKind, StorageIo};
use crate::replica::park::{CONTROL_THREAD, Parked, WaitFor};
use crate::replica::{Batches, Partition};

/// A call of a partition's log, and the number by which Python knows it.
pub struct LogCall {
    pub partition: Arc<Partition>,
    pub call: LogOperation,
    pub number: u64,
}

pub enum LogOperation {
    /// Appends records of a coordinator. The answer comes once they are committed, or lost.
    Append(OfCoordinator),
    /// Deletes the records below an offset. The answer comes once no replica that
    /// lives has them any more.
    DeleteRecords(i64),
    /// Asks the log something, and keeps the answer as the caller wants it.
    Ask(Ask),
}

pub struct OfCoordinator {
    pub records: Vec<u8>,
    /// The transaction version of the markers among the records.
    pub transaction_version: Option<i16>,
    /// The leader epoch in which they were decided; they are taken in no other.
    pub decided_in: Option<i32>,
}

type Ask = Box<dyn FnOnce(&Log) -> Result<Kept> + Send>;

impl ControlCall for LogCall {
    fn queue(&self, storage: &StorageIo) -> QueueId {
        let number = storage.number_of(self.partition.directory());
        QueueId::Directory(QueueKind::LogCalls, number)
    }

    fn run(self: Box<Self>, control: &ControlQueue, now_ms: i64) {
        let LogCall {
            partition,
            call,
            number,
        } = *self;
        let result = match call {
            LogOperation::Append(given) => append(&partition, given, now_ms)
                .map(|info| Answered::Appended(partition.clone(), info)),
            LogOperation::DeleteRecords(offset) => partition
                .leading_epoch()
                .and_then(|_| partition.log.advance_log_start_offset(offset))
                .map(|start| Answered::Deleted(partition.clone(), start)),
            LogOperation::Ask(ask) => {
                ask(&partition.log).map(|kept| Answered::Ended(Answer::Kept(kept)))
            }
        };
        let wait_for = match &result {
            Ok(Answered::Appended(_, info)) => Some(WaitFor::Committed(info.last_offset + 1)),
            Ok(Answered::Deleted(_, offset)) => Some(WaitFor::LowWatermark(*offset)),
            _ => None,
        };
        // Before Python can be woken.
        control.answer(number, LogAnswer { result });
        match wait_for {
            Some(wait_for) => wake_once_met(&partition, wait_for, number, control),
            None => control.wake(number),
        }
    }
}

fn append(partition: &Partition, mut given: OfCoordinator, now_ms: i64) -> Result<AppendInfo> {
    let batches = std::iter::once(Batches::OfCoordinator {
        records: &mut given.records,
        transaction_version: given.transaction_version,
        decided_in: given.decided_in,
    });
    let answer = partition.append(batches, now_ms);
    let none = || Err(Error::InvalidArgument("no records".to_owned()));
    answer.into_iter().last().unwrap_or_else(none)
}

fn wake_once_met(
    partition: &Arc<Partition>,
    wait_for: WaitFor,
    number: u64,
    control: &ControlQueue,
) {
    if matches!(wait_for, WaitFor::Committed(_)) && partition.log.config().acks_fsync {
        partition.request_flush();
    }
    let parked = Parked {
        thread: CONTROL_THREAD,
        connection: 0,
        slot: number,
    };
    let waiters = &partition.waiters;
    waiters.register(parked, wait_for);
    // What came before the registration woke nobody.
    let is_met = match wait_for {
        WaitFor::LowWatermark(target) => partition.low_watermark() >= target,
        _ => wait_for.is_met(&partition.log.offsets()),
    };
    let is_due = is_met || waiters.has_failed();
    if is_due && waiters.deregister(parked) {
        control.wake(number);
    }
}
