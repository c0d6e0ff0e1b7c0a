"""DescribeTransactions by frames."""

from typing import Any

from api.raw import Connection
from api.transactions import transactor
from kafkalite.protocol import messages


def test_describe_tells_the_transaction_and_its_producers(
    connection: Connection, topic: str
) -> None:
    client = transactor(connection)
    request = messages.DescribeTransactionsRequest(transactional_ids=[client.name, "", "nobody"])

    def states() -> list[Any]:
        found: list[Any] = connection.ask("DescribeTransactions", 0, request)
        return list(found.transaction_states)  # type: ignore[attr-defined]

    assert [each.error_code for each in states()] == [0, 42, 105]
    assert states()[0].transaction_state == "Empty"
    assert client.add((topic, 0)) == {(topic, 0): 0}
    assert client.produce(topic, 0) == 0
    mine = states()[0]
    assert (mine.transaction_state, mine.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert (mine.producer_id, mine.producer_epoch) == (client.producer_id, client.epoch)
    assert [(each.topic, each.partitions) for each in mine.topics] == [(topic, [0])]
    producers = messages.DescribeProducersRequest(
        topics=[messages.DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
    )
    answer = connection.ask("DescribeProducers", 0, producers)
    (producer,) = answer.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.current_txn_start_offset) == (client.producer_id, 0)
    assert client.end(True) == 0
    while states()[0].transaction_state != "CompleteCommit":
        pass
    answer = connection.ask("DescribeProducers", 0, producers)
    (producer,) = answer.topics[0].partitions[0].active_producers
    assert producer.current_txn_start_offset == -1
    assert producer.coordinator_epoch >= 0
