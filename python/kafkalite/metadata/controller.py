"""The controller of a cluster of one node: every change of the metadata goes through here.

    a change ──► records ──► on disk ──► Image ──► BrokerPlane, changed topics ──► then()

Nothing here waits for a disk, which may not answer (`rust/src/net/control/metadata_append.rs`,
`log_lifecycle.rs` there): a change calls back once it is durable, in `image`, and what clients see.
Whoever changes something has the turn (`turns.py`), and judges by the image then. What cannot be is a ControllerError with
Kafka's code. Used by the control thread only, once the node serves.

    create_topics ──► records on disk, in `image` ──► logs ──► what clients see ──► then()
                                                       └─ a failure: records that remove the topics
    create_partitions ──► logs ──► records on disk, in `image` ──► what clients see ──► then()
    delete_topics ──► records on disk, out of `image` and of sight ──► gone() ──► logs ──► deleted()

A topic whose logs are being made is changing until then, and is not deleted, nor does it grow.

What a start and a clean stop write is in `activation.py`.

Kafka: `QuorumController`, `ReplicationControlManager`, `ConfigurationControlManager`,
`FeatureControlManager`, `ProducerIdControlManager`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kafkalite import _native
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.metadata import reading, snapshots, store
from kafkalite.metadata.activation import (
    Registration,
    lost_partitions,
    refuse_strangers,
    start_records,
    stop_records,
)
from kafkalite.metadata.features import FEATURES, KRAFT_VERSION, own_features
from kafkalite.metadata.image import (
    BROKER,
    TOPIC,
    AlikeNames,
    BrokerImage,
    Image,
    PartitionImage,
    TopicImage,
)
from kafkalite.metadata.image_records import config_record, partition_record
from kafkalite.metadata.turns import Turns
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


Changed = Callable[[KafkaliteError | None], None]


class Background(Protocol):
    """What changes files in the background (`kafkalite.context.Context`)."""

    def append_metadata(
        self, log: _native.Log, batches: Sequence[bytes], leader_epoch: int, callback: Changed
    ) -> None: ...
    def make_logs(self, topics: Mapping[str, Any], callback: Changed) -> None: ...
    def delete_logs(self, names: Sequence[str], callback: Changed) -> None: ...
    def in_background(self, work: Callable[[], None], callback: Changed) -> None: ...
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
        self._background: Background | None = None
        self._turns = Turns(lambda callback: self._changer().soon(callback))
        self._appending: store.Appending | None = None
        """On its way to disk."""
        self._producer_ids = iter(range(0))
        self._broker_config_watchers: list[Callable[[], object]] = []
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
            self._append_now(moved)
        self._publish_features()

    def change_files_by(self, background: Background) -> None:
        """From now on there can be changes."""
        self._background = background

    @property
    def turns(self) -> Turns:
        """Who may change something, and which topics are changing. Whoever calls what changes
        something must have the turn, with its topics settled."""
        return self._turns

    def on_broker_configs(self, watcher: Callable[[], object]) -> None:
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

    def create_topics(self, wanted: Sequence[NewTopic], then: Then) -> dict[str, bytes]:
        """Makes topics, which must have been checked, by one flush of the metadata: all of them, or
        none if the metadata cannot be written or a log not be made, of which `then` is told, never
        from within this call. Returns their ids.

        Raises ControllerError if they take too many records."""
        check_record_count(sum(each.record_count for each in wanted))
        places = iter(self._place(sum(each.partition_count for each in wanted)))
        records: list[Any] = []
        topic_ids = {}
        for each in wanted:
            topic_ids[each.name] = topic_id = _native.random_uuid_bytes()
            records.append(messages.TopicRecord(name=each.name, topic_id=topic_id))
            configs = each.configs.items()
            records += [config_record(TOPIC, each.name, key, value) for key, value in configs]
            partitions = self._new_partitions(0, list(islice(places, each.partition_count)))
            records += [partition_record(topic_id, partition) for partition in partitions]

        def written(refusal: ControllerError | None) -> None:
            if refusal is not None:
                self._end_change(topic_ids, refusal, then)
                return
            facts = {name: self._facts(self.image.topics[name]) for name in topic_ids}
            self._make_logs(facts, partial(made, facts))

        def made(facts: Mapping[str, Any], refusal: ControllerError | None) -> None:
            if refusal is None:
                self._end_change(topic_ids, self._publish_topics(facts), then)
            else:
                self._turns.in_turn((), partial(undo, refusal))

        def undo(refusal: ControllerError) -> None:
            # Kafka's broker takes the directory offline, and the topic stays, without logs.
            gone = [messages.RemoveTopicRecord(topic_id=each) for each in topic_ids.values()]
            self._append(gone, lambda other: self._end_change(topic_ids, other or refusal, then))

        self._append(records, written)
        self._turns.begin_change(topic_ids, are_new=True)
        return topic_ids

    def delete_topics(self, names: Sequence[str], gone: Then, deleted: Callable[[], None]) -> None:
        """Takes topics away, with their records and configs. `gone(None)` is called when they are,
        `gone(error)` if they are there still since the metadata cannot be written; then `deleted()`
        when their logs are, too, or a log directory that fails over it is offline, as in Kafka.
        Neither from within this call.

        Raises ControllerError if one is not there, or they take too many records."""
        topics = [self._topic(name) for name in names]
        check_record_count(len(topics))

        def written(refusal: ControllerError | None) -> None:
            if refusal is None:
                try:
                    self._changer().delete_logs(names, logs_deleted)
                except KafkaliteError as error:
                    self._changer().soon(partial(logs_deleted, error))
            gone(refusal)

        def logs_deleted(error: KafkaliteError | None) -> None:
            if error is not None:
                self._warn(f"logs of deleted topics are left until the next start: {error}")
            deleted()

        self._append([messages.RemoveTopicRecord(topic_id=each.id) for each in topics], written)

    def create_partitions(self, total_counts: Mapping[str, int], then: Then) -> None:
        """Gives topics more partitions, so that each has its total, by one flush of the metadata:
        all of them, or none if a log cannot be made or the metadata not be written, of which `then`
        is told, never from within this call.

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

        def made(refusal: ControllerError | None) -> None:
            if refusal is None:
                # After the logs: the metadata has no record that takes a partition away.
                self._turns.in_turn((), write)
            else:
                self._end_change(facts, refusal, then)

        def write() -> None:
            self._append(records, written)

        def written(refusal: ControllerError | None) -> None:
            self._end_change(facts, refusal or self._publish_topics(facts), then)

        self._turns.begin_change(facts, are_new=False)
        self._make_logs(facts, made)

    def _make_logs(self, facts: Mapping[str, Any], then: Then) -> None:
        """Has the logs made that topics lack; `then` is told, never from within this call."""

        def changed(error: KafkaliteError | None) -> None:
            then(None if error is None else _logs_not_made(error))

        try:
            self._changer().make_logs(facts, changed)
        except KafkaliteError as error:
            self._changer().soon(partial(changed, error))

    def _end_change(
        self, names: Collection[str], refusal: ControllerError | None, then: Then
    ) -> None:
        self._turns.settle(names)
        then(refusal)

    def set_configs(
        self,
        changes: Mapping[tuple[int, str], Mapping[str, str | None]],
        then: Then,
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets configs of resources (type, name), None removes one, by one flush of the metadata:
        all of them, or none if it cannot be written, of which `then` is told. They must have been
        checked. A change of nothing writes nothing, and `then` is called at once.

        Raises ControllerError if they take too many records."""
        records: dict[tuple[int, str], list[Any]] = {}
        for resource, wanted in changes.items():
            own = self.image.configs.get(resource, {})
            news = {key: value for key, value in wanted.items() if own.get(key) != value}
            if news:
                records[resource] = [config_record(*resource, *change) for change in news.items()]
        check_record_count(sum(map(len, records.values())))
        if validate_only or not records:
            then(None)
            return

        def written(refusal: ControllerError | None) -> None:
            if refusal is None:
                self._obey_configs(records)
            then(refusal)

        self._append(list(chain.from_iterable(records.values())), written)

    def _obey_configs(self, resources: Collection[tuple[int, str]]) -> None:
        """Has what is set for resources hold."""
        topics: Collection[str] = [name for kind, name in resources if kind == TOPIC]
        if any(kind == BROKER for kind, _ in resources):
            topics = self.image.topics.keys()
            for watcher in self._broker_config_watchers:
                watcher()
        for name in topics:
            self._set_engine_configs(name)

    def next_producer_id(self) -> int | None:
        """A producer id that nobody else was given, of this node's block; None where that is used
        up. Nobody needs the turn for it."""
        return next(self._producer_ids, None)

    def allocate_producer_ids(self, then: Then) -> None:
        """Takes another block of ids, of which `then` is told, never from within this call."""
        last = self.image.producer_ids
        first = last.next_id if last else 0
        block = range(first, first + PRODUCER_IDS_PER_BLOCK)
        record = messages.ProducerIdsRecord(
            broker_id=self._node_id, broker_epoch=self.broker.epoch, next_producer_id=block.stop
        )

        def written(refusal: ControllerError | None) -> None:
            if refusal is None:
                self._producer_ids = iter(block)
            then(refusal)

        self._append([record], written)

    def update_features(self, levels: Mapping[str, int], then: Then) -> None:
        """Finalises features at levels, all of them or none, of which `then` is told, never from
        within this call. That they may be so must have been checked."""

        def written(refusal: ControllerError | None) -> None:
            if refusal is None:
                self._publish_features()
            then(refusal)

        record = messages.FeatureLevelRecord
        records = [record(name=name, feature_level=level) for name, level in levels.items()]
        self._append(records, written)

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
        self._finish_append()
        self._append_now(stop_records(self.image, self._node_id))
        self._log.close(self._wall_ms())
        return self.broker.epoch

    def begin(self, registration: Registration, claimed: _native.ClaimedDirectories) -> None:
        """The start: registers the broker and has it lead. Raises ControllerError."""
        log = self._log
        self._append_now(
            start_records(log.image, log.bootstrap, log.end_offset, registration, claimed)
        )

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

    def _append(self, records: Sequence[Any], then: Then) -> None:
        """Has records written by who has the turn, and keeps that until they are in `image`, or
        never will be; then `then` is told."""
        log = self._log
        appending = log.prepare(records, self._wall_ms())

        def written(error: KafkaliteError | None) -> None:
            self._appending = None
            self._turns.give_back()
            try:
                log.finish(appending, error)
            except KafkaliteError as failure:
                then(self._failed(failure))
                return
            self._write_due_snapshot()
            then(None)

        self._turns.take()
        self._appending, batches = appending, appending.batches
        self._changer().append_metadata(log.native_log, batches, log.leader_epoch, written)

    def _write_due_snapshot(self) -> None:
        snapshot = self._log.due_snapshot(self._wall_ms())
        if snapshot is not None:
            try:
                self._changer().in_background(snapshot.write, self._log.end_snapshot)
            except KafkaliteError as error:
                self._log.end_snapshot(error)

    def _append_now(self, records: Sequence[Any]) -> None:
        """As long as the node does not serve yet, or does not any more."""
        try:
            self._log.append(records, self._wall_ms())
        except KafkaliteError as error:
            raise self._failed(error) from error

    def _finish_append(self) -> None:
        """What was on its way to disk when the control thread ended counts if it has arrived."""
        appending, self._appending = self._appending, None
        if appending is not None:
            self._serving().finish_metadata()
            lost = None if self._log.is_written(appending) else StorageError("it was not written")
            with suppress(StorageError):
                self._log.finish(appending, lost)

    def _failed(self, error: KafkaliteError) -> ControllerError:
        sentence = f"the metadata cannot be written: {error}"
        if self._on_failure is not None and isinstance(error, StorageError):
            self._on_failure(sentence)
        return ControllerError(codes.KAFKA_STORAGE_ERROR, sentence)

    def _facts(self, topic: TopicImage) -> Any:
        own = self.image.configs.get((TOPIC, topic.name), {})
        partitions = [(each.leader_epoch, each.directory) for each in topic.partitions]
        return topic.id, topic.is_internal, dict(self._engine_configs(own)), partitions

    def _publish_topics(self, made: Mapping[str, Any]) -> ControllerError | None:
        """Has clients see topics, whose logs were made for these facts; returns why not. Their
        configs may have changed meanwhile."""
        facts = {name: self._facts(self.image.topics[name]) for name in made}
        try:
            self._serving().publish_topics(facts)
            for name, each in facts.items():
                if each != made[name]:
                    self._set_engine_configs(name)
        except KafkaliteError as error:
            return _logs_not_made(error)
        return None

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

    def _changer(self) -> Background:
        if self._background is None:
            raise ControllerError(codes.KAFKA_STORAGE_ERROR, "the node does not serve yet")
        return self._background


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
    found = reading.read(metadata_dir)
    node_id = registration.node_id
    refuse_strangers(found, node_id, [path for path, *_ in claimed.directories])
    if not found.bootstrap and found.is_new:
        snapshots.write_bootstrap(metadata_dir, own_features(), wall_ms())
    native_log, repairs = claimed.open_metadata_log({"segment.bytes": str(limits.segment_bytes)})
    directory_id = next(
        (each[1] for each in claimed.directories if Path(each[0]) == metadata_dir), bytes(16)
    )
    log = store.MetadataLog(found, native_log, node_id, directory_id, wall_ms(), limits, warn=warn)
    controller = Controller(log, node_id, engine_configs, wall_ms, warn=warn)
    controller.begin(registration, claimed)
    notes = [f"{snapshots.FOLDER}: {sentence}" for sentence in repairs]
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
