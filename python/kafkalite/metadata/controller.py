"""The controller of a cluster of one node: every change of the metadata goes through here.

    a change ──► records ──► MetadataLog.append (on disk) ──► Image ──► BrokerPlane, changed topics

When a method returns, its change is durable, is in `image`, and is what clients see. What cannot be
is a ControllerError with Kafka's code. Used by the control thread only, once the node serves.

A start takes over as Kafka's controller does: it leads in a new epoch, registers the broker, and
elects each partition's leader anew, so that leader epochs tell apart what was written before and
after; a clean stop takes leaders away and fences the broker. With eligible.leader.replicas.version
1 the replica is then in the ELR and not in the ISR.

Kafka: `QuorumController`, `ReplicationControlManager`, `ClusterControlManager`,
`ConfigurationControlManager`, `FeatureControlManager`, `ProducerIdControlManager`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite import _native
from kafkalite.errors import KafkaliteError, LogDirRefusedError, StorageError
from kafkalite.metadata import store
from kafkalite.metadata.image import (
    BROKER,
    NO_LEADER,
    TOPIC,
    BrokerImage,
    Endpoint,
    Image,
    PartitionImage,
    TopicImage,
    partition_record,
)
from kafkalite.protocol import codes, messages
from kafkalite.protocol.java import java_length

PRODUCER_IDS_PER_BLOCK = 1000
TOPIC_NAME_MAX = 249
"""Characters of a topic's name (`Topic.MAX_NAME_LENGTH`)."""
LOST_PARTITIONS_NAMED = 10
"""Of partitions that are not there, so many are named in the log."""
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

RESERVED_DIRECTORY_IDS = 100
"""Ids below are no directories: migrating, unassigned, lost (`DirectoryId`)."""

METADATA_TOPIC = "__cluster_metadata"

METADATA_VERSION = "metadata.version"
ELR_VERSION = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"


class Feature(NamedTuple):
    """A feature: lowest and highest level that a directory may have, and that of a new one."""

    name: str
    low: int
    high: int
    own: int


FEATURES = (
    Feature(ELR_VERSION, 0, 1, 1),
    Feature("group.version", 0, 1, 0),
    Feature(KRAFT_VERSION, 0, 1, 0),
    # 4.0-IV3 to 4.3-IV0.
    Feature(METADATA_VERSION, 25, 30, 30),
    Feature("share.version", 0, 1, 0),
    Feature("streams.version", 0, 1, 0),
    Feature("transaction.version", 0, 2, 0),
)


class ControllerError(KafkaliteError):
    """A change that cannot be; `code` is Kafka's."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Registration(NamedTuple):
    """What a broker says of itself when it starts."""

    node_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    min_insync_replicas: str
    """The broker's default, which eligible.leader.replicas.version 1 takes into the metadata."""


class NewTopic(NamedTuple):
    """A topic that is to be made."""

    name: str
    partition_count: int
    configs: Mapping[str, str]


EngineConfigs = Callable[[Mapping[str, str]], Mapping[str, str]]


class Controller:
    """See above. `start` makes one."""

    def __init__(
        self,
        log: store.MetadataLog,
        node_id: int,
        engine_configs: EngineConfigs,
        wall_ms: Callable[[], int],
    ) -> None:
        self._log = log
        self._node_id = node_id
        self._engine_configs = engine_configs
        self._wall_ms = wall_ms
        self._plane: _native.BrokerPlane | None = None
        self._producer_ids = iter(range(0))
        self._config_watchers: list[Callable[[int, str], None]] = []
        self._on_failure: Callable[[str], None] | None = None

    @property
    def image(self) -> Image:
        """All metadata as it is now."""
        return self._log.image

    @property
    def quorum(self) -> store.MetadataLog:
        """The log, for DescribeQuorum."""
        return self._log

    @property
    def broker(self) -> BrokerImage:
        """This node's registration."""
        return self.image.brokers[self._node_id]

    def topic_facts(self) -> dict[str, Any]:
        """What `BrokerPlane` is to load."""
        return {topic.name: self._facts(topic) for topic in self.image.topics.values()}

    def serve(self, plane: _native.BrokerPlane) -> None:
        """From now on changes are published to `plane`, which has loaded the topics. Where a
        partition's log was found in another directory, the metadata follows."""
        self._plane = plane
        moved = [
            messages.PartitionChangeRecord(
                topic_id=topic_id, partition_id=index, directories=[directory]
            )
            for topic_id, index, directory in plane.moved
        ]
        if moved:
            self._append(moved)
        self._publish_features()

    def on_configs(self, watcher: Callable[[int, str], None]) -> None:
        """`watcher(resource_type, name)` is called after each change of configs."""
        self._config_watchers.append(watcher)

    def on_failure(self, watcher: Callable[[str], None]) -> None:
        """`watcher(sentence)` is called when the metadata cannot be written any more."""
        self._on_failure = watcher

    def check_new_topic(self, name: str, others: Collection[str] = ()) -> None:
        """Raises ControllerError where a topic of this name cannot be made; `others` will be made
        before it."""
        if name == METADATA_TOPIC:
            raise ControllerError(
                codes.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        refusal = name_refusal(name)
        if refusal:
            raise ControllerError(codes.INVALID_TOPIC_EXCEPTION, refusal)
        topics = self.image.topics
        if name in topics:
            raise ControllerError(codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            metric_name = name.replace(".", "_")
            for other in sorted([*topics, *others]):
                if other.replace(".", "_") == metric_name:
                    raise ControllerError(
                        codes.INVALID_TOPIC_EXCEPTION,
                        f"Topic '{name}' collides with existing topic: {other}",
                    )

    def check_assignment(self, broker_ids: Sequence[int]) -> None:
        """Raises ControllerError where a partition cannot lie on these brokers."""
        if not broker_ids:
            raise ControllerError(
                codes.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes an empty replica list.",
            )
        for broker_id in sorted(broker_ids):
            if broker_id != self._node_id:
                raise ControllerError(
                    codes.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker_id}, but no such "
                    "broker is registered.",
                )
        if len(broker_ids) > 1:
            raise ControllerError(
                codes.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker_ids[0]} more than "
                "once.",
            )

    def create_topic(
        self, name: str, partition_count: int, configs: Mapping[str, str]
    ) -> TopicImage:
        """Makes a topic with a new id. The configs must have been checked."""
        self.check_new_topic(name)
        if partition_count < 1:
            raise ControllerError(
                codes.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        return self.create_topics([NewTopic(name, partition_count, configs)])[0]

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[TopicImage]:
        """Makes topics with new ids, which must have been checked, by one flush of the metadata:
        all of them, or none if the metadata or a log cannot be written."""
        places = iter(self._place(sum(each.partition_count for each in wanted)))
        records: list[Any] = []
        topic_ids = []
        for each in wanted:
            topic_id = _native.random_uuid_bytes()
            topic_ids.append(topic_id)
            records.append(messages.TopicRecord(name=each.name, topic_id=topic_id))
            configs = each.configs.items()
            records += [_config_record(TOPIC, each.name, key, value) for key, value in configs]
            partitions = self._new_partitions(0, list(islice(places, each.partition_count)))
            records += [partition_record(topic_id, partition) for partition in partitions]
        self._append(records)
        try:
            self._publish_topics([each.name for each in wanted])
        except KafkaliteError as error:
            # Kafka's broker takes the directory offline, and the topic stays, without logs.
            self._append([messages.RemoveTopicRecord(topic_id=each) for each in topic_ids])
            raise _logs_not_made(error) from error
        return [self.image.topics[each.name] for each in wanted]

    def delete_topics(self, names: Sequence[str]) -> None:
        """Takes topics away, with their records and configs: all of them, or none if one is not
        there or the metadata cannot be written."""
        topics = [self._topic(name) for name in names]
        if topics:
            self._append([messages.RemoveTopicRecord(topic_id=each.id) for each in topics])
            self._serving().delete_topics(names)

    def create_partitions(self, total_counts: Mapping[str, int]) -> None:
        """Gives topics more partitions, so that each has its total, by one flush of the metadata:
        all of them, or none if the metadata or a log cannot be written."""
        topics = [self._topic(name) for name in total_counts]
        for topic in topics:
            count, total_count = len(topic.partitions), total_counts[topic.name]
            if total_count <= count:
                raise ControllerError(
                    codes.INVALID_PARTITIONS,
                    f"Topic currently has {count} partitions, which is higher than the requested "
                    f"{total_count}.",
                )
        new_count = sum(total_counts.values()) - sum(len(each.partitions) for each in topics)
        places = iter(self._place(new_count))
        grown: dict[str, TopicImage] = {}
        records: list[Any] = []
        for topic in topics:
            count = len(topic.partitions)
            directories = list(islice(places, total_counts[topic.name] - count))
            partitions = self._new_partitions(count, directories)
            grown[topic.name] = topic._replace(partitions=(*topic.partitions, *partitions))
            records += [partition_record(topic.id, each) for each in partitions]
        try:
            # Before the metadata, from which no partition can be taken again.
            self._serving().make_logs({name: self._facts(each) for name, each in grown.items()})
        except KafkaliteError as error:
            raise _logs_not_made(error) from error
        self._append(records)
        self._publish_topics(list(grown))

    def set_configs(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Sets configs, None removes one. They must have been checked. A change of nothing writes
        nothing."""
        own = self.image.configs.get((resource_type, name), {})
        news = {key: value for key, value in changes.items() if own.get(key) != value}
        if not news:
            return
        self._append([_config_record(resource_type, name, *change) for change in news.items()])
        for watcher in self._config_watchers:
            watcher(resource_type, name)
        if resource_type == TOPIC:
            self._set_engine_configs(name)
        elif resource_type == BROKER:
            for topic in self.image.topics:
                self._set_engine_configs(topic)

    def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody else was given."""
        last = self.image.producer_ids
        first = last.next_id if last else 0
        block = range(first, first + PRODUCER_IDS_PER_BLOCK)
        self._append(
            [
                messages.ProducerIdsRecord(
                    broker_id=self._node_id,
                    broker_epoch=self.broker.epoch,
                    next_producer_id=block.stop,
                )
            ]
        )
        return block

    def next_producer_id(self) -> int:
        """A producer id that nobody else was given, of this node's block."""
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            self._producer_ids = iter(self.allocate_producer_ids())
            producer_id = next(self._producer_ids)
        return producer_id

    def update_feature(self, name: str, level: int) -> None:
        """Finalises a feature at a level. That it may be so must have been checked."""
        self._append([messages.FeatureLevelRecord(name=name, feature_level=level)])
        self._publish_features()

    def supported_features(self) -> list[tuple[str, int, int]]:
        """Name, lowest and highest level."""
        return [(each.name, each.low, each.high) for each in FEATURES]

    def finalized_features(self) -> list[tuple[str, int]]:
        """Name and level, of those that are not at level 0."""
        finalized = dict(self.image.features)
        if self._log.kraft_version:
            finalized[KRAFT_VERSION] = self._log.kraft_version
        return sorted(finalized.items())

    def stop(self) -> int:
        """The clean stop, when no client is served any more: no partition has a leader, the broker
        is fenced. Returns the broker epoch, for `.kafka_cleanshutdown`.

        Raises ControllerError where that cannot be written, StorageError where the log cannot be
        closed."""
        broker = self.broker
        change = messages.BrokerRegistrationChangeRecord
        records = [
            change(broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1),
            *self._leader_changes(self._leaderless),
            change(broker_id=broker.id, broker_epoch=broker.epoch, fenced=1),
        ]
        self._append(records)
        self._log.close(self._wall_ms())
        return broker.epoch

    def _begin(self, registration: Registration, claimed: _native.ClaimedDirectories) -> None:
        """The records of a start: registration, unfencing, leaders."""
        directories = [each[1] for each in claimed.directories]
        records = []
        if not self.image.features:
            records = self._bootstrap_records(registration)
        epoch = self._log.end_offset + len(records)
        kind = messages.RegisterBrokerRecord
        records.append(
            kind(
                broker_id=self._node_id,
                incarnation_id=_native.random_uuid_bytes(),
                broker_epoch=epoch,
                end_points=[
                    kind.BrokerEndpoint(
                        name=each.name,
                        host=each.host,
                        port=each.port,
                        security_protocol=each.protocol,
                    )
                    for each in registration.endpoints
                ],
                features=[
                    kind.BrokerFeature(
                        name=name, min_supported_version=low, max_supported_version=high
                    )
                    for name, low, high in self.supported_features()
                ],
                rack=registration.rack,
                fenced=True,
                log_dirs=directories,
            )
        )
        records.append(
            messages.BrokerRegistrationChangeRecord(
                broker_id=self._node_id, broker_epoch=epoch, fenced=-1
            )
        )
        online = set(directories)

        def led_anew(topic: TopicImage, partition: PartitionImage) -> Any:
            return self._elected(topic, partition, online, claimed)

        records += self._leader_changes(led_anew)
        self._append(records)

    def _bootstrap_records(self, registration: Registration) -> list[Any]:
        """What Kafka's controller writes first into a new log, in one transaction."""
        records = [messages.BeginTransactionRecord(name="Bootstrap records")]
        levels = self._log.bootstrap or own_features()
        records += levels
        if any(each.name == ELR_VERSION and each.feature_level for each in levels):
            records.append(
                _config_record(BROKER, "", "min.insync.replicas", registration.min_insync_replicas)
            )
        return [*records, messages.EndTransactionRecord()]

    def _elected(
        self,
        topic: TopicImage,
        partition: PartitionImage,
        online: set[bytes],
        claimed: _native.ClaimedDirectories,
    ) -> Any:
        """The record by which this node leads a partition anew. None where its log is offline."""
        directories = None
        if partition.directory not in online:
            found = claimed.find_partition(topic.name, topic.id, partition.index)
            if found is None:
                if int.from_bytes(partition.directory, "big") >= RESERVED_DIRECTORY_IDS:
                    return self._leaderless(topic, partition)
                found = claimed.place(1)[0]
            directories = [found]
        node = self._node_id
        return messages.PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=topic.id,
            leader=node,
            isr=None if partition.isr == (node,) else [node],
            eligible_leader_replicas=[] if partition.elr else None,
            last_known_elr=[] if partition.last_known_elr else None,
            directories=directories,
        )

    def _leaderless(self, topic: TopicImage, partition: PartitionImage) -> Any:
        """The record by which a partition has no leader, as this node stops."""
        if partition.leader == NO_LEADER:
            return None
        has_elr = bool(self.image.features.get(ELR_VERSION))
        node = self._node_id
        return messages.PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=topic.id,
            leader=NO_LEADER,
            isr=[] if has_elr else None,
            eligible_leader_replicas=[node] if has_elr else None,
            last_known_elr=[node] if has_elr else None,
        )

    def _leader_changes(self, change: Callable[[TopicImage, PartitionImage], Any]) -> list[Any]:
        changes = (
            change(topic, partition)
            for topic in self.image.topics.values()
            for partition in topic.partitions
        )
        return [each for each in changes if each is not None]

    def _place(self, count: int) -> list[bytes]:
        """The directories of new partitions."""
        return self._serving().place(count)

    def _new_partitions(self, first: int, directories: Sequence[bytes]) -> list[PartitionImage]:
        node = (self._node_id,)
        return [
            PartitionImage(
                index=index,
                leader=self._node_id,
                leader_epoch=0,
                partition_epoch=0,
                replicas=node,
                isr=node,
                directories=(directory,),
            )
            for index, directory in enumerate(directories, first)
        ]

    def _topic(self, name: str) -> TopicImage:
        topic = self.image.topics.get(name)
        if topic is None:
            raise ControllerError(
                codes.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        return topic

    def _append(self, records: Sequence[Any]) -> None:
        try:
            self._log.append(records, self._wall_ms())
        except KafkaliteError as error:
            sentence = f"the metadata cannot be written: {error}"
            if self._on_failure is not None and isinstance(error, StorageError):
                self._on_failure(sentence)
            raise ControllerError(codes.KAFKA_STORAGE_ERROR, sentence) from error

    def _facts(self, topic: TopicImage) -> Any:
        own = self.image.configs.get((TOPIC, topic.name), {})
        partitions = [(each.leader_epoch, each.directory) for each in topic.partitions]
        return topic.id, topic.is_internal, dict(self._engine_configs(own)), partitions

    def _publish_topics(self, names: Sequence[str]) -> None:
        facts = {name: self._facts(self.image.topics[name]) for name in names}
        self._serving().publish_topics(facts)

    def _set_engine_configs(self, name: str) -> None:
        own = self.image.configs.get((TOPIC, name), {})
        self._serving().set_topic_configs(name, self._engine_configs(own))

    def _publish_features(self) -> None:
        self._serving().set_features(
            self.supported_features(), self.finalized_features(), self.image.last_offset
        )

    def _serving(self) -> _native.BrokerPlane:
        if self._plane is None:
            raise ControllerError(codes.KAFKA_STORAGE_ERROR, "the node does not serve yet")
        return self._plane


def start(
    claimed: _native.ClaimedDirectories,
    metadata_dir: Path,
    registration: Registration,
    engine_configs: EngineConfigs,
    wall_ms: Callable[[], int],
    limits: store.Limits = store.KAFKAS_LIMITS,
    *,
    warn: Callable[[str], None],
) -> tuple[Controller, list[str]]:
    """Reads the metadata, refuses what cannot be served, takes over. Returns also what was
    repaired, a sentence each. `warn(sentence)` is told, as long as the controller lives, what goes
    wrong without a change being lost.

    Raises LogDirRefusedError with nothing changed on disk; StorageError, and ControllerError for
    the first records, where the disk fails.
    """
    found = store.read(metadata_dir)
    node_id = registration.node_id
    _refuse_strangers(found, node_id, [path for path, *_ in claimed.directories])
    if not found.bootstrap and found.is_new:
        store.write_bootstrap(metadata_dir, own_features(), wall_ms())
    native_log, repairs = claimed.open_metadata_log({"segment.bytes": str(limits.segment_bytes)})
    directory_id = next(
        (each[1] for each in claimed.directories if Path(each[0]) == metadata_dir), bytes(16)
    )
    log = store.MetadataLog(found, native_log, node_id, directory_id, wall_ms(), limits, warn=warn)
    controller = Controller(log, node_id, engine_configs, wall_ms)
    controller._begin(registration, claimed)
    notes = [f"{store.FOLDER}: {sentence}" for sentence in repairs]
    return controller, [*notes, *_lost_partitions(controller.image)]


def _lost_partitions(image: Image) -> list[str]:
    """What is to be said of partitions that one node, which has just started, does not lead."""
    lost = [
        f"{topic.name}-{partition.index}"
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader == NO_LEADER
    ]
    if not lost:
        return []
    rest = len(lost) - LOST_PARTITIONS_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    named = ", ".join(lost[:LOST_PARTITIONS_NAMED])
    return [f"partitions without a leader, as no log directory in use holds them: {named}{more}"]


def own_features() -> list[Any]:
    """The levels of a new directory: of those features whose keys work."""
    levels = [(each.name, each.own) for each in FEATURES if each.own]
    levels.sort(key=lambda level: level[0] != METADATA_VERSION)
    return [messages.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels]


def name_refusal(name: str) -> str:
    """Why a topic's name is illegal, in Kafka's words (`Topic.validate`); empty if it is not."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if java_length(name) > TOPIC_NAME_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed "
            f"length {TOPIC_NAME_MAX}"
        )
    if not _NAME_CHARACTERS.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return ""


def _refuse_strangers(found: store.Found, node_id: int, log_dirs: Sequence[Path]) -> None:
    """Raises LogDirRefusedError where the metadata says what one node alone cannot serve."""
    folder = found.folder

    def refuse(reason: str) -> LogDirRefusedError:
        return LogDirRefusedError(f"{folder.parent} cannot be used: {reason}")

    if found.is_new:
        for log_dir in log_dirs:
            for path in log_dir.iterdir():
                if re.fullmatch(r".+-\d+", path.name) and path.name != store.FOLDER:
                    raise refuse(
                        f"{path} holds records, and there is no {store.FOLDER} that would say of "
                        "what topic"
                    )
    if found.quorum.voter_ids not in ((), (node_id,)):
        raise refuse(
            f"its quorum has the voters {', '.join(map(str, found.quorum.voter_ids))}, and only "
            f"node.id={node_id} alone can be one here"
        )
    levels = dict(found.image.features) or {
        each.name: each.feature_level for each in found.bootstrap if each.feature_level
    }
    known = {each.name: each for each in FEATURES}
    for name, level in {**levels, KRAFT_VERSION: found.quorum.kraft_version}.items():
        feature = known.get(name)
        if feature is None or not feature.low <= level <= feature.high:
            raise refuse(f"it has the feature {name} at level {level}, which is not supported")
    for topic in found.image.topics.values():
        for partition in topic.partitions:
            if partition.replicas != (node_id,):
                raise refuse(
                    f"{topic.name}-{partition.index} has the replicas {list(partition.replicas)}, "
                    f"and this node is {node_id}: it belongs to a cluster of several brokers"
                )


def _logs_not_made(error: KafkaliteError) -> ControllerError:
    return ControllerError(codes.KAFKA_STORAGE_ERROR, f"the logs cannot be made: {error}")


def _config_record(resource_type: int, resource_name: str, name: str, value: str | None) -> Any:
    return messages.ConfigRecord(
        resource_type=resource_type, resource_name=resource_name, name=name, value=value
    )
