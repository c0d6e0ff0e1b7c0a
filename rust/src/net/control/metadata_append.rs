//! Records of the metadata on their way to disk. The control thread brings them there when it comes
//! back for more to do, and the spare one goes on if the directory of the metadata does not answer
//! (`wait.rs`); Python is woken once they are durable, or are known not to be.

use std::sync::Arc;

use crate::batch::AppendOrigin;
use crate::error::Result;
use crate::log::append::AppendRequest;
use crate::log::log::Log;
use crate::net::control::answer::LogAnswer;
use crate::net::control::queue::{ControlCall, ControlQueue};
use crate::net::storage_io::{QueueId, StorageIo};

/// Batches that become durable together. Python has one of these under way at a time.
pub struct MetadataAppend {
    log: Arc<Log>,
    batches: Vec<Vec<u8>>,
    leader_epoch: i32,
    /// By which Python knows it.
    number: u64,
}

/// Has batches brought to disk. Python is woken by the number then.
pub fn append(
    log: Arc<Log>,
    batches: Vec<Vec<u8>>,
    leader_epoch: i32,
    number: u64,
    control: &ControlQueue,
) {
    control.call(MetadataAppend {
        log,
        batches,
        leader_epoch,
        number,
    });
}

impl ControlCall for MetadataAppend {
    fn queue(&self, _: &StorageIo) -> QueueId {
        QueueId::Metadata
    }

    fn run(self: Box<Self>, control: &ControlQueue, now_ms: i64) {
        let number = self.number;
        let result = self.append(now_ms);
        // Before Python can be woken.
        control.answer(number, LogAnswer::done(result));
        control.wake(number);
    }
}

impl MetadataAppend {
    /// The batches before one that fails are in the log.
    fn append(self, now_ms: i64) -> Result<()> {
        for mut records in self.batches {
            let mut requests = [AppendRequest {
                records: &mut records,
                origin: AppendOrigin::Replication,
                leader_epoch: self.leader_epoch,
                transaction_version: None,
                guard: None,
            }];
            for answer in self.log.append(&mut requests, now_ms) {
                answer?;
            }
        }
        self.log.flush()
    }
}
