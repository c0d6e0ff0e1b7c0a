"""Asks who consumer groups are and how far they are, and sets that.

with GroupAdmin("127.0.0.1:9092") as groups:
    groups.committed("billing")             # {("orders", 0): Committed(17, -1, "")}
    groups.alter("billing", {("orders", 0): 0})

Every call raises `BrokerError` with Kafka's code where the coordinator refuses. What is asked again
is what Kafka's admin client asks again (`org.apache.kafka.clients.admin.internals`, a handler for
each request and `CoordinatorStrategy` for the look-up): a coordinator that loads is waited for, one
that has moved or is gone is looked up anew, and any other refusal is the caller's to judge.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kafkalite.client.arguments import offsets_by_pair, pairs, short_text, texts
from kafkalite.client.network.cluster import ClusterClient
from kafkalite.client.network.connection import check
from kafkalite.client.network.metadata import Node
from kafkalite.errors import BrokerError, ClientError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNSUPPORTED_VERSION,
)

__all__ = ["Committed", "GroupAdmin", "GroupDescription", "GroupListing", "GroupMember"]

Result = TypeVar("Result")
Partition = tuple[str, int]

# Later versions name topics by id; both name the same things.
OFFSETS_BY_NAME = 9

CONSUMER = "consumer"

# What passes of a look-up, and of what any broker tells of its groups.
LOOKUP_PASSES = frozenset((COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE))
# What passes where the coordinator is another, or will be.
HAS_MOVED = frozenset((COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR))
# What passes while the coordinator is the same: of all requests, and of OffsetCommit.
LOADS = frozenset((COORDINATOR_LOAD_IN_PROGRESS,))
LOADS_OR_REBALANCES = LOADS | {REBALANCE_IN_PROGRESS}


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
    """The groups of a cluster. Threads that share one take turns."""

    def list(
        self, *, states: str | Iterable[str] = (), types: str | Iterable[str] = ()
    ) -> list[GroupListing]:
        """Consumer groups of all brokers, by name; of these states or types, if some are named."""
        request = messages.ListGroupsRequest(
            states_filter=texts("states", states), types_filter=texts("types", types)
        )

        def ask(node_id: int) -> list[GroupListing]:
            response = self.cluster.ask(request, node_id=node_id)
            check(response.error_code, "ListGroups")
            return [
                GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
                for row in response.groups
                if row.protocol_type in (CONSUMER, "")
            ]

        def ask_all() -> list[GroupListing]:
            self.cluster.retry(lambda: self.cluster.refresh([]))
            found = []
            for node_id in self.cluster.nodes:
                passing = LOOKUP_PASSES.__contains__
                found += self.cluster.retry(lambda each=node_id: ask(each), passing=passing)  # type: ignore[misc]
            return sorted(found)

        # One time for all of them.
        return self.cluster.retry(ask_all, passing=lambda _: False)

    def describe(self, name: str) -> GroupDescription:
        """A group, of the classic or the new protocol."""
        name = short_text("name", name)

        def ask(coordinator: int) -> GroupDescription:
            node = self.cluster.node(coordinator)
            if self.cluster.connection(coordinator).supports("ConsumerGroupDescribe"):
                response = self.cluster.ask(
                    messages.ConsumerGroupDescribeRequest(group_ids=[name]), node_id=coordinator
                )
                group = response.groups[0]
                if group.error_code not in (GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION):
                    check(group.error_code, f"group '{name}'", group.error_message)
                    return _consumer_group(group, node)
            response = self.cluster.ask(
                messages.DescribeGroupsRequest(groups=[name]), node_id=coordinator
            )
            group = response.groups[0]
            if group.error_code == GROUP_ID_NOT_FOUND:
                return GroupDescription(name, "Dead", "", "", "", node, [])
            check(group.error_code, f"group '{name}'", group.error_message)
            return _classic_group(group, node)

        return self._ask_coordinator(name, ask)

    def committed(self, name: str) -> dict[Partition, Committed]:
        """All offsets that a group has committed, by topic and partition."""
        name = short_text("name", name)

        def ask(coordinator: int) -> dict[Partition, Committed]:
            kind = messages.OffsetFetchRequest
            request = kind(
                group_id=name,
                topics=None,
                groups=[kind.OffsetFetchRequestGroup(group_id=name, topics=None)],
            )
            response = self.cluster.ask(request, node_id=coordinator, at_most=OFFSETS_BY_NAME)
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

        return self._ask_coordinator(name, ask)

    def alter(self, name: str, offsets: Mapping[Partition, int]) -> None:
        """Commits offsets for a group without members.

        Raises `BrokerError` (UNKNOWN_MEMBER_ID) if it has some.
        """
        name = short_text("name", name)
        kind = messages.OffsetCommitRequest
        inner = kind.OffsetCommitRequestTopic
        topics: dict[str, Any] = {}
        for (topic, index), offset in sorted(offsets_by_pair("offsets", offsets, 0).items()):
            row = inner.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(topic, inner(name=topic)).partitions.append(row)
        request = kind(group_id=name, topics=list(topics.values()))

        def ask(coordinator: int) -> None:
            response = self.cluster.ask(request, node_id=coordinator, at_most=OFFSETS_BY_NAME)
            rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
            # What passes goes before what one of the partitions is refused for.
            rows.sort(key=lambda each: each[1].error_code not in HAS_MOVED | LOADS_OR_REBALANCES)
            for topic, row in rows:
                check(row.error_code, f"partition {topic}-{row.partition_index}")

        self._ask_coordinator(name, ask, LOADS_OR_REBALANCES)

    def delete_offsets(
        self, name: str, partitions: Iterable[Partition]
    ) -> dict[Partition, BrokerError | None]:
        """Takes committed offsets away; what was refused, by partition.

        Raises `BrokerError` if the whole was refused.
        """
        name = short_text("name", name)
        kind = messages.OffsetDeleteRequest
        inner = kind.OffsetDeleteRequestTopic
        topics: dict[str, Any] = {}
        for topic, index in pairs("partitions", partitions):
            row = inner.OffsetDeleteRequestPartition(partition_index=index)
            topics.setdefault(topic, inner(name=topic)).partitions.append(row)
        request = kind(group_id=name, topics=list(topics.values()))

        def ask(coordinator: int) -> dict[Partition, BrokerError | None]:
            response = self.cluster.ask(request, node_id=coordinator)
            check(response.error_code, f"group '{name}'")
            found: dict[Partition, BrokerError | None] = {}
            for topic in response.topics:
                for row in topic.partitions:
                    what = f"partition {topic.name}-{row.partition_index}"
                    found[topic.name, row.partition_index] = _refusal(row.error_code, what)
            return found

        return self._ask_coordinator(name, ask)

    def delete(self, name: str) -> None:
        """Deletes a group without members, its offsets with it."""
        name = short_text("name", name)
        request = messages.DeleteGroupsRequest(groups_names=[name])

        def ask(coordinator: int) -> None:
            response = self.cluster.ask(request, node_id=coordinator)
            check(response.results[0].error_code, f"group '{name}'")

        self._ask_coordinator(name, ask)

    def _ask_coordinator(
        self, name: str, ask: Callable[[int], Result], waits: frozenset[int] = LOADS
    ) -> Result:
        """Asks the coordinator of a group, which is looked up anew when it has moved, or its
        connection is lost. `waits`: the codes for which the same one is asked again."""
        coordinator: int | None = None

        def attempt() -> Result:
            nonlocal coordinator
            if coordinator is None:
                coordinator = self.cluster.coordinator(name)
            return ask(coordinator)

        def may_pass(code: int) -> bool:
            is_looked_up = coordinator is not None
            return code in (waits | HAS_MOVED if is_looked_up else LOOKUP_PASSES)

        def forget(error: ClientError) -> None:
            nonlocal coordinator
            if not isinstance(error, BrokerError) or error.code in HAS_MOVED:
                coordinator = None

        return self.cluster.retry(attempt, passing=may_pass, forget=forget)


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
