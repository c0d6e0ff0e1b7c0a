"""What an administrator asks of consumer groups: who they are, how far they are, and to set that.

with GroupAdmin("127.0.0.1:9092") as groups:
    groups.committed("billing")             # {("orders", 0): Committed(17, -1, "")}
    groups.alter("billing", {("orders", 0): 0})
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite.client.arguments import offsets_by_pair, pairs, text, texts
from kafkalite.client.cluster import ClusterClient, Node
from kafkalite.client.connection import check
from kafkalite.errors import BrokerError
from kafkalite.protocol import messages
from kafkalite.protocol.error_codes import GROUP_ID_NOT_FOUND

__all__ = ["Committed", "GroupAdmin", "GroupDescription", "GroupListing", "GroupMember"]

Partition = tuple[str, int]

# Later versions name topics by id; both name the same things.
OFFSETS_BY_NAME = 9

CONSUMER = "consumer"


class GroupListing(NamedTuple):
    """A group; `state` and `type` are empty where the broker does not tell."""

    name: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member and the partitions that are its own."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[Partition]


class GroupDescription(NamedTuple):
    """A group with its members. A group that does not exist has the state `Dead`."""

    name: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: list[GroupMember]


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str


class GroupAdmin(ClusterClient):
    """The groups of a cluster. One thread at a time."""

    def list(
        self, *, states: str | Iterable[str] = (), types: str | Iterable[str] = ()
    ) -> list[GroupListing]:
        """Consumer groups of all brokers, by name; of these states or types, if some are named."""
        request = messages.ListGroupsRequest(
            states_filter=texts("states", states), types_filter=texts("types", types)
        )

        def ask() -> list[GroupListing]:
            found = []
            for node_id in self.cluster.nodes:
                response = self.cluster.ask(request, node_id=node_id)
                check(response.error_code, "ListGroups")
                found += [
                    GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
                    for row in response.groups
                    if row.protocol_type in (CONSUMER, "")
                ]
            return sorted(found)

        return self.cluster.retry(ask)

    def describe(self, name: str) -> GroupDescription:
        """A group, of the classic or the new protocol."""
        name = text("name", name)

        def ask() -> GroupDescription:
            coordinator = self.cluster.coordinator(name)
            connection = self.cluster.connection(coordinator)
            node = self.cluster.nodes[coordinator]
            if connection.supports("ConsumerGroupDescribe"):
                response = connection.request(
                    messages.ConsumerGroupDescribeRequest(group_ids=[name])
                )
                group = response.groups[0]
                if group.error_code != GROUP_ID_NOT_FOUND:
                    check(group.error_code, f"group '{name}'", group.error_message)
                    return _consumer_group(group, node)
            response = connection.request(messages.DescribeGroupsRequest(groups=[name]))
            group = response.groups[0]
            if group.error_code == GROUP_ID_NOT_FOUND:
                return GroupDescription(name, "Dead", "", "", "", node, [])
            check(group.error_code, f"group '{name}'", group.error_message)
            return _classic_group(group, node)

        return self.cluster.retry(ask)

    def committed(self, name: str) -> dict[Partition, Committed]:
        """All offsets that a group has committed, by topic and partition."""
        name = text("name", name)

        def ask() -> dict[Partition, Committed]:
            connection = self.cluster.connection(self.cluster.coordinator(name))
            kind = messages.OffsetFetchRequest
            request = kind(
                group_id=name,
                topics=None,
                groups=[kind.OffsetFetchRequestGroup(group_id=name, topics=None)],
            )
            response = connection.request(request, at_most=OFFSETS_BY_NAME)
            group = response.groups[0] if response.groups else response
            check(group.error_code, f"group '{name}'")
            found = {}
            for topic in group.topics:
                for row in topic.partitions:
                    check(row.error_code, f"partition {topic.name}-{row.partition_index}")
                    if row.committed_offset >= 0:
                        found[topic.name, row.partition_index] = Committed(
                            row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                        )
            return dict(sorted(found.items()))

        return self.cluster.retry(ask)

    def alter(self, name: str, offsets: Mapping[Partition, int]) -> None:
        """Commits offsets for a group without members.

        Raises `BrokerError` (UNKNOWN_MEMBER_ID) if it has some.
        """
        name = text("name", name)
        kind = messages.OffsetCommitRequest
        inner = kind.OffsetCommitRequestTopic
        topics: dict[str, Any] = {}
        for (topic, index), offset in sorted(offsets_by_pair("offsets", offsets).items()):
            row = inner.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(topic, inner(name=topic)).partitions.append(row)
        request = kind(group_id=name, topics=list(topics.values()))

        def ask() -> None:
            connection = self.cluster.connection(self.cluster.coordinator(name))
            response = connection.request(request, at_most=OFFSETS_BY_NAME)
            for topic in response.topics:
                for row in topic.partitions:
                    check(row.error_code, f"partition {topic.name}-{row.partition_index}")

        self.cluster.retry(ask)

    def delete_offsets(
        self, name: str, partitions: Iterable[Partition]
    ) -> dict[Partition, BrokerError | None]:
        """Takes committed offsets away; what was refused, by partition.

        Raises `BrokerError` if the whole was refused.
        """
        name = text("name", name)
        kind = messages.OffsetDeleteRequest
        inner = kind.OffsetDeleteRequestTopic
        topics: dict[str, Any] = {}
        for topic, index in pairs("partitions", partitions):
            row = inner.OffsetDeleteRequestPartition(partition_index=index)
            topics.setdefault(topic, inner(name=topic)).partitions.append(row)
        request = kind(group_id=name, topics=list(topics.values()))

        def ask() -> dict[Partition, BrokerError | None]:
            connection = self.cluster.connection(self.cluster.coordinator(name))
            response = connection.request(request)
            check(response.error_code, f"group '{name}'")
            found: dict[Partition, BrokerError | None] = {}
            for topic in response.topics:
                for row in topic.partitions:
                    what = f"partition {topic.name}-{row.partition_index}"
                    found[topic.name, row.partition_index] = _refusal(row.error_code, what)
            return found

        return self.cluster.retry(ask)

    def delete(self, name: str) -> None:
        """Deletes a group without members, its offsets with it."""
        name = text("name", name)

        def ask() -> None:
            connection = self.cluster.connection(self.cluster.coordinator(name))
            response = connection.request(messages.DeleteGroupsRequest(groups_names=[name]))
            check(response.results[0].error_code, f"group '{name}'")

        self.cluster.retry(ask)


def _refusal(code: int, what: str) -> BrokerError | None:
    try:
        check(code, what)
    except BrokerError as error:
        return error
    return None


def _classic_group(group: Any, node: Node) -> GroupDescription:
    members = [
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assignment(member.member_assignment) if group.protocol_type == CONSUMER else [],
        )
        for member in group.members
    ]
    return GroupDescription(
        group.group_id,
        group.group_state,
        "Classic",
        group.protocol_type,
        group.protocol_data,
        node,
        members,
    )


def _assignment(data: bytes) -> list[Partition]:
    if len(data) < 2:
        return []
    # A version this client does not know has more behind what it knows.
    version = min(int.from_bytes(data[:2]), 0)
    assignment = messages.ConsumerProtocolAssignment.decode(data[2:], version)
    return sorted(
        (row.topic, index) for row in assignment.assigned_partitions for index in row.partitions
    )


def _consumer_group(group: Any, node: Node) -> GroupDescription:
    members = [
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            sorted(
                (row.topic_name, index)
                for row in member.assignment.topic_partitions
                for index in row.partitions
            ),
        )
        for member in group.members
    ]
    return GroupDescription(
        group.group_id,
        group.group_state,
        "Consumer",
        CONSUMER,
        group.assignor_name,
        node,
        members,
    )
