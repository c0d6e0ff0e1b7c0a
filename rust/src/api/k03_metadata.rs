//! Metadata (key 3), versions 0 to 13.
//!
//! Behaviour: brokers with the endpoint of the listener that the client came in by, the cluster id,
//! the controller, and the topics asked for by name or (from version 10) id, or all of them. A topic
//! that does not exist is created by Python first where client and broker allow it, and the request
//! is then answered here.
//!
//! A topic that is named twice is answered once. If any topic has an id, only ids count.
//!
//! Refusals, of the whole request: INVALID_REQUEST for an id or a null name before version 12,
//! UNKNOWN_SERVER_ERROR for neither where no topic has an id (a NullPointerException in Kafka). Per
//! topic: UNKNOWN_TOPIC_ID for an id; TOPIC_AUTHORIZATION_FAILED for who may not see it, or not have it made
//! (where all are asked for, a topic is left out); INVALID_TOPIC_EXCEPTION for an illegal name;
//! UNKNOWN_TOPIC_OR_PARTITION. Per partition: LEADER_NOT_AVAILABLE; LISTENER_NOT_FOUND (v6) where the leader lacks the
//! client's; REPLICA_NOT_AVAILABLE in v0.
//!
//! Version notes: v0 has no null list, its empty list means all topics; v8 to v10 carry the cluster's
//! authorized operations (KIP-430); v12 lets an id stand alone (KIP-516); v13 adds a top-level error.

use std::collections::HashSet;
use std::sync::Arc;

use super::{ApiKey, Ask, code};
use crate::access::{Operation, Resource};
use crate::error::Result;
use crate::image::{Image, NO_LEADER, PartitionRegistration, Topic};
use crate::limits::TOPIC_NAME_BYTES_MAX;
use crate::uuid::Uuid;
use crate::wire::{Reader, RequestHeader, Writer};

pub const KEY: ApiKey = ApiKey {
    key: 3,
    advertised_min: 0,
    min: 0,
    max: 13,
    first_flexible: 9,
};

/// "Not asked for" in a field of authorized operations.
const OPERATIONS_OMITTED: i32 = i32::MIN;

/// First version in which an id may stand for a name.
const ALONE_SINCE: i16 = 12;
/// First version in which a client knows LISTENER_NOT_FOUND.
const LISTENERS_SINCE: i16 = 6;

/// A topic that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Asked<'a> {
    pub name: Option<&'a str>,
    pub id: Uuid,
}

impl<'a> Asked<'a> {
    /// Its name, if it is missing, there may be such a topic, and the client may have it made.
    pub fn missing_name(&self, ask: &Ask<'_>) -> Option<&'a str> {
        let is_missing = |name: &&str| ask.image.topic(name).is_none() && is_topic_name(name);
        let name = self.name.filter(is_missing)?;
        let may_see = ask.may(Operation::Describe, Resource::Topic(name));
        (may_see && may_create(ask, name)).then_some(name)
    }
}

struct Request<'a> {
    /// `None`: all topics.
    topics: Option<Vec<Asked<'a>>>,
    flags: Flags,
}

/// The flags that stand behind the topics.
#[derive(Clone, Copy)]
pub struct Flags {
    pub allows_creation: bool,
    cluster_operations: bool,
    topic_operations: bool,
}

impl Flags {
    pub fn read(header: &RequestHeader<'_>, reader: &mut Reader<'_>) -> Result<Flags> {
        let version = header.api_version;
        let flags = Flags {
            allows_creation: version < 4 || reader.bool()?,
            cluster_operations: (8..=10).contains(&version) && reader.bool()?,
            topic_operations: version >= 8 && reader.bool()?,
        };
        reader.skip_tags(header.flexible)?;
        Ok(flags)
    }

    /// The field of the operations on a topic.
    pub fn topic_operations(&self, ask: &Ask<'_>, name: &str) -> i32 {
        match self.topic_operations {
            true => ask.operations(Resource::Topic(name)),
            false => OPERATIONS_OMITTED,
        }
    }

    /// The field of the operations on the cluster.
    fn cluster_operations(&self, ask: &Ask<'_>) -> i32 {
        match self.cluster_operations {
            true if ask.may(Operation::Describe, Resource::Cluster) => {
                ask.operations(Resource::Cluster)
            }
            true => 0,
            false => OPERATIONS_OMITTED,
        }
    }

    /// Writes the end of an answer, behind the topics, to a request that may be refused as a whole.
    pub fn write_tail(
        &self,
        writer: &mut Writer,
        header: &RequestHeader<'_>,
        ask: &Ask<'_>,
        refusal: Option<i16>,
    ) {
        let version = header.api_version;
        if (8..=10).contains(&version) {
            writer.i32(match refusal {
                None => self.cluster_operations(ask),
                Some(_) => OPERATIONS_OMITTED,
            });
        }
        if version >= 13 {
            writer.i16(refusal.unwrap_or(code::NONE));
        }
        writer.no_tags(header.flexible);
    }
}

/// How many topics are named; `None`: all are meant.
pub fn read_count(header: &RequestHeader<'_>, reader: &mut Reader<'_>) -> Result<Option<usize>> {
    match header.api_version {
        0 => Ok(Some(reader.array_length(header.flexible)?).filter(|count| *count > 0)),
        _ => reader.nullable_length(header.flexible),
    }
}

pub fn read_topic<'a>(header: &RequestHeader<'_>, reader: &mut Reader<'a>) -> Result<Asked<'a>> {
    let (version, flexible) = (header.api_version, header.flexible);
    let id = if version >= 10 {
        reader.uuid()?
    } else {
        Uuid::ZERO
    };
    let name = match version >= 10 {
        true => reader.nullable_string(flexible)?,
        false => Some(reader.string(flexible)?),
    };
    reader.skip_tags(flexible)?;
    Ok(Asked { name, id })
}

/// The body of a request of this version that has these topics made.
pub fn request_of(header: &RequestHeader<'_>, names: &HashSet<&str>) -> Vec<u8> {
    let (version, flexible) = (header.api_version, header.flexible);
    let mut writer = Writer::default();
    writer.array_length(names.len(), flexible);
    for name in names {
        if version >= 10 {
            writer.uuid(&Uuid::ZERO);
        }
        writer.string(name, flexible);
        writer.no_tags(flexible);
    }
    if version >= 4 {
        writer.bool(true);
    }
    if (8..=10).contains(&version) {
        writer.bool(false);
    }
    if version >= 8 {
        writer.bool(false);
    }
    writer.no_tags(flexible);
    writer.bytes
}

fn read<'a>(header: &RequestHeader<'_>, reader: &mut Reader<'a>) -> Result<Request<'a>> {
    let mut topics = None;
    if let Some(count) = read_count(header, reader)? {
        let asked = topics.insert(Vec::new());
        for _ in 0..count {
            asked.push(read_topic(header, reader)?);
        }
    }
    Ok(Request {
        topics,
        flags: Flags::read(header, reader)?,
    })
}

/// Each topic once, and only those with an id if there is one.
fn once(mut asked: Vec<Asked<'_>>) -> Vec<Asked<'_>> {
    if asked.iter().any(|each| each.id != Uuid::ZERO) {
        asked.retain(|each| each.id != Uuid::ZERO);
        asked.iter_mut().for_each(|each| each.name = None);
    }
    let mut seen = HashSet::new();
    asked.retain(|each| seen.insert(*each));
    asked
}

/// Why the whole request is refused.
fn refusal(header: &RequestHeader<'_>, asked: &[Asked<'_>]) -> Option<i16> {
    let has_id = |each: &Asked<'_>| each.id != Uuid::ZERO;
    let is_nothing = |each: &Asked<'_>| each.name.is_none() && !has_id(each);
    let is_young = |each: &Asked<'_>| has_id(each) || each.name.is_none();
    refusal_of(
        header,
        asked.iter().any(is_young),
        asked.iter().any(has_id),
        asked.iter().any(is_nothing),
    )
}

/// Refuses by what is among the topics: an id or no name; an id; neither.
pub fn refusal_of(
    header: &RequestHeader<'_>,
    has_young: bool,
    has_ids: bool,
    has_nothing: bool,
) -> Option<i16> {
    if header.api_version < ALONE_SINCE && has_young {
        return Some(code::INVALID_REQUEST);
    }
    (!has_ids && has_nothing).then_some(code::UNKNOWN_SERVER_ERROR)
}

/// The answer to a request that is refused as a whole, up to its topics: no brokers, and so many topics
/// that have the error each.
pub fn begin_refusal(header: &RequestHeader<'_>, topics: usize) -> Writer {
    let (version, flexible) = (header.api_version, header.flexible);
    let mut writer = header.begin_response(64);
    if version >= 3 {
        writer.i32(0);
    }
    writer.array_length(0, flexible);
    if version >= 2 {
        writer.nullable_string(None, flexible);
    }
    if version >= 1 {
        writer.i32(-1);
    }
    writer.array_length(topics, flexible);
    writer
}

/// A topic of such a request.
pub fn write_refused(
    writer: &mut Writer,
    header: &RequestHeader<'_>,
    asked: &Asked<'_>,
    error_code: i16,
) {
    let named = Asked {
        name: Some(asked.name.unwrap_or_default()),
        id: asked.id,
    };
    write_refusal(writer, header, &named, error_code, OPERATIONS_OMITTED);
}

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

/// The answer up to its topics.
pub fn begin_answer(header: &RequestHeader<'_>, image: &Image, listener: usize) -> Writer {
    let (version, flexible) = (header.api_version, header.flexible);
    let mut writer = header.begin_response(256);
    if version >= 3 {
        writer.i32(0);
    }
    write_brokers(&mut writer, header, image, listener);
    if version >= 2 {
        writer.nullable_string(Some(&image.cluster_id), flexible);
    }
    if version >= 1 {
        writer.i32(image.controller_id);
    }
    writer
}

/// The whole answer. `creates` says that topics are made which clients name (`auto.create.topics.enable`).
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
    let mut writer = begin_answer(header, image, ask.caller.listener);
    let flags = &request.flags;
    let creates = creates && flags.allows_creation;
    let at = (image, ask.caller.listener);
    match &topics {
        None => {
            // Topics that the client may not see are left out.
            let may_see =
                |topic: &&Arc<Topic>| ask.may(Operation::Describe, Resource::Topic(&topic.name));
            writer.array_length(image.topics().filter(may_see).count(), flexible);
            for topic in image.topics().filter(may_see) {
                let operations = flags.topic_operations(ask, &topic.name);
                write_topic(&mut writer, header, topic, at, operations);
            }
        }
        Some(asked) => {
            writer.array_length(asked.len(), flexible);
            for asked in asked {
                match find(ask, asked, creates) {
                    Ok(topic) => {
                        let operations = flags.topic_operations(ask, &topic.name);
                        write_topic(&mut writer, header, topic, at, operations);
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

/// A topic that is not answered with its partitions.
pub fn write_unknown(
    writer: &mut Writer,
    header: &RequestHeader<'_>,
    asked: &Asked<'_>,
    error_code: i16,
    (flags, ask): (&Flags, &Ask<'_>),
) {
    // No name stands beside an id that is not known.
    let name = asked.name.filter(|_| asked.id == Uuid::ZERO);
    let told = Asked { name, ..*asked };
    let visible = name.filter(|_| error_code != code::TOPIC_AUTHORIZATION_FAILED);
    let operations = visible.map_or(OPERATIONS_OMITTED, |name| flags.topic_operations(ask, name));
    write_refusal(writer, header, &told, error_code, operations);
}

/// The topic, or why it is not answered with its partitions. `creates`: if it is missing, it is to be made.
pub fn find<'a>(
    ask: &Ask<'a>,
    asked: &Asked<'_>,
    creates: bool,
) -> std::result::Result<&'a Arc<Topic>, i16> {
    let may_see = |name: &str| ask.may(Operation::Describe, Resource::Topic(name));
    match asked.name.filter(|_| asked.id == Uuid::ZERO) {
        None => {
            let topic = ask.image.topic_by_id(&asked.id);
            let topic = topic.ok_or(code::UNKNOWN_TOPIC_ID)?;
            match may_see(&topic.name) {
                true => Ok(topic),
                false => Err(code::TOPIC_AUTHORIZATION_FAILED),
            }
        }
        Some(name) if !may_see(name) => Err(code::TOPIC_AUTHORIZATION_FAILED),
        Some(name) if !is_topic_name(name) => Err(code::INVALID_TOPIC),
        Some(name) => match ask.image.topic(name) {
            Some(topic) => Ok(topic),
            None if creates && !may_create(ask, name) => Err(code::TOPIC_AUTHORIZATION_FAILED),
            None => Err(code::UNKNOWN_TOPIC_OR_PARTITION),
        },
    }
}

fn may_create(ask: &Ask<'_>, name: &str) -> bool {
    ask.may(Operation::Create, Resource::Cluster)
        || ask.may(Operation::Create, Resource::Topic(name))
}

fn write_brokers(writer: &mut Writer, header: &RequestHeader<'_>, image: &Image, listener: usize) {
    let (version, flexible) = (header.api_version, header.flexible);
    let brokers = image.brokers().iter();
    let reachable = brokers.filter_map(|broker| Some((broker, broker.endpoint(listener)?)));
    writer.array_length(reachable.clone().count(), flexible);
    for (broker, endpoint) in reachable {
        writer.i32(broker.node_id);
        writer.string(&endpoint.host, flexible);
        writer.i32(endpoint.port);
        if version >= 1 {
            writer.nullable_string(broker.rack.as_deref(), flexible);
        }
        writer.no_tags(flexible);
    }
}

/// Writes a topic with its partitions, for clients of a listener.
pub fn write_topic(
    writer: &mut Writer,
    header: &RequestHeader<'_>,
    topic: &Topic,
    at: (&Image, usize),
    operations: i32,
) {
    let (version, flexible) = (header.api_version, header.flexible);
    writer.i16(code::NONE);
    writer.string(&topic.name, flexible);
    if version >= 10 {
        writer.uuid(&topic.id);
    }
    if version >= 1 {
        writer.bool(topic.is_internal);
    }
    writer.array_length(topic.partitions().len(), flexible);
    let partitions = topic.partitions().iter().zip(topic.hosted());
    for (index, (registration, hosted)) in (0_i32..).zip(partitions) {
        write_partition(writer, header, index, registration, hosted.is_offline(), at);
    }
    if version >= 8 {
        writer.i32(operations);
    }
    writer.no_tags(flexible);
}

/// Writes a partition as the metadata has it (`KRaftMetadataCache.getPartitionMetadata`): a leader that no
/// client of the listener can reach is none, and replicas there are offline. The metadata does not know yet
/// where a log directory of this node fails (`is_offline`): its replica does not lead then, and the last one
/// in sync stays there, or becomes an eligible leader (KIP-966).
fn write_partition(
    writer: &mut Writer,
    header: &RequestHeader<'_>,
    index: i32,
    registration: &PartitionRegistration,
    is_offline: bool,
    (image, listener): (&Image, usize),
) {
    let (version, flexible) = (header.api_version, header.flexible);
    let failed = is_offline.then_some(image.node_id);
    let is_alive = |node: &i32| image.reachable(*node, listener).is_some();
    let is_online = |node: &i32| is_alive(node) && Some(*node) != failed;
    let leaves = failed.filter(|_| image.features.has_eligible_leaders());
    // Clients of version 0 do not know offline replicas.
    let is_told = |node: &&i32| version > 0 || is_alive(node);
    let replicas = registration.replicas.iter().filter(is_told);
    let in_sync = registration.in_sync_replicas.iter().filter(is_told);
    let in_sync = in_sync.filter(|node| Some(**node) != leaves);
    let leader_id = Some(registration.leader_id).filter(is_online);
    let are_all = replicas.clone().count() == registration.replicas.len();
    let is_alive_elsewhere = image.broker(registration.leader_id).is_some() && failed.is_none();
    writer.i16(match leader_id {
        Some(_) if are_all => code::NONE,
        Some(_) => code::REPLICA_NOT_AVAILABLE,
        None if is_alive_elsewhere && version >= LISTENERS_SINCE => code::LISTENER_NOT_FOUND,
        None => code::LEADER_NOT_AVAILABLE,
    });
    writer.i32(index);
    writer.i32(leader_id.unwrap_or(NO_LEADER));
    if version >= 7 {
        writer.i32(registration.leader_epoch);
    }
    write_nodes(writer, replicas, flexible);
    write_nodes(writer, in_sync, flexible);
    if version >= 5 {
        let offline = registration.replicas.iter().filter(|node| !is_online(node));
        write_nodes(writer, offline, flexible);
    }
    writer.no_tags(flexible);
}

fn write_refusal(
    writer: &mut Writer,
    header: &RequestHeader<'_>,
    asked: &Asked<'_>,
    error_code: i16,
    operations: i32,
) {
    let (version, flexible) = (header.api_version, header.flexible);
    writer.i16(error_code);
    match version >= ALONE_SINCE {
        true => writer.nullable_string(asked.name, flexible),
        false => writer.string(asked.name.unwrap_or_default(), flexible),
    }
    if version >= 10 {
        writer.uuid(&asked.id);
    }
    if version >= 1 {
        // Who may not see a topic is not told of its kind either.
        let is_hidden = error_code == code::TOPIC_AUTHORIZATION_FAILED;
        writer.bool(!is_hidden && asked.name.is_some_and(is_internal));
    }
    writer.array_length(0, flexible);
    if version >= 8 {
        writer.i32(operations);
    }
    writer.no_tags(flexible);
}

fn write_nodes<'a>(
    writer: &mut Writer,
    nodes: impl Iterator<Item = &'a i32> + Clone,
    flexible: bool,
) {
    writer.array_length(nodes.clone().count(), flexible);
    for node in nodes {
        writer.i32(*node);
    }
}

/// Topics of Kafka's own (`Topic.isInternal`), whether they are there or not.
fn is_internal(name: &str) -> bool {
    matches!(
        name,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
}

/// Kafka's rule for topic names (`Topic.validate`): 1 to 249 of `[a-zA-Z0-9._-]`, not `.` or `..`.
pub fn is_topic_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=TOPIC_NAME_BYTES_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(legal)
}
