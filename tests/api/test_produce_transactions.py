"""Produce within transactions, and InitProducerId with an id, by frames."""

import pytest

from api.raw import Connection
from api.transactions import Transactor, transactor
from kafkalite.protocol import messages


def test_records_outside_of_a_transaction_are_not_taken(connection: Connection, topic: str) -> None:
    """Otherwise nobody would ever end what they have begun."""
    client = transactor(connection)
    assert client.produce(topic, 0) == 48
    assert client.produce(topic, 0, version=11) == 120
    assert client.add((topic, 0)) == {(topic, 0): 0}
    assert client.produce(topic, 0) == 0
    assert client.stable_end(topic) == 0
    assert client.end(True) == 0
    while client.stable_end(topic) != 2:
        pass
    # The last transaction's records open no door to the next one.
    while (code := client.produce(topic, 1)) == 19:
        pass
    assert code == 48
    assert client.stable_end(topic) == 2


def test_who_is_fenced_writes_nothing_any_more(connection: Connection, topic: str) -> None:
    client = transactor(connection)
    assert client.add((topic, 0)) == {(topic, 0): 0}
    assert client.produce(topic, 0) == 0
    other = Transactor(connection, client.name)
    assert other.init() == 0
    assert (other.producer_id, other.epoch) == (client.producer_id, client.epoch + 2)
    assert client.produce(topic, 1) == 47
    assert client.add((topic, 0)) == {(topic, 0): 90}
    assert client.add((topic, 0), version=1) == {(topic, 0): 47}
    assert client.end(True) == 90
    assert other.stable_end(topic) == 2
    assert client.init(producer_id=client.producer_id, producer_epoch=client.epoch) == 90
    assert client.init(version=3, producer_id=client.producer_id, producer_epoch=0) == 47


@pytest.mark.parametrize(
    ("timeout_ms", "code"), [(0, 50), (-1, 50), (900_001, 50), (900_000, 0), (1, 0)]
)
def test_the_time_of_transactions_has_its_bounds(
    connection: Connection, timeout_ms: int, code: int
) -> None:
    assert Transactor(connection).init(timeout_ms=timeout_ms) == code


def test_batches_of_two_producers_are_refused_together(connection: Connection, topic: str) -> None:
    client = transactor(connection)
    other = Transactor(connection)
    assert other.init() == 0
    request = connection.produce_request(topic, client.batch(0))
    request.transactional_id = client.name
    kind = messages.ProduceRequest.TopicProduceData
    second = kind.PartitionProduceData(index=0, records=other.batch(0))
    request.topic_data.append(kind(name=topic, partition_data=[second]))
    answer = connection.ask("Produce", 9, request)
    codes = [row.error_code for each in answer.responses for row in each.partition_responses]
    assert codes == [49, 49]


def test_a_transactional_batch_needs_a_transactional_id(connection: Connection, topic: str) -> None:
    client = transactor(connection)
    assert connection.produce(topic, client.batch(0)).error_code == 53


def test_what_follows_waits_for_the_batch_whose_coordinator_is_asked(
    connection: Connection, topic: str
) -> None:
    """Sequence 1 must not overtake sequence 0 on its connection."""
    client = transactor(connection)
    assert client.add((topic, 0)) == {(topic, 0): 0}
    sent = []
    for sequence in range(20):
        request = connection.produce_request(topic, client.batch(sequence))
        request.transactional_id = client.name
        sent.append(connection.send(0, 9, request.encode(9)))
    for correlation_id in sent:
        answer = connection.receive(0, 9, correlation_id)
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert client.end(True) == 0
