//! The answer to a Metadata request: brokers, topics and partitions as the metadata has them.

use super::request::{ALONE_SINCE, Asked, Flags, OPERATIONS_OMITTED};
use crate::api::handler::Ask;
use crate::codes;
use crate::image::{Image, NO_LEADER, PartitionRegistration, Topic};
use crate::uuid::Uuid;
use crate::wire::{RequestHeader, Writer};

/// First version in which a client knows LISTENER_NOT_FOUND.
const LISTENERS_SINCE: i16 = 6;

/// The answer to a request that is refused as a whole, up to its topics: no brokers, and so many
/// topics that have the error each.
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
    let visible = name.filter(|_| error_code != codes::TOPIC_AUTHORIZATION_FAILED);
    let operations = visible.map_or(OPERATIONS_OMITTED, |name| flags.topic_operations(ask, name));
    write_refusal(writer, header, &told, error_code, operations);
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
    image: &Image,
    listener: usize,
    operations: i32,
) {
    let (version, flexible) = (header.api_version, header.flexible);
    writer.i16(codes::NONE);
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
        write_partition(
            writer,
            header,
            index,
            registration,
            hosted.is_offline(),
            image,
            listener,
        );
    }
    if version >= 8 {
        writer.i32(operations);
    }
    writer.no_tags(flexible);
}

/// Writes a partition as the metadata has it (`KRaftMetadataCache.getPartitionMetadata`): a leader
/// that no client of the listener can reach is none, and replicas there are offline. The metadata
/// does not know yet where a log directory of this node fails (`is_offline`): its replica does not
/// lead then, and the last one in sync stays there, or becomes an eligible leader (KIP-966).
fn write_partition(
    writer: &mut Writer,
    header: &RequestHeader<'_>,
    index: i32,
    registration: &PartitionRegistration,
    is_offline: bool,
    image: &Image,
    listener: usize,
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
        Some(_) if are_all => codes::NONE,
        Some(_) => codes::REPLICA_NOT_AVAILABLE,
        None if is_alive_elsewhere && version >= LISTENERS_SINCE => codes::LISTENER_NOT_FOUND,
        None => codes::LEADER_NOT_AVAILABLE,
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
    if version >= ALONE_SINCE {
        writer.nullable_string(asked.name, flexible);
    } else {
        writer.string(asked.name.unwrap_or_default(), flexible);
    }
    if version >= 10 {
        writer.uuid(&asked.id);
    }
    if version >= 1 {
        // Who may not see a topic is not told of its kind either.
        let is_hidden = error_code == codes::TOPIC_AUTHORIZATION_FAILED;
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
