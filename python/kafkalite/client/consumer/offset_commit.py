"""Builds the rows of an OffsetCommit request, and reads what its response says of each partition.

A broker may take some of the offsets and refuse others: those of a topic that was deleted, say. Who
commits is told of both, so that what was taken is not committed again, nor held for uncommitted.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.client.consumer.subscription_state import Partition
from kafkalite.client.network.connection import broker_error
from kafkalite.errors import BrokerError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, UNSTABLE_OFFSET_COMMIT

__all__ = ["OF_PARTITIONS", "commit_topics", "committed_codes", "refusal"]

OF_PARTITIONS = (UNKNOWN_TOPIC_OR_PARTITION, UNSTABLE_OFFSET_COMMIT)
"""Errors of a partition that may pass: whoever tells of them does coordinate the group."""


def commit_topics(
    offsets: Mapping[Partition, int], read_epochs: Mapping[Partition, int]
) -> list[Any]:
    """The offset of the next record of each partition, with the leader epoch of what was read
    before it, if that is known (KIP-320)."""
    kind = messages.OffsetCommitRequest.OffsetCommitRequestTopic
    topics: dict[str, Any] = {}
    for (topic, index), offset in sorted(offsets.items()):
        row = kind.OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=read_epochs.get((topic, index), -1),
            committed_metadata="",
        )
        topics.setdefault(topic, kind(name=topic)).partitions.append(row)
    return list(topics.values())


def committed_codes(response: Any) -> dict[Partition, int]:
    """The error code of each partition, 0 where its offset was taken."""
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }


def refusal(codes: Mapping[Partition, int]) -> BrokerError | None:
    """The error of a response; None where all was taken. An error that is not of one partition
    comes first: a broker refuses topics that it does not know before it asks the coordinator, whose
    own error the other partitions have."""
    refused = [(partition, code) for partition, code in codes.items() if code != NONE]
    refused.sort(key=lambda each: each[1] in OF_PARTITIONS)
    for (topic, index), code in refused:
        return broker_error(code, f"commit of {topic}-{index}")
    return None
