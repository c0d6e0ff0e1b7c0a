"""Asks what brokers tell of themselves, of topics, and of who coordinates what: the requests, and
their answers as tuples."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafkalite.errors import BrokerError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE, REPLICA_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION

__all__ = [
    "GROUP",
    "TRANSACTION",
    "Node",
    "PartitionMetadata",
    "TopicMetadata",
    "coordinator_request",
    "found_topics",
    "metadata_request",
    "topic_metadata",
]

# What a coordinator coordinates.
GROUP, TRANSACTION = 0, 1


class Node(NamedTuple):
    """A broker and where clients reach it."""

    id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PartitionMetadata(NamedTuple):
    """A partition as Metadata tells it; `leader` is -1 while there is none, `leader_epoch` where
    the broker is too old to be believed."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicMetadata(NamedTuple):
    """A topic with its partitions by index."""

    name: str
    id: bytes
    is_internal: bool
    partitions: dict[int, PartitionMetadata]


def metadata_request(topics: Iterable[str] | None, *, allow_auto_create: bool) -> Any:
    """Asks for brokers and these topics, `None` for all."""
    rows = None
    if topics is not None:
        kind = messages.MetadataRequest.MetadataRequestTopic
        rows = [kind(name=name) for name in topics]
    return messages.MetadataRequest(topics=rows, allow_auto_topic_creation=allow_auto_create)


def coordinator_request(name: str, kind: int = GROUP) -> Any:
    """Asks for the coordinator of a group, or of a transactional id; in version 4 of several."""
    return messages.FindCoordinatorRequest(key_type=kind, key=name, coordinator_keys=[name])


def found_topics(
    told: "dict[str, TopicMetadata | BrokerError]",
) -> dict[str, TopicMetadata]:
    """The topics that exist. Raises `BrokerError` for one that has an error of another kind."""
    found = {}
    for name, topic in told.items():
        if not isinstance(topic, BrokerError):
            found[name] = topic
        elif topic.code != UNKNOWN_TOPIC_OR_PARTITION:
            raise topic
    return found


def topic_metadata(topic: Any, before: TopicMetadata | None, *, has_epochs: bool) -> TopicMetadata:
    """A topic's row of Metadata; `before` is what was known, which may be newer."""
    known = {} if before is None or before.id != topic.topic_id else before.partitions
    partitions = {}
    for row in sorted(topic.partitions, key=lambda row: row.partition_index):
        led = row.error_code in (NONE, REPLICA_NOT_AVAILABLE)
        partition = PartitionMetadata(
            row.partition_index,
            row.leader_id if led else -1,
            row.leader_epoch if has_epochs else -1,
            tuple(row.replica_nodes),
            tuple(row.isr_nodes),
            tuple(row.offline_replicas),
        )
        newer = known.get(partition.partition)
        if newer is not None and newer.leader_epoch > partition.leader_epoch:
            partition = newer  # a broker that is behind (`Metadata.updateLatestMetadata`)
        partitions[partition.partition] = partition
    return TopicMetadata(topic.name, topic.topic_id, topic.is_internal, partitions)
