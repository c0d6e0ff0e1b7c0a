"""Writes the metadata where one node is the whole quorum: what is on its disk is committed.

    start ──► read, refuse what cannot be served ──► lead in the next epoch ──► append_now
    submit ──► prepare ──► the log's directory appends, flushes ──► finish ──► MetadataDelta
    stop ──► append_now ──► the log is closed                      (`activation.py`: which records)

While the node serves nothing here waits for a disk, which may not answer: `submit` is awaited
(`rust/src/net/control/metadata_append.rs`). A quorum of several nodes is another `Writer` with the
same methods.

`start` also makes the other parts of the metadata, for `broker.py`: publisher, write lock,
controller, cluster (`Metadata`).

Kafka: `KafkaRaftClient` with one voter, `QuorumController.appendWriteEvent`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from kafkalite import _native
from kafkalite.calls import Background, LogCalls
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.metadata import reading, snapshots, store
from kafkalite.metadata.activation import (
    Registration,
    lost_partitions,
    refuse_strangers,
    start_records,
    stop_records,
)
from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.active import Controller
from kafkalite.metadata.features import own_features
from kafkalite.metadata.fold import MetadataDelta
from kafkalite.metadata.image import Image
from kafkalite.metadata.publisher import EngineConfigs, Publisher
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Tasks
from kafkalite.timers import Timers

T = TypeVar("T")


class ControlThread(Protocol):
    """The calls and tasks of the control thread (`kafkalite.context.Context`)."""

    @property
    def logs(self) -> LogCalls: ...
    @property
    def background(self) -> Background: ...
    @property
    def tasks(self) -> Tasks: ...


class SoloWriter:
    """Appends records to the log of the metadata, and keeps the image."""

    def __init__(self, log: store.MetadataLog, node_id: int, wall_ms: Callable[[], int]) -> None:
        self.node_id = node_id
        self._log = log
        self._wall_ms = wall_ms
        self._thread: ControlThread | None = None
        self._appending: store.Appending | None = None
        """On its way to disk."""
        self._on_failure: Callable[[str], None] | None = None

    @property
    def image(self) -> Image:
        """All metadata as it is now."""
        return self._log.image

    @property
    def quorum(self) -> store.MetadataLog:
        """The log, for DescribeQuorum."""
        return self._log

    def on_failure(self, watcher: Callable[[str], None]) -> None:
        """`watcher(sentence)` is called when the metadata cannot be written any more."""
        self._on_failure = watcher

    def write_by(self, thread: ControlThread) -> None:
        """From now on records can be submitted."""
        self._thread = thread

    async def submit(self, records: Sequence[Any]) -> MetadataDelta:
        """Has records appended and made durable, all of them or none; returns how they change the
        image. Raises ControllerError if they cannot be written. One at a time, and not in a task
        that has a time limit: what has begun goes on."""
        if self._appending is not None:
            raise RuntimeError("two changes of the metadata at a time")
        if self._thread is None:
            raise ControllerError(codes.KAFKA_STORAGE_ERROR, "the node does not serve yet")
        log, error = self._log, None
        appending = self._appending = log.prepare(records, self._wall_ms())
        try:
            await self._thread.logs.append_metadata(
                log.native_log, appending.batches, log.leader_epoch
            )
        except KafkaliteError as failure:
            error = failure
        self._appending = None
        delta = self._finish(appending, error)
        snapshot = log.due_snapshot(self._wall_ms())
        if snapshot is not None:
            self._thread.tasks.start(self._write_snapshot(self._thread, snapshot))
        return delta

    async def _write_snapshot(self, thread: ControlThread, snapshot: snapshots.Snapshot) -> None:
        error: KafkaliteError | None = None
        try:
            await thread.background.run(snapshot.write)
        except KafkaliteError as failure:
            error = failure
        self._log.end_snapshot(error)

    def append_now(self, records: Sequence[Any]) -> MetadataDelta:
        """Does what `submit` does, and waits for the disk: as long as the node does not serve yet,
        or does not any more."""
        try:
            return self._log.append(records, self._wall_ms())
        except KafkaliteError as error:
            raise self._failed(error) from error

    def stop(self, core: _native.BrokerCore) -> None:
        """The clean stop, when no client is served any more: no partition has a leader, the broker
        is fenced. Raises ControllerError where that cannot be written, StorageError where the log
        cannot be closed."""
        appending, self._appending = self._appending, None
        if appending is not None:
            # What was on its way to disk when the control thread ended counts if it has arrived.
            core.logs.finish_metadata()
            lost = None if self._log.is_written(appending) else StorageError("it was not written")
            with suppress(StorageError):
                self._log.finish(appending, lost)
        self.append_now(stop_records(self.image, self.node_id))
        self._log.close(self._wall_ms())

    def _finish(self, appending: store.Appending, error: KafkaliteError | None) -> MetadataDelta:
        try:
            return self._log.finish(appending, error)
        except KafkaliteError as failure:
            raise self._failed(failure) from None

    def _failed(self, error: KafkaliteError) -> ControllerError:
        sentence = f"the metadata cannot be written: {error}"
        if self._on_failure is not None and isinstance(error, StorageError):
            self._on_failure(sentence)
        return ControllerError(codes.KAFKA_STORAGE_ERROR, sentence)


class Metadata(NamedTuple):
    """The parts by which a node reads, changes and publishes the metadata."""

    writer: SoloWriter
    publisher: Publisher
    lock: WriteLock
    controller: Controller
    cluster: Cluster

    @property
    def engine(self) -> Controller:
        """Has changes written: this node does."""
        return self.controller

    @property
    def image(self) -> Image:
        """All metadata as it is now."""
        return self.writer.image

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self.cluster.broker.epoch

    @property
    def timers(self) -> Timers:
        """The timers of the control thread: nothing is timed before it runs."""
        return Timers()

    def while_loading(self, load: Callable[[], T], stop: Callable[[], None]) -> T:  # noqa: ARG002
        """Calls `load()`: nobody waits for this node meanwhile."""
        return load()

    def unfence(self) -> None:
        """Does nothing: the records of the start have done it."""

    def leave(self) -> None:
        """Does nothing: there is nobody to lead in this node's place."""

    def leave_at_once(self) -> None:
        """Does nothing, as `leave`."""

    def on_failure(self, watcher: Callable[[str], None]) -> None:
        """`watcher(sentence)` is called when the metadata cannot be written any more."""
        self.writer.on_failure(watcher)

    def stop(self, core: _native.BrokerCore) -> None:
        """The end of a clean stop (`SoloWriter.stop`)."""
        self.writer.stop(core)

    def serve(self, core: _native.BrokerCore, listener_names: Sequence[str]) -> None:
        """From now on changes are published to `core`, which has loaded the topics and has these
        listeners. Where a partition's log was found in another directory, the metadata follows."""
        moved = [
            messages.PartitionChangeRecord(
                topic_id=topic_id, partition_id=index, directories=[directory]
            )
            for topic_id, index, directory in core.moved
        ]
        if moved:
            self.writer.append_now(moved)
        self.publisher.serve(
            core.topics,
            self.writer.image,
            node_id=self.cluster.node_id,
            kraft_version=self.writer.quorum.kraft_version,
            listener_names=listener_names,
        )

    def change_by(self, thread: ControlThread) -> None:
        """From now on there can be changes."""
        self.writer.write_by(thread)
        self.publisher.change_logs_by(thread.logs)


def start(
    claimed: _native.ClaimedDirectories,
    metadata_dir: Path,
    registration: Registration,
    engine_configs: EngineConfigs,
    wall_ms: Callable[[], int],
    limits: store.MetadataLogLimits = store.KAFKAS_LIMITS,
    *,
    warn: Callable[[str], None],
) -> tuple[Metadata, list[str]]:
    """Reads the metadata, refuses what cannot be served, registers the broker and has it lead.
    Returns also what was repaired or is lost, a sentence each. `warn(sentence)` is told, as long as
    the node lives, what goes wrong without a change being lost.

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
    writer = SoloWriter(log, node_id, wall_ms)
    writer.append_now(
        start_records(log.image, log.bootstrap, log.end_offset, registration, claimed)
    )
    notes = [f"{snapshots.FOLDER}: {sentence}" for sentence in repairs]
    publisher, lock = Publisher(engine_configs), WriteLock()
    controller = Controller(node_id, writer, publisher, lock)
    metadata = Metadata(writer, publisher, lock, controller, Cluster(node_id, writer))
    return metadata, [*notes, *lost_partitions(writer.image)]
