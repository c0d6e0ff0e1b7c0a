"""The controller over a log that is not there: what it asks of the log, and how often."""

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.context import Context, Log
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.metadata.controller import (
    RECORDS_PER_OPERATION_MAX,
    Controller,
    ControllerError,
    NewTopic,
)
from kafkalite.metadata.image import GROUP, TOPIC, AlikeNames, Fold
from kafkalite.protocol import codes, messages

NODE = 1
POLICY_VIOLATION = 44
STORAGE_ERROR = 56

Changed = Callable[[KafkaliteError | None], None]


class CountingLog:
    """Adds up what is appended, and keeps how many records each append had."""

    def __init__(self) -> None:
        self._fold = Fold()
        self.appends: list[int] = []
        self.kraft_version = 0
        self.image = self._fold.image(1, 0, 0)

    def append(self, appended: Sequence[Any], _now_ms: int) -> None:
        self.appends.append(len(appended))
        for message in appended:
            self._fold.replay(message)
        self.image = self._fold.image(1, 0, 0)


class SlowLogs:
    """Log directories that change logs when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[Changed] = []
        self.obeyed: dict[str, Any] = {}
        """What was published of each topic."""
        self.configs: dict[str, Mapping[str, str]] = {}
        """Those that logs were given later."""
        self._soon: list[Callable[[], None]] = []

    def make_logs(self, _topics: Mapping[str, Any], callback: Changed) -> None:
        self.under_way.append(callback)

    def delete_logs(self, _names: Sequence[str], callback: Changed) -> None:
        self.under_way.append(callback)

    def soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_soon(self) -> None:
        """What the control thread does between two requests."""
        while self._soon:
            self._soon.pop(0)()


def controller_of(log: Any, topic_count: int, logs: SlowLogs | None = None) -> Controller:
    """With the topics `t-0` and so on, of one partition."""
    log.append(
        [
            message
            for number in range(topic_count)
            for message in (
                messages.TopicRecord(name=f"t-{number}", topic_id=number.to_bytes(16, "big")),
                messages.PartitionRecord(
                    partition_id=0,
                    topic_id=number.to_bytes(16, "big"),
                    replicas=[NODE],
                    isr=[NODE],
                    leader=NODE,
                    directories=[bytes([9]) * 16],
                ),
            )
        ],
        0,
    )
    log.appends.clear()
    controller = Controller(log, NODE, lambda own: own, lambda: 0, warn=pytest.fail)
    logs = logs or SlowLogs()
    plane: Any = SimpleNamespace(
        moved=[],
        set_features=lambda *_: None,
        set_topic_configs=logs.configs.__setitem__,
        place=lambda count: [bytes([9]) * 16] * count,
        publish_topics=logs.obeyed.update,
    )
    controller.serve(plane)
    controller.change_logs_by(logs)
    return controller


def test_configs_of_many_resources_are_one_append() -> None:
    """Each resource was an append and a flush of its own."""
    log = CountingLog()
    controller = controller_of(log, 500)
    wanted: dict[tuple[int, str], dict[str, str | None]] = {
        (TOPIC, f"t-{number}"): {"flush.ms": "5", "retention.ms": "6"} for number in range(500)
    }
    controller.set_configs(wanted | {(GROUP, "g"): {"consumer.session.timeout.ms": "50000"}})
    assert log.appends == [1001]
    controller.set_configs({**wanted, (TOPIC, "t-7"): {"flush.ms": None, "retention.ms": "6"}})
    assert log.appends == [1001, 1]
    controller.set_configs(wanted, validate_only=True)
    assert log.appends == [1001, 1]
    assert log.image.configs[TOPIC, "t-7"] == {"retention.ms": "6"}


def test_more_topics_than_fit_in_one_change_are_not_deleted() -> None:
    log = CountingLog()
    controller = controller_of(log, RECORDS_PER_OPERATION_MAX + 1)
    names = list(log.image.topics)
    with pytest.raises(ControllerError, match="excessively large") as refused:
        controller.delete_topics(names, lambda: None)
    assert refused.value.code == POLICY_VIOLATION
    assert log.appends == []
    controller.delete_topics(names[1:], lambda: None)
    assert (log.appends, list(log.image.topics)) == ([RECORDS_PER_OPERATION_MAX], names[:1])


def test_features_change_together_by_one_append() -> None:
    """Each was an append of its own: a kill between two left a part of the request."""
    log = CountingLog()
    controller = controller_of(log, 1)
    controller.update_features({"group.version": 1, "transaction.version": 2})
    assert log.appends == [2]


def test_who_waits_for_a_topic_goes_on_when_its_logs_are_made() -> None:
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    told: list[Any] = []
    controller.create_topics([NewTopic("new", 1, {}), NewTopic("other", 1, {})], told.append)
    controller.create_partitions({"t-0": 3}, told.append)
    controller.when_settled(["new", "t-0"], lambda: told.append("both"))
    controller.when_settled(["other"], lambda: told.append("other"))
    controller.when_settled(["unknown"], lambda: told.append("unknown"))
    assert told == ["unknown"]
    # Nobody else gets the name meanwhile; a log is there before its partition is in the metadata.
    with pytest.raises(ControllerError, match="already exists"):
        controller.check_new_topic("new", AlikeNames())
    assert len(log.image.topics["t-0"].partitions) == 1
    assert (list(logs.obeyed), log.appends) == ([], [4])
    creating, growing = logs.under_way
    creating(None)
    assert told == ["unknown", None]
    logs.call_soon()
    assert told == ["unknown", None, "other"]
    assert controller.is_changing("t-0") and not controller.is_changing("new")
    growing(None)
    logs.call_soon()
    assert told == ["unknown", None, "other", None, "both"]
    assert list(logs.obeyed) == ["new", "other", "t-0"]
    assert (len(log.image.topics["t-0"].partitions), log.appends) == (3, [4, 2])


def test_topics_whose_logs_cannot_be_made_are_gone_again() -> None:
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    told: list[ControllerError | None] = []
    controller.create_topics([NewTopic("new", 2, {"flush.ms": "5"})], told.append)
    controller.create_partitions({"t-0": 3}, told.append)
    for changed in logs.under_way:
        changed(StorageError("no room"))
    assert [each and each.code for each in told] == [STORAGE_ERROR, STORAGE_ERROR]
    assert list(log.image.topics) == ["t-0"]
    assert len(log.image.topics["t-0"].partitions) == 1
    assert not logs.obeyed
    assert not controller.is_changing("new") and not controller.is_changing("t-0")


def test_who_has_given_up_waiting_for_a_topic_is_forgotten() -> None:
    """As long as a directory hung, each that was answered late stayed behind, with its request."""
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 0, logs)
    controller.create_topics([NewTopic("new", 1, {}), NewTopic("other", 1, {})], lambda _: None)
    told: list[str] = []

    class Waiting:
        def __init__(self, name: str) -> None:
            self._name = name

        def tell(self) -> None:
            told.append(self._name)

    left, stays = Waiting("left"), Waiting("stays")
    for each in (left, stays):
        controller.when_settled(["new"], each.tell)
    controller.forget_waiter(left.tell)
    controller.forget_waiter(left.tell)
    gone = weakref.ref(left)
    del left, each
    gc.collect()
    assert gone() is None
    logs.under_way.pop()(None)
    controller.forget_waiter(stays.tell)
    logs.call_soon()
    assert told == ["stays"]


def test_logs_that_were_made_and_cannot_be_served_leave_no_topic_changing() -> None:
    """Only a refusal of the metadata was looked for: the topic was changing until the end."""
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    told: list[ControllerError | None] = []

    def fail(_facts: object) -> None:
        raise StorageError("no room")

    controller._plane.publish_topics = fail  # type: ignore[union-attr, method-assign]
    controller.create_topics([NewTopic("new", 1, {})], told.append)
    controller.create_partitions({"t-0": 2}, told.append)
    assert controller.is_being_made("new") and not controller.is_being_made("t-0")
    for changed in logs.under_way:
        changed(None)
    assert [each and each.code for each in told] == [STORAGE_ERROR, STORAGE_ERROR]
    assert not controller.is_changing("new") and not controller.is_changing("t-0")
    assert not controller.is_being_made("new")


def test_configs_that_are_set_while_logs_are_made_hold_for_them() -> None:
    """A log is made with the configs that the topic had when that began."""
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 0, logs)
    controller.create_topics([NewTopic("new", 1, {}), NewTopic("other", 1, {})], lambda _: None)
    controller.set_configs({(TOPIC, "new"): {"flush.ms": "5"}})
    logs.configs.clear()
    logs.under_way.pop()(None)
    assert logs.configs == {"new": {"flush.ms": "5"}}


def test_a_partition_that_is_offline_is_not_called_unknown_while_its_topic_grows() -> None:
    """It was not told from one whose log is not made yet."""
    log = CountingLog()
    controller = controller_of(log, 1)

    def nothing(*_asked: object) -> None:
        pass

    plane: Any = SimpleNamespace(
        cluster_id="cluster", log=nothing, make_logs=nothing, logs_changed=nothing
    )
    config: Any = {"node.id": NODE}
    context = Context(plane, config, Log("error"), controller)
    controller.create_topics([NewTopic("new", 1, {})], lambda _: None)
    controller.create_partitions({"t-0": 2}, lambda _: None)
    assert context.log_refusal("t-0", 0) == codes.KAFKA_STORAGE_ERROR
    assert context.log_refusal("t-0", 1) == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert context.log_refusal("new", 0) == codes.UNKNOWN_TOPIC_OR_PARTITION
