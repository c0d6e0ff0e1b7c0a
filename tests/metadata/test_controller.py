"""The controller over a log that is not there: what it asks of the log, and how often."""

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.context import Context
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.metadata.controller import RECORDS_PER_OPERATION_MAX, ControllerError
from kafkalite.metadata.controller.active import Controller
from kafkalite.metadata.controller.topics import NewTopic
from kafkalite.metadata.fold import Delta, Fold
from kafkalite.metadata.image import GROUP, TOPIC, AlikeNames
from kafkalite.protocol import codes, messages
from kafkalite.stderr_log import Log

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
        self.leader_epoch = 1
        self.native_log = None
        self.image = self._fold.take_delta(1, 0, 0).image

    def append(self, appended: Sequence[Any], _now_ms: int) -> None:
        self.finish(self.prepare(appended, 0), None)

    def prepare(self, appended: Sequence[Any], _now_ms: int) -> Any:
        self.appends.append(len(appended))
        return SimpleNamespace(messages=appended, batches=[])

    def finish(self, appending: Any, error: KafkaliteError | None) -> Delta:
        if error is not None:
            raise error
        for message in appending.messages:
            self._fold.replay(message)
        delta = self._fold.take_delta(1, 0, 0)
        self.image = delta.image
        return delta

    def due_snapshot(self, _now_ms: int) -> None:
        pass


class SlowLogs:
    """Log directories that change logs when the test says so. The metadata is written between two
    requests, or also when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[Changed] = []
        self.writing: list[Changed] | None = None
        self.obeyed: dict[str, Any] = {}
        """What was published of each topic."""
        self.configs: dict[str, Mapping[str, str]] = {}
        """Those that logs were given later."""
        self._soon: list[Callable[[], None]] = []

    def append_metadata(
        self, _log: object, _batches: object, _leader_epoch: int, callback: Changed
    ) -> None:
        if self.writing is None:
            self.soon(partial(callback, None))
        else:
            self.writing.append(callback)

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
    log.append([messages.RegisterBrokerRecord(broker_id=NODE)], 0)
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
    topics = SimpleNamespace(
        set_features=lambda *_: None,
        set_configs=logs.configs.__setitem__,
        place=lambda count: [bytes([9]) * 16] * count,
        publish=logs.obeyed.update,
    )
    plane: Any = SimpleNamespace(moved=[], topics=topics)
    controller.serve(plane)
    controller.change_files_by(logs)  # type: ignore[arg-type]
    return controller


def test_configs_of_many_resources_are_one_append() -> None:
    """Each resource was an append and a flush of its own."""
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 500, logs)
    told: list[ControllerError | None] = []
    wanted: dict[tuple[int, str], dict[str, str | None]] = {
        (TOPIC, f"t-{number}"): {"flush.ms": "5", "retention.ms": "6"} for number in range(500)
    }
    of_group = {(GROUP, "g"): {"consumer.session.timeout.ms": "50000"}}
    controller.set_configs(wanted | of_group, told.append)
    assert log.appends == [1001] and not told
    logs.call_soon()
    other = {**wanted, (TOPIC, "t-7"): {"flush.ms": None, "retention.ms": "6"}}
    controller.set_configs(other, told.append)
    logs.call_soon()
    assert log.appends == [1001, 1]
    controller.set_configs(wanted, told.append, validate_only=True)
    assert log.appends == [1001, 1]
    assert told == [None] * 3
    assert log.image.configs[TOPIC, "t-7"] == {"retention.ms": "6"}


def test_more_topics_than_fit_in_one_change_are_not_deleted() -> None:
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, RECORDS_PER_OPERATION_MAX + 1, logs)
    told: list[ControllerError | None] = []
    names = list(log.image.topics)
    with pytest.raises(ControllerError, match="excessively large") as refused:
        controller.delete_topics(names, told.append, pytest.fail)
    assert refused.value.code == POLICY_VIOLATION
    assert log.appends == []
    controller.delete_topics(names[1:], told.append, lambda: None)
    logs.call_soon()
    assert told == [None]
    assert (log.appends, list(log.image.topics)) == ([RECORDS_PER_OPERATION_MAX], names[:1])


def test_features_change_together_by_one_append() -> None:
    """Each was an append of its own: a kill between two left a part of the request."""
    log = CountingLog()
    controller = controller_of(log, 1)
    controller.update_features({"group.version": 1, "transaction.version": 2}, lambda _: None)
    assert log.appends == [2]


def test_who_waits_for_a_topic_goes_on_when_its_logs_are_made() -> None:
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    told: list[Any] = []
    turns = controller.turns
    controller.create_topics([NewTopic("new", 1, {}), NewTopic("other", 1, {})], told.append)
    turns.when_settled(["new", "t-0"], lambda: told.append("both"))
    logs.call_soon()
    controller.create_partitions({"t-0": 3}, told.append)
    turns.when_settled(["other"], lambda: told.append("other"))
    turns.when_settled(["unknown"], lambda: told.append("unknown"))
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
    assert turns.is_changing("t-0") and not turns.is_changing("new")
    growing(None)
    assert len(log.image.topics["t-0"].partitions) == 1
    logs.call_soon()
    assert told == ["unknown", None, "other", None, "both"]
    assert list(logs.obeyed) == ["new", "other", "t-0"]
    assert (len(log.image.topics["t-0"].partitions), log.appends) == (3, [4, 2])


def test_topics_whose_logs_cannot_be_made_are_gone_again() -> None:
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    told: list[ControllerError | None] = []
    controller.create_topics([NewTopic("new", 2, {"flush.ms": "5"})], told.append)
    logs.call_soon()
    controller.create_partitions({"t-0": 3}, told.append)
    for changed in logs.under_way:
        changed(StorageError("no room"))
    logs.call_soon()
    assert [each and each.code for each in told] == [STORAGE_ERROR, STORAGE_ERROR]
    assert list(log.image.topics) == ["t-0"]
    assert len(log.image.topics["t-0"].partitions) == 1
    assert not logs.obeyed
    turns = controller.turns
    assert not turns.is_changing("new") and not turns.is_changing("t-0")


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
        controller.turns.when_settled(["new"], each.tell)
    controller.turns.forget(left.tell)
    controller.turns.forget(left.tell)
    gone = weakref.ref(left)
    del left, each
    gc.collect()
    assert gone() is None
    logs.call_soon()
    logs.under_way.pop()(None)
    controller.turns.forget(stays.tell)
    logs.call_soon()
    assert told == ["stays"]


def test_logs_that_were_made_and_cannot_be_served_leave_no_topic_changing() -> None:
    """Only a refusal of the metadata was looked for: the topic was changing until the end."""
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    told: list[ControllerError | None] = []

    def fail(_facts: object) -> None:
        raise StorageError("no room")

    controller._plane.topics.publish = fail  # type: ignore[union-attr, method-assign]
    controller.create_topics([NewTopic("new", 1, {})], told.append)
    logs.call_soon()
    controller.create_partitions({"t-0": 2}, told.append)
    turns = controller.turns
    assert turns.is_being_made("new") and not turns.is_being_made("t-0")
    for changed in logs.under_way:
        changed(None)
    logs.call_soon()
    assert [each and each.code for each in told] == [STORAGE_ERROR, STORAGE_ERROR]
    assert not turns.is_changing("new") and not turns.is_changing("t-0")
    assert not turns.is_being_made("new")


def test_configs_that_are_set_while_logs_are_made_hold_for_them() -> None:
    """A log is made with the configs that the topic had when that began."""
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 0, logs)
    controller.create_topics([NewTopic("new", 1, {}), NewTopic("other", 1, {})], lambda _: None)
    logs.call_soon()
    controller.set_configs({(TOPIC, "new"): {"flush.ms": "5"}}, lambda _: None)
    logs.call_soon()
    logs.configs.clear()
    logs.under_way.pop()(None)
    assert logs.configs == {"new": {"flush.ms": "5"}}


def test_a_partition_that_is_offline_is_not_called_unknown_while_its_topic_grows() -> None:
    """It was not told from one whose log is not made yet."""
    log = CountingLog()
    controller = controller_of(log, 1)

    def nothing(*_asked: object) -> None:
        pass

    core_logs = SimpleNamespace(append_metadata=nothing, find=nothing, make=nothing, answer=nothing)
    requests = SimpleNamespace(wake=nothing)
    plane: Any = SimpleNamespace(cluster_id="cluster", logs=core_logs, requests=requests)
    config: Any = {"node.id": NODE}
    context = Context(plane, config, Log("error"), controller)
    controller.create_partitions({"t-0": 2}, lambda _: None)
    controller.create_topics([NewTopic("new", 1, {})], lambda _: None)
    assert context.log_refusal("t-0", 0) == codes.KAFKA_STORAGE_ERROR
    assert context.log_refusal("t-0", 1) == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert context.log_refusal("new", 0) == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_changes_are_judged_one_after_the_other_each_by_what_those_before_it_left() -> None:
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    turns = controller.turns
    logs.writing = []
    told: list[str] = []

    def create(number: int) -> None:
        try:
            controller.check_new_topic("new", AlikeNames())
        except ControllerError:
            told.append(f"{number} there")
        else:
            controller.create_topics([NewTopic("new", 1, {})], lambda _: told.append(f"{number}"))

    def delete() -> None:
        controller.delete_topics(["new"], lambda _: told.append("gone"), lambda: None)

    def configure(value: str) -> None:
        before = dict(controller.image.configs.get((TOPIC, "t-0"), {}))
        told.append(f"{before} {value}")
        controller.set_configs({(TOPIC, "t-0"): {"flush.ms": value}}, lambda _: None)

    turns.in_turn((), partial(create, 1))
    for change in (partial(create, 2), partial(configure, "5"), partial(configure, "6")):
        turns.in_turn((), change)
    turns.in_turn(["new"], delete)
    logs.call_soon()
    assert (len(logs.writing), told, list(log.image.topics)) == (1, [], ["t-0"])
    logs.writing.pop()(None)
    # Its logs are not made yet.
    logs.call_soon()
    assert (told, list(log.image.topics)) == (["2 there", "{} 5"], ["t-0", "new"])
    logs.writing.pop()(None)
    logs.call_soon()
    assert told.pop() == "{'flush.ms': '5'} 6"
    logs.writing.pop()(None)
    logs.call_soon()
    assert not logs.writing
    logs.under_way.pop()(None)
    logs.call_soon()
    logs.writing.pop()(None)
    logs.call_soon()
    assert (told[2:], list(log.image.topics)) == (["1", "gone"], ["t-0"])


def test_a_change_that_the_disk_refuses_is_not_there_and_the_next_one_has_its_turn() -> None:
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    failures: list[str] = []
    controller.on_failure(failures.append)
    logs.writing = []
    told: list[Any] = []
    creating = partial(controller.create_topics, [NewTopic("new", 1, {})], told.append)
    for change in (
        partial(controller.delete_topics, ["t-0"], told.append, pytest.fail),
        creating,
        partial(controller.allocate_producer_ids, told.append),
        partial(controller.update_features, {"group.version": 1}, told.append),
    ):
        controller.turns.in_turn((), change)
    for _ in range(4):
        logs.writing.pop()(StorageError("no disk"))
        logs.call_soon()
    assert [each.code for each in told] == [STORAGE_ERROR] * 4
    assert (list(log.image.topics), log.image.features) == (["t-0"], {})
    assert controller.next_producer_id() is None
    assert not controller.turns.is_changing("new") and not controller.turns.has_to_wait(["new"])
    assert len(failures) == 4


def test_who_has_given_up_its_turn_changes_nothing() -> None:
    log, logs = CountingLog(), SlowLogs()
    controller = controller_of(log, 1, logs)
    turns = controller.turns
    logs.writing = []
    told: list[str] = []

    def tell() -> None:
        told.append("waited too long")

    turns.in_turn((), partial(controller.allocate_producer_ids, lambda _: None))
    turns.in_turn((), tell)
    turns.in_turn((), lambda: told.append("next"))
    turns.forget(tell)
    logs.writing.pop()(None)
    logs.call_soon()
    assert told == ["next"]
    assert controller.next_producer_id() == 0
