//! The keys that Rust answers without Python: one file each. They read a request, look at the image
//! and the logs, and give an answer or say what it waits for. They know no socket. Who sends the answer
//! puts its size in front (`finish`).

pub mod fetch_sessions;
pub mod k00_produce;
pub mod k01_fetch;
pub mod k02_list_offsets;
pub mod k03_metadata;
pub mod k18_api_versions;
pub mod large;

use std::sync::Arc;

use large::Later;
use large::partitions::Rest;

use crate::access::{Caller, Operation, Resource};
use crate::error::{Error, Result};
use crate::image::{Image, NO_LEADER, NoLeader, Topic};
use crate::log::directory::LogDirectory;
use crate::log::read::FetchedRange;
use crate::replica::Partition;
use crate::replica::park::StopReason;
use crate::uuid::Uuid;
use crate::wire::{Reader, Writer, frame, utf8};

/// Codes that no `Error` stands for (`org.apache.kafka.common.protocol.Errors`).
pub mod code {
    pub const UNKNOWN_SERVER_ERROR: i16 = -1;
    pub const NONE: i16 = 0;
    pub const CORRUPT_MESSAGE: i16 = 2;
    pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub const LEADER_NOT_AVAILABLE: i16 = 5;
    pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub const REQUEST_TIMED_OUT: i16 = 7;
    pub const REPLICA_NOT_AVAILABLE: i16 = 9;
    pub const MESSAGE_TOO_LARGE: i16 = 10;
    pub const INVALID_TOPIC: i16 = 17;
    pub const RECORD_LIST_TOO_LARGE: i16 = 18;
    pub const INVALID_REQUIRED_ACKS: i16 = 21;
    pub const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
    pub const UNSUPPORTED_VERSION: i16 = 35;
    pub const INVALID_REQUEST: i16 = 42;
    pub const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i16 = 53;
    pub const KAFKA_STORAGE_ERROR: i16 = 56;
    pub const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
    pub const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
    pub const LISTENER_NOT_FOUND: i16 = 72;
    pub const FENCED_LEADER_EPOCH: i16 = 74;
    pub const UNKNOWN_LEADER_EPOCH: i16 = 75;
    pub const INVALID_RECORD: i16 = 87;
    pub const UNKNOWN_TOPIC_ID: i16 = 100;
    pub const INCONSISTENT_TOPIC_ID: i16 = 103;
    pub const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;
}

/// A key with the versions that are answered and the first that is flexible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub key: i16,
    /// Lowest version in the table of ApiVersions.
    pub advertised_min: i16,
    /// Lowest version that is answered.
    pub min: i16,
    pub max: i16,
    pub first_flexible: i16,
}

/// The keys of this folder.
pub const HOT_KEYS: [ApiKey; 5] = [
    k00_produce::KEY,
    k01_fetch::KEY,
    k02_list_offsets::KEY,
    k03_metadata::KEY,
    k18_api_versions::KEY,
];

/// All that a handler may look at besides its request.
pub struct Ask<'a> {
    pub image: &'a Image,
    pub caller: Caller<'a>,
}

impl Ask<'_> {
    pub fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        let authorizer = &self.image.permits.authorizer;
        authorizer.authorize(&self.caller, operation, resource)
    }

    /// The field of operations that the caller may do to a resource (KIP-430).
    pub fn operations(&self, resource: Resource<'_>) -> i32 {
        let authorizer = &self.image.permits.authorizer;
        authorizer.authorized_operations(&self.caller, resource)
    }
}

/// A part of a response: bytes, or bytes that are still in a segment's file or yet to be made.
pub enum Chunk {
    Bytes(Vec<u8>),
    Later(Later),
    /// And the directory that they are read from.
    File(FetchedRange, Arc<LogDirectory>),
}

impl Chunk {
    pub fn size_bytes(&self) -> usize {
        match self {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::Later(later) => later.left_bytes(),
            Chunk::File(range, _) => range.length_bytes as usize,
        }
    }

    /// Bytes of it that are in memory.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::Later(later) => later.memory_bytes(),
            Chunk::File(..) => 0,
        }
    }
}

/// Puts the size in front of a whole answer. Errors as `frame::finish`.
pub fn finish(chunks: &mut [Chunk], bytes_max: i32) -> Result<()> {
    match chunks {
        [Chunk::Bytes(first), further @ ..] => {
            let further_bytes = further.iter().map(Chunk::size_bytes).sum();
            frame::finish(first, further_bytes, bytes_max)
        }
        _ => Err(Error::InvalidArgument(
            "an answer begins with bytes".to_owned(),
        )),
    }
}

/// Puts the rest of an answer behind what `writer` holds, which it goes on writing behind that.
fn put_rest(writer: &mut Writer, rest: Option<Rest>, chunks: &mut Vec<Chunk>) {
    if let Some(rest) = rest {
        chunks.push(Chunk::Bytes(std::mem::take(&mut writer.bytes)));
        chunks.push(Chunk::Later(rest.later));
    }
}

/// A topic as a request names it.
pub enum TopicRef {
    Known(Arc<Topic>),
    /// The name, or empty where the request has the id.
    Unknown {
        name: Box<str>,
        id: Uuid,
    },
}

impl TopicRef {
    /// Reads the topic's name or, `by_id`, its id.
    fn read(
        reader: &mut Reader<'_>,
        by_id: bool,
        flexible: bool,
        image: &Image,
    ) -> Result<TopicRef> {
        if by_id {
            let id = reader.uuid()?;
            return Ok(match image.topic_by_id(&id) {
                Some(topic) => TopicRef::Known(topic.clone()),
                None => TopicRef::Unknown {
                    name: "".into(),
                    id,
                },
            });
        }
        let name = reader.string_bytes(flexible)?;
        Ok(match image.topic_by_bytes(name) {
            Some(topic) => TopicRef::Known(topic.clone()),
            None => TopicRef::Unknown {
                name: utf8(name)?.into(),
                id: Uuid::ZERO,
            },
        })
    }

    fn write(&self, writer: &mut Writer, by_id: bool, flexible: bool) {
        match (self, by_id) {
            (TopicRef::Known(topic), true) => writer.uuid(&topic.id),
            (TopicRef::Known(topic), false) => writer.string(&topic.name, flexible),
            (TopicRef::Unknown { id, .. }, true) => writer.uuid(id),
            (TopicRef::Unknown { name, .. }, false) => writer.string(name, flexible),
        }
    }

    /// There is such a partition, wherever it is led.
    fn has(&self, index: i32) -> bool {
        matches!(self, TopicRef::Known(topic) if topic.has(index))
    }

    /// Empty where the request has an unknown id.
    fn name(&self) -> &str {
        match self {
            TopicRef::Known(topic) => &topic.name,
            TopicRef::Unknown { name, .. } => name,
        }
    }

    fn error_code(&self, by_id: bool) -> i16 {
        match (self, by_id) {
            (TopicRef::Known(_), _) => code::NONE,
            (TopicRef::Unknown { .. }, true) => code::UNKNOWN_TOPIC_ID,
            (TopicRef::Unknown { .. }, false) => code::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
}

/// This node's replica that leads a partition, for a client that knows this leader epoch, -1 for none.
/// Errors, codes: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR; of a replica that does not lead
/// FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH before NOT_LEADER_OR_FOLLOWER.
fn leader(
    topic: &Topic,
    index: i32,
    client_epoch: i32,
) -> std::result::Result<&Arc<Partition>, i16> {
    let (leader_epoch, found) = match topic.leader(index) {
        Ok(partition) => (Some(partition.leader_epoch), Ok(partition)),
        Err(NoLeader::Unknown) => return Err(code::UNKNOWN_TOPIC_OR_PARTITION),
        Err(NoLeader::Offline) => return Err(code::KAFKA_STORAGE_ERROR),
        Err(NoLeader::Elsewhere { leader_epoch }) => {
            (leader_epoch, Err(code::NOT_LEADER_OR_FOLLOWER))
        }
    };
    let epoch_error = leader_epoch.map(|epoch| leader_epoch_error(client_epoch, epoch));
    match epoch_error {
        None | Some(code::NONE) => found,
        Some(error_code) => Err(error_code),
    }
}

/// Why a replica that led when the request came does not answer it any more; a deleted one has its log tell.
fn leads_still(partition: &Partition, client_epoch: i32) -> i16 {
    let (leader_epoch, no_leader) = match partition.waiters.ended() {
        Some(StopReason::NotLeader { leader_epoch }) => {
            (leader_epoch, code::NOT_LEADER_OR_FOLLOWER)
        }
        // That of the log: it may be led in another one since the request came.
        Some(StopReason::Deleted) | None => (partition.log.leading_epoch(), code::NONE),
    };
    match leader_epoch_error(client_epoch, leader_epoch) {
        code::NONE => no_leader,
        error_code => error_code,
    }
}

/// FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH where the client's idea of the epoch, -1 for none,
/// is not the partition's (KIP-320).
fn leader_epoch_error(client_epoch: i32, leader_epoch: i32) -> i16 {
    match client_epoch {
        -1 => code::NONE,
        epoch if epoch < leader_epoch => code::FENCED_LEADER_EPOCH,
        epoch if epoch > leader_epoch => code::UNKNOWN_LEADER_EPOCH,
        _ => code::NONE,
    }
}

/// The leader of a partition and its epoch by the metadata, for a client that came to the wrong node
/// (KIP-951); -1 where there is none.
fn current_leader(image: &Image, topic_id: &Uuid, index: i32) -> (i32, i32) {
    let partition = image
        .topic_by_id(topic_id)
        .and_then(|topic| topic.partition(index));
    partition.map_or((NO_LEADER, -1), |each| (each.leader_id, each.leader_epoch))
}

/// Writes a field of a partition that says where its leader is.
fn write_current_leader(writer: &mut Writer, tag: u32, (leader_id, leader_epoch): (i32, i32)) {
    writer.tag(tag, |field| {
        field.i32(leader_id);
        field.i32(leader_epoch);
        field.no_tags(true);
    });
}

/// Ends the top of an answer with the endpoints of these nodes, of the caller's listener (KIP-951).
fn write_node_endpoints(
    writer: &mut Writer,
    flexible: bool,
    tag: u32,
    nodes: &[i32],
    (image, listener): (&Image, usize),
) {
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes.dedup();
    let known = nodes
        .iter()
        .filter_map(|node_id| image.reachable(*node_id, listener));
    let known: Vec<_> = known.collect();
    if !flexible || known.is_empty() {
        writer.no_tags(flexible);
        return;
    }
    writer.uvarint(1);
    writer.tag(tag, |field| {
        field.array_length(known.len(), true);
        for (broker, endpoint) in &known {
            field.i32(broker.node_id);
            field.string(&endpoint.host, true);
            field.i32(endpoint.port);
            field.nullable_string(broker.rack.as_deref(), true);
            field.no_tags(true);
        }
    });
}
