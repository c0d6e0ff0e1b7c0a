"""DescribeProducers by frames."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from api.raw import Connection
from kafkalite._native import BatchBuilder
from kafkalite.api import k61_describe_producers
from kafkalite.protocol import messages
from kafkalite.tasks import SLICE_NS, Future, Tasks
from kafkalite.timers import Timers


def ask(connection: Connection, name: str, *indexes: int) -> list[Any]:
    kind = messages.DescribeProducersRequest
    topic = kind.TopicRequest(name=name, partition_indexes=list(indexes))
    answer = connection.ask("DescribeProducers", 0, kind(topics=[topic]))
    partitions: list[Any] = answer.topics[0].partitions
    return partitions


def test_an_idempotent_producer_is_described(connection: Connection, topic: str) -> None:
    assert ask(connection, topic, 0)[0].active_producers == []
    for sequence in (0, 1):
        builder = BatchBuilder(producer_id=77, producer_epoch=3, base_sequence=sequence)
        builder.append(1_000 + sequence, None, b"x")
        assert connection.produce(topic, builder.finish()).error_code == 0
    (partition,) = ask(connection, topic, 0)
    assert partition.error_code == 0
    (producer,) = partition.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 1)
    assert producer.current_txn_start_offset == -1


def test_what_is_not_there_is_refused_as_kafka_does(connection: Connection, topic: str) -> None:
    assert [each.error_code for each in ask(connection, topic, 0, 9)] == [0, 3]
    (missing,) = ask(connection, "no-topic", 0)
    assert missing.error_code == 3
    assert missing.error_message == "This server does not host this topic-partition."
    assert ask(connection, "bad name", 0)[0].error_code == 17


def test_a_partition_that_is_named_twice_is_described_twice(
    connection: Connection, topic: str
) -> None:
    builder = BatchBuilder(producer_id=78, producer_epoch=0, base_sequence=0)
    builder.append(1_000, None, b"x")
    assert connection.produce(topic, builder.finish()).error_code == 0
    found = ask(connection, topic, 0, 9, 0, 9)
    assert [each.error_code for each in found] == [0, 3, 0, 3]
    assert [len(each.active_producers) for each in found] == [1, 0, 1, 0]


def test_many_producers_of_a_partition_keep_nobody_waiting() -> None:
    """Their rows were made at once: 30,000 held the control thread for a sixth of a second."""
    clock_ns = 0

    def entries() -> Iterator[Any]:
        nonlocal clock_ns
        for producer_id in range(100):
            clock_ns += SLICE_NS // 5
            yield SimpleNamespace(
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=-1,
                last_timestamp=1_000,
                current_transaction_first_offset=None,
                last_sequence=0,
            )

    described = Future[Any]()
    timers, failures = Timers(), list[Exception]()
    tasks = Tasks(timers, failures.append, lambda: clock_ns)
    context: Any = SimpleNamespace(
        tasks=tasks,
        may=lambda *_: True,
        replicas=SimpleNamespace(refusal=lambda *_: 0),
        logs=SimpleNamespace(describe_producers=lambda *_: described),
        time_limit=lambda wait_ms: tasks.until(timers.next_ms() or wait_ms),
    )
    kind = messages.DescribeProducersRequest
    message = kind(topics=[kind.TopicRequest(name="t", partition_indexes=[0])])
    tasks.begin_slice()
    answering = tasks.start(k61_describe_producers.handle(context, SimpleNamespace(), message))
    described.set(entries())
    turns = 0
    while tasks.ready or tasks.yielded:
        while tasks.ready:
            tasks.ready.popleft()()
        if tasks.yielded:
            turns += 1
            tasks.begin_slice()
            tasks.yielded.popleft().set(None)
    (row,) = answering.result().topics[0].partitions
    assert [each.producer_id for each in row.active_producers] == list(range(100))
    assert turns >= 100 // 6
    assert not failures
