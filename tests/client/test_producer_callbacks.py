"""What a producer calls once a record is there, or is given up."""

from typing import Any

import pytest

from client.fake import FakeBroker
from client.fake_partition import Log, values
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.errors import (
    BrokerError,
    KafkaliteError,
)


def test_flush_ends_after_a_callback_that_raises_and_raises_it() -> None:
    """The other batches of the answer stayed under way, and `flush` never returned."""
    log = Log()
    told: list[int] = []

    def tell(_error: KafkaliteError | None, _topic: str, _partition: int, offset: int) -> None:
        told.append(offset)
        if offset in (1, 2):
            raise ZeroDivisionError(f"at offset {offset}")

    with FakeBroker(log) as broker, DrivenProducer(broker.servers, linger_ms=60_000) as producer:
        for number in range(4):
            producer.send("orders", b"%d" % number, partition=0, on_delivery=tell)
        with pytest.raises(ZeroDivisionError, match="at offset 1"):
            producer.flush()
        assert told == [0, 1, 2, 3]
        assert producer.pending_count == producer.pending_bytes == 0
        producer.flush()
    assert log.values == values(4)


def test_a_callback_of_one_partition_that_raises_leaves_those_of_others() -> None:
    """Partitions of the same answer were forgotten."""
    told: list[int] = []

    def tell(_error: KafkaliteError | None, _topic: str, partition: int, _offset: int) -> None:
        told.append(partition)
        raise ZeroDivisionError

    with (
        FakeBroker(Log(), partitions=3) as broker,
        DrivenProducer(broker.servers, linger_ms=60_000, idempotent=False) as producer,
    ):
        for partition in range(3):
            producer.send("orders", b"value", partition=partition, on_delivery=tell)
        with pytest.raises(ZeroDivisionError):
            producer.flush()
        assert sorted(told) == [0, 1, 2]
        assert producer.sent_count == 3


def test_a_callback_may_send_to_a_partition_of_its_own() -> None:
    log = Log()
    with (
        FakeBroker(log, partitions=2) as broker,
        DrivenProducer(broker.servers, linger_ms=0, batch_bytes=1, acks="0") as producer,
    ):

        def follow(_error: KafkaliteError | None, _topic: str, _partition: int, _at: int) -> None:
            producer.send("orders", b"1", partition=1)

        producer.send("orders", b"0", partition=0, on_delivery=follow)
        producer.flush()
    assert producer.sent_count == 2


def test_callbacks_that_send_are_called_one_after_the_other() -> None:
    """Each was called within the one before, where that sent: many that had come in one answer
    ended in a RecursionError."""
    count = 400
    told: list[tuple[int, bool]] = []
    is_told = False
    with (
        FakeBroker(Log(), partitions=count) as broker,
        DrivenProducer(broker.servers, linger_ms=60_000, idempotent=False) as producer,
    ):

        def follow(_error: KafkaliteError | None, _topic: str, partition: int, _at: int) -> None:
            nonlocal is_told
            told.append((partition, is_told))
            is_told = True
            producer.send("orders", b"x" * producer._accumulator.batch_bytes, partition=partition)
            is_told = False

        for partition in range(count):
            producer.send("orders", b"value", partition=partition, on_delivery=follow)
        producer.flush()
    assert told == [(partition, False) for partition in range(count)]
    assert producer.sent_count == 2 * count


def test_a_failure_of_a_record_is_still_told_after_a_callback_that_raised() -> None:
    def tell(*_told: Any) -> None:
        raise ZeroDivisionError

    with (
        FakeBroker(Log({1: 87})) as broker,
        DrivenProducer(broker.servers, idempotent=False) as producer,
    ):
        producer.send("orders", b"value", on_delivery=tell)
        with pytest.raises(ZeroDivisionError):
            producer.flush()
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            producer.flush()
