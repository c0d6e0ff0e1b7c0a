"""The controller of a cluster of one node: every change of the metadata goes through here.

    a change ──► records ──► on disk ──► Image ──► BrokerPlane, changed topics ──► then()

Nothing here waits for a disk, which may not answer (`rust/src/net/control/metadata_append.rs`,
`log_lifecycle.rs` there): a change calls back once it is durable, in `image`, and what clients see.
Whoever changes something has the turn (`turns.py`), and judges by the image then. What cannot be is
a ControllerError with Kafka's code. Used by the control thread only, once the node serves.

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
from pathlib import Path
from typing import Any, Protocol

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
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.configs import Resource, config_records
from kafkalite.metadata.controller.features import feature_records, finalized_features
from kafkalite.metadata.controller.partitions import Assignment, count_new, grow
from kafkalite.metadata.controller.producer_ids import next_block
from kafkalite.metadata.controller.topics import (
    NewTopic,
    check_new_topic,
    count_partitions,
    creation_records,
    removal_records,
)
from kafkalite.metadata.features import own_features
from kafkalite.metadata.fold import Delta
from kafkalite.metadata.image import AlikeNames, BrokerImage, Image
from kafkalite.metadata.publisher import EngineConfigs, Publisher, TopicState
from kafkalite.metadata.turns import Turns
from kafkalite.protocol import codes, messages

Then = Callable[[ControllerError | None], None]
"""Called once a change is what clients see, or with the reason why it will never be."""


Changed = Callable[[KafkaliteError | None], None]


class Background(Protocol):
    """What changes files in the background (`kafkalite.context.Context`)."""

    def append_metadata(
        self, log: _native.Log, batches: Sequence[bytes], leader_epoch: int, callback: Changed
    ) -> None: ...
    def make_logs(self, topics: Mapping[str, TopicState], callback: Changed) -> None: ...
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
        self._publisher = Publisher(node_id, engine_configs)
        self._wall_ms = wall_ms
        self._warn = warn
        self._plane: _native.BrokerPlane | None = None
        self._background: Background | None = None
        self._turns = Turns(lambda callback: self._changer().soon(callback))
        self._appending: store.Appending | None = None
        """On its way to disk."""
        self._producer_ids = iter(range(0))
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

    def topic_states(self) -> dict[str, TopicState]:
        """The topics that `BrokerPlane` is to load."""
        return self._publisher.states(self.image, self.image.topics.values())

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
        self._publisher.on_broker_configs(watcher)

    def on_failure(self, watcher: Callable[[str], None]) -> None:
        """`watcher(sentence)` is called when the metadata cannot be written any more."""
        self._on_failure = watcher

    def check_new_topic(self, name: str, others: AlikeNames) -> None:
        """Raises ControllerError where a topic of this name cannot be made; `others` will be made
        before it."""
        check_new_topic(self.image, name, others)

    def create_topics(self, wanted: Sequence[NewTopic], then: Then) -> dict[str, bytes]:
        """Makes topics, which must have been checked, by one flush of the metadata: all of them, or
        none if the metadata cannot be written or a log not be made, of which `then` is told, never
        from within this call. Returns their ids.

        Raises ControllerError if they take too many records."""
        assignments = self._assign(count_partitions(wanted))
        topic_ids = {each.name: _native.random_uuid_bytes() for each in wanted}
        records = creation_records(wanted, topic_ids, assignments)

        def written(refusal: ControllerError | None) -> None:
            if refusal is not None:
                self._end_change(topic_ids, refusal, then)
                return
            image = self.image
            states = self._publisher.states(image, [image.topics[name] for name in topic_ids])
            self._make_logs(states, partial(made, states))

        def made(states: Mapping[str, TopicState], refusal: ControllerError | None) -> None:
            if refusal is None:
                self._end_change(topic_ids, self._publish_topics(states), then)
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
        records = removal_records(self.image, names)

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

        self._append(records, written)

    def create_partitions(self, total_counts: Mapping[str, int], then: Then) -> None:
        """Gives topics more partitions, so that each has its total, by one flush of the metadata:
        all of them, or none if a log cannot be made or the metadata not be written, of which `then`
        is told, never from within this call.

        Raises ControllerError for what cannot be, or takes too many records."""
        assignments = self._assign(count_new(self.image, total_counts))
        growth = grow(self.image, total_counts, assignments)
        states = self._publisher.states(self.image, growth.topics)

        def made(refusal: ControllerError | None) -> None:
            if refusal is None:
                # After the logs: the metadata has no record that takes a partition away.
                self._turns.in_turn((), write)
            else:
                self._end_change(states, refusal, then)

        def write() -> None:
            self._append(growth.records, written)

        def written(refusal: ControllerError | None) -> None:
            self._end_change(states, refusal or self._publish_topics(states), then)

        self._turns.begin_change(states, are_new=False)
        self._make_logs(states, made)

    def _make_logs(self, states: Mapping[str, TopicState], then: Then) -> None:
        """Has the logs made that topics lack; `then` is told, never from within this call."""

        def changed(error: KafkaliteError | None) -> None:
            then(None if error is None else _logs_not_made(error))

        try:
            self._changer().make_logs(states, changed)
        except KafkaliteError as error:
            self._changer().soon(partial(changed, error))

    def _end_change(
        self, names: Collection[str], refusal: ControllerError | None, then: Then
    ) -> None:
        self._turns.settle(names)
        then(refusal)

    def set_configs(
        self,
        changes: Mapping[Resource, Mapping[str, str | None]],
        then: Then,
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets configs of resources (type, name), None removes one, by one flush of the metadata:
        all of them, or none if it cannot be written, of which `then` is told. They must have been
        checked. A change of nothing writes nothing, and `then` is called at once.

        Raises ControllerError if they take too many records."""
        records = config_records(self.image, changes)
        if validate_only or not records:
            then(None)
        else:
            self._append(records, then)

    def next_producer_id(self) -> int | None:
        """A producer id that nobody else was given, of this node's block; None where that is used
        up. Nobody needs the turn for it."""
        return next(self._producer_ids, None)

    def allocate_producer_ids(self, then: Then) -> None:
        """Takes another block of ids, of which `then` is told, never from within this call."""
        ids, record = next_block(self.image, self.broker)

        def written(refusal: ControllerError | None) -> None:
            if refusal is None:
                self._producer_ids = iter(ids)
            then(refusal)

        self._append([record], written)

    def update_features(self, levels: Mapping[str, int], then: Then) -> None:
        """Finalises features at levels, all of them or none, of which `then` is told, never from
        within this call. That they may be so must have been checked."""

        self._append(feature_records(levels), then)

    def finalized_features(self) -> dict[str, int]:
        """Name -> level, of those that are not at level 0."""
        return finalized_features(self.image, self._log.kraft_version)

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

    def _assign(self, count: int) -> list[Assignment]:
        """Where new partitions go. Raises ControllerError."""
        try:
            directories = self._serving().topics.place(count)
        except KafkaliteError as error:
            raise _logs_not_made(error) from error
        return [Assignment((self._node_id,), (each,)) for each in directories]

    def _append(self, records: Sequence[Any], then: Then) -> None:
        """Has records written by who has the turn, and keeps that until they are in `image`, or
        never will be; then `then` is told."""
        log = self._log
        appending = log.prepare(records, self._wall_ms())

        def written(error: KafkaliteError | None) -> None:
            self._appending = None
            self._turns.give_back()
            try:
                delta = log.finish(appending, error)
            except KafkaliteError as failure:
                then(self._failed(failure))
                return
            self._write_due_snapshot()
            self._publish(delta)
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
            self._serving().logs.finish_metadata()
            lost = None if self._log.is_written(appending) else StorageError("it was not written")
            with suppress(StorageError):
                self._log.finish(appending, lost)

    def _failed(self, error: KafkaliteError) -> ControllerError:
        sentence = f"the metadata cannot be written: {error}"
        if self._on_failure is not None and isinstance(error, StorageError):
            self._on_failure(sentence)
        return ControllerError(codes.KAFKA_STORAGE_ERROR, sentence)

    def _publish(self, delta: Delta) -> None:
        """Has configurations and features hold that have changed."""
        topics = self._serving().topics
        self._publisher.publish_configs(topics, delta)
        if delta.are_features_changed:
            self._publish_features()

    def _publish_topics(self, made: Mapping[str, TopicState]) -> ControllerError | None:
        """Has clients see topics, whose logs were made for these states; returns why not."""
        try:
            self._publisher.publish_topics(self._serving().topics, self.image, made)
        except KafkaliteError as error:
            return _logs_not_made(error)
        return None

    def _publish_features(self) -> None:
        topics = self._serving().topics
        self._publisher.publish_features(topics, self.image, self.finalized_features())

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


def _logs_not_made(error: KafkaliteError) -> ControllerError:
    return ControllerError(codes.KAFKA_STORAGE_ERROR, f"the logs cannot be made: {error}")
