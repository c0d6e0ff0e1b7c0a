//! The result of a call that Python asked for, kept under its number until Python comes for it.

use std::any::Any;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::append::AppendInfo;
use crate::replica::Partition;

/// An answer that only its caller knows the type of.
pub type Kept = Box<dyn Any + Send>;

/// The end of a call, for Python.
pub enum Answer {
    /// The first offset of records that are committed; the low watermark once others are deleted.
    Offset(i64),
    Kept(Kept),
    /// Logs were made or deleted, or metadata is durable.
    Done,
}

/// The result of a call, until Python asks.
pub struct LogAnswer {
    pub(super) result: Result<Answered>,
}

pub(super) enum Answered {
    Appended(Arc<Partition>, AppendInfo),
    /// Records below the offset, which are to go from all replicas.
    Deleted(Arc<Partition>, i64),
    Ended(Answer),
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
            Answered::Deleted(partition, offset) => {
                let unfinished = || Error::InvalidArgument("replicas have them still".to_owned());
                let deleted = partition.deleted_below(offset);
                return deleted
                    .unwrap_or_else(|| Err(unfinished()))
                    .map(Answer::Offset);
            }
            Answered::Ended(answer) => return Ok(answer),
        };
        let uncommitted = || Error::InvalidArgument("records are not committed yet".to_owned());
        match partition.committed(info.last_offset) {
            // Committed they are, and are read by whoever loads the partition next: a coordinator
            // that took its change back would contradict its log. Kafka's `CoordinatorRuntime` goes
            // by the high watermark, too.
            Some(Ok(()) | Err(Error::NotEnoughReplicasAfterAppend { .. })) => {
                Ok(Answer::Offset(info.first_offset))
            }
            Some(Err(error)) => Err(error),
            None => Err(uncommitted()),
        }
    }
}
