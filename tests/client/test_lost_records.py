"""A consumer hands out every record from its positions on, whatever happens beside."""

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest

from client.fake import FakeBroker
from client.logs import TOPIC, Logs, damaged, value, values
from kafkalite._native import end_transaction_marker
from kafkalite.client import Consumer, GroupOptions
from kafkalite.errors import (
    BrokerError,
    ConnectionFailedError,
    CorruptMessageError,
    OffsetOutOfRangeError,
)
from kafkalite.protocol.codes import OFFSET_OUT_OF_RANGE, REBALANCE_IN_PROGRESS

ZERO, ONE = (TOPIC, 0), (TOPIC, 1)
WAIT_S = 30

TOPIC_AUTHORIZATION_FAILED = 29


def numbered(partition: int, *offsets: int) -> list[bytes]:
    return [value(partition, offset) for offset in offsets]


@contextmanager
def broker_of(logs: Logs, handler: Any = None) -> Iterator[FakeBroker]:
    with FakeBroker(handler or logs, partitions=len(logs.batches)) as broker:
        logs.address = (broker.host, broker.port)
        yield broker


# --- errors of other partitions -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (OFFSET_OUT_OF_RANGE, OffsetOutOfRangeError),
        (TOPIC_AUTHORIZATION_FAILED, BrokerError),
    ],
)
def test_an_error_of_one_partition_takes_no_records_of_others(
    code: int, error: type[Exception]
) -> None:
    """The good records of the same answer were dropped, and their positions had moved."""
    logs = Logs({0: 2, 1: 2, 2: 2})
    logs.codes[1] = code
    with broker_of(logs) as broker, Consumer(broker.servers, offset_reset="none") as consumer:
        consumer.assign({(TOPIC, partition): 0 for partition in range(3)})
        found = values(consumer, 12)
        assert sorted(found) == sorted(numbered(0, *range(6)) + numbered(2, *range(6)))
        with pytest.raises(error, match="orders-1"):
            consumer.poll(10_000)
        assert consumer.position(ZERO) == consumer.position((TOPIC, 2)) == 6
        assert consumer.position(ONE) == 0
        logs.codes.clear()
        assert values(consumer, 6) == numbered(1, *range(6))


def test_an_answer_that_cannot_be_read_is_told_and_asked_for_again() -> None:
    """It was asked for again and again, and `poll` gave nothing, without a word."""
    logs = Logs({0: 1})
    garbage = True

    def handle(name: str, request: Any) -> Any:
        if name == "Fetch" and garbage:
            return struct.pack(">iibb", 6, request.correlation_id, 0, 0)
        return logs(name, request)

    with broker_of(logs, handle) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        for _ in range(2):
            with pytest.raises(ConnectionFailedError, match="does not answer as a broker"):
                consumer.poll(WAIT_S * 1000)
        garbage = False
        assert values(consumer, 3) == numbered(0, 0, 1, 2)


def test_an_error_is_told_though_another_partition_always_has_records() -> None:
    logs = Logs({0: 100, 1: 1})
    logs.batches_max = 1
    logs.codes[1] = TOPIC_AUTHORIZATION_FAILED
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0, ONE: 0})
        assert values(consumer, 3) == numbered(0, 0, 1, 2)
        with pytest.raises(BrokerError, match="orders-1"):
            consumer.poll(10_000)
        assert values(consumer, 3) == numbered(0, 3, 4, 5)


def test_what_comes_before_a_damaged_batch_is_handed_out_and_the_position_stays_there() -> None:
    """`poll` refused the whole answer, with the good batches and the other partitions in it, and
    went on behind it."""
    logs = Logs({0: 4, 1: 2})
    good = logs.batches[0][2]
    logs.batches[0][2] = damaged(good)
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0, ONE: 0})
        found = values(consumer, 12)
        assert sorted(found) == sorted(numbered(0, *range(6)) + numbered(1, *range(6)))
        for _ in range(2):
            sentence = r"orders-0 cannot be read at offset 6: .* \(seek to 9 leaves the batch out\)"
            with pytest.raises(CorruptMessageError, match=sentence):
                consumer.poll(10_000)
            assert consumer.position(ZERO) == 6
        consumer.seek(ZERO, 9)
        assert values(consumer, 3) == numbered(0, 9, 10, 11)
        consumer.seek(ZERO, 5)
        assert values(consumer, 1) == numbered(0, 5)
        logs.batches[0][2] = good
        with pytest.raises(CorruptMessageError):
            consumer.poll()
        assert values(consumer, 6) == numbered(0, *range(6, 12))


def test_an_iterator_ends_before_a_damaged_batch() -> None:
    logs = Logs({0: 3})
    logs.batches[0][1] = damaged(logs.batches[0][1])
    found = []
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        with pytest.raises(CorruptMessageError, match="at offset 3"):
            for record in consumer:
                found.append(record.value)
        assert found == numbered(0, 0, 1, 2)
        assert consumer.position(ZERO) == 3


def test_bytes_end_before_a_damaged_batch_of_which_the_next_fetch_tells() -> None:
    logs = Logs({0: 3})
    logs.batches[0][1] = damaged(logs.batches[0][1])
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        (fetched,) = consumer.fetch(10_000)
        rows, end = fetched.rows()
        assert ([row[0] for row in rows], end) == ([0, 1, 2], 3)
        consumer.advance(ZERO, end)
        with pytest.raises(CorruptMessageError, match="at offset 3"):
            consumer.fetch(10_000)
        assert consumer.position(ZERO) == 3


def test_a_damaged_header_is_no_batch_that_is_too_large() -> None:
    logs = Logs({0: 1})
    good = logs.batches[0][0]
    logs.batches[0][0] = good[:16] + b"\7" + good[17:]  # a format that there is not
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        with pytest.raises(CorruptMessageError, match="orders-0 cannot be read at offset 0"):
            consumer.poll(10_000)


# --- what was asked for before --------------------------------------------------------------------


class Held(Logs):
    """Its first Fetch is answered when the test lets it."""

    def __init__(self, counts: dict[int, int]) -> None:
        super().__init__(counts)
        self.came, self.may_answer = threading.Event(), threading.Event()

    def on_Fetch(self, request: Any) -> Any:  # noqa: N802
        answer = super().on_Fetch(request)
        if not self.came.is_set():
            self.came.set()
            self.may_answer.wait(WAIT_S)
        return answer


def test_a_fetch_for_an_earlier_assignment_is_not_delivered() -> None:
    """A partition that was given back and taken again began with the same version number."""
    logs = Held({0: 4})
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        while not logs.came.is_set():
            consumer.poll(10)
        consumer.assign([])
        consumer.assign({ZERO: 9})
        logs.may_answer.set()
        assert values(consumer, 3) == numbered(0, 9, 10, 11)
        assert consumer.position(ZERO) == 12


def test_a_fetch_from_before_a_rebalance_is_not_delivered() -> None:
    """Another member may have read on and committed in between."""
    logs = Held({0: 4})
    group = GroupOptions("rebalanced-while-fetching", heartbeat_interval_ms=10)
    with (
        broker_of(logs) as broker,
        Consumer(broker.servers, group=group, auto_commit_interval_ms=None) as consumer,
    ):
        consumer.subscribe(TOPIC)
        while not logs.came.is_set():
            consumer.poll(10)
        logs.committed[0] = 9
        logs.heartbeat_code = REBALANCE_IN_PROGRESS
        while logs.generation < 2:
            assert consumer.poll(10) == []
        logs.may_answer.set()
        assert values(consumer, 3) == numbered(0, 9, 10, 11)
        assert consumer.position(ZERO) == 12


def test_what_was_given_before_a_seek_moves_no_position() -> None:
    logs = Logs({0: 4})
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        (fetched,) = consumer.fetch(10_000)
        consumer.seek(ZERO, 3)
        consumer.advance(ZERO, fetched.rows()[1])
        assert consumer.position(ZERO) == 3
        assert values(consumer, 9) == numbered(0, *range(3, 12))


def test_an_earlier_stop_ends_no_later_assignment() -> None:
    logs = Logs({0: 4})
    logs.batches_max = 1
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0}, stops={ZERO: 3})
        assert values(consumer, 3) == numbered(0, 0, 1, 2)
        consumer.assign([ZERO])
        assert values(consumer, 9) == numbered(0, *range(3, 12))


# --- iterators ------------------------------------------------------------------------------------


def test_whoever_leaves_a_loop_finds_the_rest_in_the_next() -> None:
    """The rest of what the iterator had taken was lost, and `commit` committed behind it."""
    logs = Logs({0: 4})
    with (
        broker_of(logs) as broker,
        Consumer(broker.servers, group="leaves-a-loop", auto_commit_interval_ms=None) as consumer,
    ):
        consumer.assign({ZERO: 0})
        assert [each.value for each in islice(consumer, 2)] == numbered(0, 0, 1)
        assert consumer.position(ZERO) == 2
        consumer.commit()
        assert logs.commits == [{0: 2}]
        with pytest.raises(ZeroDivisionError):
            for record in consumer:
                raise ZeroDivisionError(record.offset)
        consumer.commit()
        assert logs.commits == [{0: 2}, {0: 3}]
        assert [each.value for each in islice(consumer, 1)] == numbered(0, 3)
        assert values(consumer, 8) == numbered(0, *range(4, 12))


def test_a_seek_within_a_loop_is_followed_at_once() -> None:
    logs = Logs({0: 4})
    found = []
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        for record in consumer:
            found.append(record.offset)
            if len(found) == 2:
                consumer.seek(ZERO, 10)
            if record.offset == 11:
                break
    assert found == [0, 1, 10, 11]


def test_a_partition_paused_within_a_loop_keeps_its_records_until_it_is_resumed() -> None:
    logs = Logs({0: 2, 1: 2})
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0, ONE: 0})
        (first,) = islice(consumer, 1)
        paused, other = first.partition, 1 - first.partition
        consumer.pause((TOPIC, paused))
        assert [each.value for each in islice(consumer, 6)] == numbered(other, *range(6))
        assert consumer.poll() == []
        consumer.resume((TOPIC, paused))
        assert values(consumer, 5) == numbered(paused, *range(1, 6))


def test_bytes_are_fetched_anew_where_an_iterator_has_begun() -> None:
    logs = Logs({0: 2})
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        assert [each.offset for each in islice(consumer, 2)] == [0, 1]
        rows = []
        while len(rows) < 4:
            for fetched in consumer.fetch(10_000):
                more, end = fetched.rows()
                rows += more
                consumer.advance(ZERO, end)
        assert [row[0] for row in rows] == [2, 3, 4, 5]


def test_poll_waits_on_where_nothing_that_came_is_to_be_shown() -> None:
    """An answer that had nothing but the end of a transaction ended `poll` before its time."""
    logs = Logs({0: 2})
    marker = end_transaction_marker(0, 7, 0, commit=True)
    logs.batches[0][0] = struct.pack(">q", 2) + marker[8:]
    logs.batches_max = 1
    with broker_of(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        assert [record.value for record in consumer.poll(30_000)] == numbered(0, 3, 4, 5)
