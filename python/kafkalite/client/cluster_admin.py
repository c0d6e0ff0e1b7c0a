"""Asks and changes where the replicas of a cluster are, who leads, and who its brokers and
controllers are; beside it all that `Admin` does.

    with ClusterAdmin("127.0.0.1:9092") as admin:
        admin.alter_reassignments({("orders", 0): [2, 3, 1]})
        admin.list_reassignments()      # {("orders", 0): Reassignment([2, 3, 1, 4], [2, 3], [4])}
        admin.elect_leaders(PREFERRED)  # {("orders", 1): None}, or the refusal of each
        admin.describe_quorum().leader

What the controller refuses of one partition is given beside what became of the others; what it
refuses as a whole is raised.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalite.client.admin import CONFIG_PASSES, Admin, by_topic
from kafkalite.client.arguments import flag, int32, mapping, pair, pairs, replica_lists
from kafkalite.client.network.connection import broker_error, check
from kafkalite.errors import BrokerError, UnsupportedVersionError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE

__all__ = [
    "PREFERRED",
    "UNCLEAN",
    "ClusterAdmin",
    "LogDir",
    "QuorumDescription",
    "QuorumReplica",
    "Reassignment",
    "ReplicaPlace",
]

Partition = tuple[str, int]
Replica = tuple[int, str, int]
"""A broker, a topic and a partition of it."""

# Types of elections (`org.apache.kafka.common.ElectionType`).
PREFERRED, UNCLEAN = 0, 1

METADATA_TOPIC = "__cluster_metadata"
FACTOR_KEPT_SINCE = 1
"""The version of AlterPartitionReassignments that can keep the replication factor (KIP-860)."""


class Reassignment(NamedTuple):
    """Replicas of a partition while some of them come or go, those included."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class QuorumReplica(NamedTuple):
    """A replica of the metadata log; times are -1 where the leader does not know them."""

    id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    """The controllers (`voters`) and who follows them (`observers`: brokers, mostly)."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    listeners: dict[int, list[tuple[str, str, int]]]
    """Name, host and port of the listeners of each voter, where the cluster tells them."""

    def lag(self, replica: QuorumReplica) -> int:
        """Counts the records that a replica has not, of those that the leader has."""
        ends = [each.log_end_offset for each in self.voters if each.id == self.leader]
        return max(max(ends, default=self.high_watermark) - replica.log_end_offset, 0)


class LogDir(NamedTuple):
    """A log directory of a broker; sizes in bytes, -1 where the broker does not tell."""

    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: dict[Partition, tuple[int, int]]
    """Size in bytes and offset lag."""
    future_replicas: dict[Partition, tuple[int, int]]
    """The replicas that will replace another one when they have caught up with it."""


class ReplicaPlace(NamedTuple):
    """The directory of a replica, and the one that it moves to; None where there is none."""

    current: str | None
    future: str | None


class ClusterAdmin(Admin):
    """A cluster, with its replicas and controllers. Threads that share one take turns."""

    # --- reassignments ----------------------------------------------------------------------------

    def alter_reassignments(
        self,
        reassignments: Mapping[Partition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[Partition, BrokerError | None]:
        """Has partitions moved to other brokers, or (None) what goes on there cancelled. Gives the
        refusal of each partition, or None. Raises `UnsupportedVersionError` where the cluster
        cannot keep the replication factor and should."""
        flag("allow_replication_factor_change", allow_replication_factor_change)
        kind = messages.AlterPartitionReassignmentsRequest
        inner = kind.ReassignableTopic.ReassignablePartition
        wanted: dict[str, list[Any]] = {}
        for place, replicas in mapping("reassignments", reassignments).items():
            topic, index = pair("reassignments", place)
            if replicas is not None:
                (replicas,) = replica_lists("reassignments", [replicas])
            row = inner(partition_index=index, replicas=replicas)
            wanted.setdefault(topic, []).append(row)
        request = kind(
            topics=[kind.ReassignableTopic(name=n, partitions=p) for n, p in wanted.items()],
            timeout_ms=self._timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
        )
        told: dict[Partition, BrokerError | None] = {}

        def ask() -> None:
            connection = self.cluster.connection()
            version = connection.version_for("AlterPartitionReassignments")
            if version < FACTOR_KEPT_SINCE and not allow_replication_factor_change:
                raise UnsupportedVersionError(
                    f"the broker at {connection.peer} cannot keep the replication factor"
                )
            answer = self._ask_controller(request)
            check(answer.error_code, "AlterPartitionReassignments", answer.error_message)
            for topic in answer.responses:
                for row in topic.partitions:
                    place = (topic.name, row.partition_index)
                    told[place] = _refusal(place, row.error_code, row.error_message)

        self._change(ask, CONFIG_PASSES)
        self.cluster.forget()
        return told

    def list_reassignments(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[Partition, Reassignment]:
        """Gives the reassignments that go on, in all partitions or in some."""
        kind = messages.ListPartitionReassignmentsRequest
        rows = None
        if partitions is not None:
            grouped = by_topic(pairs("partitions", partitions))
            inner = kind.ListPartitionReassignmentsTopics
            rows = [inner(name=name, partition_indexes=found) for name, found in grouped.items()]
        request = kind(topics=rows, timeout_ms=self._timeout_ms)
        found: dict[Partition, Reassignment] = {}

        def ask() -> None:
            answer = self._ask_controller(request)
            check(answer.error_code, "ListPartitionReassignments", answer.error_message)
            for topic in answer.topics:
                for row in topic.partitions:
                    found[topic.name, row.partition_index] = Reassignment(
                        row.replicas, row.adding_replicas, row.removing_replicas
                    )

        self._change(ask, CONFIG_PASSES)
        return found

    # --- elections --------------------------------------------------------------------------------

    def elect_leaders(
        self, election_type: int, partitions: Iterable[Partition] | None = None
    ) -> dict[Partition, BrokerError | None]:
        """Has leaders elected, of all partitions that need it or of some; `election_type` is
        `PREFERRED` or `UNCLEAN`. Gives the refusal of each partition, or None; one that has the
        leader already is refused with ELECTION_NOT_NEEDED, where it was named."""
        kind = messages.ElectLeadersRequest
        rows = None
        if partitions is not None:
            grouped = by_topic(pairs("partitions", partitions))
            rows = [kind.TopicPartitions(topic=n, partitions=p) for n, p in grouped.items()]
        request = kind(
            election_type=int32("election_type", election_type, 0),
            topic_partitions=rows,
            timeout_ms=self._timeout_ms,
        )
        told: dict[Partition, BrokerError | None] = {}

        def ask() -> None:
            answer = self._ask_controller(request)
            check(answer.error_code, "ElectLeaders")
            for topic in answer.replica_election_results:
                for row in topic.partition_result:
                    place = (topic.topic, row.partition_id)
                    told[place] = _refusal(place, row.error_code, row.error_message)

        self._change(ask, CONFIG_PASSES)
        self.cluster.forget()
        return told

    # --- brokers and controllers ------------------------------------------------------------------

    def describe_quorum(self) -> QuorumDescription:
        """The controllers, as the one that is active sees them. Raises `UnsupportedVersionError`
        where there is no quorum of Kafka's (a cluster of ZooKeeper's)."""
        kind = messages.DescribeQuorumRequest
        partition = kind.TopicData.PartitionData(partition_index=0)
        request = kind(topics=[kind.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])

        def ask() -> QuorumDescription:
            answer = self.cluster.ask(request)
            check(answer.error_code, "DescribeQuorum", answer.error_message)
            row = answer.topics[0].partitions[0]
            check(row.error_code, "DescribeQuorum", row.error_message)
            listeners = {
                node.node_id: [(each.name, each.host, each.port) for each in node.listeners]
                for node in answer.nodes
            }
            return QuorumDescription(
                row.leader_id,
                row.leader_epoch,
                row.high_watermark,
                [_quorum_replica(each) for each in row.current_voters],
                [_quorum_replica(each) for each in row.observers],
                listeners,
            )

        return self.cluster.retry(ask)

    def unregister_broker(self, broker_id: int) -> None:
        """Has the cluster forget a broker, which should be stopped for good."""
        request = messages.UnregisterBrokerRequest(broker_id=int32("broker_id", broker_id, 0))

        def ask() -> None:
            answer = self._ask_controller(request)
            check(answer.error_code, f"broker {broker_id}", answer.error_message)

        self._change(ask, CONFIG_PASSES)

    # --- log directories --------------------------------------------------------------------------

    def describe_log_dirs(
        self, broker_id: int, partitions: Iterable[Partition] | None = None
    ) -> list[LogDir]:
        """The log directories of a broker, with all replicas in them or with some."""
        kind = messages.DescribeLogDirsRequest
        rows = None
        if partitions is not None:
            grouped = by_topic(pairs("partitions", partitions))
            rows = [kind.DescribableLogDirTopic(topic=n, partitions=p) for n, p in grouped.items()]

        def ask() -> list[LogDir]:
            answer = self.cluster.ask(kind(topics=rows), node_id=broker_id)
            check(answer.error_code, f"log directories of broker {broker_id}")
            return [_log_dir(row) for row in answer.results]

        return self._ask_any(ask)

    def replica_places(self, replicas: Iterable[Replica]) -> dict[Replica, ReplicaPlace]:
        """Where replicas are; one that its broker has in no directory is in none."""
        found: dict[Replica, ReplicaPlace] = {}
        for broker_id, partitions in _by_broker(replicas).items():
            directories = self.describe_log_dirs(broker_id, partitions)
            for place in partitions:
                current = [each.path for each in directories if place in each.replicas]
                future = [each.path for each in directories if place in each.future_replicas]
                found[broker_id, *place] = ReplicaPlace(
                    current[0] if current else None, future[0] if future else None
                )
        return found

    def move_replicas(self, moves: Mapping[Replica, str]) -> dict[Replica, BrokerError | None]:
        """Has brokers move replicas to another of their log directories, named by its path. Gives
        the refusal of each, or None once it has begun."""
        told: dict[Replica, BrokerError | None] = {}
        for broker_id, partitions in _by_broker(moves).items():
            by_path: dict[str, list[Partition]] = {}
            for place in partitions:
                by_path.setdefault(moves[broker_id, *place], []).append(place)
            kind = messages.AlterReplicaLogDirsRequest
            inner = kind.AlterReplicaLogDir.AlterReplicaLogDirTopic
            request = kind(
                dirs=[
                    kind.AlterReplicaLogDir(
                        path=path,
                        topics=[inner(name=n, partitions=p) for n, p in by_topic(places).items()],
                    )
                    for path, places in by_path.items()
                ]
            )
            answer = self._ask_any(lambda r=request, b=broker_id: self.cluster.ask(r, node_id=b))  # type: ignore[misc]
            for topic in answer.results:
                for row in topic.partitions:
                    place = (topic.topic_name, row.partition_index)
                    told[broker_id, *place] = _refusal(place, row.error_code, None)
        return told


def _refusal(place: Partition, code: int, message: str | None) -> BrokerError | None:
    what = f"partition {place[0]}-{place[1]}"
    return None if code == NONE else broker_error(code, what, message)


def _quorum_replica(row: Any) -> QuorumReplica:
    return QuorumReplica(
        row.replica_id,
        row.replica_directory_id,
        row.log_end_offset,
        row.last_fetch_timestamp,
        row.last_caught_up_timestamp,
    )


def _log_dir(row: Any) -> LogDir:
    found: tuple[dict[Partition, tuple[int, int]], ...] = ({}, {})
    for topic in row.topics:
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            found[each.is_future_key][place] = (each.partition_size, each.offset_lag)
    return LogDir(row.log_dir, row.error_code, row.total_bytes, row.usable_bytes, *found)


def _by_broker(replicas: Iterable[Replica]) -> dict[int, list[Partition]]:
    brokers: dict[int, list[Partition]] = {}
    for broker_id, topic, index in replicas:
        brokers.setdefault(broker_id, []).append((topic, index))
    return brokers
