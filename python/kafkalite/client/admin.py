"""Asks and changes a cluster's topics, configurations, offsets and brokers. Groups are in
`group_admin.py`.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=3, configs={"retention.ms": "3600000"})
        admin.list_offsets({("orders", 0): LATEST})

Every call raises `BrokerError` with Kafka's code where the cluster refuses, `TypeError` for an
argument of another type. A lost connection is made again (`Cluster.retry`). What leaders refuse
for the moment is asked again too; of what the controller refuses, as Kafka's `KafkaAdminClient`
does, only what says that another has become the controller, which is then looked up anew, or that a
quota is used up: a full disk or a time-out of the controller is the caller's to judge. Of what any
broker can tell nothing is asked again that it refuses. Topic ids are bytes; `uuid_text` prints
them as Kafka does.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from kafkalite.client.arguments import (
    config_text,
    config_texts,
    flag,
    int32,
    mapping,
    offsets_by_pair,
    pair,
    replica_lists,
    resource_kind,
    short_text,
    short_texts,
    text,
    timestamp_ms,
    whole,
)
from kafkalite.client.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ListedOffset,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    config_entry,
)
from kafkalite.client.network.cluster import ClusterClient
from kafkalite.client.network.connection import broker_error, check
from kafkalite.errors import BrokerError, ClientError, UnsupportedVersionError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    BROKER_ID_NOT_REGISTERED,
    NOT_CONTROLLER,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_TOPIC_OR_PARTITION,
)

__all__ = [
    "BROKER",
    "EARLIEST",
    "EARLIEST_LOCAL",
    "GROUP",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "TOPIC",
    "Admin",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigEntry",
    "ListedOffset",
    "PartitionDescription",
    "TopicDescription",
    "TopicListing",
    "by_topic",
    "list_offsets_request",
    "uuid_text",
]

Result = TypeVar("Result")
Partition = tuple[str, int]

# Types of resources that have a configuration (`ConfigResource.Type`).
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

# What ListOffsets takes in place of a timestamp.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5

# Operations of IncrementalAlterConfigs.
SET, DELETE = 0, 1

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

# The version of DescribeCluster that names fenced brokers too (KIP-1073).
FENCED_SINCE = 2

# Refusals after which `KafkaAdminClient` asks again: of what any broker answers, of changes to
# configurations, and of changes to topics.
NOTHING_PASSES: frozenset[int] = frozenset()
CONFIG_PASSES = frozenset((NOT_CONTROLLER,))
TOPIC_PASSES = frozenset((NOT_CONTROLLER, THROTTLING_QUOTA_EXCEEDED))


def uuid_text(uuid: bytes) -> str:
    """22 characters of base64url, as Kafka prints ids."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


class Admin(ClusterClient):
    """A cluster and what can be asked of it. Threads that share one take turns."""

    # --- the cluster ------------------------------------------------------------------------------

    def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Its id, controller and brokers."""
        flag("include_fenced", include_fenced)

        def ask() -> ClusterDescription:
            # An older broker names those alone that take clients.
            version = self.cluster.connection().version_for("DescribeCluster")
            is_told = include_fenced and version >= FENCED_SINCE
            response = self.cluster.ask(
                messages.DescribeClusterRequest(include_fenced_brokers=is_told)
            )
            check(response.error_code, "DescribeCluster", response.error_message)
            brokers = [
                BrokerDescription(row.broker_id, row.host, row.port, row.rack, row.is_fenced)
                for row in sorted(response.brokers, key=lambda row: row.broker_id)
            ]
            return ClusterDescription(response.cluster_id, response.controller_id, brokers)

        return self._ask_any(ask)

    # --- topics -----------------------------------------------------------------------------------

    def list_topics(self, *, include_internal: bool = True) -> list[TopicListing]:
        """All topics, by name."""
        flag("include_internal", include_internal)
        found = self.cluster.retry(lambda: self.cluster.refresh(None))
        return [
            TopicListing(name, topic.id, topic.is_internal)
            for name, topic in sorted(found.items())
            if include_internal or not topic.is_internal
        ]

    def describe_topics(self, names: str | Iterable[str]) -> list[TopicDescription]:
        """Topics with their partitions, in the order asked for."""
        names = short_texts("names", names)
        if not names:
            return []

        def ask() -> list[TopicDescription]:
            if self.cluster.connection().supports("DescribeTopicPartitions"):
                return self._describe_by_pages(names)
            return self._describe_by_metadata(names)

        return self._ask_any(ask)

    def _describe_by_pages(self, names: Sequence[str]) -> list[TopicDescription]:
        kind = messages.DescribeTopicPartitionsRequest
        found: dict[str, TopicDescription] = {}
        cursor = None
        while True:
            asked = [kind.TopicRequest(name=name) for name in sorted(names)]
            response = self.cluster.ask(kind(topics=asked, cursor=cursor))
            for topic in response.topics:
                check(topic.error_code, f"topic '{topic.name}'")
                rows = found.setdefault(
                    topic.name,
                    TopicDescription(topic.name, topic.topic_id, topic.is_internal, []),
                ).partitions
                rows += [
                    PartitionDescription(
                        row.partition_index,
                        row.leader_id,
                        row.leader_epoch,
                        row.replica_nodes,
                        row.isr_nodes,
                        row.eligible_leader_replicas,
                        row.last_known_elr,
                        row.offline_replicas,
                    )
                    for row in topic.partitions
                ]
            following = response.next_cursor
            if following is None:
                break
            cursor = kind.Cursor(
                topic_name=following.topic_name, partition_index=following.partition_index
            )
        for topic in found.values():
            topic.partitions.sort()
        return [found[name] for name in names]

    def _describe_by_metadata(self, names: Sequence[str]) -> list[TopicDescription]:
        found = self.cluster.refresh(names)
        described = []
        for name in names:
            if name not in found:
                raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}'")
            topic = found[name]
            rows = [
                PartitionDescription(
                    row.partition,
                    row.leader,
                    row.leader_epoch,
                    list(row.replicas),
                    list(row.isr),
                    None,
                    None,
                    list(row.offline_replicas),
                )
                for row in topic.partitions.values()
            ]
            described.append(TopicDescription(name, topic.id, topic.is_internal, rows))
        return described

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | int | float] | None = None,
        assignments: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> None:
        """Makes a topic; -1 is the broker's default. `assignments` are the replicas of each
        partition, in place of the two numbers."""
        flag("validate_only", validate_only)
        kind = messages.CreateTopicsRequest
        assigned = replica_lists("assignments", assignments)
        topic = kind.CreatableTopic(
            name=short_text("name", name),
            num_partitions=-1 if assigned else int32("partitions", partitions, -1),
            replication_factor=(
                -1 if assigned else whole("replication_factor", replication_factor, -1, 32_767)
            ),
            assignments=[
                kind.CreatableTopic.CreatableReplicaAssignment(
                    partition_index=index, broker_ids=broker_ids
                )
                for index, broker_ids in enumerate(assigned)
            ],
            configs=[
                kind.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                for key, value in config_texts("configs", configs or {}).items()
            ],
        )
        request = kind(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)

        def ask() -> None:
            for row in self._ask_controller(request).topics:
                check(row.error_code, f"topic '{row.name}'", row.error_message)

        self._change(ask, TOPIC_PASSES)
        self.cluster.forget(name)

    def delete_topics(self, names: str | Iterable[str]) -> None:
        """Deletes topics with all their records. The first refusal is raised, after all were
        asked for."""
        names = short_texts("names", names)
        kind = messages.DeleteTopicsRequest
        request = kind(
            topics=[kind.DeleteTopicState(name=name) for name in names],
            topic_names=names,
            timeout_ms=self._timeout_ms,
        )

        def ask() -> None:
            for row in self._ask_controller(request).responses:
                check(row.error_code, f"topic '{row.name}'", row.error_message)

        self._change(ask, TOPIC_PASSES)
        self.cluster.forget()

    def create_partitions(
        self, name: str, count: int, *, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Gives a topic so many partitions in all. `assignments`: the replicas of the new ones."""
        kind = messages.CreatePartitionsRequest
        rows = [
            kind.CreatePartitionsTopic.CreatePartitionsAssignment(broker_ids=broker_ids)
            for broker_ids in replica_lists("assignments", assignments or ())
        ]
        topic = kind.CreatePartitionsTopic(
            name=short_text("name", name), count=int32("count", count, -1), assignments=rows or None
        )
        request = kind(topics=[topic], timeout_ms=self._timeout_ms)

        def ask() -> None:
            for row in self._ask_controller(request).results:
                check(row.error_code, f"topic '{row.name}'", row.error_message)

        self._change(ask, TOPIC_PASSES)
        self.cluster.forget(name)

    def delete_records(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Deletes records below an offset (-1: all) of each partition; the log start offsets."""
        asked = offsets_by_pair("offsets", offsets)

        def build(partitions: Sequence[Partition]) -> Any:
            kind = messages.DeleteRecordsRequest
            inner = kind.DeleteRecordsTopic.DeleteRecordsPartition
            return kind(
                topics=[
                    kind.DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            inner(partition_index=index, offset=asked[topic, index])
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(partitions).items()
                ],
                timeout_ms=self._timeout_ms,
            )

        found: dict[Partition, int] = {}
        for name, row in self._ask_leaders(list(asked), build):
            found[name, row.partition_index] = row.low_watermark
        return found

    # --- configurations ---------------------------------------------------------------------------

    def describe_configs(
        self,
        resource_type: int,
        name: str,
        *,
        synonyms: bool = True,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        """All configurations of a topic, broker (name: its id; empty: the default of all) or
        group; `resource_type` is `TOPIC`, `BROKER` or `GROUP`."""
        flag("synonyms", synonyms)
        flag("documentation", documentation)
        resource_type = resource_kind("resource_type", resource_type)
        name = short_text("name", name)
        kind = messages.DescribeConfigsRequest
        request = kind(
            resources=[
                kind.DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=None
                )
            ],
            include_synonyms=synonyms,
            include_documentation=documentation,
        )

        def ask() -> Any:
            response = self.cluster.ask(request, node_id=self._config_node(resource_type, name))
            result = response.results[0]
            check(result.error_code, _configuration_of(name), result.error_message)
            return result

        return [config_entry(row) for row in self._ask_any(ask).configs]

    def alter_configs(
        self,
        resource_type: int,
        name: str,
        changes: Mapping[str, str | int | float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets configurations; None takes one back to its default. The others stay."""
        flag("validate_only", validate_only)
        resource_type = resource_kind("resource_type", resource_type)
        name = short_text("name", name)
        kind = messages.IncrementalAlterConfigsRequest
        rows = [
            kind.AlterConfigsResource.AlterableConfig(
                name=text("a name in changes", key),
                config_operation=DELETE if value is None else SET,
                value=None if value is None else config_text(f"changes[{key!r}]", value),
            )
            for key, value in mapping("changes", changes).items()
        ]
        resource = kind.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=rows
        )
        request = kind(resources=[resource], validate_only=validate_only)

        def ask() -> None:
            node_id = self._config_node(resource_type, name)
            response = self.cluster.ask(request, node_id=node_id)
            row = response.responses[0]
            check(row.error_code, _configuration_of(name), row.error_message)

        self._change(ask, CONFIG_PASSES)

    def list_config_resources(self, resource_type: int) -> list[str]:
        """Names of the resources of a type that have a configuration of their own."""
        resource_type = resource_kind("resource_type", resource_type)

        def ask() -> list[str]:
            request = messages.ListConfigResourcesRequest(resource_types=[resource_type])
            response = self.cluster.ask(request)
            check(response.error_code, "ListConfigResources")
            return sorted(row.resource_name for row in response.config_resources)

        return self._ask_any(ask)

    def _config_node(self, resource_type: int, name: str) -> int | None:
        """Only the broker itself knows its own configuration. Raises `BrokerError` if the cluster
        has no such broker: it is not waited for, since most likely the number is wrong."""
        is_number = name.isdecimal() and len(name) <= 10
        is_broker = resource_type in (BROKER, BROKER_LOGGER) and is_number
        if not is_broker:
            return None
        node_id = int(name)
        if node_id not in self.cluster.nodes:
            self.cluster.refresh([])
        if node_id not in self.cluster.nodes:
            known = ", ".join(map(str, sorted(self.cluster.nodes)))
            raise broker_error(
                BROKER_ID_NOT_REGISTERED,
                _configuration_of(name),
                f"the cluster has no broker {node_id} at the moment, but {known}",
            )
        return node_id

    # --- offsets ----------------------------------------------------------------------------------

    def list_offsets(
        self, timestamps: Mapping[Partition, int | datetime], *, committed: bool = False
    ) -> dict[Partition, ListedOffset]:
        """The offset of the first record at or after a timestamp (ms, or a datetime with a zone),
        or of `LATEST`, `EARLIEST`, `MAX_TIMESTAMP`, …; `committed` takes the last stable offset for
        the latest.

        Raises `UnsupportedVersionError` for a kind that the broker does not know.
        """
        flag("committed", committed)
        asked = {
            pair("timestamps", place): timestamp_ms(f"timestamps[{place!r}]", each)
            for place, each in mapping("timestamps", timestamps).items()
        }

        def build(partitions: Sequence[Partition]) -> Any:
            these = {partition: asked[partition] for partition in partitions}
            return list_offsets_request(these, committed, self._timeout_ms)

        found: dict[Partition, ListedOffset] = {}
        least = min(asked.values(), default=0)
        for name, row in self._ask_leaders(list(asked), build, newest=least):
            listed = ListedOffset(row.offset, row.timestamp, row.leader_epoch)
            found[name, row.partition_index] = listed
        return {partition: found[partition] for partition in asked}

    # --- asking -----------------------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        return min(self.cluster.request_timeout_ms, self.cluster.timeout_ms)

    def _ask_any(self, ask: Callable[[], Result]) -> Result:
        """Asks any broker; only a connection is tried again."""
        return self.cluster.retry(ask, passing=NOTHING_PASSES.__contains__)

    def _change(self, ask: Callable[[], None], passing: frozenset[int]) -> None:
        """Has the controller do it. Who is that no more, or does not answer, is not asked again
        unseen (`KafkaAdminClient.handleNotControllerError`)."""

        def forget(error: ClientError) -> None:
            if not isinstance(error, BrokerError) or error.code == NOT_CONTROLLER:
                self.cluster.forget_controller()

        self.cluster.retry(ask, passing=passing.__contains__, forget=forget)

    def _ask_controller(self, request: Any) -> Any:
        """Any broker forwards what is the controller's, but an old one does not."""
        return self.cluster.ask(request, node_id=self.cluster.controller())

    def _ask_leaders(
        self, partitions: list[Partition], build: Any, *, newest: int = 0
    ) -> list[tuple[str, Any]]:
        """Asks the leader of each partition, those of one broker at once; topic and row of each
        answer. What fails and may pass is asked again."""
        remaining = list(dict.fromkeys(partitions))
        answers: list[tuple[str, Any]] = []

        def ask() -> None:
            by_leader: dict[int, list[Partition]] = {}
            for partition in remaining:
                by_leader.setdefault(self.cluster.leader(*partition), []).append(partition)
            failure = None
            for leader, asked in by_leader.items():
                connection = self.cluster.connection(leader)
                _refuse_unknown_kind(connection, newest)
                response = self.cluster.ask(build(asked), node_id=leader)
                for topic in response.topics:
                    for row in topic.partitions:
                        partition = (topic.name, row.partition_index)
                        try:
                            check(row.error_code, f"partition {topic.name}-{row.partition_index}")
                        except Exception as error:  # noqa: BLE001 - the others are taken first
                            failure = failure or error
                            continue
                        remaining.remove(partition)
                        answers.append((topic.name, row))
            if failure is not None:
                raise failure

        for partition in remaining:
            # One that the cluster does not know is an error at once; that a leader does not know it
            # yet passes.
            self.cluster.retry(lambda place=partition: self.cluster.leader(*place))  # type: ignore[misc]
        self.cluster.retry(ask, forget=lambda _: self.cluster.forget(), unknown_topic=True)
        return answers


def list_offsets_request(
    timestamps: Mapping[Partition, int],
    committed: bool,
    timeout_ms: int,
    leader_epochs: Mapping[Partition, int] | None = None,
) -> Any:
    """The request of `Admin.list_offsets` to one leader. A leader of another epoch than
    `leader_epochs` says, or a follower, refuses."""
    epochs = leader_epochs or {}
    kind = messages.ListOffsetsRequest
    inner = kind.ListOffsetsTopic.ListOffsetsPartition
    return kind(
        replica_id=-1,
        isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
        topics=[
            kind.ListOffsetsTopic(
                name=topic,
                partitions=[
                    inner(
                        partition_index=index,
                        timestamp=timestamps[topic, index],
                        current_leader_epoch=epochs.get((topic, index), -1),
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(timestamps).items()
        ],
        timeout_ms=timeout_ms,
    )


# Kinds of ListOffsets and the version that brought them.
_KIND_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


def _refuse_unknown_kind(connection: Any, kind: int) -> None:
    needed = _KIND_SINCE.get(kind, 0)
    if needed > connection.version_for("ListOffsets"):
        raise UnsupportedVersionError(
            f"the broker at {connection.peer} does not list offsets of kind {kind}"
        )


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """The partitions of each topic, as most requests have them."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def _configuration_of(name: str) -> str:
    """For messages; only the default of all brokers has no name."""
    return f"configuration of '{name}'" if name else "default configuration of the brokers"
