//! What a Fetch request says.

use std::sync::Arc;

use super::PARTITION_BYTES;
use crate::api::fetch_sessions::{
    FetchSessions, Member, NO_SESSION, PartitionKey, SessionRequest, TopicKey, Wanted,
};
use crate::error::Result;
use crate::image::Image;
use crate::wire::{Reader, RequestHeader};

const TOPIC_IDS_SINCE: i16 = 13;
/// Tag of the replica state at the top of a request from version 15 on.
const REPLICA_STATE_TAG: u32 = 1;

/// Least that a partition takes in a request (version 4).
const PARTITION_ON_WIRE_BYTES: usize = 16;

/// What a request says, in its order.
pub struct Request {
    pub replica_id: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation: i8,
    pub session: SessionRequest,
    pub asked: Vec<Member>,
    pub forgotten: Vec<PartitionKey>,
}

/// What the request may take in memory while it waits, at most, before it is read: `read` cannot be
/// undone where there is a session. `reader` stands behind the header.
pub fn memory_bytes_ahead(
    header: &RequestHeader<'_>,
    mut reader: Reader<'_>,
    sessions: &FetchSessions,
) -> Result<usize> {
    let body_bytes = reader.remaining();
    let mut count = body_bytes / PARTITION_ON_WIRE_BYTES;
    if header.api_version >= 7 {
        // What stands before the session: replica, wait, least and most bytes, isolation.
        reader.take(if header.api_version <= 14 { 17 } else { 13 })?;
        count += sessions.partitions_of(reader.i32()?);
    }
    Ok(body_bytes + count * PARTITION_BYTES)
}

pub fn parse(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    image: &Image,
) -> Result<Request> {
    let (version, flexible) = (header.api_version, header.flexible);
    let mut replica_id = if version <= 14 { reader.i32()? } else { -1 };
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
        read_topic(header, reader, image, &mut asked)?;
    }
    let mut forgotten = Vec::new();
    if version >= 7 {
        for _ in 0..reader.array_length(flexible)? {
            let (key, _) = read_topic_key(header, reader, image)?;
            for _ in 0..reader.array_length(flexible)? {
                forgotten.push((key.clone(), reader.i32()?));
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
    Ok(Request {
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session: SessionRequest {
            id,
            epoch,
            uses_topic_ids: version >= TOPIC_IDS_SINCE,
        },
        asked,
        forgotten,
    })
}

/// A topic's key, and its name if there is such a topic.
fn read_topic_key(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    image: &Image,
) -> Result<(TopicKey, Option<Arc<str>>)> {
    if header.api_version >= TOPIC_IDS_SINCE {
        let id = reader.uuid()?;
        let name = image.topic_by_id(&id).map(|topic| topic.name.clone());
        return Ok((TopicKey::Id(id), name));
    }
    let name = reader.string(header.flexible)?;
    let name = image
        .topic(name)
        .map_or_else(|| name.into(), |topic| topic.name.clone());
    Ok((TopicKey::Name(name.clone()), Some(name)))
}

fn read_topic(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    image: &Image,
    asked: &mut Vec<Member>,
) -> Result<()> {
    let (version, flexible) = (header.api_version, header.flexible);
    let (key, name) = read_topic_key(header, reader, image)?;
    for _ in 0..reader.array_length(flexible)? {
        let index = reader.i32()?;
        let current_leader_epoch = match version {
            // Kafka takes any negative one for none here, unlike in ListOffsets.
            9.. => reader.i32()?.max(-1),
            _ => -1,
        };
        let fetch_offset = reader.i64()?;
        let last_fetched_epoch = if version >= 12 { reader.i32()? } else { -1 };
        if version >= 5 {
            // A follower's log start offset.
            reader.i64()?;
        }
        let max_bytes = reader.i32()?;
        reader.skip_tags(flexible)?;
        asked.push(Member {
            key: (key.clone(), index),
            name: name.clone(),
            wanted: Wanted {
                fetch_offset,
                max_bytes: u64::try_from(max_bytes).unwrap_or(0),
                current_leader_epoch,
                last_fetched_epoch,
            },
        });
    }
    reader.skip_tags(flexible)
}
