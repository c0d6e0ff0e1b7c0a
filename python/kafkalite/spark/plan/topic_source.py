"""Where planning learns what partitions and offsets there are: brokers, or the files of logs."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from kafkalite._native import LogRead
from kafkalite.client.admin import BROKER, EARLIEST, LATEST, Admin, uuid_text
from kafkalite.client.arguments import OffsetOfTime
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.connection import Closing
from kafkalite.client.network.metadata import TopicMetadata
from kafkalite.errors import BrokerError, ClientError, InvalidArgumentError, KafkaliteError
from kafkalite.protocol.codes import UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_OR_PARTITION
from kafkalite.spark.offsets import Offsets, Partition, Range, name_of, names_of
from kafkalite.spark.options.java_regex import java_pattern
from kafkalite.spark.options.read import ClientOptions, ReadOptions, Topics
from kafkalite.spark.plan.endpoint import serves_cluster

__all__ = ["ArrowEndpoint", "BrokerSource", "FileSource", "TopicSource", "open_topic_source"]

ARROW_LISTENER = "kafkalite.arrow.listener"

COMMIT_MS_MAX = 10_000
"""After the first commit, which has `kafka.default.api.timeout.ms`."""

ENDPOINT_PAUSE_S = 60.0
"""Where there was no Arrow endpoint: a planner lives as long as its session."""


class ArrowEndpoint(NamedTuple):
    """An Arrow endpoint, and whose it is."""

    address: str
    cluster_id: str


class TopicSource(Protocol):
    """The topics of a cluster or of log directories, as planning asks for them."""

    def partitions(self, topics: Topics) -> list[Partition]:
        """The partitions that exist, in order. Raises `KafkaliteError` for one that does not."""

    def first(self, partitions: Iterable[Partition]) -> Offsets:
        """Log starts; partitions that are gone are missing."""

    def last(self, partitions: Iterable[Partition]) -> Offsets:
        """High watermarks, or last stable offsets."""

    def at_time(self, timestamps: Mapping[Partition, int]) -> Offsets:
        """The first offset at or after a timestamp; -1 for none."""

    def ids(self, topics: Iterable[str], *, ask: bool = False) -> dict[str, str]:
        """The ids of topics, where they are known, as of the last `partitions`, or of now."""

    def commit(self, group: str, offsets: Offsets, *, is_first: bool) -> None:
        """Commits offsets of a consumer group without members, the first of a run or later ones.
        Raises `KafkaliteError`."""

    def endpoint(self) -> "ArrowEndpoint | None":
        """Where the broker serves Arrow on this machine, if it does."""

    def directory(self, partition: Partition) -> str | None:
        """Where the files of a partition are, if they are read in topic_partition of a broker."""

    def close(self) -> None:
        """Gives back what it holds."""


class BrokerSource(Closing):
    """Topics of a cluster, over the wire."""

    def __init__(self, client: ClientOptions) -> None:
        """Connects when it is first asked."""
        self._committed = client.fetch.isolation == "read_committed"
        self._cluster = Cluster(
            client.bootstrap_servers,
            client_id=client.fetch.client_id,
            timeout_ms=client.api_timeout_ms,
            request_timeout_ms=client.fetch.request_timeout_ms,
        )
        self._admin = Admin(self._cluster)
        self._groups = GroupAdmin(self._cluster)
        self._endpoint: ArrowEndpoint | None = None
        self._endpoint_not_before_s = 0.0

    def close(self) -> None:
        """Closes the connections."""
        self._cluster.close()

    def partitions(self, topics: Topics) -> list[Partition]:
        """See `TopicSource`."""
        if topics.kind == "subscribePattern":
            pattern = java_pattern(topics.names[0])
            listed = self._admin.list_topics(include_internal=False)
            names = [each.name for each in listed if pattern.search(each.name)]
        elif topics.kind == "assign":
            names = sorted({topic for topic, _ in topics.partitions})
        else:
            names = sorted(topics.names)
        self._cluster.forget()
        if topics.kind == "subscribePattern":  # one that was listed may have been deleted since
            return [(name, partition) for name in names for partition in self._numbers_of(name)]
        found = [(name, partition) for name in names for partition in self._topic(name).partitions]
        if topics.kind != "assign":
            return found
        missing = set(topics.partitions) - set(found)
        if missing:
            raise InvalidArgumentError(
                f"assign names partitions that do not exist: {names_of(missing)}"
            )
        return list(topics.partitions)

    def first(self, partitions: Iterable[Partition]) -> Offsets:
        """See `TopicSource`."""
        wanted = list(partitions)
        names = sorted({name for name, _ in wanted})
        # What is remembered of them may have gone since.
        self._cluster.retry(lambda: self._cluster.refresh(names))
        known = {name: self._numbers_of(name) for name in names}
        there = [(name, each) for name, each in wanted if each in known[name]]
        return self._listed(dict.fromkeys(there, EARLIEST))

    def ids(self, topics: Iterable[str], *, ask: bool = False) -> dict[str, str]:
        """See `TopicSource`. Brokers before 2.8 do not tell."""
        names = sorted(topics)
        if ask:
            found = self._cluster.retry(lambda: self._cluster.refresh(names))
        else:
            found = {name: self._topic(name) for name in names}
        return {name: uuid_text(topic.id) for name, topic in found.items() if any(topic.id)}

    def _numbers_of(self, topic: str) -> Collection[int]:
        """The numbers of a topic's partitions; none if there is no such topic."""
        try:
            return self._topic(topic).partitions.keys()
        except BrokerError as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return ()

    def last(self, partitions: Iterable[Partition]) -> Offsets:
        """See `TopicSource`."""
        return self._listed(dict.fromkeys(partitions, LATEST))

    def at_time(self, timestamps: Mapping[Partition, int]) -> Offsets:
        """See `TopicSource`."""
        return self._listed(timestamps)

    def commit(self, group: str, offsets: Offsets, *, is_first: bool) -> None:
        """See `TopicSource`. A stream that waits for its group reads nothing, so it does not wait
        long. It does for the first commit, whose failure fails the query: the coordinator may be
        loading."""
        try:
            self._cluster.retry(
                lambda: self._groups.alter(group, offsets),
                timeout_ms=None if is_first else COMMIT_MS_MAX,
                passing=lambda _: False,  # `alter` has asked again
            )
        except ClientError as error:
            way = ""
            if isinstance(error, BrokerError) and error.code == UNKNOWN_MEMBER_ID:
                way = "; it has members, and a stream needs a group that nobody joins"
            raise KafkaliteError(
                f"commitOffsetsToGroup: group '{group}' refused the offsets: {error}{way}"
            ) from error

    def _topic(self, name: str) -> TopicMetadata:
        """Tried again: a broker that was restarted since has closed the connection."""
        return self._cluster.retry(lambda: self._cluster.topic(name))

    def _listed(self, timestamps: Mapping[Partition, int]) -> dict[Partition, int]:
        found = self._admin.list_offsets(timestamps, committed=self._committed)
        return {partition: listed.offset for partition, listed in found.items()}

    def endpoint(self) -> ArrowEndpoint | None:
        """See `TopicSource`. Only of a broker that is alone: it refuses partitions of others.
        Where there is none, or the broker does not say, as to who may not see its configurations,
        it is asked for again after a pause: a broker may have been away."""
        known = self._endpoint
        if known is not None and len(self._cluster.nodes) == 1 and serves_cluster(*known):
            return known
        self._endpoint = None
        if time.monotonic() >= self._endpoint_not_before_s:
            found = self._told_endpoint()
            if found is not None and serves_cluster(*found):
                self._endpoint = found
            else:
                self._endpoint_not_before_s = time.monotonic() + ENDPOINT_PAUSE_S
        return self._endpoint

    def _told_endpoint(self) -> ArrowEndpoint | None:
        nodes, cluster_id = self._cluster.nodes, self._cluster.cluster_id
        if len(nodes) != 1 or cluster_id is None:
            return None
        (node_id,) = nodes
        try:
            configs = self._admin.describe_configs(BROKER, str(node_id), synonyms=False)
        except ClientError:
            return None  # rows come by Kafka's protocol
        address = {each.name: each.value for each in configs}.get(ARROW_LISTENER)
        return ArrowEndpoint(address, cluster_id) if address else None

    def directory(self, partition: Partition) -> str | None:
        """None: brokers are asked."""
        del partition
        return None


class FileSource:
    """Partitions of log directories, without a broker."""

    def __init__(self, paths: Sequence[str], isolation: str) -> None:
        """Reads nothing yet."""
        self._paths = paths
        self._isolation = isolation
        self._directories: dict[Partition, str] = {}

    def close(self) -> None:
        """Nothing is held."""

    def partitions(self, topics: Topics) -> list[Partition]:
        """See `TopicSource`."""
        del topics
        self._look()
        return sorted(self._directories)

    def first(self, partitions: Iterable[Partition]) -> Offsets:
        """See `TopicSource`."""
        found = self._look()
        return {each: found[each].start for each in partitions if each in found}

    def last(self, partitions: Iterable[Partition]) -> Offsets:
        """See `TopicSource`."""
        found = self._look()
        return {each: found[each].stop for each in partitions if each in found}

    def at_time(self, timestamps: Mapping[Partition, int]) -> Offsets:
        """See `TopicSource`. As a broker looks them up: by time index, then headers, then one
        batch."""
        return {each: self._find(each, timestamp) for each, timestamp in timestamps.items()}

    def ids(self, topics: Iterable[str], *, ask: bool = False) -> dict[str, str]:
        """None: files may be copies, which keep an id, and restored ones, which may not."""
        del topics, ask
        return {}

    def endpoint(self) -> ArrowEndpoint | None:
        """None: nobody serves."""

    def commit(self, group: str, offsets: Offsets, *, is_first: bool) -> None:
        """See `TopicSource`. The options refuse a group of files."""
        del group, offsets, is_first
        raise InvalidArgumentError("files have no consumer groups")

    def directory(self, partition: Partition) -> str | None:
        """See `TopicSource`."""
        if partition not in self._directories:
            self._look()
        return self._directories.get(partition)

    def _look(self) -> dict[Partition, Range]:
        self._directories = {}
        found: dict[Partition, Range] = {}
        for path in self._paths:
            for topic, partition, start, stop in self._read(path).ranges:
                topic_partition = (topic, partition)
                if topic_partition in found:
                    raise InvalidArgumentError(f"{name_of(topic_partition)} is in several paths")
                found[topic_partition] = Range(topic, partition, start, stop)
                name = name_of(topic_partition)
                real = Path(path).resolve()
                self._directories[topic_partition] = str(real if real.name == name else real / name)
        return found

    def _find(self, partition: Partition, timestamp_ms: int) -> int:
        read = self._read(self.directory(partition) or "", OffsetOfTime(timestamp_ms))
        ((_, _, start, stop),) = read.ranges
        return -1 if start == stop else start

    def _read(self, path: str, start: OffsetOfTime | None = None) -> LogRead:
        return LogRead(
            [path],
            topic=None,
            start=start,
            start_by_partition={},
            stop=None,
            stop_by_partition={},
            columns=["offset"],
            isolation=self._isolation,
            batch_rows=32_768,
            batch_bytes=4 << 20,
        )


def open_topic_source(options: ReadOptions) -> TopicSource:
    """The brokers or the files that the options name; the caller closes it."""
    if options.topics.kind == "path":
        return FileSource(options.topics.names, options.client.fetch.isolation)
    return BrokerSource(options.client)
