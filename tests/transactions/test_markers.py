"""Markers that a partition refuses."""

from types import SimpleNamespace
from typing import Any, cast

from kafkalite.protocol import codes
from kafkalite.tasks import SLICE_NS, Future, Task, Tasks, TimeLimit, completed
from kafkalite.timers import Timers
from kafkalite.transactions.markers import BEGUN_AT_ONCE, Markers, MarkerWriter, marker_of

TIMEOUT_MS = 3_000


class Host:
    """A broker with one topic, whose log refuses."""

    def __init__(self) -> None:
        self.clock_ms = 0
        self.timers = Timers()
        self.failures: list[Exception] = []
        # A slice does not end by itself: on a busy machine that of a real clock would.
        self.tasks = Tasks(self.timers, self.failures.append, lambda: self.clock_ms * 1_000_000)
        self.config = {"request.timeout.ms": TIMEOUT_MS}
        self.lines: list[str] = []
        self.tries_ms: list[int] = []
        self.code = codes.KAFKA_STORAGE_ERROR
        self.image = SimpleNamespace(topics={"t": SimpleNamespace(partitions=[None, None])})
        self.log = SimpleNamespace(error=self.lines.append)
        self.replicas = self.logs = self
        self.open_ids = [7]
        """Producers with an open transaction in the log."""
        self.hung: Future[int] | None = None
        """What becomes of the markers of partition 1, which does not answer."""

    def now_ms(self) -> int:
        return self.clock_ms

    def wall_ms(self) -> int:
        return self.clock_ms

    def time_limit(self, wait_ms: int) -> TimeLimit:
        return self.tasks.until(self.clock_ms + wait_ms)

    def refusal(self, _topic: str, partition: int) -> int:
        if partition:
            return codes.NONE
        self.tries_ms.append(self.clock_ms)
        return self.code

    def append(self, *_: object) -> Future[int]:
        if self.hung is None:
            raise RuntimeError("a defect")
        return self.hung

    def has_open_transaction(self, _topic: str, _partition: int, producer_id: int) -> Future[bool]:
        return completed(producer_id in self.open_ids)

    def pass_time(self, by_ms: int) -> None:
        """Does what becomes due."""
        end_ms = self.clock_ms + by_ms
        self.go_on()
        while (due_ms := self.timers.next_ms()) is not None and due_ms <= end_ms:
            self.clock_ms = due_ms
            while (callback := self.timers.pop_due(due_ms)) is not None:
                callback()
                self.go_on()
        self.clock_ms = end_ms
        assert not self.failures

    def go_on(self) -> None:
        """Lets every task go on that can."""
        while self.tasks.ready:
            self.tasks.ready.popleft()()


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


def written(host: Host, *partitions: int, producer_id: int = 7) -> Task[None]:
    writer = MarkerWriter(cast(Any, host))
    places = frozenset(("t", each) for each in partitions)
    markers = Markers(marker_of(producer_id, 0, True, 0, 0), places)
    return host.tasks.start(writer.write_all(markers, lambda: True))


def test_a_partition_that_does_not_answer_keeps_no_other_from_its_next_try() -> None:
    """All were waited for before any was tried again."""
    host = Host()
    host.hung = Future[int]()
    writing = written(host, 0, 1)
    host.pass_time(1_000)
    assert host.tries_ms == [0, 100, 300, 700]
    host.code = codes.UNKNOWN_TOPIC_OR_PARTITION
    host.pass_time(60_000)
    assert len(host.tries_ms) == 5
    assert not writing.is_done
    host.hung.set(3)
    host.pass_time(1)
    assert writing.is_done


def test_a_later_epoch_of_the_producer_needs_a_marker_only_where_something_is_open() -> None:
    """A batch of a stranger with the producer's id and a later epoch kept the transaction from its
    end for ever."""
    for producer_id, is_over in ((7, False), (8, True)):
        host = Host()
        host.code = codes.INVALID_PRODUCER_EPOCH
        writing = written(host, 0, producer_id=producer_id)
        host.pass_time(60_000)
        assert writing.is_done == is_over
        assert len(host.tries_ms) == (1 if is_over else 12)


def test_transactions_that_are_decided_together_share_one_slice() -> None:
    """Each took a slice of its own before a request was looked at: a start with 500 of them held
    the control thread for seconds."""
    host = Host()
    host.code = codes.NONE
    clock_ns = 0
    begun: list[int] = []

    def refusal(_topic: str, partition: int) -> int:
        nonlocal clock_ns
        clock_ns += SLICE_NS // 5
        begun.append(partition)
        return codes.UNKNOWN_TOPIC_OR_PARTITION

    host.tasks = Tasks(host.timers, host.failures.append, lambda: clock_ns)
    host.replicas = cast(Any, SimpleNamespace(refusal=refusal))
    host.image.topics["t"].partitions = [None] * 250
    writer = MarkerWriter(cast(Any, host))
    places = frozenset(("t", each) for each in range(250))
    small = frozenset([("t", 0)])
    writing = [
        host.tasks.start(writer.write_all(Markers(marker_of(7, 0, True, 0, 0), each), lambda: True))
        for each in [places] * 50 + [small]
    ]
    turns = [len(begun)]
    small_ended_after = 0
    while host.tasks.yielded:
        before = len(begun)
        host.tasks.yielded.popleft().set(None)
        host.go_on()
        turns.append(len(begun) - before)
        if writing[-1].is_done and not small_ended_after:
            small_ended_after = len(begun)
    assert max(turns) <= 6
    assert len(begun) == 50 * 250 + 1
    assert small_ended_after < 51 * BEGUN_AT_ONCE
    assert all(each.is_done for each in writing)


def test_a_defect_does_not_end_the_tries() -> None:
    host = Host()
    writing = written(host, 1)
    host.pass_time(500)
    assert "a defect" in host.lines[0]
    host.hung = Future[int]()
    host.pass_time(1_000)
    host.hung.set(1)
    host.pass_time(1)
    assert writing.is_done


def test_who_asks_for_a_marker_by_a_request_is_answered_in_time() -> None:
    """A partition with too few replicas kept the answer for all others back until it had enough:
    the coordinator of another broker had given up by then, and asked for all of them again."""
    host = Host()
    host.hung = Future[int]()
    writer = MarkerWriter(cast(Any, host))
    marker = marker_of(7, 0, True, 0, 0)
    asked = host.tasks.start(writer.write(marker, [("t", 0), ("t", 1)]))
    host.pass_time(TIMEOUT_MS - 1)
    assert not asked.is_done
    host.pass_time(1)
    assert asked.result() == {("t", 0): host.code, ("t", 1): codes.REQUEST_TIMED_OUT}
    # It is committed all the same, and those of the broker's own transactions wait for that.
    own = written(host, 1)
    host.pass_time(10 * TIMEOUT_MS)
    assert not own.is_done
    host.hung.set(3)
    host.pass_time(1)
    assert own.is_done
