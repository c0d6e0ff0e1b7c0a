"""Batches that are given up, and the epoch under which those behind them go."""

from typing import Any

import pytest

from client.fake import Close, FakeBroker
from client.fake_partition import Log, poll_until, send_each, values
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.client.producer.partition_queue import PartitionQueue
from kafkalite.errors import (
    BrokerError,
    RequestTimedOutError,
)
from kafkalite.protocol import messages


def test_a_batch_given_up_leaves_the_others_in_order_under_the_next_epoch() -> None:
    log = Log({3: 10})
    with (
        FakeBroker(log) as broker,
        DrivenProducer(broker.servers, linger_ms=0, batch_bytes=1) as producer,
    ):
        told = send_each(producer, 8)
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.flush()
        producer.flush()
    assert log.values == [value for value in values(8) if value != b"2"]
    assert sum(error is not None for error, _ in told) == 1
    assert {stamp[1] for stamp in log.stamps} == {0, 1}
    assert (producer.sent_count, producer.failed_count) == (7, 1)


def test_a_producer_that_was_forgotten_goes_on_under_the_next_epoch() -> None:
    log = Log({2: 59})
    with (
        FakeBroker(log) as broker,
        DrivenProducer(broker.servers, linger_ms=0, max_in_flight=1) as producer,
    ):
        for number in range(3):
            producer.send("orders", str(number).encode(), partition=0)
            producer.flush()
    assert log.values == values(3)
    assert log.stamps == [(7, 0, 0), (7, 1, 0), (7, 1, 1)]


def queue_of(producer: DrivenProducer) -> PartitionQueue:
    return producer._sender.queues["orders", 0]


def lose_two(producer: DrivenProducer) -> None:
    """Sends 0 and 1, whose answers are lost, and gives up 0. Before them one is taken: the first
    goes alone."""
    producer.send("orders", b"first", partition=0)
    producer.flush()
    producer.send("orders", b"0", partition=0)
    queue = queue_of(producer)
    queue.pause_ms = 3_600_000  # nothing is sent again before the end of this function
    producer.send("orders", b"1", partition=0)
    poll_until(producer, lambda: queue.trouble is not None and len(queue.ready) == 2)
    queue.ready[0].deadline = queue.paused_until = 0.0
    producer.send("orders", b"2", partition=0)
    with pytest.raises(RequestTimedOutError):
        producer.flush()
    assert (producer.sent_count, producer.failed_count) == (3, 1)


def test_what_was_taken_behind_a_batch_that_is_given_up_is_there_once() -> None:
    """The answers of two batches were lost, and the first was given up. The second was sent again
    under the next epoch, and stood in the log twice. Kafka's producer asks under its old number."""
    log = Log()
    answers: list[Any] = [..., None, Close()]

    def lose(name: str, request: Any) -> Any:
        answer = log(name, request)
        instead = answers.pop(0) if name == "Produce" and answers else ...
        return answer if instead is ... else instead

    with (
        FakeBroker(lose) as broker,
        DrivenProducer(broker.servers, linger_ms=0, batch_bytes=1) as producer,
    ):
        lose_two(producer)
    assert log.values == [b"first", *values(3)]


def test_what_was_not_taken_behind_a_batch_that_is_given_up_goes_under_the_next_epoch() -> None:
    log = Log()
    answers: list[Any] = [..., None, Close()]

    def lose(name: str, request: Any) -> Any:
        instead = answers.pop(0) if name == "Produce" and answers else ...
        return log(name, request) if instead is ... else instead

    with (
        FakeBroker(lose) as broker,
        DrivenProducer(broker.servers, linger_ms=0, batch_bytes=1) as producer,
    ):
        lose_two(producer)
    assert log.values == [b"first", b"1", b"2"]
    assert log.stamps == [(7, 0, 0), (7, 1, 0), (7, 1, 1)]


def test_a_batch_that_a_broker_cannot_place_goes_under_the_next_epoch() -> None:
    """It was given up where the log had lost what was before it. Kafka's producer sends it again
    (`TransactionManager.canRetry`)."""
    log = Log({3: 45})
    with (
        FakeBroker(log) as broker,
        DrivenProducer(broker.servers, linger_ms=0, max_in_flight=1) as producer,
    ):
        for number in range(4):
            producer.send("orders", str(number).encode(), partition=0)
            producer.flush()
    assert log.values == values(4)
    assert log.stamps == [(7, 0, 0), (7, 0, 1), (7, 1, 0), (7, 1, 1)]


def test_after_the_last_epoch_comes_another_producer_id() -> None:
    """An epoch of 32768 was an OverflowError in `flush`, again and again."""
    log = Log({2: 87})
    ids = iter((7, 8))

    def handle(name: str, request: Any) -> Any:
        if name == "InitProducerId":
            return messages.InitProducerIdResponse(producer_id=next(ids), producer_epoch=0)
        return log(name, request)

    with (
        FakeBroker(handle) as broker,
        DrivenProducer(broker.servers, linger_ms=0, max_in_flight=1) as producer,
    ):
        producer.send("orders", b"0", partition=0)
        producer.flush()
        queue_of(producer).begin_epoch(7, 2**15 - 1)
        producer.send("orders", b"refused", partition=0)
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            producer.flush()
        producer.send("orders", b"1", partition=0)
        producer.flush()
    assert log.values == values(2)
    assert log.stamps == [(7, 0, 0), (8, 0, 0)]
