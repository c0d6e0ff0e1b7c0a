"""What a handler may use: the plane, the configuration, the log, topics, and time."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite import _native
from kafkalite.config import Config, EffectiveConfig
from kafkalite.disks import Disks
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.metadata.controller import Controller, ControllerError, NewTopic
from kafkalite.metadata.image import OFFSETS_TOPIC, Image
from kafkalite.protocol import codes
from kafkalite.stderr_log import Log
from kafkalite.timers import Timers

if TYPE_CHECKING:
    from kafkalite.groups.coordinator import GroupCoordinator


T = TypeVar("T")

STOP_NUMBER = 0
"""Wakes the control thread for the stop (`BrokerPlane.wake`); others are higher."""


class Context:
    """Used by the control thread only."""

    def __init__(
        self,
        plane: _native.BrokerPlane,
        config: Config,
        log: Log,
        controller: Controller,
    ) -> None:
        self.plane = plane
        self.controller = controller
        self.config = config
        self.log = log
        self.node_id: int = config["node.id"]
        self.cluster_id: str = plane.cluster_id
        self.timers = Timers()
        self.disks = Disks(self)
        self._asked: dict[int, Callable[[int], None]] = {}
        """By its number, what takes the answer of each log that was asked something."""
        self._last_number = STOP_NUMBER
        self.put_off: deque[Callable[[], None]] = deque()
        """What is to be called before another request is looked at (`soon`)."""
        self._stop_callbacks: dict[Callable[[], None], None] = {}
        """Called in this order."""
        self._is_stopping = False
        self._groups: GroupCoordinator | None = None
        controller.change_files_by(self)

    def now_ms(self) -> int:
        """Monotonic milliseconds, the clock of `timers`."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for timestamps."""
        return time.time_ns() // 1_000_000

    @property
    def groups(self) -> "GroupCoordinator":
        """The group coordinator, which begins to load its groups when it is first asked for."""
        if self._groups is None:
            from kafkalite.groups.coordinator import GroupCoordinator

            self._groups = GroupCoordinator(self)
            self._groups.start()
        return self._groups

    def load_groups(self) -> None:
        """Has the coordinator load what the last process left, if there is anything."""
        if OFFSETS_TOPIC in self.image.topics:
            _ = self.groups

    def topic_counts(self) -> tuple[int, int]:
        """Topics whose logs have been made, and partitions of all of them. Any thread may ask."""
        is_being_made = self.controller.turns.is_being_made
        topics = [each for each in self.image.topics.values() if not is_being_made(each.name)]
        return len(topics), sum(len(topic.partitions) for topic in topics)

    def group_states(self) -> Mapping[str, int]:
        """How many groups are in each state, of those that are loaded. Any thread may ask."""
        return {} if self._groups is None else self._groups.count_by_state()

    def on_topic_deleted(self, name: str) -> None:
        """A topic is gone: groups forget what they have read of it."""
        if name == OFFSETS_TOPIC and self._groups is not None:
            self._groups.drop_topic()
        elif name != OFFSETS_TOPIC and OFFSETS_TOPIC in self.image.topics:
            self.groups.forget_topic(name)

    def advertised(self, listener: int) -> tuple[str, int]:
        """Host and port that clients of a listener (`Request.listener`) are told."""
        endpoint = self.controller.broker.endpoints[listener]
        return endpoint.host, endpoint.port

    def append(
        self,
        topic: str,
        partition: int,
        records: bytes,
        callback: Callable[[KafkaliteError | None, int], None],
    ) -> None:
        """Has batches of a coordinator appended, and does not wait for it: `callback(None, offset)`
        once they are committed, with the offset of the first record, or `callback(error, -1)` if
        they are refused or lost. Never from within this call.

        Raises KafkaliteError if there is no such partition.
        """
        ask = partial(self.plane.append, topic, partition, records)
        self._ask(ask, self.plane.appended, -1, callback)

    def delete_records(
        self,
        topic: str,
        partition: int,
        offset: int,
        callback: Callable[[KafkaliteError | None, int], None],
    ) -> None:
        """Has the records of a partition below an offset go, as `append`: `callback(None, offset)`
        with the log start offset."""
        ask = partial(self.plane.delete_records, topic, partition, offset)
        self._ask(ask, self.plane.records_deleted, -1, callback)

    def describe_producers(
        self,
        topic: str,
        partition: int,
        callback: Callable[[KafkaliteError | None, list[_native.ProducerEntry]], None],
    ) -> None:
        """Asks a partition for its producers, as `append`."""
        ask = partial(self.plane.describe_producers, topic, partition)
        nobody: list[_native.ProducerEntry] = []
        self._ask(ask, self.plane.producers_described, nobody, callback)

    def make_logs(
        self, topics: Mapping[str, Any], callback: Callable[[KafkaliteError | None], None]
    ) -> None:
        """Has the logs made that topics lack, as `append`: all of them, or none."""
        self._change(partial(self.plane.make_logs, topics), callback)

    def delete_logs(
        self, names: Sequence[str], callback: Callable[[KafkaliteError | None], None]
    ) -> None:
        """Takes topics out of sight at once, and has their logs deleted, as `append`. A log
        directory in which that fails is offline then."""
        self._change(partial(self.plane.delete_topics, names), callback)

    def append_metadata(
        self,
        log: _native.Log,
        batches: Sequence[bytes],
        leader_epoch: int,
        callback: Callable[[KafkaliteError | None], None],
    ) -> None:
        """Has batches appended to the log of the metadata and made durable, as `append`."""
        self._change(partial(self.plane.append_metadata, log, batches, leader_epoch), callback)

    def in_background(
        self, work: Callable[[], None], callback: Callable[[KafkaliteError | None], None]
    ) -> None:
        """Has `work()` done by a thread of its own; then as `append`. For what is rare. Raises
        StorageError where no thread can be started."""
        outcome: list[KafkaliteError] = []

        def begin(number: int) -> None:
            def run() -> None:
                try:
                    work()
                except KafkaliteError as error:
                    outcome.append(error)
                except Exception:  # noqa: BLE001 - who waits for it must hear of that, too
                    import traceback

                    sentence = f"a defect:\n{traceback.format_exc()}"
                    outcome.append(KafkaliteError(sentence))
                self.plane.wake(number)

            try:
                threading.Thread(target=run, name="background", daemon=True).start()
            except RuntimeError as error:
                raise StorageError(str(error)) from error

        def end(_number: int) -> None:
            if outcome:
                raise outcome[0]

        def answered(error: KafkaliteError | None, _nothing: None) -> None:
            callback(error)

        self._ask(begin, end, None, answered)

    def _change(
        self, ask: Callable[[int], None], callback: Callable[[KafkaliteError | None], None]
    ) -> None:
        def answered(error: KafkaliteError | None, _nothing: None) -> None:
            callback(error)

        self._ask(ask, self.plane.logs_changed, None, answered)

    def soon(self, callback: Callable[[], None]) -> None:
        """`callback()` before another request is looked at, never from within this call."""
        self.put_off.append(callback)

    def _ask(
        self,
        ask: Callable[[int], None],
        answer_of: Callable[[int], T],
        nothing: T,
        callback: Callable[[KafkaliteError | None, T], None],
    ) -> None:
        def answered(number: int) -> None:
            try:
                answer = answer_of(number)
            except KafkaliteError as error:
                callback(error, nothing)
            else:
                callback(None, answer)

        number = self._last_number + 1
        ask(number)
        self._last_number = number
        self._asked[number] = answered

    def on_stop(self, callback: Callable[[], None]) -> None:
        """`callback()` when the broker begins to stop, at once if it has begun: requests that wait
        are to be answered."""
        if self._is_stopping:
            callback()
        else:
            self._stop_callbacks[callback] = None

    def forget_on_stop(self, callback: Callable[[], None]) -> None:
        """Takes back what `on_stop` was given. Nothing happens if the stop has begun."""
        self._stop_callbacks.pop(callback, None)

    def begin_stop(self) -> None:
        """Has the callbacks of `on_stop` called by the control thread. Any thread may call it."""
        self.plane.wake(STOP_NUMBER)

    def woken(self, number: int) -> None:
        """A number that `plane.wait` gave: calls what it stands for."""
        if number == STOP_NUMBER:
            self._is_stopping = True
            callbacks, self._stop_callbacks = self._stop_callbacks, {}
            for stop in callbacks:
                stop()
            return
        self._asked.pop(number)(number)

    @property
    def image(self) -> Image:
        """All metadata as it is now."""
        return self.controller.image

    def log_refusal(self, topic: str, partition: int) -> int:
        """Why the log of a partition cannot be asked for anything; NONE if it can
        (`ReplicaManager.getPartitionOrError`)."""
        log = self.plane.log(topic, partition)
        if log is not None:
            return codes.KAFKA_STORAGE_ERROR if log.is_offline else codes.NONE
        known = self.image.topics.get(topic)
        if self.controller.turns.is_being_made(topic):
            return codes.UNKNOWN_TOPIC_OR_PARTITION  # it is not there yet
        if known is None or not 0 <= partition < len(known.partitions):
            return codes.UNKNOWN_TOPIC_OR_PARTITION
        return codes.KAFKA_STORAGE_ERROR  # its log directory is offline since the start

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether a partition is there, and its log directory is not, be it since the start."""
        return self.log_refusal(topic, partition) == codes.KAFKA_STORAGE_ERROR

    def check_topic_configs(self, own: Mapping[str, str]) -> None:
        """Raises ControllerError where a topic cannot have these configs."""
        from kafkalite.config.changes import ChangeRefusedError, check_topic

        try:
            check_topic(self.config, own)
        except ChangeRefusedError as refusal:
            raise ControllerError(refusal.code, str(refusal)) from refusal

    def describe_topic_configs(self, own: Mapping[str, str]) -> list[EffectiveConfig]:
        """Every config of a topic with `own` set, as CreateTopics answers them."""
        return self.config.topic_configs(own, as_written=True)

    def create_topics(
        self, wanted: Sequence[NewTopic], then: Callable[[ControllerError | None], None]
    ) -> dict[str, bytes]:
        """Has topics made that were checked, all of them or none (`Controller.create_topics`)."""

        def made(error: ControllerError | None) -> None:
            for each in () if error else wanted:
                self.log.info(f"created topic {each.name} with {each.partition_count} partition(s)")
            then(error)

        return self.controller.create_topics(wanted, made)
