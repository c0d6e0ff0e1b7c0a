"""The controller of a cluster of one node: every change of the metadata goes through here.

    a change ──► records ──► MetadataLog.append (on disk) ──► Image ──► BrokerPlane, changed topics

When a method returns, its change is durable, is in `image`, and is what clients see. What cannot be
is a ControllerError with Kafka's code. Used by the control thread only, once the node serves.

Logs are made and deleted by their directories, which may not answer (`rust/src/net/change.rs`):
what concerns logs calls back, and a topic whose logs are being made is changing until then.

    create_topics ──► records on disk, in `image` ──► logs ──► what clients see ──► then()
                                                       └─ a failure: records that remove the topics

What a start and a clean stop write is in `takeover.py`.

Kafka: `QuorumController`, `ReplicationControlManager`, `ConfigurationControlManager`,
`FeatureControlManager`, `ProducerIdControlManager`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kafkalite import _native
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.metadata import store
from kafkalite.metadata.features import FEATURES, KRAFT_VERSION, own_features
from kafkalite.metadata.image import (
    BROKER,
    TOPIC,
    AlikeNames,
    BrokerImage,
    Image,
    PartitionImage,
    TopicImage,
    config_record,
    partition_record,
)
from kafkalite.metadata.takeover import (
    Registration,
    lost_partitions,
    refuse_strangers,
    start_records,
    stop_records,
)
from kafkalite.protocol import codes, messages
from kafkalite.protocol.java import java_length

PRODUCER_IDS_PER_BLOCK = 1000
RECORDS_PER_OPERATION_MAX = 10_000
"""That a client may ask for at once (`QuorumController.MAX_RECORDS_PER_USER_OP`)."""
TOPIC_NAME_MAX = 249
"""Characters of a topic's name (`Topic.MAX_NAME_LENGTH`)."""
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

METADATA_TOPIC = "__cluster_metadata"


class ControllerError(KafkaliteError):
    """A change that cannot be; `code` is Kafka's."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class NewTopic(NamedTuple):
    """A topic that is to be made."""

    name: str
    partition_count: int
    configs: Mapping[str, str]

    @property
    def record_count(self) -> int:
        """Of the records that make it."""
        return 1 + len(self.configs) + self.partition_count


def check_record_count(count: int) -> None:
    """Raises ControllerError where what a client asks for takes too many records."""
    if count > RECORDS_PER_OPERATION_MAX:
        raise ControllerError(
            codes.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


EngineConfigs = Callable[[Mapping[str, str]], Mapping[str, str]]

Then = Callable[[ControllerError | None], None]
"""Called once a change is what clients see, or with the reason why it will never be."""


class LogChanges(Protocol):
    """What changes logs in the background (`kafkalite.context.Context`)."""

    def make_logs(
        self, topics: Mapping[str, Any], callback: Callable[[KafkaliteError | None], None]
    ) -> None: ...
    def delete_logs(
        self, names: Sequence[str], callback: Callable[[KafkaliteError | None], None]
    ) -> None: ...
    def soon(self, callback: Callable[[], None]) -> None: ...


class Controller:
    """See above. `start` makes one."""

    def __init__(
        self,
        log: store.MetadataLog,
        node_id: int,
        engine_configs: EngineConfigs,
        wall_ms: Callable[[], int],
        *,
        warn: Callable[[str], None],
    ) -> None:
        self._log = log
        self._node_id = node_id
        self._engine_configs = engine_configs
        self._wall_ms = wall_ms
        self._warn = warn
        self._plane: _native.BrokerPlane | None = None
        self._logs: LogChanges | None = None
        self._changing: dict[str, dict[Callable[[], None], Collection[str]]] = {}
        """Topics whose logs are being made, and who waits for that, with all that it waits for."""
        self._waiters: dict[Callable[[], None], str] = {}
        """In which of them each waits."""
        self._being_made: set[str] = set()
        """Those of them that are new."""
        self._producer_ids = iter(range(0))
        self._broker_config_watchers: list[Callable[[], None]] = []
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

    def change_logs_by(self, logs: LogChanges) -> None:
        """From now on topics can be made and deleted."""
        self._logs = logs

    def is_changing(self, name: str) -> bool:
        """Whether logs of a topic are being made. It must not be deleted meanwhile, nor grow."""
        return name in self._changing

    def is_being_made(self, name: str) -> bool:
        """Whether a topic is changing because it is new."""
        return name in self._being_made

    def when_settled(self, names: Collection[str], then: Callable[[], None]) -> None:
        """`then()` once none of the topics is changing, at once if none is. It waits once."""
        changing = next((each for each in names if each in self._changing), None)
        if changing is None:
            then()
        else:
            self._changing[changing][then] = names
            self._waiters[then] = changing

    def forget_waiter(self, then: Callable[[], None]) -> None:
        """`then` of `when_settled` is not called any more. Nothing happens if it was."""
        changing = self._waiters.pop(then, None)
        if changing is not None:
            del self._changing[changing][then]

    def on_broker_configs(self, watcher: Callable[[], None]) -> None:
        """`watcher()` is called after each change of this broker's configs, or of all brokers'."""
        self._broker_config_watchers.append(watcher)

    def on_failure(self, watcher: Callable[[str], None]) -> None:
        """`watcher(sentence)` is called when the metadata cannot be written any more."""
        self._on_failure = watcher

    def check_new_topic(self, name: str, others: AlikeNames) -> None:
        """Raises ControllerError where a topic of this name cannot be made; `others` will be made
        before it."""
        if name == METADATA_TOPIC:
            raise ControllerError(
                codes.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        refusal = name_refusal(name)
        if refusal:
            raise ControllerError(codes.INVALID_TOPIC_EXCEPTION, refusal)
        if name in self.image.topics:
            raise ControllerError(codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        alike = self.image.alike.like(name) | others.like(name)
        if alike:
            raise ControllerError(
                codes.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {min(alike)}",
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

    def create_topics(self, wanted: Sequence[NewTopic], then: Then) -> None:
        """Makes topics with new ids, which must have been checked, by one flush of the metadata:
        all of them, or none if a log cannot be made, of which `then` is told, never from within
        this call. They are in `image` at once.

        Raises ControllerError if they take too many records, or the metadata cannot be written."""
        check_record_count(sum(each.record_count for each in wanted))
        places = iter(self._place(sum(each.partition_count for each in wanted)))
        records: list[Any] = []
        topic_ids = []
        for each in wanted:
            topic_id = _native.random_uuid_bytes()
            topic_ids.append(topic_id)
            records.append(messages.TopicRecord(name=each.name, topic_id=topic_id))
            configs = each.configs.items()
            records += [config_record(TOPIC, each.name, key, value) for key, value in configs]
            partitions = self._new_partitions(0, list(islice(places, each.partition_count)))
            records += [partition_record(topic_id, partition) for partition in partitions]
        self._append(records)
        facts = {each.name: self._facts(self.image.topics[each.name]) for each in wanted}

        def made() -> None:
            self._publish_topics(facts)

        def undo() -> None:
            # Kafka's broker takes the directory offline, and the topic stays, without logs.
            self._append([messages.RemoveTopicRecord(topic_id=each) for each in topic_ids])

        self._being_made.update(facts)
        self._make_logs(facts, made, undo, then)

    def delete_topics(self, names: Sequence[str], then: Callable[[], None]) -> None:
        """Takes topics away, with their records and configs; none may be changing. When this
        returns, the topics are gone; when `then()` is called, so are their logs, or a log directory
        that fails over it is offline, as in Kafka.

        Raises ControllerError, and all are there still, if one is not there, they take too many
        records, or the metadata cannot be written."""
        topics = [self._topic(name) for name in names]
        check_record_count(len(topics))
        self._append([messages.RemoveTopicRecord(topic_id=each.id) for each in topics])

        def deleted(error: KafkaliteError | None) -> None:
            if error is not None:
                self._warn(f"logs of deleted topics are left until the next start: {error}")
            then()

        self._changer().delete_logs(names, deleted)

    def create_partitions(self, total_counts: Mapping[str, int], then: Then) -> None:
        """Gives topics more partitions, so that each has its total, by one flush of the metadata:
        all of them, or none if a log cannot be made or the metadata not be written, of which `then`
        is told, never from within this call. None may be changing.

        Raises ControllerError for what cannot be, or takes too many records."""
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
        check_record_count(new_count)
        places = iter(self._place(new_count))
        facts: dict[str, Any] = {}
        records: list[Any] = []
        for topic in topics:
            count = len(topic.partitions)
            directories = list(islice(places, total_counts[topic.name] - count))
            partitions = self._new_partitions(count, directories)
            grown = topic._replace(partitions=(*topic.partitions, *partitions))
            facts[topic.name] = self._facts(grown)
            records += [partition_record(topic.id, each) for each in partitions]

        def made() -> None:
            # After the logs: the metadata has no record that takes a partition away.
            self._append(records)
            self._publish_topics(facts)

        self._make_logs(facts, made, lambda: None, then)

    def _make_logs(
        self,
        facts: Mapping[str, Any],
        made: Callable[[], None],
        undo: Callable[[], None],
        then: Then,
    ) -> None:
        """Has the logs made that topics lack, which are changing meanwhile; then `made()`, or
        `undo()` if they cannot be, each of which may raise KafkaliteError."""

        def changed(error: KafkaliteError | None) -> None:
            refusal = None if error is None else _logs_not_made(error)
            try:
                made() if refusal is None else undo()
            except ControllerError as failure:
                refusal = failure
            except KafkaliteError as failure:
                refusal = _logs_not_made(failure)
            finally:
                self._settle(facts)
            then(refusal)

        self._changing.update({name: {} for name in facts})
        try:
            self._changer().make_logs(facts, changed)
        except KafkaliteError as error:
            self._changer().soon(partial(changed, error))

    def _settle(self, names: Collection[str]) -> None:
        """The topics are not changing any more: who waits for them looks again."""
        self._being_made.difference_update(names)
        for waiters in [self._changing.pop(name) for name in names]:
            for then, awaited in waiters.items():
                del self._waiters[then]
                self._changer().soon(partial(self.when_settled, awaited, then))

    def set_configs(
        self,
        changes: Mapping[tuple[int, str], Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets configs of resources (type, name), None removes one, by one flush of the metadata:
        all of them, or none if they take too many records or cannot be written. They must have been
        checked. A change of nothing writes nothing."""
        records: dict[tuple[int, str], list[Any]] = {}
        for resource, wanted in changes.items():
            own = self.image.configs.get(resource, {})
            news = {key: value for key, value in wanted.items() if own.get(key) != value}
            if news:
                records[resource] = [config_record(*resource, *change) for change in news.items()]
        check_record_count(sum(map(len, records.values())))
        if validate_only or not records:
            return
        self._append(list(chain.from_iterable(records.values())))
        topics: Collection[str] = [name for kind, name in records if kind == TOPIC]
        if any(kind == BROKER for kind, _ in records):
            topics = self.image.topics.keys()
            for watcher in self._broker_config_watchers:
                watcher()
        for name in topics:
            self._set_engine_configs(name)

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

    def update_features(self, levels: Mapping[str, int]) -> None:
        """Finalises features at levels, all of them or none. That they may be so must have been
        checked."""
        record = messages.FeatureLevelRecord
        self._append([record(name=name, feature_level=level) for name, level in levels.items()])
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
        self._append(stop_records(self.image, self._node_id))
        self._log.close(self._wall_ms())
        return self.broker.epoch

    def begin(self, registration: Registration, claimed: _native.ClaimedDirectories) -> None:
        """The start: registers the broker and has it lead. Raises ControllerError."""
        log = self._log
        self._append(start_records(log.image, log.bootstrap, log.end_offset, registration, claimed))

    def _place(self, count: int) -> list[bytes]:
        """The directories of new partitions."""
        try:
            return self._serving().place(count)
        except KafkaliteError as error:
            raise _logs_not_made(error) from error

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

    def _publish_topics(self, made: Mapping[str, Any]) -> None:
        """Has clients see topics, whose logs were made for these facts. Their configs may have
        changed meanwhile."""
        facts = {name: self._facts(self.image.topics[name]) for name in made}
        self._serving().publish_topics(facts)
        for name, each in facts.items():
            if each != made[name]:
                self._set_engine_configs(name)

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

    def _changer(self) -> LogChanges:
        if self._logs is None:
            raise ControllerError(codes.KAFKA_STORAGE_ERROR, "the node does not serve yet")
        return self._logs


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
    refuse_strangers(found, node_id, [path for path, *_ in claimed.directories])
    if not found.bootstrap and found.is_new:
        store.write_bootstrap(metadata_dir, own_features(), wall_ms())
    native_log, repairs = claimed.open_metadata_log({"segment.bytes": str(limits.segment_bytes)})
    directory_id = next(
        (each[1] for each in claimed.directories if Path(each[0]) == metadata_dir), bytes(16)
    )
    log = store.MetadataLog(found, native_log, node_id, directory_id, wall_ms(), limits, warn=warn)
    controller = Controller(log, node_id, engine_configs, wall_ms, warn=warn)
    controller.begin(registration, claimed)
    notes = [f"{store.FOLDER}: {sentence}" for sentence in repairs]
    return controller, [*notes, *lost_partitions(controller.image)]


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


def _logs_not_made(error: KafkaliteError) -> ControllerError:
    return ControllerError(codes.KAFKA_STORAGE_ERROR, f"the logs cannot be made: {error}")
