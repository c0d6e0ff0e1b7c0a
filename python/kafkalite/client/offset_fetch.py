"""Asks a group's coordinator for committed offsets, and reads its answer: both for the consumer's
own look-up and for its callers."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kafkalite.client.connection import check
from kafkalite.client.place import Partition
from kafkalite.protocol import messages

__all__ = ["OFFSETS_BY_NAME", "FetchedOffset", "fetched_offsets", "offset_fetch_request"]

OFFSETS_BY_NAME = 9
"""Later versions of OffsetCommit and OffsetFetch name topics by id."""


def offset_fetch_request(group: str, partitions: Iterable[Partition]) -> Any:
    """Asks for committed offsets, and for none that a transaction is about to change."""
    kind = messages.OffsetFetchRequest
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    asked = kind.OffsetFetchRequestGroup(
        group_id=group,
        topics=[
            kind.OffsetFetchRequestGroup.OffsetFetchRequestTopics(
                name=topic, partition_indexes=indexes
            )
            for topic, indexes in by_topic.items()
        ],
    )
    old = [
        kind.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic.items()
    ]
    return kind(group_id=group, topics=old, groups=[asked], require_stable=True)


class FetchedOffset(NamedTuple):
    """What OffsetFetch tells of a partition: an error code, or an offset and the leader epoch of
    what was read before it, each -1 for none."""

    partition: Partition
    code: int
    offset: int
    read_epoch: int


def fetched_offsets(group: str, response: Any) -> Iterator[FetchedOffset]:
    """One for each partition. Raises `BrokerError` for the group's own error."""
    found = response.groups[0] if response.groups else response
    check(found.error_code, f"group '{group}'")
    for topic in found.topics:
        for row in topic.partitions:
            yield FetchedOffset(
                (topic.name, row.partition_index),
                row.error_code,
                row.committed_offset,
                row.committed_leader_epoch,
            )
