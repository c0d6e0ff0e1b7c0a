"""AddPartitionsToTxn by frames."""

import pytest

from api.raw import Connection
from api.transactions import Transactor, transactor
from kafkalite.protocol import messages


def test_a_partition_that_is_not_there_keeps_the_others_out(
    connection: Connection, topic: str
) -> None:
    client = transactor(connection)
    assert client.add((topic, 0), ("missing", 0)) == {(topic, 0): 55, ("missing", 0): 3}
    assert client.add((topic, 7)) == {(topic, 7): 3}
    assert client.end(True) == 48


def test_who_nobody_knows_is_told_so(connection: Connection, topic: str) -> None:
    stranger = Transactor(connection)
    stranger.producer_id, stranger.epoch = 12345, 0
    assert stranger.add((topic, 0)) == {(topic, 0): 49}
    assert stranger.end(False) == 49
    assert stranger.produce(topic, 0, version=12) == 49
    assert stranger.produce(topic, 0, version=9) == 49


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds(connection: Connection, topic: str, version: int) -> None:
    client = transactor(connection)
    for _ in range(2):
        assert client.add((topic, 0), version=version) == {(topic, 0): 0}
    assert client.produce(topic, 0) == 0


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_for_several_transactions(
    connection: Connection, topic: str, version: int
) -> None:
    one, other = transactor(connection), transactor(connection)
    assert one.add((topic, 0)) == {(topic, 0): 0}
    kind = messages.AddPartitionsToTxnRequest
    asked = [
        kind.AddPartitionsToTxnTransaction(
            transactional_id=each.name,
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            verify_only=True,
            topics=[kind.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        for each in (one, other)
    ]
    answer = connection.ask("AddPartitionsToTxn", version, kind(transactions=asked))
    found = {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in answer.results_by_transaction
    }
    assert found == {one.name: 0, other.name: 120}
