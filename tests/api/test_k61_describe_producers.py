"""DescribeProducers by frames."""

from typing import Any

from api.raw import Connection
from kafkalite._native import BatchBuilder
from kafkalite.protocol import messages


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
