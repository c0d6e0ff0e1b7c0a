//! Fetch (key 1), versions 4 to 18.
//!
//! Behaviour: `read` reads the request; `Fetch::look` reads the logs and says whether the answer is
//! due: `min_bytes` are there, or a partition has an error, or nothing may be waited for; else the
//! caller parks the request on its partitions (`wait_for`) and looks again when woken, at the latest
//! after `max_wait_ms`. `answer` writes the response as a queue of chunks, the records being ranges
//! of segment files. The first partition with records gives its first batch whole, even if that is
//! larger than the limits (KIP-74).
//!
//! Fetch sessions (KIP-227): every answer has session id 0, "no session", which the protocol allows a
//! broker at any time; so a client sends full requests. An incremental request is answered with
//! FETCH_SESSION_ID_NOT_FOUND.
//!
//! Refusals, per partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION; a replica's fetch
//! (NOT_LEADER_OR_FOLLOWER: there is no second replica); FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH;
//! OFFSET_OUT_OF_RANGE, also above what the isolation level shows once the log end is below it;
//! storage errors.
//!
//! Version notes: v4 isolation level (KIP-98); v7 sessions; v9 leader epoch; v11 rack; v12 flexible;
//! v13 topic ids (KIP-516); v15 replica state; v16 node endpoints; v17 directory id; v18 high
//! watermark, the last three for replicas only.

use std::sync::Arc;

use super::{ApiKey, Chunk, TopicRef, code, leader_epoch_error};
use crate::error::Result;
use crate::image::{Image, Partition};
use crate::limits::FETCH_BYTES_MAX;
use crate::log::aborted::AbortedTransaction;
use crate::log::read::{FetchedRange, ReadIsolation};
use crate::park::WaitFor;
use crate::wire::header::begin_response;
use crate::wire::{Reader, RequestHeader, Writer, frame};

pub const KEY: ApiKey = ApiKey {
    key: 1,
    advertised_min: 4,
    min: 4,
    max: 18,
    first_flexible: 12,
};

const TOPIC_IDS_SINCE: i16 = 13;
/// Tag of the replica state at the top of a request from version 15 on.
const REPLICA_STATE_TAG: u32 = 1;
/// Epochs of a full request: a new session, or none (`FetchMetadata`).
const FULL_EPOCHS: std::ops::RangeInclusive<i32> = -1..=0;

pub struct Fetch {
    version: i16,
    flexible: bool,
    correlation_id: i32,
    pub max_wait_ms: i32,
    min_bytes: usize,
    max_bytes: u64,
    isolation: ReadIsolation,
    is_incremental: bool,
    topics: Vec<FetchTopic>,
}

struct FetchTopic {
    topic: TopicRef,
    partitions: Vec<FetchPartition>,
}

struct FetchPartition {
    index: i32,
    current_leader_epoch: i32,
    fetch_offset: i64,
    max_bytes: u64,
    /// The refusal that is known before the log is read.
    error_code: i16,
    partition: Option<Arc<Partition>>,
}

/// What the logs hold for a request at one moment, partition by partition in its order.
pub struct Looked {
    parts: Vec<Part>,
    size_bytes: usize,
    has_error: bool,
}

struct Part {
    error_code: i16,
    high_watermark: i64,
    last_stable_offset: i64,
    log_start_offset: i64,
    aborted: Option<Vec<AbortedTransaction>>,
    range: Option<FetchedRange>,
}

impl Part {
    fn refused(error_code: i16) -> Part {
        Part {
            error_code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted: None,
            range: None,
        }
    }
}

/// Reads the request. `reader` stands behind the header.
pub fn read(header: &RequestHeader<'_>, reader: &mut Reader<'_>, image: &Image) -> Result<Fetch> {
    let (version, flexible) = (header.api_version, header.flexible);
    let mut replica_id = if version <= 14 { reader.i32()? } else { -1 };
    let max_wait_ms = reader.i32()?;
    let min_bytes = reader.i32()?;
    let max_bytes = reader.i32()?;
    let isolation = reader.i8()?;
    let (session_id, session_epoch) = match version {
        7.. => (reader.i32()?, reader.i32()?),
        _ => (0, -1),
    };
    let mut topics = Vec::new();
    for _ in 0..reader.array_length(flexible)? {
        topics.push(read_topic(header, reader, image)?);
    }
    if version >= 7 {
        // Topics to forget concern a session.
        for _ in 0..reader.array_length(flexible)? {
            TopicRef::read(reader, version >= TOPIC_IDS_SINCE, flexible, image)?;
            for _ in 0..reader.array_length(flexible)? {
                reader.i32()?;
            }
            reader.skip_tags(flexible)?;
        }
    }
    if version >= 11 {
        reader.string(flexible)?;
    }
    if flexible {
        reader.tags(|tag, field| {
            if tag == REPLICA_STATE_TAG && version >= 15 {
                replica_id = field.i32()?;
            }
            Ok(())
        })?;
    }
    if replica_id >= 0 {
        for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            partition.error_code = code::NOT_LEADER_OR_FOLLOWER;
        }
    }
    Ok(Fetch {
        version,
        flexible,
        correlation_id: header.correlation_id,
        max_wait_ms: max_wait_ms.max(0),
        min_bytes: usize::try_from(min_bytes).unwrap_or(0),
        max_bytes: u64::try_from(max_bytes).unwrap_or(0).min(FETCH_BYTES_MAX),
        isolation: match isolation {
            1 => ReadIsolation::LastStable,
            _ => ReadIsolation::HighWatermark,
        },
        is_incremental: session_id != 0 && !FULL_EPOCHS.contains(&session_epoch)
            || session_id == 0 && session_epoch > 0,
        topics,
    })
}

fn read_topic(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    image: &Image,
) -> Result<FetchTopic> {
    let (version, flexible) = (header.api_version, header.flexible);
    let by_id = version >= TOPIC_IDS_SINCE;
    let topic = TopicRef::read(reader, by_id, flexible, image)?;
    let mut partitions = Vec::new();
    for _ in 0..reader.array_length(flexible)? {
        let index = reader.i32()?;
        let current_leader_epoch = if version >= 9 { reader.i32()? } else { -1 };
        let fetch_offset = reader.i64()?;
        if version >= 12 {
            // The epoch of a follower's last record.
            reader.i32()?;
        }
        if version >= 5 {
            // A follower's log start offset.
            reader.i64()?;
        }
        let max_bytes = reader.i32()?;
        reader.skip_tags(flexible)?;
        let (error_code, partition) = match &topic {
            TopicRef::Unknown { .. } => (topic.error_code(by_id), None),
            TopicRef::Known(known) => match known.partition(index) {
                None => (code::UNKNOWN_TOPIC_OR_PARTITION, None),
                Some(partition) => (code::NONE, Some(partition.clone())),
            },
        };
        partitions.push(FetchPartition {
            index,
            current_leader_epoch,
            fetch_offset,
            max_bytes: u64::try_from(max_bytes).unwrap_or(0),
            error_code,
            partition,
        });
    }
    reader.skip_tags(flexible)?;
    Ok(FetchTopic { topic, partitions })
}

impl Fetch {
    fn partitions(&self) -> impl Iterator<Item = &FetchPartition> {
        self.topics.iter().flat_map(|topic| &topic.partitions)
    }

    /// Reads the logs. Cheap where nothing is new: a few comparisons a partition.
    pub fn look(&self) -> Looked {
        let mut looked = Looked {
            parts: Vec::new(),
            size_bytes: 0,
            has_error: self.is_incremental,
        };
        if self.is_incremental {
            return looked;
        }
        for asked in self.partitions() {
            let part = match (asked.error_code, &asked.partition) {
                (code::NONE, Some(partition)) => {
                    self.read_partition(asked, partition, looked.size_bytes)
                }
                (error_code, _) => Part::refused(error_code),
            };
            looked.has_error |= part.error_code != code::NONE;
            looked.size_bytes += part
                .range
                .as_ref()
                .map_or(0, |range| range.length_bytes as usize);
            looked.parts.push(part);
        }
        looked
    }

    fn read_partition(&self, asked: &FetchPartition, partition: &Partition, before: usize) -> Part {
        match leader_epoch_error(asked.current_leader_epoch, partition.leader_epoch) {
            code::NONE => {}
            error_code => return Part::refused(error_code),
        }
        let offsets = partition.log.offsets();
        let max_bytes = asked
            .max_bytes
            .min(self.max_bytes.saturating_sub(before as u64));
        let read = || -> Result<Part> {
            let range =
                partition
                    .log
                    .read(asked.fetch_offset, max_bytes, before == 0, self.isolation)?;
            let aborted = match self.isolation {
                ReadIsolation::LastStable if range.is_empty() => Some(Vec::new()),
                ReadIsolation::LastStable => {
                    let end = partition.log.upper_bound_offset(&range)?;
                    Some(
                        partition
                            .log
                            .aborted_transactions(asked.fetch_offset, end)?,
                    )
                }
                _ => None,
            };
            Ok(Part {
                error_code: code::NONE,
                high_watermark: offsets.high_watermark,
                last_stable_offset: offsets.last_stable_offset,
                log_start_offset: offsets.log_start_offset,
                aborted,
                range: Some(range),
            })
        };
        read().unwrap_or_else(|error| Part::refused(error.kafka_code()))
    }

    /// The answer must not wait.
    pub fn is_due(&self, looked: &Looked) -> bool {
        looked.has_error
            || self.max_wait_ms == 0
            || looked.size_bytes >= self.min_bytes
            || looked.parts.is_empty()
    }

    /// Partitions to wait at, each with what `looked` saw of it.
    pub fn wait_for<'a>(
        &'a self,
        looked: &'a Looked,
    ) -> impl Iterator<Item = (&'a Arc<Partition>, WaitFor)> {
        self.partitions()
            .zip(&looked.parts)
            .filter_map(|(asked, part)| {
                let wait_for = match self.isolation {
                    ReadIsolation::LastStable => WaitFor::LastStable(part.last_stable_offset),
                    _ => WaitFor::HighWatermark(part.high_watermark),
                };
                asked
                    .partition
                    .as_ref()
                    .map(|partition| (partition, wait_for))
            })
    }

    /// The partitions at which the request may be parked.
    pub fn parked_at(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions()
            .filter_map(|asked| asked.partition.as_ref())
    }

    /// The response, as chunks in order.
    pub fn answer(&self, looked: Looked) -> Vec<Chunk> {
        let (version, flexible) = (self.version, self.flexible);
        let by_id = version >= TOPIC_IDS_SINCE;
        let mut writer = begin_response(self.correlation_id, flexible, 128);
        let mut chunks = Vec::new();
        writer.i32(0);
        if version >= 7 {
            writer.i16(match self.is_incremental {
                true => code::FETCH_SESSION_ID_NOT_FOUND,
                false => code::NONE,
            });
            writer.i32(0);
        }
        let topics: &[FetchTopic] = if self.is_incremental {
            &[]
        } else {
            &self.topics
        };
        let mut parts = looked.parts.into_iter();
        writer.array_length(topics.len(), flexible);
        for topic in topics {
            topic.topic.write(&mut writer, by_id, flexible);
            writer.array_length(topic.partitions.len(), flexible);
            for asked in &topic.partitions {
                let Some(part) = parts.next() else {
                    unreachable!("`look` gives a part for each partition");
                };
                self.write_partition(&mut writer, asked, &part);
                if let Some(range) = part.range.filter(|range| !range.is_empty()) {
                    chunks.push(Chunk::Bytes(std::mem::take(&mut writer.bytes)));
                    chunks.push(Chunk::File(range));
                }
                writer.no_tags(flexible);
            }
            writer.no_tags(flexible);
        }
        writer.no_tags(flexible);
        chunks.push(Chunk::Bytes(writer.bytes));
        let total: usize = chunks.iter().map(Chunk::size_bytes).sum();
        if let Some(Chunk::Bytes(first)) = chunks.first_mut() {
            let rest_bytes = total - first.len();
            frame::finish(first, rest_bytes);
        }
        chunks
    }

    /// All of a partition but the records themselves.
    fn write_partition(&self, writer: &mut Writer, asked: &FetchPartition, part: &Part) {
        let (version, flexible) = (self.version, self.flexible);
        writer.i32(asked.index);
        writer.i16(part.error_code);
        writer.i64(part.high_watermark);
        writer.i64(part.last_stable_offset);
        if version >= 5 {
            writer.i64(part.log_start_offset);
        }
        writer.nullable_length(part.aborted.as_ref().map(Vec::len), flexible);
        for aborted in part.aborted.iter().flatten() {
            writer.i64(aborted.producer_id);
            writer.i64(aborted.first_offset);
            writer.no_tags(flexible);
        }
        if version >= 11 {
            writer.i32(-1);
        }
        let length = part
            .range
            .as_ref()
            .map_or(0, |range| range.length_bytes as usize);
        writer.nullable_length(Some(length), flexible);
    }
}
