"""Markers that a partition refuses."""

from types import SimpleNamespace
from typing import Any, cast

from kafkalite.protocol import codes
from kafkalite.tasks import Tasks
from kafkalite.timers import Timers
from kafkalite.transactions.markers import Markers, MarkerWriter, marker_of


class Host:
    """A broker with one topic, whose log refuses."""

    def __init__(self) -> None:
        self.clock_ms = 0
        self.timers = Timers()
        self.failures: list[Exception] = []
        self.tasks = Tasks(self.timers, self.failures.append)
        self.lines: list[str] = []
        self.tries_ms: list[int] = []
        self.code = codes.KAFKA_STORAGE_ERROR
        self.image = SimpleNamespace(topics={"t": SimpleNamespace(partitions=[None])})
        self.log = SimpleNamespace(error=self.lines.append)
        self.replicas = self

    def now_ms(self) -> int:
        return self.clock_ms

    def refusal(self, _topic: str, _partition: int) -> int:
        self.tries_ms.append(self.clock_ms)
        return self.code

    def pass_time(self, by_ms: int) -> None:
        """Does what becomes due."""
        end_ms = self.clock_ms + by_ms
        while (due_ms := self.timers.next_ms()) is not None and due_ms <= end_ms:
            self.clock_ms = due_ms
            while (callback := self.timers.pop_due(due_ms)) is not None:
                callback()
                while self.tasks.ready:
                    self.tasks.ready.popleft()()
        self.clock_ms = end_ms
        assert not self.failures


def test_refused_markers_are_tried_later_each_time_and_told_of_once() -> None:
    host = Host()
    writer = MarkerWriter(cast(Any, host))
    markers = Markers(marker_of(7, 0, True, 0, 0), frozenset([("t", 0)]))
    writing = host.tasks.start(writer.write_all(markers, lambda: True))
    host.pass_time(1_400)
    assert host.tries_ms == [0, 100, 300, 700]
    assert host.lines == []
    host.pass_time(60_000)
    assert host.tries_ms[4:] == [1_500, 3_100, 6_300, 12_700, 22_700, 32_700, 42_700, 52_700]
    assert len(host.lines) == 1
    assert "t-0" in host.lines[0]
    assert not writing.is_done
    host.code = codes.UNKNOWN_TOPIC_OR_PARTITION
    host.pass_time(10_000)
    assert writing.is_done


def test_markers_that_are_not_due_any_more_are_not_tried() -> None:
    host = Host()
    writer = MarkerWriter(cast(Any, host))
    markers = Markers(marker_of(7, 0, True, 0, 0), frozenset([("t", 0)]))
    writing = host.tasks.start(writer.write_all(markers, lambda: len(host.tries_ms) < 2))
    host.pass_time(60_000)
    assert writing.is_done
    assert host.tries_ms == [0, 100]
