"""Shares the partitions of a group's topics out among its members, as Kafka's RangeAssignor does.
Puts shares into the bytes that SyncGroup carries, too.

Every consumer of Kafka's knows `range`, whichever of them leads the group.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite.client.consumer.subscription_state import Partition
from kafkalite.protocol import messages

__all__ = ["RANGE", "assign_range", "decode_assignment", "encode_assignment"]

RANGE = "range"
ASSIGNMENT_VERSION = 0


class _Member(NamedTuple):
    id: str
    instance_id: str | None
    topics: list[str]


def assign_range(
    members: Iterable[tuple[str, str | None, list[str]]], partition_counts: Mapping[str, int]
) -> dict[str, list[Partition]]:
    """Partitions by member id, as Kafka's RangeAssignor shares them: of each topic, members in
    order (static ones first, by instance id; then by member id) get a run each, the first ones the
    longer.

    `members` are id, instance id and topics.
    """
    rows = [_Member(*member) for member in members]
    rows.sort(key=lambda member: (member.instance_id is None, member.instance_id or member.id))
    assigned: dict[str, list[Partition]] = {member.id: [] for member in rows}
    for topic in sorted({topic for member in rows for topic in member.topics}):
        count = partition_counts.get(topic, 0)
        subscribed = [member for member in rows if topic in member.topics]
        each, left_over = divmod(count, len(subscribed))
        start = 0
        for place, member in enumerate(subscribed):
            length = each + (place < left_over)
            assigned[member.id] += [(topic, index) for index in range(start, start + length)]
            start += length
    return assigned


def encode_assignment(partitions: Iterable[Partition]) -> bytes:
    """The bytes of a member's share."""
    kind = messages.ConsumerProtocolAssignment
    topics: dict[str, Any] = {}
    for topic, index in partitions:
        topics.setdefault(topic, kind.TopicPartition(topic=topic)).partitions.append(index)
    body = kind(assigned_partitions=list(topics.values())).encode(ASSIGNMENT_VERSION)
    return ASSIGNMENT_VERSION.to_bytes(2) + bytes(body)


def decode_assignment(data: bytes) -> list[Partition]:
    """The share that the bytes say, none for no bytes."""
    if len(data) < 2:
        return []
    assignment = messages.ConsumerProtocolAssignment.decode(data[2:], ASSIGNMENT_VERSION)
    return [
        (row.topic, index) for row in assignment.assigned_partitions for index in row.partitions
    ]
