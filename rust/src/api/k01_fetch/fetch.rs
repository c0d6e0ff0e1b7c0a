//! A Fetch request while it is answered: what it asks for, and the logs as it found them.

use std::sync::Arc;

use crate::api::fetch_sessions::{Context, Member, Said, Wanted};
use crate::api::large::partitions::Rest;
use crate::api::leader::leads_still;
use crate::codes;
use crate::error::{Error, Result};
use crate::log::directory::LogDirectory;
use crate::log::read::{FetchedRange, ReadIsolation};
use crate::log::state::producers::AbortedTransaction;
use crate::replica::Partition;
use crate::replica::leader::{FetchRefusal, ReplicaFetch};
use crate::replica::park::{Parked, WaitFor};

/// From here on a client knows KAFKA_STORAGE_ERROR.
const STORAGE_ERROR_SINCE: i16 = 6;

/// An aborted transaction.
const ABORTED_BYTES: u64 = 17;

pub struct Fetch {
    pub(super) version: i16,
    pub(super) flexible: bool,
    pub(super) correlation_id: i32,
    pub max_wait_ms: i32,
    pub(super) min_bytes: u64,
    pub(super) max_bytes: u64,
    /// The room that a frame has for records and lists of aborted transactions.
    pub(super) content_bytes_max: u64,
    pub(super) isolation: ReadIsolation,
    pub(super) listener: usize,
    pub(super) context: Context,
    /// The partitions to read from a log come first, then those refused without reading.
    pub(super) partitions: Vec<FetchPartition>,
    /// How many of `partitions` are read from a log.
    pub(super) readable: usize,
    /// The follower that fetches, if it is one.
    pub(super) follower: Option<Follower>,
    /// Where a consumer is; empty where it does not say.
    pub(super) rack: Box<str>,
    /// It is registered at its partitions, or has been woken there.
    pub is_parked: bool,
    /// Bytes of the request, in which names of unknown topics may be.
    pub(super) body_bytes: usize,
    /// The partitions of a large one that there are not.
    pub(super) rest: Option<Rest>,
    pub(super) rest_bytes: usize,
}

/// A broker whose replicas follow those of this node.
pub(super) struct Follower {
    pub(super) replica_id: i32,
    /// -1: it does not say.
    pub(super) broker_epoch: i64,
    /// The times, of a clock that is not set back: when it came, and when the logs are looked at.
    pub(super) received_ms: i64,
    pub(super) now_ms: i64,
    /// So many of the partitions have been looked at once: of them the leader knows
    /// how far the follower is.
    pub(super) acknowledged: usize,
}

pub(super) struct FetchPartition {
    pub(super) member: Member,
    /// The refusal that is known before the log is read.
    pub(super) error_code: i16,
    pub(super) partition: Option<Arc<Partition>>,
}

/// Bytes of memory that a partition of a request that waits takes, with its place among those
/// who wait at the partition.
pub(super) const PARTITION_BYTES: usize =
    size_of::<FetchPartition>() + size_of::<(Parked, WaitFor)>();

/// The logs as a request found them at one moment, partition by partition in its order, as
/// far as they were looked at.
#[derive(Default)]
pub struct FetchRead {
    pub(super) parts: Vec<Part>,
    /// Bytes of records.
    pub(super) size_bytes: u64,
    /// Bytes of lists of aborted transactions, in the answer.
    pub(super) aborted_bytes: u64,
    pub(super) must_be_told: bool,
    /// A reader is on a segment that will not grow (`DelayedFetch`, case F).
    pub(super) is_on_older_segment: bool,
    /// Records are copied into memory where too many files are open.
    pub(super) copies_records: bool,
    /// So many bytes of records are copied; and of so many only the size is known.
    pub(super) copied_bytes: u64,
    pub(super) lacking_bytes: u64,
}

impl FetchRead {
    /// One that copies records into memory where too many files are open; others note their size.
    pub fn of_copies() -> FetchRead {
        FetchRead {
            copies_records: true,
            ..FetchRead::default()
        }
    }

    /// Bytes of records that are in memory.
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes as usize
    }

    /// Bytes of records of which only the size is known: for an answer with them the logs are to be
    /// read again, by one `of_copies`.
    pub fn lacking_bytes(&self) -> usize {
        self.lacking_bytes as usize
    }

    /// As if nothing had been looked at.
    pub fn clear(&mut self) {
        self.parts.clear();
        let parts = std::mem::take(&mut self.parts);
        *self = FetchRead {
            parts,
            copies_records: self.copies_records,
            ..FetchRead::default()
        };
    }

    /// As if there were no records but those that it has.
    pub fn drop_lacking(&mut self) {
        for part in &mut self.parts {
            let range = part.range.as_ref();
            if range.is_some_and(|range| range.is_forgotten()) {
                self.size_bytes -= part.size_bytes();
                self.aborted_bytes -= part.aborted_bytes();
                part.range = None;
                part.aborted = part.aborted.take().map(|_| Vec::new());
            }
        }
        self.lacking_bytes = 0;
    }

    /// Lets go of the file in which the records of a partition are, unless the answer may hold it.
    fn settle(&mut self, mut part: Part, directory: &LogDirectory) -> Result<Part> {
        if let Some(range) = &mut part.range
            && !range.is_empty()
            && directory.is_crowded()
        {
            if self.copies_records {
                range.release_file()?;
                self.copied_bytes += range.length_bytes;
            } else {
                range.forget_file();
                self.lacking_bytes += range.length_bytes;
            }
        }
        Ok(part)
    }
}

pub(super) struct Part {
    pub(super) error_code: i16,
    /// In which the log was led when it was looked at.
    pub(super) leading_epoch: i32,
    /// The follower is sent nothing of it for now.
    pub(super) is_throttled: bool,
    pub(super) log_end_offset: i64,
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    pub(super) log_start_offset: i64,
    /// Leader epoch and end offset from which on the client's log is another one.
    pub(super) diverging: Option<(i32, i64)>,
    /// Another replica, from which the consumer is to read.
    pub(super) preferred_read_replica: Option<i32>,
    pub(super) aborted: Option<Vec<AbortedTransaction>>,
    pub(super) range: Option<FetchedRange>,
}

impl Part {
    pub(super) fn refused(error_code: i16) -> Part {
        Part {
            error_code,
            leading_epoch: -1,
            is_throttled: false,
            log_end_offset: -1,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging: None,
            preferred_read_replica: None,
            aborted: None,
            range: None,
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.range.as_ref().map_or(0, |range| range.length_bytes)
    }

    /// Bytes of the list of aborted transactions in the answer.
    pub(super) fn aborted_bytes(&self) -> u64 {
        let count = self.aborted.as_ref().map_or(0, Vec::len);
        count as u64 * ABORTED_BYTES
    }

    pub(super) fn said(&self) -> Said {
        Said {
            error_code: self.error_code,
            high_watermark: self.high_watermark,
            log_start_offset: self.log_start_offset,
            has_records: self.size_bytes() > 0,
            has_diverged: self.diverging.is_some(),
            has_preferred_replica: self.preferred_read_replica.is_some(),
        }
    }
}

/// The code for a log that cannot be read, as a client of this version knows it.
pub(super) fn storage_error(version: i16) -> i16 {
    if version < STORAGE_ERROR_SINCE {
        return codes::NOT_LEADER_OR_FOLLOWER;
    }
    codes::KAFKA_STORAGE_ERROR
}

impl Fetch {
    /// The partitions whose logs are read.
    pub(super) fn readable(&self) -> &[FetchPartition] {
        self.partitions.get(..self.readable).unwrap_or_default()
    }

    /// Goes on reading the logs, in which it may block: it reads indexes and headers of segments.
    /// Cheap where nothing is new: a few comparisons a partition. False: the next one has records
    /// in a log directory that `may_read` does not allow.
    pub fn read_logs(
        &mut self,
        fetch_read: &mut FetchRead,
        may_read: impl Fn(&Arc<LogDirectory>) -> bool,
    ) -> bool {
        if fetch_read.parts.is_empty() {
            fetch_read.parts.reserve_exact(self.partitions.len());
        }
        let mut here = None;
        for place in fetch_read.parts.len()..self.readable {
            let Some(asked) = self.partitions.get(place) else {
                break;
            };
            if let Some(directory) = asked.partition.as_ref().map(|each| each.directory())
                && here.is_none_or(|here| !Arc::ptr_eq(here, directory))
            {
                if may_read(directory) {
                    here = Some(directory);
                } else if self.must_enter(place, asked) {
                    return false;
                }
            }
            let part = match (asked.error_code, &asked.partition) {
                (codes::NONE, Some(partition)) => self
                    .read_partition(&asked.member.wanted, partition, fetch_read)
                    .and_then(|part| self.acknowledge(place, asked, part))
                    .and_then(|part| fetch_read.settle(part, partition.directory()))
                    .unwrap_or_else(|error| Part::refused(self.error_code(&error))),
                (error_code, _) => Part::refused(error_code),
            };
            if let Some(follower) = &mut self.follower {
                follower.acknowledged = follower.acknowledged.max(place + 1);
            }
            fetch_read.must_be_told |= part.error_code != codes::NONE
                || part.diverging.is_some()
                || part.preferred_read_replica.is_some();
            let range = part.range.as_ref();
            fetch_read.is_on_older_segment |= range.is_some_and(|range| range.is_on_older_segment);
            fetch_read.size_bytes += part.size_bytes();
            fetch_read.aborted_bytes += part.aborted_bytes();
            fetch_read.parts.push(part);
        }
        let refused = self.partitions.iter().skip(self.readable);
        fetch_read.parts.extend(refused.map(|asked| Part {
            aborted: Some(Vec::new()),
            ..Part::refused(asked.error_code)
        }));
        true
    }

    /// The log directory in which `read_logs` has to read next.
    pub fn next_directory(&self, fetch_read: &FetchRead) -> Option<&Arc<LogDirectory>> {
        let mut left = self
            .readable()
            .iter()
            .enumerate()
            .skip(fetch_read.parts.len());
        let (_, next) = left.find(|(place, asked)| self.must_enter(*place, asked))?;
        next.partition
            .as_ref()
            .map(|partition| partition.directory())
    }

    /// The partition at this place has to be looked at by one who may wait in its log directory:
    /// there are records, or the high watermark may move, and with it transactions end.
    fn must_enter(&self, place: usize, asked: &FetchPartition) -> bool {
        let follower = self.follower.as_ref();
        follower.is_some_and(|follower| follower.acknowledged <= place) || self.has_records(asked)
    }

    /// Has the leader know how far a follower is, whose fetch was refused nothing. Once, so that a
    /// fetch which has waited says nothing new.
    fn acknowledge(&self, place: usize, asked: &FetchPartition, mut part: Part) -> Result<Part> {
        let (Some(follower), Some(partition)) = (&self.follower, &asked.partition) else {
            return Ok(part);
        };
        if follower.acknowledged > place
            || part.error_code != codes::NONE
            || part.diverging.is_some()
        {
            return Ok(part);
        }
        let wanted = &asked.member.wanted;
        let fetch = ReplicaFetch {
            replica_id: follower.replica_id,
            broker_epoch: follower.broker_epoch,
            fetch_offset: wanted.fetch_offset,
            log_start_offset: wanted.log_start_offset,
            leader_end_offset: part.log_end_offset,
        };
        let error_code = match partition.on_replica_fetch(&fetch, follower.received_ms) {
            Ok(()) => {
                // What it has just said may have moved it.
                part.high_watermark = partition.log.high_watermark();
                return Ok(part);
            }
            Err(FetchRefusal::NotAssigned) if wanted.current_leader_epoch >= 0 => {
                codes::UNKNOWN_LEADER_EPOCH
            }
            Err(_) => codes::NOT_LEADER_OR_FOLLOWER,
        };
        Ok(Part::refused(error_code))
    }

    /// There is something to read, or an offset that may be none: all else is in memory.
    fn has_records(&self, asked: &FetchPartition) -> bool {
        let (codes::NONE, Some(partition)) = (asked.error_code, &asked.partition) else {
            return false;
        };
        let offsets = partition.log.offsets();
        let end = match self.isolation {
            ReadIsolation::LastStable => offsets.last_stable_offset,
            ReadIsolation::HighWatermark => offsets.high_watermark,
            ReadIsolation::LogEnd => offsets.log_end_offset,
        };
        asked.member.wanted.fetch_offset < end
    }

    fn error_code(&self, error: &Error) -> i16 {
        match error.kafka_code() {
            codes::KAFKA_STORAGE_ERROR => storage_error(self.version),
            error_code => error_code,
        }
    }

    fn read_partition(
        &self,
        wanted: &Wanted,
        partition: &Partition,
        fetch_read: &FetchRead,
    ) -> Result<Part> {
        // It may have failed while the request waited.
        partition.directory().health().check()?;
        let leading_epoch = partition.log.leading_epoch();
        match leads_still(partition, wanted.current_leader_epoch) {
            codes::NONE => {}
            error_code => return Ok(Part::refused(error_code)),
        }
        let offsets = partition.log.offsets();
        let mut part = Part {
            leading_epoch,
            log_end_offset: offsets.log_end_offset,
            high_watermark: offsets.high_watermark,
            last_stable_offset: offsets.last_stable_offset,
            log_start_offset: offsets.log_start_offset,
            ..Part::refused(codes::NONE)
        };
        if wanted.last_fetched_epoch >= 0 {
            part.diverging = diverging(wanted, partition)?;
            if part.diverging.is_some() {
                return Ok(part);
            }
        }
        if self.follower.is_none() && !self.rack.is_empty() {
            let from = wanted.fetch_offset;
            part.preferred_read_replica = partition.preferred_read_replica(&self.rack, from);
            if part.preferred_read_replica.is_some() {
                return Ok(part);
            }
        }
        if self.is_throttled(partition)
            && (offsets.log_start_offset..=offsets.log_end_offset).contains(&wanted.fetch_offset)
        {
            part.is_throttled = true;
            part.range = Some(FetchedRange::empty(wanted.fetch_offset));
            return Ok(part);
        }
        let room_bytes = self.content_bytes_max - fetch_read.size_bytes - fetch_read.aborted_bytes;
        let mut max_bytes = self.max_bytes.saturating_sub(fetch_read.size_bytes);
        max_bytes = max_bytes.min(wanted.max_bytes).min(room_bytes);
        let mut min_one_batch = fetch_read.size_bytes == 0;
        loop {
            self.read_records(&mut part, wanted, partition, max_bytes, min_one_batch)?;
            let (size_bytes, aborted_bytes) = (part.size_bytes(), part.aborted_bytes());
            if size_bytes + aborted_bytes <= room_bytes {
                return Ok(part);
            }
            // Of fewer records the list is no longer, unless a transaction has ended meanwhile.
            let left_bytes = room_bytes.saturating_sub(aborted_bytes);
            max_bytes = left_bytes.min(size_bytes.saturating_sub(1));
            min_one_batch = false;
        }
    }

    /// The follower that fetches is sent nothing of the partition for now.
    fn is_throttled(&self, partition: &Partition) -> bool {
        let follower = self.follower.as_ref();
        follower.is_some_and(|follower| partition.holds_back(follower.replica_id, follower.now_ms))
    }

    /// Reads the records of a partition, and which of their transactions are aborted.
    fn read_records(
        &self,
        part: &mut Part,
        wanted: &Wanted,
        partition: &Partition,
        max_bytes: u64,
        min_one_batch: bool,
    ) -> Result<()> {
        let (log, from) = (&partition.log, wanted.fetch_offset);
        let (mut range, aborted) = match self.isolation {
            ReadIsolation::LastStable => {
                let (range, aborted) = log.read_committed(from, max_bytes, min_one_batch)?;
                (range, Some(aborted))
            }
            isolation => (log.read(from, max_bytes, min_one_batch, isolation)?, None),
        };
        part.aborted = aborted;
        if range.first_batch_is_cut {
            range = FetchedRange::empty(from);
            part.aborted = part.aborted.take().map(|_| Vec::new());
        }
        part.range = Some(range);
        Ok(())
    }

    /// The logs are looked at now, again or for the first time, by the clock by
    /// which the request was read.
    pub fn note_time(&mut self, now_ms: u64) {
        if let Some(follower) = &mut self.follower {
            follower.now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        }
    }

    /// The answer must not wait.
    pub fn is_due(&self, fetch_read: &FetchRead) -> bool {
        fetch_read.must_be_told
            || self.max_wait_ms == 0
            || fetch_read.size_bytes >= self.min_bytes
            || fetch_read.is_on_older_segment
            || self.readable == 0
    }

    /// Bytes of memory that the request takes while it waits.
    pub fn memory_bytes(&self) -> usize {
        self.body_bytes + self.rest_bytes + self.partitions.len() * PARTITION_BYTES
    }

    /// Bytes of records in the answer: what a quota counts.
    pub fn size_bytes(&self, fetch_read: &FetchRead) -> usize {
        fetch_read.size_bytes as usize
    }

    /// A follower fetches, which no client's quota holds back.
    pub fn is_of_follower(&self) -> bool {
        self.follower.is_some()
    }

    /// Partitions to wait at, each with the event for which it waits after `fetch_read`.
    pub fn wait_for<'a>(
        &'a self,
        fetch_read: &'a FetchRead,
    ) -> impl Iterator<Item = (&'a Arc<Partition>, WaitFor)> {
        self.seen(fetch_read).map(|(partition, part)| {
            let wait_for = match self.isolation {
                ReadIsolation::LastStable => WaitFor::LastStable(part.last_stable_offset),
                ReadIsolation::HighWatermark => WaitFor::HighWatermark(part.high_watermark),
                // Whatever is appended there, it is not for now.
                ReadIsolation::LogEnd if part.is_throttled => WaitFor::LogEnd(i64::MAX),
                ReadIsolation::LogEnd => WaitFor::LogEnd(part.log_end_offset),
            };
            (partition, wait_for)
        })
    }

    fn seen<'a>(
        &'a self,
        fetch_read: &'a FetchRead,
    ) -> impl Iterator<Item = (&'a Arc<Partition>, &'a Part)> {
        let seen = self.readable().iter().zip(&fetch_read.parts);
        seen.filter_map(|(asked, part)| Some((asked.partition.as_ref()?, part)))
    }

    /// A partition at which the request waits has something that `fetch_read` had not.
    pub fn has_moved(&self, fetch_read: &FetchRead) -> bool {
        let is_led_anew = |(partition, part): (&Arc<Partition>, &Part)| {
            partition.log.leading_epoch() != part.leading_epoch
        };
        let has_come = |(partition, wait_for): (&Arc<Partition>, WaitFor)| {
            wait_for.is_met(&partition.log.offsets()) || partition.waiters.has_failed()
        };
        self.seen(fetch_read).any(is_led_anew) || self.wait_for(fetch_read).any(has_come)
    }

    /// The partitions at which the request may be parked.
    pub fn parked_at(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.readable()
            .iter()
            .filter_map(|asked| asked.partition.as_ref())
    }
}

/// Where the client's log, whose last record is of `last_fetched_epoch`, ceased to be ours
/// (KIP-595). Errors: `OffsetOutOfRange` where that cannot be said.
fn diverging(wanted: &Wanted, partition: &Partition) -> Result<Option<(i32, i64)>> {
    let offsets = partition.log.offsets();
    match partition.log.end_of_epoch(wanted.last_fetched_epoch) {
        Some(end) if wanted.fetch_offset >= offsets.log_start_offset => {
            let has_diverged = end.leader_epoch < wanted.last_fetched_epoch
                || end.end_offset < wanted.fetch_offset;
            Ok(has_diverged.then_some((end.leader_epoch, end.end_offset)))
        }
        _ => Err(Error::OffsetOutOfRange {
            offset: wanted.fetch_offset,
            log_start_offset: offsets.log_start_offset,
            log_end_offset: offsets.log_end_offset,
        }),
    }
}
