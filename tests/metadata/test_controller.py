"""The controller over a log that is not there: what it asks of the log, and how often."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.metadata.controller import RECORDS_PER_OPERATION_MAX, Controller, ControllerError
from kafkalite.metadata.image import GROUP, TOPIC, Fold
from kafkalite.protocol import messages

NODE = 1
POLICY_VIOLATION = 44


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


def controller_of(log: Any, topic_count: int) -> Controller:
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
    plane: Any = SimpleNamespace(
        moved=[],
        set_features=lambda *_: None,
        set_topic_configs=lambda *_: None,
        delete_topics=lambda _: None,
    )
    controller.serve(plane)
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
        controller.delete_topics(names)
    assert refused.value.code == POLICY_VIOLATION
    assert log.appends == []
    controller.delete_topics(names[1:])
    assert (log.appends, list(log.image.topics)) == ([RECORDS_PER_OPERATION_MAX], names[:1])


def test_features_change_together_by_one_append() -> None:
    """Each was an append of its own: a kill between two left a part of the request."""
    log = CountingLog()
    controller = controller_of(log, 1)
    controller.update_features({"group.version": 1, "transaction.version": 2})
    assert log.appends == [2]
