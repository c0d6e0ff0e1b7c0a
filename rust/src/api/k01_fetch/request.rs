//! The reader of Fetch requests.

use std::sync::Arc;

use super::fetch::PARTITION_BYTES;
use crate::access::{Operation, Resource};
use crate::api::fetch_sessions::{
    FetchSessions, Member, NO_SESSION, PartitionKey, SessionKind, SessionRequest, TopicKey, Wanted,
};
use crate::api::handler::Ask;
use crate::api::large::partitions::{Grammar, Marks};
use crate::error::{Error, Result};
use crate::image::{Image, Topic};
use crate::limits::FETCH_SESSION_PARTITIONS_MAX;
use crate::wire::{Reader, RequestHeader};

pub const TOPIC_IDS_SINCE: i16 = 13;
/// Tag of the replica state at the top of a request from version 15 on.
const REPLICA_STATE_TAG: u32 = 1;

/// Least that a partition takes in a request (version 4).
const PARTITION_ON_WIRE_BYTES: usize = 16;

/// A request, in its order.
pub struct Request {
    pub asks: Asks,
    pub session: SessionRequest,
    pub asked: Vec<Member>,
    pub forgotten: Vec<PartitionKey>,
}

/// The wishes of a request for all partitions.
pub struct Asks {
    pub replica_id: i32,
    /// The broker epoch of a follower, -1 where it does not say.
    pub broker_epoch: i64,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation: i8,
    /// Where a consumer is; empty where it does not say.
    pub rack: Box<str>,
}

/// The most memory that the request may take while it waits, and its answer: of that the records,
/// at most `records_bytes_max`, which is 0 while answers hold files. Before it is read: `read`
/// cannot be undone where there is a session. `reader` stands behind the header.
pub fn memory_bytes_ahead(
    header: &RequestHeader<'_>,
    mut reader: Reader<'_>,
    sessions: &FetchSessions,
    records_bytes_max: u64,
) -> Result<usize> {
    let body_bytes = reader.remaining();
    let mut count = body_bytes / PARTITION_ON_WIRE_BYTES;
    // Replica, wait and least bytes.
    reader.take(if header.api_version <= 14 { 12 } else { 8 })?;
    let max_bytes = u64::try_from(reader.i32()?).unwrap_or(0);
    reader.i8()?; // isolation
    if header.api_version >= 7 {
        count += sessions.partitions_of(reader.i32()?);
    }
    let records_bytes = max_bytes.min(records_bytes_max) as usize;
    Ok(body_bytes + count * PARTITION_BYTES + records_bytes)
}

/// How partitions stand in the request.
pub fn grammar(header: &RequestHeader<'_>) -> Grammar {
    let version = header.api_version;
    Grammar {
        by_id: version >= TOPIC_IDS_SINCE,
        flexible: header.flexible,
        partition_bytes: match version {
            12.. => 32,
            9.. => 28,
            5.. => 24,
            _ => 16,
        },
        has_records: false,
    }
}

/// A reader that stands at the list of topics. `reader` stands behind the header.
pub fn list<'a>(header: &RequestHeader<'_>, reader: &Reader<'a>) -> Result<Reader<'a>> {
    let mut list = reader.clone();
    list.take(match header.api_version {
        15.. => 21,
        7.. => 25,
        _ => 17,
    })?;
    Ok(list)
}

/// Reads the request. Where there are `marks`, partitions that there are not get one
/// instead of a place in it.
///
/// Errors: as the reader, and `MalformedRequest` where more is to be
/// forgotten than all sessions hold.
pub fn parse(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    mut marks: Option<&mut Marks>,
) -> Result<Request> {
    let (version, flexible) = (header.api_version, header.flexible);
    let image = ask.image;
    let mut replica_id = if version <= 14 { reader.i32()? } else { -1 };
    let mut broker_epoch = -1;
    let max_wait_ms = reader.i32()?;
    let min_bytes = reader.i32()?;
    let max_bytes = reader.i32()?;
    let isolation = reader.i8()?;
    let (id, epoch) = match version {
        7.. => (reader.i32()?, reader.i32()?),
        _ => (NO_SESSION, -1),
    };
    let mut asked = Vec::new();
    for _ in 0..reader.array_length(flexible)? {
        read_topic(header, reader, ask, &mut asked, marks.as_deref_mut())?;
    }
    let mut forgotten = Vec::new();
    if version >= 7 {
        for _ in 0..reader.array_length(flexible)? {
            let (key, ..) = read_topic_key(header, reader, image)?;
            for _ in 0..reader.array_length(flexible)? {
                forgotten.push((key.clone(), reader.i32()?));
                if forgotten.len() > FETCH_SESSION_PARTITIONS_MAX {
                    let reason = "a Fetch that forgets more than sessions hold".to_owned();
                    return Err(Error::MalformedRequest(reason));
                }
            }
            reader.skip_tags(flexible)?;
        }
    }
    let rack = match version {
        11.. => reader.string(flexible)?.into(),
        _ => Box::default(),
    };
    if flexible {
        reader.tags(|tag, field| {
            if tag == REPLICA_STATE_TAG && version >= 15 {
                replica_id = field.i32()?;
                broker_epoch = field.i64()?;
            }
            Ok(())
        })?;
    }
    Ok(Request {
        asks: Asks {
            replica_id,
            broker_epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation,
            rack,
        },
        session: SessionRequest {
            id,
            epoch,
            kind: SessionKind {
                uses_topic_ids: version >= TOPIC_IDS_SINCE,
                is_privileged: replica_id >= 0,
            },
        },
        asked,
        forgotten,
    })
}

/// A topic's key, its name if that is known, and the topic if there is one.
type Named<'a> = (TopicKey, Option<Arc<str>>, Option<&'a Topic>);

fn read_topic_key<'a>(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    image: &'a Image,
) -> Result<Named<'a>> {
    if header.api_version >= TOPIC_IDS_SINCE {
        let id = reader.uuid()?;
        let topic = image.topic_by_id(&id).map(|topic| &**topic);
        let name = topic.map(|topic| topic.name.clone());
        return Ok((TopicKey::Id(id), name, topic));
    }
    let name = reader.string(header.flexible)?;
    let topic = image.topic(name).map(|topic| &**topic);
    let name = topic.map_or_else(|| name.into(), |topic| topic.name.clone());
    Ok((TopicKey::Name(name.clone()), Some(name), topic))
}

fn read_topic(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    asked: &mut Vec<Member>,
    mut marks: Option<&mut Marks>,
) -> Result<()> {
    let (version, flexible) = (header.api_version, header.flexible);
    let topic_at = reader.position();
    let (key, name, topic) = read_topic_key(header, reader, ask.image)?;
    if let (Some(marks), Some(name)) = (&mut marks, &name)
        && !ask.may(Operation::Read, Resource::Topic(name))
    {
        marks.deny(topic_at);
    }
    for _ in 0..reader.array_length(flexible)? {
        let partition_at = reader.position();
        let index = reader.i32()?;
        let current_leader_epoch = match version {
            // Kafka takes any negative one for none here, unlike in ListOffsets.
            9.. => reader.i32()?.max(-1),
            _ => -1,
        };
        let fetch_offset = reader.i64()?;
        let last_fetched_epoch = if version >= 12 { reader.i32()? } else { -1 };
        let log_start_offset = if version >= 5 { reader.i64()? } else { -1 };
        let max_bytes = reader.i32()?;
        reader.skip_tags(flexible)?;
        if let Some(marks) = marks.as_mut()
            && !topic.is_some_and(|topic| topic.has(index))
        {
            marks.mark(partition_at);
            continue;
        }
        asked.push(Member {
            key: (key.clone(), index),
            name: name.clone(),
            wanted: Wanted {
                fetch_offset,
                max_bytes: u64::try_from(max_bytes).unwrap_or(0),
                current_leader_epoch,
                last_fetched_epoch,
                log_start_offset,
            },
        });
    }
    reader.skip_tags(flexible)
}
