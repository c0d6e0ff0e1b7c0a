//! Records of the metadata on their way to disk. The control thread brings them there when it comes
//! back for more to do, and the spare one goes on if the directory of the metadata does not answer
//! (`wait.rs`); Python is woken once they are durable, or are known not to be.

use std::sync::Arc;
use std::thread;

use crate::batch::AppendOrigin;
use crate::error::Result;
use crate::limits::DESCRIPTORS_RETRY;
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
        let result = self.append(control, now_ms);
        // Before Python can be woken.
        control.answer(number, LogAnswer::done(result));
        control.wake(number);
    }
}

impl MetadataAppend {
    /// The batches before one that fails are in the log.
    fn append(self, control: &ControlQueue, now_ms: i64) -> Result<()> {
        for mut records in self.batches {
            with_descriptors(control, || {
                let mut requests = [AppendRequest {
                    records: &mut records,
                    origin: AppendOrigin::Replication,
                    leader_epoch: self.leader_epoch,
                    transaction_version: None,
                    guard: None,
                }];
                let answers = self.log.append(&mut requests, now_ms);
                answers.into_iter().try_for_each(|answer| answer.map(drop))
            })?;
        }
        with_descriptors(control, || self.log.flush())
    }
}

/// Tries again for as long as there is no descriptor for a file and the broker does not stop:
/// nothing has been done to the file then, and metadata that cannot be written would end the
/// broker.
fn with_descriptors(control: &ControlQueue, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let mut has_told = false;
    loop {
        match work() {
            Err(error) if error.lacks_descriptors() && !control.is_closed() => {
                if !std::mem::replace(&mut has_told, true) {
                    control.warn(format!("the metadata waits to be written: {error}"));
                }
                thread::sleep(DESCRIPTORS_RETRY);
            }
            result => return result,
        }
    }
}
