"""The records of `__consumer_offsets`, as Apache Kafka 4.3 writes them and as older ones did. How
they are framed says `kafkalite.coordinator.record_serde`.

kind  key                 value                        written here in version
0, 1  OffsetCommitKey     OffsetCommitValue 0 to 4     4; 1 if the offset has a time to expire
2     GroupMetadataKey    GroupMetadataValue 0 to 4    3
3 ff  newer kinds of groups: left in the log as they are, and their group ids remembered
"""

from typing import Any, Final

from kafkalite.coordinator.record_serde import Record, RecordSerde
from kafkalite.errors import MalformedRequestError
from kafkalite.groups.events import GroupRecord, MemberRecord
from kafkalite.groups.offsets import CommittedOffset

OFFSET_COMMIT_KINDS: Final = (0, 1)
OFFSET_COMMIT_KIND: Final = 1
GROUP_METADATA_KIND: Final = 2
NEWER_GROUP_KINDS: Final = {3: "consumer", 11: "share", 17: "streams"}
"""Kinds of record that exist exactly as long as a group of the type does."""

OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3

KINDS: Final = {
    0: "OffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
"""Names in the schema table. Kind 0 has the messages of 1: the first brokers wrote it."""

SERDE: Final = RecordSerde({kind: (f"{name}Key", f"{name}Value") for kind, name in KINDS.items()})


def offset_record(
    group_id: str, topic: str, partition: int, offset: CommittedOffset | None
) -> Record:
    """An offset, or its tombstone."""
    version = OFFSET_VALUE_VERSION
    if offset is not None and offset.expire_timestamp_ms != -1:
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY
    return SERDE.record(OFFSET_COMMIT_KIND, (group_id, topic, partition), offset, version)


def group_record(group_id: str, record: GroupRecord | None) -> Record:
    """A group's state, or its tombstone."""
    return SERDE.record(GROUP_METADATA_KIND, (group_id,), record, GROUP_VALUE_VERSION)


def committed_offset(value: Any, record_offset: int) -> CommittedOffset:
    """An `OffsetCommitValue` that stands there in the log."""
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        record_offset,
    )


def group_state(value: Any) -> GroupRecord:
    """A `GroupMetadataValue`. Raises MalformedRequestError where a member is named twice, which no
    broker writes."""
    ids = [each.member_id for each in value.members]
    instances = [each.group_instance_id for each in value.members]
    named = [each for each in instances if each is not None]
    if len(set(ids)) < len(ids) or len(set(named)) < len(named):
        raise MalformedRequestError("a group that has a member twice")
    return GroupRecord(
        protocol_type=value.protocol_type,
        generation_id=value.generation,
        protocol_name=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
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
            for each in value.members
        ),
    )
