//! ListOffsets (key 2), versions 1 to 11.
//!
//! Behaviour: per partition the offset at a time, exact to the record, or one of the special times:
//!
//! ```text
//! -1 latest            end that the isolation level lets the client see
//! -2 earliest          log start offset
//! -3 max timestamp     record with the largest timestamp, deleted or not (v7, KIP-734)
//! -4 earliest local    log start offset: nothing is tiered (v8, KIP-405)
//! -5 latest tiered     none (v9, KIP-1005)
//! -6 earliest pending upload  none (v11, KIP-1023)
//! ```
//!
//! No such record: offset, timestamp and epoch -1, no error. A topic
//! without partitions is left out.
//!
//! Refusals, per partition: TOPIC_AUTHORIZATION_FAILED; INVALID_REQUEST if it is named twice;
//! UNSUPPORTED_VERSION for a special time younger than the version; UNKNOWN_TOPIC_OR_PARTITION;
//! KAFKA_STORAGE_ERROR; FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (v4, KIP-320);
//! NOT_LEADER_OR_FOLLOWER; for the end and for what is not found, OFFSET_NOT_AVAILABLE (before v5
//! LEADER_NOT_AVAILABLE) until the high watermark of a new leader has come to where its epoch
//! begins: an older one was told more (KIP-207).

use std::collections::HashMap;
use std::sync::Arc;

use super::chunk::{Chunk, put_rest};
use super::handler::{ApiKey, Ask};
use super::large::Kept;
use super::large::partitions::{Customs, Grammar, Marked, Marks, Rest, Rule};
use super::leader::leader;
use super::topic_ref::TopicRef;
use crate::access::{Operation, Resource};
use crate::codes;
use crate::error::Result;
use crate::image::Image;
use crate::log::directory::LogDirectory;
use crate::replica::Partition;
use crate::wire::header::begin_response;
use crate::wire::{Reader, RequestHeader, Writer};

pub const KEY: ApiKey = ApiKey {
    key: 2,
    advertised_min: 1,
    min: 1,
    max: 11,
    first_flexible: 6,
};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

const READ_COMMITTED: i8 = 1;
/// The replica id of a consumer. Others, a debugging one (-2) too, see everything.
const CONSUMER: i32 = -1;

/// The answer for a partition; -1 where there is none.
#[derive(Clone, Copy)]
struct Found {
    timestamp: i64,
    offset: i64,
    leader_epoch: i32,
}

const NOTHING: Found = Found {
    timestamp: -1,
    offset: -1,
    leader_epoch: -1,
};

/// A request that is being answered: read, then `search`ed, then `answer`ed.
pub struct ListOffsets {
    version: i16,
    flexible: bool,
    correlation_id: i32,
    topics: Vec<TopicRef>,
    partitions: Vec<Asked>,
    /// The partitions of a large one that there are not.
    rest: Option<Rest>,
    rest_bytes: usize,
}

struct Asked {
    /// Where its topic stands in `topics`.
    topic: usize,
    index: i32,
    timestamp: i64,
    /// Where to look; else the refusal.
    place: std::result::Result<Place, i16>,
    /// `None`: not looked up yet.
    found: Option<Found>,
}

/// Where a time is looked for.
struct Place {
    partition: Arc<Partition>,
    /// The end that the client may see.
    end: i64,
    /// It is not known yet how far a consumer may see.
    is_behind: bool,
}

impl Asked {
    /// Batches have to be read and perhaps inflated; all else is in memory.
    fn must_search(&self) -> bool {
        self.place.is_ok()
            && self.found.is_none()
            && (self.timestamp >= 0 || self.timestamp == MAX_TIMESTAMP)
    }
}

/// Least that a partition takes in a request (version 1).
const PARTITION_ON_WIRE_BYTES: usize = 12;

/// Bytes of memory that a request of so many bytes may take while it waits.
pub fn memory_bytes_ahead(body_bytes: usize) -> usize {
    body_bytes + body_bytes / PARTITION_ON_WIRE_BYTES * size_of::<Asked>()
}

/// Reads a large request, whose content is `kept`.
pub fn read_large(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    kept: &Kept,
    image: &Arc<Image>,
) -> Result<ListOffsets> {
    let (version, flexible) = (header.api_version, header.flexible);
    let grammar = Grammar {
        by_id: false,
        flexible,
        partition_bytes: if version >= 4 { 16 } else { 12 },
        has_records: false,
    };
    let mut list = reader.clone();
    list.take(if version >= 2 { 5 } else { 4 })?;
    let mut marks = Marks::new(kept.bytes().len());
    let mut request = read(header, reader, ask, Some(&mut marks))?;
    if marks.count > 0 {
        let customs = Customs {
            answers_once: true,
            answers_empty_topics: false,
        };
        let rule = Unknown { version, flexible };
        let rest = marks.rest(grammar, &list, kept, image, customs, rule)?;
        request.rest_bytes = rest.later.memory_bytes();
        request.rest = Some(rest);
    }
    Ok(request)
}

/// Reads the request. `reader` stands behind the header. Where there are `marks`, partitions that
/// there are not get one instead of a place in the request.
pub fn read(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    mut marks: Option<&mut Marks>,
) -> Result<ListOffsets> {
    let (version, flexible) = (header.api_version, header.flexible);
    let replica_id = reader.i32()?;
    let isolation = if version >= 2 { reader.i8()? } else { 0 };
    let mut request = ListOffsets::new(header);
    let mut seen = HashMap::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for _ in 0..reader.array_length(flexible)? {
        let topic_at = reader.position();
        let topic = TopicRef::read(reader, false, flexible, ask.image)?;
        let name: Arc<str> = topic.name().into();
        let may_see = ask.may(Operation::Describe, Resource::Topic(&name));
        // One that comes twice is answered once.
        let place_of_topic = places.get(&name).map_or(request.topics.len(), |at| *at);
        if let Some(marks) = marks.as_mut().filter(|_| !may_see) {
            marks.deny(topic_at);
        }
        for _ in 0..reader.array_length(flexible)? {
            let partition_at = reader.position();
            let (index, current_leader_epoch, timestamp) = read_partition(reader, header)?;
            if let Some(marks) = marks.as_mut().filter(|_| !topic.has(index)) {
                marks.mark(partition_at);
                continue;
            }
            // One that is named twice is answered once, with an error.
            let place_of_first = request.partitions.len();
            let first = seen.entry((name.clone(), index)).or_insert(place_of_first);
            if let Some(repeated) = request.partitions.get_mut(*first) {
                if may_see {
                    repeated.place = Err(codes::INVALID_REQUEST);
                }
                continue;
            }
            let place = if !may_see {
                Err(codes::TOPIC_AUTHORIZATION_FAILED)
            } else if !knows(version, timestamp) {
                Err(codes::UNSUPPORTED_VERSION)
            } else {
                locate(&topic, index, current_leader_epoch, replica_id, isolation)
            };
            request.partitions.push(Asked {
                topic: place_of_topic,
                index,
                timestamp,
                place,
                found: None,
            });
        }
        reader.skip_tags(flexible)?;
        let is_kept = marks.is_none() || matches!(topic, TopicRef::Known(_));
        if is_kept && place_of_topic == request.topics.len() {
            places.insert(name, place_of_topic);
            request.topics.push(topic);
        }
    }
    if version >= 10 {
        // A time-out, for logs that are tiered; ours answer at once.
        reader.i32()?;
    }
    reader.skip_tags(flexible)?;
    Ok(request)
}

/// Reads a partition: its index, the leader epoch that the client knows, and
/// the time that it asks for.
fn read_partition(reader: &mut Reader<'_>, header: &RequestHeader<'_>) -> Result<(i32, i32, i64)> {
    let index = reader.i32()?;
    let has_epoch = header.api_version >= 4;
    let current_leader_epoch = if has_epoch { reader.i32()? } else { -1 };
    let timestamp = reader.i64()?;
    reader.skip_tags(header.flexible)?;
    Ok((index, current_leader_epoch, timestamp))
}

impl ListOffsets {
    /// A request that names nothing yet.
    fn new(header: &RequestHeader<'_>) -> ListOffsets {
        ListOffsets {
            version: header.api_version,
            flexible: header.flexible,
            correlation_id: header.correlation_id,
            topics: Vec::new(),
            partitions: Vec::new(),
            rest: None,
            rest_bytes: 0,
        }
    }

    /// Bytes of memory that the request takes while it waits.
    pub fn memory_bytes(&self) -> usize {
        let names = self.topics.iter().map(|topic| topic.name().len());
        names.sum::<usize>()
            + self.rest_bytes
            + self.topics.len() * size_of::<TopicRef>()
            + self.partitions.len() * size_of::<Asked>()
    }

    /// The log directory that has to be searched next; `None` if nothing is
    /// to be searched any more.
    pub fn next_directory(&self) -> Option<&Arc<LogDirectory>> {
        let next = self.partitions.iter().find(|asked| asked.must_search())?;
        let place = next.place.as_ref().ok();
        place.map(|place| place.partition.directory())
    }

    /// Looks up what is in memory, and searches the logs for which `may_search` says so, which is
    /// asked before each; the others are left to another call. May block there: costs an index
    /// look-up and up to `index.interval.bytes` of reading for a time, and the inflation of a
    /// batch.
    pub fn search(&mut self, mut may_search: impl FnMut(&Arc<LogDirectory>) -> bool) {
        for asked in &mut self.partitions {
            if let Ok(place) = &asked.place
                && asked.found.is_none()
                && (!asked.must_search() || may_search(place.partition.directory()))
            {
                match look_up(&place.partition, asked.timestamp, place.end) {
                    Ok(found) if place.is_behind && is_unsure(asked.timestamp, &found) => {
                        asked.place = Err(offset_not_available(self.version));
                    }
                    Ok(found) => asked.found = Some(found),
                    Err(error) => asked.place = Err(error.kafka_code()),
                }
            }
        }
    }

    /// The whole response, once.
    pub fn answer(&mut self) -> Vec<Chunk> {
        let flexible = self.flexible;
        let mut writer = begin_response(self.correlation_id, flexible, 64);
        if self.version >= 2 {
            writer.i32(0);
        }
        let mut by_topic: Vec<Vec<&Asked>> = Vec::new();
        by_topic.resize_with(self.topics.len(), Vec::new);
        for asked in &self.partitions {
            if let Some(of_topic) = by_topic.get_mut(asked.topic) {
                of_topic.push(asked);
            }
        }
        let topics = self.topics.iter().zip(&by_topic);
        let topics = topics.filter(|(_, asked)| !asked.is_empty());
        let of_rest = self.rest.as_ref().map_or(0, |rest| rest.topics);
        writer.array_length(topics.clone().count() + of_rest, flexible);
        for (topic, asked) in topics {
            topic.write(&mut writer, false, flexible);
            writer.array_length(asked.len(), flexible);
            for each in asked {
                let (error_code, found) = match &each.place {
                    Ok(_) => (codes::NONE, each.found.as_ref().unwrap_or(&NOTHING)),
                    Err(error_code) => (*error_code, &NOTHING),
                };
                write_partition(&mut writer, self.version, each.index, error_code, found);
                writer.no_tags(flexible);
            }
            writer.no_tags(flexible);
        }
        let mut chunks = Vec::new();
        put_rest(&mut writer, self.rest.take(), &mut chunks);
        writer.no_tags(flexible);
        chunks.push(Chunk::Bytes(writer.bytes));
        chunks
    }
}

/// All of a partition but its tags.
fn write_partition(writer: &mut Writer, version: i16, index: i32, error_code: i16, found: &Found) {
    writer.i32(index);
    writer.i16(error_code);
    writer.i64(found.timestamp);
    writer.i64(found.offset);
    if version >= 4 {
        writer.i32(found.leader_epoch);
    }
}

/// Partitions that there are not.
struct Unknown {
    version: i16,
    flexible: bool,
}

impl Rule for Unknown {
    fn write(&self, writer: &mut Writer, marked: Marked<'_>) -> Result<()> {
        let Marked {
            is_denied,
            mut partition,
            is_repeated,
            ..
        } = marked;
        let index = partition.i32()?;
        if self.version >= 4 {
            partition.i32()?;
        }
        let error_code = match partition.i64()? {
            _ if is_denied => codes::TOPIC_AUTHORIZATION_FAILED,
            _ if is_repeated => codes::INVALID_REQUEST,
            timestamp if !knows(self.version, timestamp) => codes::UNSUPPORTED_VERSION,
            _ => codes::UNKNOWN_TOPIC_OR_PARTITION,
        };
        write_partition(writer, self.version, index, error_code, &NOTHING);
        writer.no_tags(self.flexible);
        Ok(())
    }
}

fn knows(version: i16, timestamp: i64) -> bool {
    let since = match timestamp {
        LATEST | EARLIEST => 1,
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        timestamp if timestamp < 0 => i16::MAX,
        _ => 1,
    };
    version >= since
}

/// The partition and the end that the client may see of it.
fn locate(
    topic: &TopicRef,
    index: i32,
    current_leader_epoch: i32,
    replica_id: i32,
    isolation: i8,
) -> std::result::Result<Place, i16> {
    let TopicRef::Known(topic) = topic else {
        return Err(codes::UNKNOWN_TOPIC_OR_PARTITION);
    };
    let partition = leader(topic, index, current_leader_epoch)?;
    let offsets = partition.log.offsets();
    let end = match (replica_id, isolation) {
        (CONSUMER, READ_COMMITTED) => offsets.last_stable_offset,
        (CONSUMER, _) => offsets.high_watermark,
        _ => offsets.log_end_offset,
    };
    let is_behind =
        replica_id == CONSUMER && offsets.high_watermark < partition.log.leading_epoch_start();
    Ok(Place {
        partition: partition.clone(),
        end,
        is_behind,
    })
}

/// The answer depends on a high watermark that is not known yet.
fn is_unsure(timestamp: i64, found: &Found) -> bool {
    match timestamp {
        LATEST => true,
        EARLIEST | EARLIEST_LOCAL | LATEST_TIERED | EARLIEST_PENDING_UPLOAD => false,
        _ => found.offset < 0,
    }
}

/// Clients do not know OFFSET_NOT_AVAILABLE before version 5.
fn offset_not_available(version: i16) -> i16 {
    match version {
        5.. => codes::OFFSET_NOT_AVAILABLE,
        _ => codes::LEADER_NOT_AVAILABLE,
    }
}

fn look_up(partition: &Partition, timestamp: i64, end: i64) -> Result<Found> {
    let log = &partition.log;
    let log_start_offset = log.offsets().log_start_offset;
    let found = match timestamp {
        LATEST => {
            return Ok(Found {
                offset: end,
                leader_epoch: partition.leader_epoch,
                ..NOTHING
            });
        }
        EARLIEST | EARLIEST_LOCAL => {
            let epochs = log.leader_epochs();
            return Ok(Found {
                offset: log_start_offset,
                leader_epoch: epochs.epoch_for_offset(log_start_offset).unwrap_or(-1),
                ..NOTHING
            });
        }
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => None,
        MAX_TIMESTAMP => log.offset_of_max_timestamp()?,
        timestamp => log.offset_for_timestamp(timestamp)?,
    };
    Ok(match found {
        Some(found) if found.offset < end => Found {
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: found.leader_epoch,
        },
        _ => NOTHING,
    })
}
