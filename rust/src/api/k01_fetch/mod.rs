//! Fetch (key 1), versions 4 to 18.
//!
//! Behaviour: `read` reads the request (`request.rs`) and finds its session (`fetch_sessions/`);
//! `Fetch::look` reads the logs, those of one log directory at a time, and `is_due` says whether the
//! answer is due: `min_bytes` are there, or all that a segment will ever give, or a log refused, or
//! nothing may be waited for; else the caller parks the request on its partitions (`wait_for`) and looks
//! again when woken, at the latest after `max_wait_ms`. `answer` (`answer.rs`) writes the response as a
//! queue of chunks, the records being ranges of segment files. Partitions are read in order until
//! `max_bytes` are full. The first one with records gives its first batch whole, even if that is larger
//! than the limits (KIP-74); a later one whose first batch does not fit gives nothing. Whatever the limits,
//! all of an answer fits into a frame. An incremental answer holds only partitions with something new
//! (KIP-227).
//!
//! Refusals of the request: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
//! FETCH_SESSION_TOPIC_ID_ERROR. Per partition, before the logs are asked and behind all others in the
//! answer: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION. By the log:
//! INCONSISTENT_TOPIC_ID, where the topic of a session was made anew; FENCED_LEADER_EPOCH,
//! UNKNOWN_LEADER_EPOCH; NOT_LEADER_OR_FOLLOWER where another node leads, also by now if the request
//! waited, and for a replica's fetch (no follower is led here);
//! OFFSET_OUT_OF_RANGE below the log start and above the log end (between the high watermark and the
//! log end there is nothing yet, and no error); KAFKA_STORAGE_ERROR, also where the log directory is offline,
//! before version 6 as NOT_LEADER_OR_FOLLOWER. These end the wait, the others do not.
//!
//! Version notes: v4 isolation level (KIP-98); v7 sessions; v9 leader epoch; v11 rack; v12 flexible,
//! diverging epochs (KIP-595); v13 topic ids (KIP-516); v15 replica state (KIP-903); v16 current leader and
//! node endpoints (KIP-951); v17 directory id and v18 high watermark, for replicas only.

mod answer;
mod large;
mod request;

use std::sync::Arc;

use answer::{ABORTED_BYTES, content_bytes_max, frame_bytes};
pub use large::read_large;
pub use request::memory_bytes_ahead;

use super::fetch_sessions::{Context, FetchSessions, Member, Said, TopicKey, Wanted};
use super::large::partitions::Rest;
use super::{ApiKey, Ask, code, leader, leads_still};
use crate::access::{Operation, Resource};
use crate::error::{Error, Result};
use crate::image::Topic;
use crate::log::directory::LogDirectory;
use crate::log::read::{FetchedRange, ReadIsolation};
use crate::log::state::producers::AbortedTransaction;
use crate::replica::Partition;
use crate::replica::park::{Parked, WaitFor};
use crate::wire::{Reader, RequestHeader};

pub const KEY: ApiKey = ApiKey {
    key: 1,
    advertised_min: 4,
    min: 4,
    max: 18,
    first_flexible: 12,
};

/// From here on a client knows KAFKA_STORAGE_ERROR.
const STORAGE_ERROR_SINCE: i16 = 6;

pub struct Fetch {
    version: i16,
    flexible: bool,
    correlation_id: i32,
    pub max_wait_ms: i32,
    min_bytes: u64,
    max_bytes: u64,
    /// The room that a frame has for records and lists of aborted transactions.
    content_bytes_max: u64,
    isolation: ReadIsolation,
    listener: usize,
    context: Context,
    /// Those that a log is asked for first, then those that are refused without.
    partitions: Vec<FetchPartition>,
    /// How many of `partitions` a log is asked for.
    readable: usize,
    /// It is registered at its partitions, or has been woken there.
    pub is_parked: bool,
    /// Bytes of the request, in which names of unknown topics may be.
    body_bytes: usize,
    /// The partitions of a large one that there are not.
    rest: Option<Rest>,
    rest_bytes: usize,
}

struct FetchPartition {
    member: Member,
    /// The refusal that is known before the log is read.
    error_code: i16,
    partition: Option<Arc<Partition>>,
}

/// Bytes of memory that a partition of a request that waits takes, with its place among those who wait at
/// the partition.
const PARTITION_BYTES: usize = size_of::<FetchPartition>() + size_of::<(Parked, WaitFor)>();

/// The logs as a request found them at one moment, partition by partition in its order, as far as they
/// were looked at.
#[derive(Default)]
pub struct Looked {
    parts: Vec<Part>,
    /// Bytes of records.
    size_bytes: u64,
    /// Bytes of lists of aborted transactions, in the answer.
    aborted_bytes: u64,
    must_be_told: bool,
    /// A reader is on a segment that will not grow (`DelayedFetch`, case F).
    is_on_older_segment: bool,
}

impl Looked {
    /// As if nothing had been looked at.
    pub fn clear(&mut self) {
        self.parts.clear();
        let parts = std::mem::take(&mut self.parts);
        *self = Looked {
            parts,
            ..Looked::default()
        };
    }
}

struct Part {
    error_code: i16,
    /// In which the log was led when it was looked at.
    leading_epoch: i32,
    high_watermark: i64,
    last_stable_offset: i64,
    log_start_offset: i64,
    /// Leader epoch and end offset from which on the client's log is another one.
    diverging: Option<(i32, i64)>,
    aborted: Option<Vec<AbortedTransaction>>,
    range: Option<FetchedRange>,
}

impl Part {
    fn refused(error_code: i16) -> Part {
        Part {
            error_code,
            leading_epoch: -1,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging: None,
            aborted: None,
            range: None,
        }
    }

    fn size_bytes(&self) -> u64 {
        self.range.as_ref().map_or(0, |range| range.length_bytes)
    }

    /// Bytes of the list of aborted transactions in the answer.
    fn aborted_bytes(&self) -> u64 {
        let count = self.aborted.as_ref().map_or(0, Vec::len);
        count as u64 * ABORTED_BYTES
    }

    fn said(&self) -> Said {
        Said {
            error_code: self.error_code,
            high_watermark: self.high_watermark,
            log_start_offset: self.log_start_offset,
            has_records: self.size_bytes() > 0,
            has_diverged: self.diverging.is_some(),
        }
    }
}

/// Reads the request and finds its session. `reader` stands behind the header; `bytes_max` is
/// `fetch.max.bytes`.
pub fn read(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    sessions: &FetchSessions,
    bytes_max: u64,
    now_ms: u64,
) -> Result<Fetch> {
    let body_bytes = reader.remaining();
    let request = request::parse(header, reader, ask, None)?;
    let (session, forgotten) = (request.session, &request.forgotten);
    let opened = sessions.open(session, request.asked, forgotten, now_ms);
    let asks = request.asks;
    begin(header, &asks, ask, opened, None, (bytes_max, body_bytes))
}

fn may_replicate(ask: &Ask<'_>) -> bool {
    ask.may(Operation::ClusterAction, Resource::Cluster)
}

/// The request with its session and the partitions that it is about.
fn begin(
    header: &RequestHeader<'_>,
    request: &request::Asks,
    ask: &Ask<'_>,
    (context, members): (Context, Vec<Member>),
    rest: Option<Rest>,
    (bytes_max, body_bytes): (u64, usize),
) -> Result<Fetch> {
    let is_replica = request.replica_id >= 0;
    let may_replicate = is_replica && may_replicate(ask);
    let mut partitions = Vec::with_capacity(members.len());
    let mut refused = Vec::new();
    for member in members {
        let (error_code, partition) = match resolve(&member, ask, is_replica, may_replicate) {
            Ok(topic) => located(&member, topic, is_replica, header.api_version),
            Err(error_code) => {
                refused.push(FetchPartition {
                    member,
                    error_code,
                    partition: None,
                });
                continue;
            }
        };
        partitions.push(FetchPartition {
            member,
            error_code,
            partition,
        });
    }
    if !is_replica {
        // Kafka looks at all ids before it looks at partitions.
        refused.sort_by_key(|each| each.error_code != code::UNKNOWN_TOPIC_ID);
    }
    let readable = partitions.len();
    partitions.append(&mut refused);
    let of_rest = rest.as_ref().map_or(0, |rest| rest.later.left_bytes());
    let content_bytes_max = content_bytes_max(frame_bytes(&partitions) + of_rest as u64)?;
    let max_bytes = u64::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(bytes_max)
        .min(content_bytes_max);
    Ok(Fetch {
        version: header.api_version,
        flexible: header.flexible,
        correlation_id: header.correlation_id,
        max_wait_ms: request.max_wait_ms.max(0),
        min_bytes: u64::try_from(request.min_bytes).unwrap_or(0).min(max_bytes),
        max_bytes,
        content_bytes_max,
        isolation: match request.isolation {
            1 => ReadIsolation::LastStable,
            _ => ReadIsolation::HighWatermark,
        },
        listener: ask.caller.listener,
        context,
        partitions,
        readable,
        is_parked: false,
        // The rest keeps the whole frame.
        body_bytes: if rest.is_some() { 0 } else { body_bytes },
        rest_bytes: rest.as_ref().map_or(0, |rest| rest.later.memory_bytes()),
        rest,
    })
}

/// The topic of a partition that there is, or why it is refused before any log is asked.
fn resolve<'a>(
    member: &Member,
    ask: &Ask<'a>,
    is_replica: bool,
    may_replicate: bool,
) -> std::result::Result<&'a Topic, i16> {
    if is_replica && !may_replicate {
        return Err(code::TOPIC_AUTHORIZATION_FAILED);
    }
    let by_id = match &member.key.0 {
        TopicKey::Id(id) => ask.image.topic_by_id(id),
        TopicKey::Name(_) => None,
    };
    let name = by_id.map(|topic| &topic.name).or(member.name.as_ref());
    let Some(name) = name else {
        return Err(code::UNKNOWN_TOPIC_ID);
    };
    if !is_replica && !ask.may(Operation::Read, Resource::Topic(name)) {
        return Err(code::TOPIC_AUTHORIZATION_FAILED);
    }
    let topic = by_id.or_else(|| ask.image.topic(name));
    let topic = topic.filter(|topic| topic.has(member.key.1));
    topic
        .map(|topic| &**topic)
        .ok_or(code::UNKNOWN_TOPIC_OR_PARTITION)
}

/// The replica whose log is asked, or the refusal that is known before.
fn located(
    member: &Member,
    topic: &Topic,
    is_replica: bool,
    version: i16,
) -> (i16, Option<Arc<Partition>>) {
    let found = leader(topic, member.key.1, member.wanted.current_leader_epoch);
    match found {
        Err(code::KAFKA_STORAGE_ERROR) => (storage_error(version), None),
        // A session's topic may have been deleted and made anew under its name.
        _ if matches!(member.key.0, TopicKey::Id(id) if id != topic.id) => {
            (code::INCONSISTENT_TOPIC_ID, None)
        }
        Err(error_code) => (error_code, None),
        Ok(_) if is_replica => (code::NOT_LEADER_OR_FOLLOWER, None),
        Ok(partition) => (code::NONE, Some(partition.clone())),
    }
}

/// The code for a log that cannot be read, as a client of this version knows it.
fn storage_error(version: i16) -> i16 {
    if version < STORAGE_ERROR_SINCE {
        return code::NOT_LEADER_OR_FOLLOWER;
    }
    code::KAFKA_STORAGE_ERROR
}

impl Fetch {
    /// Those whose logs are asked.
    fn readable(&self) -> &[FetchPartition] {
        self.partitions.get(..self.readable).unwrap_or_default()
    }

    /// Goes on reading the logs, in which it may block: it reads indexes and headers of segments. Cheap
    /// where nothing is new: a few comparisons a partition. False: the next one has records in a log
    /// directory that `may_read` does not allow.
    pub fn look(&self, looked: &mut Looked, may_read: impl Fn(&Arc<LogDirectory>) -> bool) -> bool {
        if looked.parts.is_empty() {
            looked.parts.reserve_exact(self.partitions.len());
        }
        let mut here = None;
        for asked in self.readable().iter().skip(looked.parts.len()) {
            if let Some(directory) = asked.partition.as_ref().map(|each| &each.directory)
                && here.is_none_or(|here| !Arc::ptr_eq(here, directory))
            {
                if may_read(directory) {
                    here = Some(directory);
                } else if self.has_records(asked) {
                    return false;
                }
            }
            let part = match (asked.error_code, &asked.partition) {
                (code::NONE, Some(partition)) => self
                    .read_partition(&asked.member.wanted, partition, looked)
                    .unwrap_or_else(|error| Part::refused(self.error_code(&error))),
                (error_code, _) => Part::refused(error_code),
            };
            looked.must_be_told |= part.error_code != code::NONE || part.diverging.is_some();
            let range = part.range.as_ref();
            looked.is_on_older_segment |= range.is_some_and(|range| range.is_on_older_segment);
            looked.size_bytes += part.size_bytes();
            looked.aborted_bytes += part.aborted_bytes();
            looked.parts.push(part);
        }
        let refused = self.partitions.iter().skip(self.readable);
        looked.parts.extend(refused.map(|asked| Part {
            aborted: Some(Vec::new()),
            ..Part::refused(asked.error_code)
        }));
        true
    }

    /// The log directory in which `look` has to read next.
    pub fn next_directory(&self, looked: &Looked) -> Option<&Arc<LogDirectory>> {
        let mut left = self.readable().iter().skip(looked.parts.len());
        let next = left.find(|asked| self.has_records(asked))?;
        next.partition
            .as_ref()
            .map(|partition| &partition.directory)
    }

    /// There is something to read, or an offset that may be none: all else is in memory.
    fn has_records(&self, asked: &FetchPartition) -> bool {
        let (code::NONE, Some(partition)) = (asked.error_code, &asked.partition) else {
            return false;
        };
        let offsets = partition.log.offsets();
        let end = match self.isolation {
            ReadIsolation::LastStable => offsets.last_stable_offset,
            _ => offsets.high_watermark,
        };
        asked.member.wanted.fetch_offset < end
    }

    fn error_code(&self, error: &Error) -> i16 {
        match error.kafka_code() {
            code::KAFKA_STORAGE_ERROR => storage_error(self.version),
            error_code => error_code,
        }
    }

    fn read_partition(
        &self,
        wanted: &Wanted,
        partition: &Partition,
        looked: &Looked,
    ) -> Result<Part> {
        // It may have failed while the request waited.
        partition.directory.health().check()?;
        let leading_epoch = partition.log.leading_epoch();
        match leads_still(partition, wanted.current_leader_epoch) {
            code::NONE => {}
            error_code => return Ok(Part::refused(error_code)),
        }
        let offsets = partition.log.offsets();
        let mut part = Part {
            leading_epoch,
            high_watermark: offsets.high_watermark,
            last_stable_offset: offsets.last_stable_offset,
            log_start_offset: offsets.log_start_offset,
            ..Part::refused(code::NONE)
        };
        if wanted.last_fetched_epoch >= 0 {
            part.diverging = diverging(wanted, partition)?;
            if part.diverging.is_some() {
                return Ok(part);
            }
        }
        let room_bytes = self.content_bytes_max - looked.size_bytes - looked.aborted_bytes;
        let mut max_bytes = self.max_bytes.saturating_sub(looked.size_bytes);
        max_bytes = max_bytes.min(wanted.max_bytes).min(room_bytes);
        let mut min_one_batch = looked.size_bytes == 0;
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
        let mut range = log.read(from, max_bytes, min_one_batch, self.isolation)?;
        if range.first_batch_is_cut {
            range = FetchedRange::empty(from);
        }
        part.aborted = match self.isolation {
            ReadIsolation::LastStable if range.is_empty() => Some(Vec::new()),
            ReadIsolation::LastStable => {
                let end = log.upper_bound_offset(&range)?;
                Some(log.aborted_transactions(from, end)?)
            }
            _ => None,
        };
        part.range = Some(range);
        Ok(())
    }

    /// The answer must not wait.
    pub fn is_due(&self, looked: &Looked) -> bool {
        looked.must_be_told
            || self.max_wait_ms == 0
            || looked.size_bytes >= self.min_bytes
            || looked.is_on_older_segment
            || self.readable == 0
    }

    /// Bytes of memory that the request takes while it waits.
    pub fn memory_bytes(&self) -> usize {
        self.body_bytes + self.rest_bytes + self.partitions.len() * PARTITION_BYTES
    }

    /// Bytes of records in the answer: what a quota counts.
    pub fn size_bytes(&self, looked: &Looked) -> usize {
        looked.size_bytes as usize
    }

    /// Partitions to wait at, each with the event for which it waits after `looked`.
    pub fn wait_for<'a>(
        &'a self,
        looked: &'a Looked,
    ) -> impl Iterator<Item = (&'a Arc<Partition>, WaitFor)> {
        self.seen(looked).map(|(partition, part)| {
            let wait_for = match self.isolation {
                ReadIsolation::LastStable => WaitFor::LastStable(part.last_stable_offset),
                _ => WaitFor::HighWatermark(part.high_watermark),
            };
            (partition, wait_for)
        })
    }

    fn seen<'a>(
        &'a self,
        looked: &'a Looked,
    ) -> impl Iterator<Item = (&'a Arc<Partition>, &'a Part)> {
        let seen = self.readable().iter().zip(&looked.parts);
        seen.filter_map(|(asked, part)| Some((asked.partition.as_ref()?, part)))
    }

    /// A partition at which the request waits has something that `looked` had not.
    pub fn has_moved(&self, looked: &Looked) -> bool {
        let is_led_anew = |(partition, part): (&Arc<Partition>, &Part)| {
            partition.log.leading_epoch() != part.leading_epoch
        };
        let has_come = |(partition, wait_for): (&Arc<Partition>, WaitFor)| {
            wait_for.is_met(&partition.log.offsets()) || partition.waiters.has_failed()
        };
        self.seen(looked).any(is_led_anew) || self.wait_for(looked).any(has_come)
    }

    /// The partitions at which the request may be parked.
    pub fn parked_at(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.readable()
            .iter()
            .filter_map(|asked| asked.partition.as_ref())
    }
}

/// Where the client's log, whose last record is of `last_fetched_epoch`, ceased to be ours (KIP-595).
/// Errors: `OffsetOutOfRange` where that cannot be said.
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
