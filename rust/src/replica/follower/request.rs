//! Requests to a leader, put together: Fetch v17 and v18, whose bytes are the same
//! here, and ListOffsets v7.

use crate::uuid::Uuid;
use crate::wire::cursor::Writer;

/// Versions of Fetch in which a replica asks: those with a directory id, of
/// which nothing is said here.
pub const FETCH_VERSION_MIN: i16 = 17;
pub const FETCH_VERSION_MAX: i16 = 18;
pub const LIST_OFFSETS_VERSION: i16 = 7;

/// Reads up to the log end, as followers do.
const READ_UNCOMMITTED: i8 = 0;
const REPLICA_STATE_TAG: u32 = 1;

/// The keys `replica.fetch.*`, and who asks.
#[derive(Clone, Debug)]
pub struct FollowerSettings {
    pub node_id: i32,
    /// The epoch of this broker's registration (KIP-903).
    pub broker_epoch: i64,
    /// `replica.fetch.wait.max.ms`
    pub max_wait_ms: i32,
    /// `replica.fetch.min.bytes`
    pub min_bytes: i32,
    /// `replica.fetch.response.max.bytes`
    pub response_bytes_max: i32,
    /// `replica.fetch.max.bytes`
    pub partition_bytes_max: i32,
    /// `replica.fetch.backoff.ms`
    pub backoff_ms: i64,
}

/// A request, without its header.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// The body of one of `FETCH_VERSION_MIN` to `FETCH_VERSION_MAX`.
    Fetch(Vec<u8>),
    /// The body of one of `LIST_OFFSETS_VERSION`.
    ListOffsets(Vec<u8>),
}

/// The place from which a partition is fetched, as the leader's fetch session knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub leader_epoch: i32,
    pub fetch_offset: i64,
    /// The epoch of the last own batch; -1 if there is none.
    pub last_fetched_epoch: i32,
    pub log_start_offset: i64,
}

pub(super) type Key = (Uuid, i32);

/// A Fetch in an incremental session (KIP-227): `session` is its id and epoch, (_, 0) begins one.
pub(super) fn fetch(
    settings: &FollowerSettings,
    session: (i32, i32),
    wanted: &[(Key, Position)],
    forgotten: &[Key],
) -> Vec<u8> {
    let mut writer = Writer::with_capacity(64 + 40 * wanted.len() + 24 * forgotten.len());
    writer.i32(settings.max_wait_ms);
    writer.i32(settings.min_bytes);
    writer.i32(settings.response_bytes_max);
    writer.i8(READ_UNCOMMITTED);
    writer.i32(session.0);
    writer.i32(session.1);
    let key = |(key, _): &(Key, Position)| *key;
    by_topic(&mut writer, wanted, key, |writer, (key, position)| {
        writer.i32(key.1);
        writer.i32(position.leader_epoch);
        writer.i64(position.fetch_offset);
        writer.i32(position.last_fetched_epoch);
        writer.i64(position.log_start_offset);
        writer.i32(settings.partition_bytes_max);
        writer.no_tags(true);
    });
    by_topic(
        &mut writer,
        forgotten,
        |key| *key,
        |writer, key| writer.i32(key.1),
    );
    writer.string("", true); // no rack: a replica reads from the leader only
    writer.uvarint(1);
    writer.tag(REPLICA_STATE_TAG, |field| {
        field.i32(settings.node_id);
        field.i64(settings.broker_epoch);
        field.no_tags(true);
    });
    writer.bytes
}

/// Writes partitions as an array of topics. Those of a topic that do not follow each
/// other are two entries, which a broker takes as well: the order of the partitions is
/// that in which they are read.
fn by_topic<T>(
    writer: &mut Writer,
    each: &[T],
    key: impl Fn(&T) -> Key,
    write: impl Fn(&mut Writer, &T),
) {
    let is_same = |one: &T, next: &T| key(one).0 == key(next).0;
    writer.array_length(each.chunk_by(is_same).count(), true);
    for topic in each.chunk_by(is_same) {
        writer.uuid(&key(&topic[0]).0);
        writer.array_length(topic.len(), true);
        for partition in topic {
            write(writer, partition);
        }
        writer.no_tags(true);
    }
}

/// ListOffsets for partitions, each a topic's name, an index, and a leader epoch.
pub(super) fn list_offsets(
    node_id: i32,
    timestamp: i64,
    asked: impl ExactSizeIterator<Item = (String, i32, i32)>,
) -> Vec<u8> {
    let mut writer = Writer::with_capacity(32 + 64 * asked.len());
    writer.i32(node_id);
    writer.i8(READ_UNCOMMITTED);
    writer.array_length(asked.len(), true);
    for (topic, index, leader_epoch) in asked {
        writer.string(&topic, true);
        writer.array_length(1, true);
        writer.i32(index);
        writer.i32(leader_epoch);
        writer.i64(timestamp);
        writer.no_tags(true);
        writer.no_tags(true);
    }
    writer.no_tags(true);
    writer.bytes
}
