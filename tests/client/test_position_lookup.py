"""Positions are looked up beside the reading of partitions whose positions are known."""

import socket
import threading
import time
from typing import Any

import pytest

from client.fake import FakeBroker
from client.logs import TOPIC, Logs, value, values
from kafkalite.client import Consumer
from kafkalite.client.consumer import position_lookup
from kafkalite.errors import BrokerError, ConnectionFailedError, RequestTimedOutError
from kafkalite.protocol.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
)

ZERO, ONE = (TOPIC, 0), (TOPIC, 1)


class Slow(Logs):
    """Answers a request of one kind when the test lets it."""

    def __init__(self, counts: dict[int, int], held: str) -> None:
        super().__init__(counts)
        self._held = held
        self.came, self.may_answer = threading.Event(), threading.Event()

    def __call__(self, name: str, request: Any) -> Any:
        if name == self._held:
            self.came.set()
            self.may_answer.wait(30)
        return super().__call__(name, request)


@pytest.mark.parametrize("held", ["ListOffsets", "OffsetFetch", "FindCoordinator"])
def test_partitions_with_a_position_are_read_while_that_of_another_is_looked_up(held: str) -> None:
    """One partition whose leader, or coordinator, did not answer held up all of the consumer."""
    logs = Slow({0: 3, 1: 1}, held)
    logs.batches_max = 1
    with (
        FakeBroker(logs, partitions=2) as broker,
        Consumer(broker.servers, group="looks-up-beside") as consumer,
    ):
        logs.address = (broker.host, broker.port)
        consumer.assign([ZERO, ONE])
        consumer.seek(ZERO, 0)
        assert values(consumer, 9) == [value(0, offset) for offset in range(9)]
        while not logs.came.is_set():
            assert consumer.poll(10) == []
        logs.may_answer.set()
        assert values(consumer, 3) == [value(1, offset) for offset in range(3)]


def test_a_coordinator_that_loads_holds_up_nobody_and_is_asked_again() -> None:
    logs = Logs({0: 3, 1: 1})
    asked = []

    def handle(name: str, request: Any) -> Any:
        answer = logs(name, request)
        if name == "OffsetFetch":
            asked.append(request)
            if len(asked) < 4:
                answer.groups[0].error_code = COORDINATOR_LOAD_IN_PROGRESS
        return answer

    with (
        FakeBroker(handle, partitions=2) as broker,
        Consumer(broker.servers, group="loading-coordinator") as consumer,
    ):
        logs.address = (broker.host, broker.port)
        logs.committed[1] = 1
        consumer.assign([ZERO, ONE])
        consumer.seek(ZERO, 0)
        assert values(consumer, 9) == [value(0, offset) for offset in range(9)]
        assert consumer.position(ONE) == 1
        assert values(consumer, 2) == [value(1, 1), value(1, 2)]


@pytest.mark.parametrize("short", ["ListOffsets", "OffsetFetch"])
def test_what_an_answer_leaves_out_is_asked_again_after_a_pause(
    short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked again at once: some thousand times a second, on a connection each."""
    logs = Logs({0: 1, 1: 1})

    def handle(name: str, request: Any) -> Any:
        answer = logs(name, request)
        if name == short:
            (topic,) = answer.topics or answer.groups[0].topics
            topic.partitions = [row for row in topic.partitions if row.partition_index == 0]
        return answer

    with (
        FakeBroker(handle, partitions=2) as broker,
        Consumer(broker.servers, group=f"leaves-out-{short}") as consumer,
    ):
        logs.address = (broker.host, broker.port)
        # A pause that no test sees the end of.
        monkeypatch.setattr(position_lookup, "BACKOFF_MS", 3_600_000)
        consumer.assign([ZERO, ONE])
        assert values(consumer, 3) == [value(0, offset) for offset in range(3)]
        consumer.poll(300)
        assert len(broker.of(short)) == 1
        monkeypatch.undo()
        consumer._subscription_state[ONE].waits_until = 0.0
        while len(broker.of(short)) == 1:
            consumer.poll(10)


def test_a_position_that_cannot_be_looked_up_is_an_error_when_its_time_is_over() -> None:
    def handle(name: str, request: Any) -> Any:
        answer = logs(name, request)
        if name == "OffsetFetch":
            answer.groups[0].error_code = COORDINATOR_LOAD_IN_PROGRESS
        return answer

    logs = Logs({0: 1})
    with (
        FakeBroker(handle) as broker,
        Consumer(broker.servers, group="loads-for-ever", timeout_ms=300) as consumer,
    ):
        logs.address = (broker.host, broker.port)
        consumer.assign([ZERO])
        with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            consumer.poll(60_000)
        with pytest.raises((BrokerError, RequestTimedOutError)):
            consumer.position(ZERO)


def test_a_position_that_a_transaction_is_about_to_commit_is_waited_for() -> None:
    """`poll` raised UNSTABLE_OFFSET_COMMIT after the time of an operation, though a transaction may
    be open for a quarter of an hour."""
    codes = {ZERO: UNSTABLE_OFFSET_COMMIT}
    asked = []

    def handle(name: str, request: Any) -> Any:
        answer = logs(name, request)
        if name == "OffsetFetch":
            asked.append(time.monotonic())
            answer.groups[0].topics[0].partitions[0].error_code = codes.get(ZERO, 0)
        return answer

    logs = Logs({0: 1})
    with (
        FakeBroker(handle) as broker,
        Consumer(broker.servers, group="is-unstable", timeout_ms=300) as consumer,
    ):
        logs.address = (broker.host, broker.port)
        consumer.assign([ZERO])
        while len(asked) < 2 or asked[-1] - asked[0] < 1.0:
            assert consumer.poll(10) == []
        with pytest.raises(RequestTimedOutError, match="the position of orders-0"):
            consumer.position(ZERO)
        codes.clear()
        assert len(values(consumer, 3)) == 3


def test_a_topic_that_there_is_not_is_told_at_once() -> None:
    def handle(name: str, request: Any) -> Any:
        answer = logs(name, request)
        if name == "Metadata":
            answer = broker.metadata()
            for topic in answer.topics:
                topic.error_code = UNKNOWN_TOPIC_OR_PARTITION
        return answer

    logs = Logs({0: 1})
    with FakeBroker(handle) as broker, Consumer(broker.servers) as consumer:
        consumer.assign([ZERO])
        started = time.monotonic()
        with pytest.raises(BrokerError, match=f"topic '{TOPIC}'"):
            consumer.poll(60_000)
        assert time.monotonic() - started < 30


def test_brokers_that_were_never_reached_are_told_at_once() -> None:
    # It has the port meanwhile, so that no other gets it, and does not listen.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        host, port = silent.getsockname()
        for group in (None, "never-reached"):
            with Consumer(f"{host}:{port}", group=group) as consumer:
                consumer.assign([ZERO])
                with pytest.raises(ConnectionFailedError, match="no broker answers"):
                    consumer.poll(60_000)
