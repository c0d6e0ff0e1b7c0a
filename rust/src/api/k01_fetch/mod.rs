//! Fetch (key 1), versions 4 to 18.
//!
//! Behaviour: `read` reads the request (`request.rs`) and finds its session (`fetch_sessions/`);
//! `Fetch::read_logs` reads the logs, those of one log directory at a time, and `is_due` says
//! whether the answer is due: `min_bytes` are there, or all that a segment will ever give, or a log
//! refused, or nothing may be waited for; else the caller parks the request on its partitions
//! (`wait_for`) and looks again when woken, at the latest after `max_wait_ms`. `answer`
//! (`answer.rs`) writes the response as a queue of chunks, the records being ranges of segment
//! files. Partitions are read in order until `max_bytes` are full. The first one with records gives
//! its first batch whole, even if that is larger than the limits (KIP-74); a later one whose first
//! batch does not fit gives nothing. Whatever the limits, all of an answer fits into a frame. An
//! incremental answer holds only partitions with something new (KIP-227).
//!
//! Refusals of the request: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
//! FETCH_SESSION_TOPIC_ID_ERROR. Per partition, before the logs are asked and behind all others in
//! the answer: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION. By the
//! log: INCONSISTENT_TOPIC_ID, where the topic of a session was made anew; FENCED_LEADER_EPOCH,
//! UNKNOWN_LEADER_EPOCH; NOT_LEADER_OR_FOLLOWER where another node leads, also by now if the
//! request waited; OFFSET_OUT_OF_RANGE below the log start and above the log end (between the high
//! watermark and the log end there is nothing yet, and no error), and for a last fetched epoch that
//! the log does not know; KAFKA_STORAGE_ERROR, also where the log directory is offline, before
//! version 6 as NOT_LEADER_OR_FOLLOWER. These end the wait, the others do not.
//!
//! A follower reads to the log end. Where it is refused nothing and has not diverged, its fetch
//! says, when it is first looked at, that it has all below its fetch offset
//! (`Partition::on_replica_fetch`): UNKNOWN_LEADER_EPOCH (NOT_LEADER_OR_FOLLOWER if it names no
//! leader epoch) where it is not assigned a replica, as far as is known here;
//! NOT_LEADER_OR_FOLLOWER for a broker epoch that has gone (KIP-903). Its fetch waits for the log
//! end. A partition of which it is not in sync is empty while `leader.replication.throttled.rate`
//! is exceeded, if it is throttled (KIP-73).
//!
//! A consumer of v11 or later reads from any replica, up to the high watermark that is known there.
//! With `replica.selector.class` the leader names one in the consumer's rack that is in sync and
//! has the offset, in place of records (KIP-392).
//!
//! Version notes: v4 isolation level (KIP-98); v7 sessions; v9 leader epoch; v11 rack; v12
//! flexible, diverging epochs (KIP-595); v13 topic ids (KIP-516); v15 replica state
//! (KIP-903); v16 current leader and node endpoints (KIP-951); v17 directory id and v18 high
//! watermark, for replicas only.

mod answer;
mod fetch;
mod large;
mod request;

use std::sync::Arc;

pub use fetch::{Fetch, FetchRead};
pub use large::read_large;
pub use request::memory_bytes_ahead;

use answer::{content_bytes_max, frame_bytes};
use fetch::{FetchPartition, Follower, storage_error};

use super::fetch_sessions::{Context, FetchSessions, Member, TopicKey};
use super::handler::{ApiKey, Ask};
use super::large::partitions::Rest;
use super::leader::{leader, readable};
use crate::access::{Operation, Resource};
use crate::codes;
use crate::error::Result;
use crate::image::Topic;
use crate::log::read::ReadIsolation;
use crate::replica::Partition;
use crate::wire::{Reader, RequestHeader};

pub const KEY: ApiKey = ApiKey {
    key: 1,
    advertised_min: 4,
    min: 4,
    max: 18,
    first_flexible: 12,
};

/// From here on a consumer says where it is, and may read from followers.
const RACK_SINCE: i16 = 11;

/// Reads the request and finds its session. `reader` stands behind the header; `bytes_max` is
/// `fetch.max.bytes`.
pub fn read(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    sessions: &FetchSessions,
    bytes_max: u64,
    now_ms: u64,
) -> Result<Fetch> {
    let body_bytes = reader.remaining();
    let request = request::parse(header, reader, ask, None)?;
    let (session, forgotten) = (request.session, &request.forgotten);
    let opened = sessions.open(session, request.asked, forgotten, now_ms);
    let asks = request.asks;
    let bounds = (bytes_max, body_bytes);
    begin(header, &asks, ask, opened, None, (bounds, now_ms))
}

fn may_replicate(ask: &Ask<'_>) -> bool {
    ask.may(Operation::ClusterAction, Resource::Cluster)
}

/// The request with its session and the partitions that it is about.
fn begin(
    header: &RequestHeader<'_>,
    request: &request::Asks,
    ask: &Ask<'_>,
    (context, members): (Context, Vec<Member>),
    rest: Option<Rest>,
    ((bytes_max, body_bytes), now_ms): ((u64, usize), u64),
) -> Result<Fetch> {
    let is_replica = request.replica_id >= 0;
    let may_replicate = is_replica && may_replicate(ask);
    let mut partitions = Vec::with_capacity(members.len());
    let mut refused = Vec::new();
    for member in members {
        let (error_code, partition) = match resolve(&member, ask, is_replica, may_replicate) {
            Ok(topic) => located(&member, topic, is_replica, header.api_version),
            Err(error_code) => {
                refused.push(FetchPartition {
                    member,
                    error_code,
                    partition: None,
                });
                continue;
            }
        };
        partitions.push(FetchPartition {
            member,
            error_code,
            partition,
        });
    }
    if !is_replica {
        // Kafka looks at all ids before it looks at partitions.
        refused.sort_by_key(|each| each.error_code != codes::UNKNOWN_TOPIC_ID);
    }
    let readable = partitions.len();
    partitions.append(&mut refused);
    let of_rest = rest.as_ref().map_or(0, |rest| rest.later.left_bytes());
    let content_bytes_max = content_bytes_max(frame_bytes(&partitions) + of_rest as u64)?;
    let max_bytes = u64::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(bytes_max)
        .min(content_bytes_max);
    Ok(Fetch {
        version: header.api_version,
        flexible: header.flexible,
        correlation_id: header.correlation_id,
        max_wait_ms: request.max_wait_ms.max(0),
        min_bytes: u64::try_from(request.min_bytes).unwrap_or(0).min(max_bytes),
        max_bytes,
        content_bytes_max,
        isolation: match request.isolation {
            _ if is_replica => ReadIsolation::LogEnd,
            1 => ReadIsolation::LastStable,
            _ => ReadIsolation::HighWatermark,
        },
        listener: ask.caller.listener,
        context,
        partitions,
        readable,
        follower: is_replica.then(|| {
            let received_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
            Follower {
                replica_id: request.replica_id,
                broker_epoch: request.broker_epoch,
                received_ms,
                now_ms: received_ms,
                acknowledged: 0,
            }
        }),
        rack: request.rack.clone(),
        is_parked: false,
        // The rest keeps the whole frame.
        body_bytes: if rest.is_some() { 0 } else { body_bytes },
        rest_bytes: rest.as_ref().map_or(0, |rest| rest.later.memory_bytes()),
        rest,
    })
}

/// The topic of a partition that there is, or why it is refused before any log is asked.
fn resolve<'a>(
    member: &Member,
    ask: &Ask<'a>,
    is_replica: bool,
    may_replicate: bool,
) -> std::result::Result<&'a Topic, i16> {
    if is_replica && !may_replicate {
        return Err(codes::TOPIC_AUTHORIZATION_FAILED);
    }
    let by_id = match &member.key.0 {
        TopicKey::Id(id) => ask.image.topic_by_id(id),
        TopicKey::Name(_) => None,
    };
    let name = by_id.map(|topic| &topic.name).or(member.name.as_ref());
    let Some(name) = name else {
        return Err(codes::UNKNOWN_TOPIC_ID);
    };
    if !is_replica && !ask.may(Operation::Read, Resource::Topic(name)) {
        return Err(codes::TOPIC_AUTHORIZATION_FAILED);
    }
    let topic = by_id.or_else(|| ask.image.topic(name));
    let topic = topic.filter(|topic| topic.has(member.key.1));
    topic
        .map(|topic| &**topic)
        .ok_or(codes::UNKNOWN_TOPIC_OR_PARTITION)
}

/// The replica whose log is asked, or the refusal that is known before.
fn located(
    member: &Member,
    topic: &Topic,
    is_replica: bool,
    version: i16,
) -> (i16, Option<Arc<Partition>>) {
    let leader_epoch = member.wanted.current_leader_epoch;
    let found = if is_replica || version < RACK_SINCE {
        leader(topic, member.key.1, leader_epoch)
    } else {
        readable(topic, member.key.1, leader_epoch)
    };
    match found {
        Err(codes::KAFKA_STORAGE_ERROR) => (storage_error(version), None),
        // A session's topic may have been deleted and made anew under its name.
        _ if matches!(member.key.0, TopicKey::Id(id) if id != topic.id) => {
            (codes::INCONSISTENT_TOPIC_ID, None)
        }
        Err(error_code) => (error_code, None),
        Ok(partition) => (codes::NONE, Some(partition.clone())),
    }
}
