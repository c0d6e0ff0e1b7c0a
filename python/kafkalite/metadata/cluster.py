"""The cluster as this node knows it: who leads, who coordinates, who controls.

Handlers ask here and not for their own node's id, so that none of them knows how many brokers there
are. Brokers are those of the image, as in the answers that Rust gives.

Kafka: `KRaftMetadataCache`.
"""

from collections.abc import Collection
from typing import Protocol

from kafkalite.metadata.image import NO_LEADER, BrokerImage, Image, alive_brokers


class QuorumView(Protocol):
    """The state of the quorum, for DescribeQuorum."""

    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def voter_directory_id(self) -> bytes: ...
    @property
    def kraft_version(self) -> int: ...


class Source(Protocol):
    """The keeper of the image (`kafkalite.metadata.solo`)."""

    @property
    def image(self) -> Image: ...
    @property
    def quorum(self) -> QuorumView: ...


class Cluster:
    """Used by the control thread only."""

    def __init__(self, node_id: int, source: Source) -> None:
        self.node_id = node_id
        """This node's."""
        self._source = source

    @property
    def image(self) -> Image:
        """All metadata as it is now."""
        return self._source.image

    @property
    def quorum(self) -> QuorumView:
        """The state of the quorum that writes the metadata."""
        return self._source.quorum

    @property
    def controller_id(self) -> int:
        """The broker that clients send to what a controller is for: the active controller, or,
        where that is no broker, this node, which forwards it."""
        leader_id = self.quorum.leader_id
        return leader_id if leader_id in self.image.brokers else self.node_id

    @property
    def broker_ids(self) -> Collection[int]:
        """The ids of the brokers that are alive, and can have replicas."""
        return tuple(each.id for each in self.brokers)

    @property
    def brokers(self) -> list[BrokerImage]:
        """The registrations of the brokers that are alive, in the order of their ids."""
        return alive_brokers(self.image)

    @property
    def broker(self) -> BrokerImage:
        """This node's registration."""
        return self.image.brokers[self.node_id]

    def leader_of(self, topic: str, partition: int) -> int:
        """The id of the broker that leads a partition; NO_LEADER if nobody does, or there is no
        such partition."""
        known = self.image.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return NO_LEADER
        return known.partitions[partition].leader

    def leader_elsewhere(self, topic: str, partition: int) -> int | None:
        """The id of the other broker that leads a partition, if one does."""
        leader = self.leader_of(topic, partition)
        return None if leader in (self.node_id, NO_LEADER) else leader

    def coordinator_of(self, topic: str, partition: int) -> BrokerImage | None:
        """The broker that coordinates what a partition of `__consumer_offsets`, or another topic
        of a coordinator, holds: its leader, if that is alive."""
        leader = self.image.brokers.get(self.leader_of(topic, partition))
        return None if leader is None or leader.is_fenced else leader
