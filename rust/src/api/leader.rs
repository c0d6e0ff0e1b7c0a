//! The leader of a partition: found for a client that has an idea of its epoch, and told to one
//! that came to the wrong node. Consumers may read from followers, too.

use std::sync::Arc;

use crate::codes;
use crate::image::{Image, NO_LEADER, NoLeader, Topic};
use crate::replica::park::StopReason;
use crate::replica::{HostedPartition, Partition, Role};
use crate::uuid::Uuid;
use crate::wire::Writer;

/// This node's replica that leads a partition, for a client that knows this leader epoch, -1 for
/// none. Errors, codes: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR; of a replica that does not
/// lead FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH before NOT_LEADER_OR_FOLLOWER.
pub fn leader(
    topic: &Topic,
    index: i32,
    client_epoch: i32,
) -> std::result::Result<&Arc<Partition>, i16> {
    let (leader_epoch, found) = match topic.leader(index) {
        Ok(partition) => (Some(partition.leader_epoch), Ok(partition)),
        Err(NoLeader::Unknown) => return Err(codes::UNKNOWN_TOPIC_OR_PARTITION),
        Err(NoLeader::Offline) => return Err(codes::KAFKA_STORAGE_ERROR),
        Err(NoLeader::Elsewhere { leader_epoch }) => {
            (leader_epoch, Err(codes::NOT_LEADER_OR_FOLLOWER))
        }
    };
    let epoch_error = leader_epoch.map(|epoch| leader_epoch_error(client_epoch, epoch));
    match epoch_error {
        None | Some(codes::NONE) => found,
        Some(error_code) => Err(error_code),
    }
}

/// This node's replica of a partition, from which a consumer may read whoever leads it
/// (KIP-392). Errors as of `leader`.
pub fn readable(
    topic: &Topic,
    index: i32,
    client_epoch: i32,
) -> std::result::Result<&Arc<Partition>, i16> {
    match topic.hosted_partition(index) {
        Some(HostedPartition::Online(replica)) if !replica.is_offline() => {
            match leader_epoch_error(client_epoch, replica.leader_epoch) {
                codes::NONE => Ok(replica),
                error_code => Err(error_code),
            }
        }
        _ => leader(topic, index, client_epoch),
    }
}

/// Why a replica that could be read when the request came does not answer it any more; a
/// deleted one has its log tell.
pub fn leads_still(partition: &Partition, client_epoch: i32) -> i16 {
    let (leader_epoch, no_leader) = match partition.waiters.ended() {
        Some(StopReason::NotLeader { leader_epoch }) => {
            (leader_epoch, codes::NOT_LEADER_OR_FOLLOWER)
        }
        // That of the log: it may be led in another one since the request came.
        Some(StopReason::Deleted) | None => match partition.role {
            Role::Leader => (partition.log.leading_epoch(), codes::NONE),
            Role::Follower => (partition.leader_epoch, codes::NONE),
        },
    };
    match leader_epoch_error(client_epoch, leader_epoch) {
        codes::NONE => no_leader,
        error_code => error_code,
    }
}

/// FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH where the client's idea of the epoch, -1 for none,
/// is not the partition's (KIP-320).
fn leader_epoch_error(client_epoch: i32, leader_epoch: i32) -> i16 {
    match client_epoch {
        -1 => codes::NONE,
        epoch if epoch < leader_epoch => codes::FENCED_LEADER_EPOCH,
        epoch if epoch > leader_epoch => codes::UNKNOWN_LEADER_EPOCH,
        _ => codes::NONE,
    }
}

/// The leader of a partition and its epoch by the metadata, for a client that came to the wrong
/// node (KIP-951); -1 where there is none.
pub fn current_leader(image: &Image, topic_id: &Uuid, index: i32) -> (i32, i32) {
    let partition = image
        .topic_by_id(topic_id)
        .and_then(|topic| topic.partition(index));
    partition.map_or((NO_LEADER, -1), |each| (each.leader_id, each.leader_epoch))
}

/// Writes a field of a partition that says where its leader is.
pub fn write_current_leader(writer: &mut Writer, tag: u32, (leader_id, leader_epoch): (i32, i32)) {
    writer.tag(tag, |field| {
        field.i32(leader_id);
        field.i32(leader_epoch);
        field.no_tags(true);
    });
}

/// Ends the top of an answer with the endpoints of these nodes, of the caller's listener (KIP-951).
pub fn write_node_endpoints(
    writer: &mut Writer,
    flexible: bool,
    tag: u32,
    nodes: &[i32],
    image: &Image,
    listener: usize,
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
