//! Produce (key 0), versions 3 to 13; 0 is advertised, since librdkafka turns compression off
//! otherwise, and 0 to 2 are refused as any unknown version is.
//!
//! Behaviour: `read` finds the partitions and where their records lie in the frame; whoever calls
//! appends the records, those of several requests by one write; `apply` notes what became of them;
//! `answer` writes the response. With acks 1 that is at once, with acks -1 when the high watermark
//! has passed the records (which waits for the disk, unless `kafkalite.acks.fsync=none`), with
//! acks 0 never: an error then closes the connection, so that the producer hears of it.
//!
//! Refusals, for the whole request: a transactional batch without a transactional id that the
//! client may write with (TRANSACTIONAL_ID_AUTHORIZATION_FAILED), transactional batches of several
//! producers (INVALID_PRODUCER_ID_MAPPING), records that begin with what is no batch
//! (CORRUPT_MESSAGE). Per partition, what the transaction's coordinator says (`transaction.rs`),
//! and: UNKNOWN_TOPIC_ID; TOPIC_AUTHORIZATION_FAILED; INVALID_TOPIC_EXCEPTION for a coordinator's
//! topic; UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER; anything but one
//! batch of magic 2 (INVALID_RECORD, CORRUPT_MESSAGE); zstd before version 7; acks other than -1,
//! 0, 1 (INVALID_REQUIRED_ACKS); with acks -1 NOT_ENOUGH_REPLICAS where fewer are in sync than
//! `min.insync.replicas`, which counts for no more than the replicas that a partition has
//! (`Partition.effectiveMinIsr`); what `batch/validate/` refuses; storage errors;
//! NOT_ENOUGH_REPLICAS_AFTER_APPEND where too few are in sync once the records are committed;
//! NOT_LEADER_OR_FOLLOWER where another one leads meanwhile; REQUEST_TIMED_OUT.
//!
//! Version notes: v7 zstd (KIP-110); v8 record errors (KIP-467); v9 flexible; v10 current leader
//! (KIP-951); v13 topic ids (KIP-516).

mod large;
mod read;
mod transaction;

use std::ops::Range;
use std::sync::Arc;

pub use large::{names_much, read_large};
pub use read::read;
pub use transaction::{Transaction, Verification};

use super::chunk::{Chunk, put_rest};
use super::handler::ApiKey;
use super::large::Kept;
use super::large::partitions::Rest;
use super::leader::{current_leader, write_current_leader, write_node_endpoints};
use super::topic_ref::TopicRef;
use crate::codes;
use crate::error::{Error, RecordError, Result};
use crate::image::Image;
use crate::limits::{PRODUCE_WAIT_MS_MIN, SPARE_PARTITIONS_MAX, SPARE_REQUESTS_MAX};
use crate::log::append::AppendInfo;
use crate::replica::Partition;
use crate::wire::Writer;
use crate::wire::header::begin_response_behind;

pub const KEY: ApiKey = ApiKey {
    key: 0,
    advertised_min: 0,
    min: 3,
    max: 13,
    first_flexible: 9,
};

/// First version that identifies topics by id.
const TOPIC_IDS_SINCE: i16 = 13;
/// Tags of the answer: where leaders are, at its top, and a partition's leader.
const LEADERS_SINCE: i16 = 10;
const NODE_ENDPOINTS_TAG: u32 = 0;
const CURRENT_LEADER_TAG: u32 = 0;
/// About what the sentence of a refused partition takes in memory.
const REFUSAL_BYTES: usize = 64;

pub struct Produce {
    version: i16,
    flexible: bool,
    correlation_id: i32,
    pub acks: i16,
    pub timeout_ms: i32,
    /// Topics, and how many of `partitions` are each one's.
    topics: Vec<(TopicRef, usize)>,
    pub partitions: Vec<ProducePartition>,
    /// It has waited for a high watermark, and may be registered there still.
    pub is_parked: bool,
    /// Why all of it is refused.
    refusal: Option<i16>,
    /// This and the next are rare, and a request is moved often: what is beyond 128
    /// bytes is copied by a call.
    transaction: Option<Box<Transaction>>,
    /// The partitions of a large one that are refused.
    rest: Option<Box<Rest>>,
    rest_bytes: usize,
}

const _: () = assert!(size_of::<Produce>() <= 104);

pub struct ProducePartition {
    index: i32,
    /// Where the records lie, counted from the start of the reader's bytes.
    pub records: Range<usize>,
    pub outcome: Outcome,
    /// The verification guard of its transaction.
    pub guard: u64,
}

pub enum Outcome {
    Refused {
        code: i16,
        /// -1 unless the log has judged the records.
        log_start_offset: i64,
        message: Option<String>,
        record_errors: Vec<RecordError>,
    },
    /// To be appended, and then what the log said.
    Accepted(Arc<Partition>, Option<AppendInfo>),
}

/// Memory of answered requests for the next ones, so that a small request allocates nothing.
#[derive(Default)]
pub struct Spare(Vec<Lists>);

/// The lists of one request.
type Lists = (Vec<(TopicRef, usize)>, Vec<ProducePartition>);

impl Spare {
    /// Keeps the memory of a request that is answered.
    pub fn put(&mut self, produce: Produce) {
        let (mut topics, mut partitions) = (produce.topics, produce.partitions);
        if self.0.len() < SPARE_REQUESTS_MAX && partitions.capacity() <= SPARE_PARTITIONS_MAX {
            topics.clear();
            partitions.clear();
            self.0.push((topics, partitions));
        }
    }
}

/// The log start offset in a refusal of the log's: of these errors Kafka does not say it
/// (`ReplicaManager.appendRecordsToLeader`).
fn log_start_offset(partition: &Partition, error_code: i16) -> i64 {
    match error_code {
        codes::CORRUPT_MESSAGE
        | codes::UNKNOWN_TOPIC_OR_PARTITION
        | codes::NOT_LEADER_OR_FOLLOWER
        | codes::MESSAGE_TOO_LARGE
        | codes::RECORD_LIST_TOO_LARGE
        | codes::KAFKA_STORAGE_ERROR => -1,
        _ => partition.log.offsets().log_start_offset,
    }
}

fn refuse(code: i16, message: Option<String>) -> Outcome {
    Outcome::Refused {
        code,
        log_start_offset: -1,
        message,
        record_errors: Vec::new(),
    }
}

impl Produce {
    /// The first partition whose high watermark has not passed what was appended to it, and the
    /// offset that it must reach.
    pub fn uncommitted(&self) -> Option<(&Arc<Partition>, i64)> {
        self.partitions.iter().find_map(|each| match &each.outcome {
            Outcome::Accepted(partition, Some(info)) => {
                let is_open = partition.committed(info.last_offset).is_none();
                is_open.then_some((partition, info.last_offset + 1))
            }
            _ => None,
        })
    }

    /// Why some partition was refused: what closes the connection of a producer with acks 0.
    pub fn refusal(&self) -> Option<Error> {
        self.partitions.iter().find_map(|each| match &each.outcome {
            Outcome::Refused { code, message, .. } => {
                let index = each.index;
                Some(Error::InvalidArgument(match message {
                    Some(message) => format!("partition {index}: {message}"),
                    None => format!("partition {index}: error code {code}"),
                }))
            }
            _ => None,
        })
    }

    /// Bytes of memory that the request takes while it waits, its records not counted.
    pub fn memory_bytes(&self) -> usize {
        self.rest_bytes
            + self.transaction_bytes()
            + self.topics.len() * size_of::<(TopicRef, usize)>()
            + self.partitions.len() * (size_of::<ProducePartition>() + REFUSAL_BYTES)
    }

    /// So long it may wait for the disk, and before for the coordinator of its transaction.
    pub fn wait_ms(&self) -> u64 {
        let asked_ms = u64::try_from(self.timeout_ms).unwrap_or(0);
        asked_ms.max(PRODUCE_WAIT_MS_MIN)
    }

    /// Bytes of records: what a quota counts.
    pub fn size_bytes(&self) -> usize {
        self.partitions.iter().map(|each| each.records.len()).sum()
    }

    /// A request without partitions.
    #[cfg(test)]
    pub fn of_nothing() -> Produce {
        Produce {
            version: 9,
            flexible: true,
            correlation_id: 0,
            acks: 1,
            timeout_ms: 0,
            topics: Vec::new(),
            partitions: Vec::new(),
            is_parked: false,
            refusal: None,
            transaction: None,
            rest: None,
            rest_bytes: 0,
        }
    }

    /// The response, behind what is in `bytes`. Of partitions that wait for the disk or the high
    /// watermark still, it says that the disk failed or that the time is over.
    pub fn answer(&self, bytes: &mut Vec<u8>, throttle_ms: u32, image: &Image, listener: usize) {
        let (mut writer, leaders) = self.begin_answer(std::mem::take(bytes), image);
        self.end_answer(&mut writer, throttle_ms, &leaders, image, listener);
        *bytes = writer.bytes;
    }

    /// There is more to an answer than `answer` writes.
    pub fn has_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// As `answer`, once, where the request was large.
    pub fn large_answer(&mut self, throttle_ms: u32, image: &Image, listener: usize) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let (mut writer, leaders) = self.begin_answer(Vec::new(), image);
        put_rest(&mut writer, self.rest.take().map(|rest| *rest), &mut chunks);
        self.end_answer(&mut writer, throttle_ms, &leaders, image, listener);
        chunks.push(Chunk::Bytes(writer.bytes));
        chunks
    }

    /// Takes the records of a large request out of its frame: bytes, and where the content begins
    /// from which the ranges of the records count. A copy, if the frame is kept for the answer.
    pub fn take_records(&mut self, kept: Kept) -> (Vec<u8>, usize) {
        if self.rest.is_none() {
            let (frame, content) = kept.into_frame();
            return (frame, content.start);
        }
        let mut buffer = Vec::with_capacity(self.size_bytes());
        for each in &mut self.partitions {
            let start = buffer.len();
            let records = kept.bytes().get(each.records.clone());
            buffer.extend_from_slice(records.unwrap_or_default());
            each.records = start..buffer.len();
        }
        (buffer, 0)
    }

    /// The response up to the topics of this list, and the leaders that it names.
    fn begin_answer(&self, behind: Vec<u8>, image: &Image) -> (Writer, Vec<i32>) {
        let (version, flexible) = (self.version, self.flexible);
        let mut writer = begin_response_behind(behind, self.correlation_id, flexible);
        let of_rest = self.rest.as_ref().map_or(0, |rest| rest.topics);
        writer.array_length(self.topics.len() + of_rest, flexible);
        let mut leaders = Vec::new();
        let mut partitions = self.partitions.iter();
        for (topic, count) in &self.topics {
            topic.write(&mut writer, version >= TOPIC_IDS_SINCE, flexible);
            writer.array_length(*count, flexible);
            for partition in partitions.by_ref().take(*count) {
                leaders.extend(write_partition(
                    &mut writer,
                    version,
                    self.acks,
                    topic,
                    partition,
                    image,
                ));
            }
            writer.no_tags(flexible);
        }
        (writer, leaders)
    }

    /// Writes the rest of the response, behind the topics.
    fn end_answer(
        &self,
        writer: &mut Writer,
        throttle_ms: u32,
        leaders: &[i32],
        image: &Image,
        listener: usize,
    ) {
        writer.i32(i32::try_from(throttle_ms).unwrap_or(i32::MAX));
        write_node_endpoints(
            writer,
            self.flexible,
            NODE_ENDPOINTS_TAG,
            leaders,
            image,
            listener,
        );
    }
}

/// Returns the leader, where the client came to the wrong node (KIP-951).
fn write_partition(
    writer: &mut Writer,
    version: i16,
    acks: i16,
    topic: &TopicRef,
    partition: &ProducePartition,
    image: &Image,
) -> Option<i32> {
    let flexible = version >= KEY.first_flexible;
    let mut record_errors: &[RecordError] = &[];
    let mut start_of_refused = -1;
    let error_code = partition.error_code(acks);
    let (mut message, mut info) = (None, None);
    match &partition.outcome {
        Outcome::Refused {
            log_start_offset,
            message: sentence,
            record_errors: errors,
            ..
        } => {
            record_errors = errors;
            start_of_refused = *log_start_offset;
            message = sentence.as_deref();
        }
        Outcome::Accepted(_, appended) => {
            info = appended.as_ref().filter(|_| error_code == codes::NONE);
        }
    }
    writer.i32(partition.index);
    writer.i16(error_code);
    writer.i64(info.map_or(-1, |info| info.first_offset));
    writer.i64(info.map_or(-1, |info| info.log_append_time_ms));
    if version >= 5 {
        writer.i64(info.map_or(start_of_refused, |info| info.log_start_offset));
    }
    if version >= 8 {
        writer.array_length(record_errors.len(), flexible);
        for error in record_errors {
            writer.i32(error.batch_index);
            writer.string(&error.message, flexible);
            writer.no_tags(flexible);
        }
        writer.nullable_string(message, flexible);
    }
    let is_wrong = error_code == codes::NOT_LEADER_OR_FOLLOWER && version >= LEADERS_SINCE;
    match topic {
        TopicRef::Known(topic) if is_wrong => {
            let leader = current_leader(image, &topic.id, partition.index);
            writer.uvarint(1);
            write_current_leader(writer, CURRENT_LEADER_TAG, leader);
            Some(leader.0)
        }
        _ => {
            writer.no_tags(flexible);
            None
        }
    }
}

impl ProducePartition {
    /// The error code at this moment; of records that wait for the disk or the high watermark
    /// still, that the time is over.
    fn error_code(&self, acks: i16) -> i16 {
        match &self.outcome {
            Outcome::Refused { code, .. } => *code,
            Outcome::Accepted(_, None) => codes::REQUEST_TIMED_OUT,
            Outcome::Accepted(partition, Some(info)) if acks == -1 => {
                match partition.acknowledged(info.last_offset) {
                    Some(Ok(())) => codes::NONE,
                    Some(Err(error)) => error.kafka_code(),
                    None => codes::REQUEST_TIMED_OUT,
                }
            }
            Outcome::Accepted(_, Some(_)) => codes::NONE,
        }
    }

    /// Notes the log's answer to the records.
    pub fn apply(&mut self, result: Result<AppendInfo>) {
        let Outcome::Accepted(partition, appended @ None) = &mut self.outcome else {
            return;
        };
        let error = match result {
            Ok(info) => {
                *appended = Some(info);
                return;
            }
            Err(error) => error,
        };
        self.outcome = Outcome::Refused {
            code: error.kafka_code(),
            log_start_offset: log_start_offset(partition, error.kafka_code()),
            message: Some(error.to_string()),
            record_errors: match error {
                Error::RecordsRefused(refused) => refused.errors,
                _ => Vec::new(),
            },
        };
    }
}
