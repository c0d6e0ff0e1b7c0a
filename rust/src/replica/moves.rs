//! A replica is copied into another log directory of its node: a future replica there is fed from
//! the log, under the rules by which a follower is fed from its leader, until it has all and takes
//! the log's place (`Log::replace_by`). `node/moves/` drives it, and informs the controller.
//!
//! Kafka: `ReplicaAlterLogDirsThread`, `LocalLeaderEndPoint`.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::batch::AppendOrigin;
use crate::error::{Error, Result};
use crate::log::append::AppendRequest;
use crate::log::compact::cleaner_checkpoint;
use crate::log::directory::LogDirectory;
use crate::log::log::Log;
use crate::log::read::ReadIsolation;
use crate::replica::follower::replicate::{base_offset, bytes_up_to_epoch, split};
use crate::replica::park::{CONTROL_THREAD, Parked, Wake};
use crate::replica::wake_numbers::ASSIGNMENTS_NUMBER;
use crate::uuid::Uuid;

/// The log directory of a replica, as the controller is to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryAssignment {
    pub topic_id: Uuid,
    pub partition: i32,
    pub directory_id: Uuid,
}

/// Assignments on their way to the controller, taken by the control thread.
pub struct Assignments {
    gathered: Mutex<Vec<DirectoryAssignment>>,
    waker: Arc<dyn Wake>,
}

impl Assignments {
    pub fn new(waker: Arc<dyn Wake>) -> Assignments {
        Assignments {
            gathered: Mutex::default(),
            waker,
        }
    }

    /// Never waits for whoever takes them.
    pub fn add(&self, assignment: DirectoryAssignment) {
        self.gathered.lock().push(assignment);
        self.waker.wake(&[Parked {
            thread: CONTROL_THREAD,
            connection: 0,
            slot: ASSIGNMENTS_NUMBER,
        }]);
    }

    /// All that have come since, in their order.
    pub fn take(&self) -> Vec<DirectoryAssignment> {
        std::mem::take(&mut *self.gathered.lock())
    }
}

/// The copy of a log, as far as it has come. Used by one thread at a time.
pub struct Copying {
    current: Arc<Log>,
    /// The log directories of the log and of the future replica.
    way: (Arc<LogDirectory>, Arc<LogDirectory>),
    pub future: Arc<Log>,
    has_begun: bool,
    /// The log was clean below when the first byte was copied. What the cleaner has done
    /// since then the copy may lack.
    pub clean_offset: Option<i64>,
    /// How often the log had been cut when the two were last known to be one up to the
    /// end of the future replica.
    truncations: Option<u64>,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    /// Little was left to be copied.
    pub is_near_the_end: bool,
}

impl Copying {
    /// `way`: the log directories of the two logs.
    pub fn new(
        current: Arc<Log>,
        way: (Arc<LogDirectory>, Arc<LogDirectory>),
        future: Arc<Log>,
    ) -> Copying {
        Copying {
            current,
            way,
            future,
            has_begun: false,
            clean_offset: None,
            truncations: None,
        }
    }

    /// How many offsets the future replica lacks.
    pub fn lag(&self) -> i64 {
        let end = self.current.offsets().log_end_offset;
        (end - self.future.offsets().log_end_offset).max(0)
    }

    /// Copies the next batches, of about so many bytes, or cuts what the
    /// log does not have any more.
    ///
    /// Errors: of either log.
    pub fn step(&mut self, bytes_max: u64, now_ms: i64) -> Result<Copied> {
        self.begin(now_ms)?;
        self.reconcile(now_ms)?;
        let copied = self.copy(bytes_max, now_ms)?;
        self.follow_ends()?;
        Ok(copied)
    }

    /// Notes how far the log is clean. If another process has copied a part, the cleaner may have
    /// been at the log since, and have taken away a tombstone with what it had deleted, which the
    /// copy then has alone: of a log that is or was compacted all is copied anew.
    fn begin(&mut self, now_ms: i64) -> Result<()> {
        if self.has_begun {
            return Ok(());
        }
        self.current.await_replacement();
        let known = cleaner_checkpoint::read(&self.way.0)?;
        let clean_offset = cleaner_checkpoint::get(&known, &self.current);
        if self.future.size_bytes() > 0
            && (clean_offset.is_some() || self.current.config().cleanup_policy.compact)
        {
            self.start_anew(self.current.offsets().log_start_offset, now_ms)?;
        }
        self.clean_offset = clean_offset;
        self.has_begun = true;
        Ok(())
    }

    /// Does what can be done for `finish` while appends need not wait. After it returns, what was
    /// copied is on disk, and the future replica begins where the log does.
    pub fn prepare(&self) -> Result<()> {
        self.future.flush()?;
        self.future.advance_recovery_point()?;
        self.follow_ends()
    }

    fn follow_ends(&self) -> Result<()> {
        self.future
            .set_replicated_offset(self.current.high_watermark());
        let start = self.current.offsets().log_start_offset;
        let known = self.future.offsets();
        if start > known.log_start_offset && start <= known.high_watermark {
            self.future.advance_log_start_offset(start)?;
        }
        Ok(())
    }

    /// Copies all that is left; the log's appends and cuts wait meanwhile. `false`: it has been
    /// cut since the last step.
    pub fn finish(&mut self, bytes_max: u64, now_ms: i64) -> Result<bool> {
        if self.truncations != Some(self.current.truncations()) {
            return Ok(false);
        }
        while self.copy(bytes_max, now_ms)?.bytes > 0 {}
        Ok(true)
    }

    /// Has the future replica end where the two logs part, if the log was cut since the last look:
    /// by the epochs, since what was cut before a restart nobody remembers.
    fn reconcile(&mut self, now_ms: i64) -> Result<()> {
        let truncations = self.current.truncations();
        let (current, future) = (&self.current, &self.future);
        let (ends, own) = (current.offsets(), future.offsets());
        if own.log_end_offset < ends.log_start_offset {
            self.start_anew(ends.log_start_offset, now_ms)?;
            self.truncations = Some(truncations);
            return Ok(());
        }
        if self.truncations == Some(truncations) {
            return Ok(());
        }
        while let Some(end) = common_end(current, future) {
            self.cut_to(end, now_ms)?;
        }
        self.truncations = Some(truncations);
        Ok(())
    }

    fn copy(&self, bytes_max: u64, now_ms: i64) -> Result<Copied> {
        let from = self.future.offsets().log_end_offset;
        let range = self
            .current
            .read(from, bytes_max, true, ReadIsolation::LogEnd)?;
        let mut records = range.to_vec()?;
        let whole = bytes_up_to_epoch(&records, i32::MAX)?;
        let records = &mut records[..whole];
        if !records.is_empty() && base_offset(records) < from {
            // The log begins within its first batch, or this one ends within one that
            // the log does not have so.
            self.cut_to_batch(base_offset(records), now_ms)?;
        }
        append(&self.future, records, now_ms)?;
        let is_last = !range.is_on_older_segment && (whole as u64) < bytes_max / 2;
        Ok(Copied {
            bytes: whole as u64,
            is_near_the_end: is_last,
        })
    }

    fn cut_to_batch(&self, offset: i64, now_ms: i64) -> Result<()> {
        let own = self.future.offsets();
        if own.log_start_offset == own.log_end_offset {
            self.start_anew(offset, now_ms)
        } else {
            self.cut_to(offset, now_ms)
        }
    }

    /// The checkpoint files know of the cut: a start would not look at what is copied anew
    /// below the recovery point.
    fn cut_to(&self, offset: i64, now_ms: i64) -> Result<()> {
        let to = || &*self.way.1;
        cleaner_checkpoint::truncate(to, &self.future, offset, now_ms, || Ok(())).map(drop)
    }

    /// As `cut_to`.
    fn start_anew(&self, offset: i64, now_ms: i64) -> Result<()> {
        let to = || &*self.way.1;
        cleaner_checkpoint::start_anew(to, &self.future, offset, now_ms, || Ok(()))
    }
}

/// Where the future replica is to be cut, if it holds what the log does not.
fn common_end(current: &Log, future: &Log) -> Option<i64> {
    let (ends, own) = (current.offsets(), future.offsets());
    if own.log_end_offset == own.log_start_offset {
        return (own.log_end_offset > ends.log_end_offset).then_some(ends.log_end_offset);
    }
    let theirs = future
        .latest_epoch()
        .and_then(|epoch| current.end_of_epoch(epoch))
        .or_else(|| current.end_of_epoch(current.latest_epoch()?));
    let end = match theirs {
        // Of formats without epochs; what is committed is the same in both.
        None => ends.high_watermark,
        Some(theirs) => {
            let own_end = future.end_of_epoch(theirs.leader_epoch);
            let own_end = own_end.map_or(own.log_end_offset, |own_end| own_end.end_offset);
            theirs.end_offset.min(own_end)
        }
    };
    let end = end.min(ends.log_end_offset);
    (end < own.log_end_offset).then_some(end)
}

/// Appends whole batches of a log, with their offsets.
fn append(future: &Log, records: &mut [u8], now_ms: i64) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let segment_bytes = future.config().segment_bytes;
    let pieces = split(records, segment_bytes)?.into_iter();
    let mut requests: Vec<AppendRequest<'_>> = pieces
        .map(|records| AppendRequest {
            records,
            origin: AppendOrigin::Replication,
            leader_epoch: -1,
            transaction_version: None,
            guard: None,
        })
        .collect();
    let answers = future.append(&mut requests, now_ms).into_iter();
    let refused = answers.filter_map(|answer| answer.err()).next();
    refused.map_or(Ok(()), |error: Error| Err(error))
}
