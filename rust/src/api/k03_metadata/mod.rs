//! Metadata (key 3), versions 0 to 13.
//!
//! Behaviour: brokers with the endpoint of the listener that the client came in by, the cluster id,
//! the controller, and the topics asked for by name or (from version 10) id, or all of them. A
//! topic that does not exist is created by Python first where client and broker allow it, and the
//! request is then answered here.
//!
//! A topic that is named twice is answered once. If any topic has an id, only ids count.
//!
//! Refusals, of the whole request: INVALID_REQUEST for an id or a null name before version 12,
//! UNKNOWN_SERVER_ERROR for neither where no topic has an id (a NullPointerException in Kafka). Per
//! topic: UNKNOWN_TOPIC_ID for an id; TOPIC_AUTHORIZATION_FAILED for who may not see it, or not
//! have it made (where all are asked for, a topic is left out); INVALID_TOPIC_EXCEPTION for an
//! illegal name; UNKNOWN_TOPIC_OR_PARTITION. Per partition: LEADER_NOT_AVAILABLE;
//! LISTENER_NOT_FOUND (v6) where the leader lacks the client's; REPLICA_NOT_AVAILABLE in v0.
//!
//! Version notes: v0 has no null list, its empty list means all topics; v8 to v10 carry
//! the cluster's authorized operations (KIP-430); v12 lets an id stand alone (KIP-516);
//! v13 adds a top-level error.

mod answer;
mod large;
mod request;

use std::sync::Arc;

pub use large::Large;

use answer::{begin_answer, begin_refusal, write_refused, write_topic, write_unknown};
use request::{Asked, is_topic_name, may_create, once, read, refusal};

use super::handler::{ApiKey, Ask};
use crate::access::{Operation, Resource};
use crate::codes;
use crate::error::Result;
use crate::image::{Image, Topic};
use crate::limits::MEMORY_FREE_BYTES;
use crate::uuid::Uuid;
use crate::wire::{Reader, RequestHeader};

/// A partition of an answer, with one replica.
const PARTITION_ON_WIRE_BYTES: usize = 32;

pub const KEY: ApiKey = ApiKey {
    key: 3,
    advertised_min: 0,
    min: 0,
    max: 13,
    first_flexible: 9,
};

/// Names that the client asks for, may have created, and that are missing: Python's to make before
/// `answer`.
pub fn missing_topics(
    header: &RequestHeader<'_>,
    mut reader: Reader<'_>,
    ask: &Ask<'_>,
) -> Result<bool> {
    let request = read(header, &mut reader)?;
    let is_missing = |asked: &Asked<'_>| asked.missing_name(ask).is_some();
    let topics = request.topics.map(once);
    Ok(request.flags.allows_creation && topics.iter().flatten().any(is_missing))
}

/// Memory that the answer takes, in bytes, about; looked at no further than to where it is not
/// free.
pub fn memory_bytes_ahead(
    header: &RequestHeader<'_>,
    mut reader: Reader<'_>,
    image: &Image,
) -> Result<usize> {
    let mut bytes = 0;
    let mut is_much = |topic: &Arc<Topic>| {
        bytes += topic.name.len() + topic.partitions().len() * PARTITION_ON_WIRE_BYTES;
        bytes > MEMORY_FREE_BYTES
    };
    let of_asked = |asked: &Asked<'_>| match asked.name {
        Some(name) => image.topic(name),
        None => image.topic_by_id(&asked.id),
    };
    match read(header, &mut reader)?.topics {
        None => image.topics().any(&mut is_much),
        Some(asked) => asked.iter().filter_map(of_asked).any(&mut is_much),
    };
    Ok(bytes)
}

/// The whole answer. `creates` says that topics are made which clients name
/// (`auto.create.topics.enable`).
pub fn answer(
    header: &RequestHeader<'_>,
    mut reader: Reader<'_>,
    ask: &Ask<'_>,
    creates: bool,
) -> Result<Vec<u8>> {
    let image = ask.image;
    let request = read(header, &mut reader)?;
    let flexible = header.flexible;
    let asked = request.topics.as_deref().unwrap_or_default();
    if let Some(error_code) = refusal(header, asked) {
        let mut writer = begin_refusal(header, asked.len());
        for each in asked {
            write_refused(&mut writer, header, each, error_code);
        }
        request
            .flags
            .write_tail(&mut writer, header, ask, Some(error_code));
        return Ok(writer.bytes);
    }
    let topics = request.topics.map(once);
    let listener = ask.caller.listener;
    let mut writer = begin_answer(header, image, listener);
    let flags = &request.flags;
    let creates = creates && flags.allows_creation;
    match &topics {
        None => {
            // Topics that the client may not see are left out.
            let may_see =
                |topic: &&Arc<Topic>| ask.may(Operation::Describe, Resource::Topic(&topic.name));
            writer.array_length(image.topics().filter(may_see).count(), flexible);
            for topic in image.topics().filter(may_see) {
                let operations = flags.topic_operations(ask, &topic.name);
                write_topic(&mut writer, header, topic, image, listener, operations);
            }
        }
        Some(asked) => {
            writer.array_length(asked.len(), flexible);
            for asked in asked {
                match find(ask, asked, creates) {
                    Ok(topic) => {
                        let operations = flags.topic_operations(ask, &topic.name);
                        write_topic(&mut writer, header, topic, image, listener, operations);
                    }
                    Err(error_code) => {
                        write_unknown(&mut writer, header, asked, error_code, (flags, ask));
                    }
                }
            }
        }
    }
    flags.write_tail(&mut writer, header, ask, None);
    Ok(writer.bytes)
}

/// The topic, or why it is not answered with its partitions. `creates`: if it is
/// missing, it is to be made.
pub fn find<'a>(
    ask: &Ask<'a>,
    asked: &Asked<'_>,
    creates: bool,
) -> std::result::Result<&'a Arc<Topic>, i16> {
    let may_see = |name: &str| ask.may(Operation::Describe, Resource::Topic(name));
    match asked.name.filter(|_| asked.id == Uuid::ZERO) {
        None => {
            let topic = ask.image.topic_by_id(&asked.id);
            let topic = topic.ok_or(codes::UNKNOWN_TOPIC_ID)?;
            if may_see(&topic.name) {
                Ok(topic)
            } else {
                Err(codes::TOPIC_AUTHORIZATION_FAILED)
            }
        }
        Some(name) if !may_see(name) => Err(codes::TOPIC_AUTHORIZATION_FAILED),
        Some(name) if !is_topic_name(name) => Err(codes::INVALID_TOPIC),
        Some(name) => match ask.image.topic(name) {
            Some(topic) => Ok(topic),
            None if creates && !may_create(ask, name) => Err(codes::TOPIC_AUTHORIZATION_FAILED),
            None => Err(codes::UNKNOWN_TOPIC_OR_PARTITION),
        },
    }
}
