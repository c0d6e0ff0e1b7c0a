"""The records of `__consumer_offsets`, as Apache Kafka 4.3 writes them and as older ones did.

key     kind: int16, then a message of that kind, version 0
value   version: int16, then the message; null is a tombstone

kind  key                 value                        written here in version
0, 1  OffsetCommitKey     OffsetCommitValue 0 to 4     4; 1 if the offset has a time to expire
2     GroupMetadataKey    GroupMetadataValue 0 to 4    3
3 ff  newer kinds of groups: left in the log as they are, and their group ids remembered
"""

import struct
from typing import Final, NamedTuple

from kafkalite.errors import MalformedRequestError
from kafkalite.groups.events import GroupRecord, MemberRecord
from kafkalite.groups.offsets import CommittedOffset
from kafkalite.protocol import messages

Record = tuple[bytes, bytes | None]
"""Key and value."""

OFFSET_COMMIT_KINDS: Final = (0, 1)
GROUP_METADATA_KIND: Final = 2
NEWER_GROUP_KINDS: Final = {3: "consumer", 11: "share", 17: "streams"}
"""Kinds of record that exist exactly as long as a group of the type does."""

OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3

_SHORT: Final = struct.Struct(">h")
_OFFSET_KEY_KIND: Final = _SHORT.pack(OFFSET_COMMIT_KINDS[1])


class OffsetCommit(NamedTuple):
    """An offset, or None for its tombstone."""

    group_id: str
    topic: str
    partition: int
    offset: CommittedOffset | None


class GroupChange(NamedTuple):
    """A group's state, or None for its end."""

    group_id: str
    record: GroupRecord | None


class NewerGroup(NamedTuple):
    """A group of a newer type, `consumer`, `share` or `streams`, is there or has ended."""

    group_id: str
    group_type: str
    exists: bool


Change = OffsetCommit | GroupChange | NewerGroup


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of an offset."""
    key: bytes = messages.OffsetCommitKey.pack((group_id, topic, partition), 0)
    return _OFFSET_KEY_KIND + key


def offset_value(offset: CommittedOffset) -> bytes:
    """The value of an offset."""
    has_expiry = offset.expire_timestamp_ms != -1
    version = OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_VALUE_VERSION
    value: bytes = messages.OffsetCommitValue.pack(offset, version)
    return _SHORT.pack(version) + value


def offset_record(
    group_id: str, topic: str, partition: int, offset: CommittedOffset | None
) -> Record:
    """An offset, or its tombstone."""
    value = None if offset is None else offset_value(offset)
    return offset_key(group_id, topic, partition), value


def group_record(group_id: str, record: GroupRecord | None) -> Record:
    """A group's state, or its tombstone."""
    key = _SHORT.pack(GROUP_METADATA_KIND) + messages.GroupMetadataKey(group=group_id).encode(0)
    if record is None:
        return key, None
    kind = messages.GroupMetadataValue
    value = kind(
        protocol_type=record.protocol_type,
        generation=record.generation_id,
        protocol=record.protocol_name,
        leader=record.leader,
        current_state_timestamp=record.state_timestamp_ms,
        members=[
            kind.MemberMetadata(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout=each.rebalance_timeout_ms,
                session_timeout=each.session_timeout_ms,
                subscription=each.subscription,
                assignment=each.assignment,
            )
            for each in record.members
        ],
    )
    return key, _SHORT.pack(GROUP_VALUE_VERSION) + value.encode(GROUP_VALUE_VERSION)


def parse(key: bytes | None, value: bytes | None, record_offset: int) -> Change | None:
    """What a record says; None for a kind that says nothing to classic groups.

    Raises MalformedRequestError where a record of a known kind cannot be read.
    """
    if key is None or len(key) < 2:
        raise MalformedRequestError("a record without a kind")
    kind = _SHORT.unpack_from(key)[0]
    if kind in OFFSET_COMMIT_KINDS:
        return _parse_offset(key, value, record_offset)
    if kind == GROUP_METADATA_KIND:
        group_id = messages.GroupMetadataKey.decode(key[2:], 0).group
        return GroupChange(group_id, None if value is None else _parse_group(value))
    if kind in NEWER_GROUP_KINDS:
        # Keys of these kinds begin with, or consist of, the group's id.
        group_id = messages.GroupMetadataKey.decode(key[2:], 0).group
        return NewerGroup(group_id, NEWER_GROUP_KINDS[kind], value is not None)
    return None


def _parse_offset(key: bytes, value: bytes | None, record_offset: int) -> OffsetCommit:
    read = messages.OffsetCommitKey.decode(key[2:], 0)
    if value is None:
        return OffsetCommit(read.group, read.topic, read.partition, None)
    found = messages.OffsetCommitValue.decode(value[2:], _version(value, 4))
    offset = CommittedOffset(
        offset=found.offset,
        leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        commit_timestamp_ms=found.commit_timestamp,
        expire_timestamp_ms=found.expire_timestamp,
        topic_id=found.topic_id,
        record_offset=record_offset,
    )
    return OffsetCommit(read.group, read.topic, read.partition, offset)


def _parse_group(value: bytes) -> GroupRecord:
    found = messages.GroupMetadataValue.decode(value[2:], _version(value, 4))
    return GroupRecord(
        protocol_type=found.protocol_type,
        generation_id=found.generation,
        protocol_name=found.protocol,
        leader=found.leader,
        state_timestamp_ms=found.current_state_timestamp,
        members=tuple(
            MemberRecord(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.rebalance_timeout,
                session_timeout_ms=each.session_timeout,
                subscription=each.subscription,
                assignment=each.assignment,
            )
            for each in found.members
        ),
    )


def _version(value: bytes, highest: int) -> int:
    if len(value) < 2:
        raise MalformedRequestError("a value without a version")
    version: int = _SHORT.unpack_from(value)[0]
    if not 0 <= version <= highest:
        raise MalformedRequestError(f"a value of version {version}, which is not known")
    return version
