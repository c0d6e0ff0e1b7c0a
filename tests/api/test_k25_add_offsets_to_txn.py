"""AddOffsetsToTxn by frames."""

import pytest

from api.raw import Connection
from api.transactions import add_offsets, transactor
from kafkalite.protocol import messages


@pytest.mark.parametrize("version", range(5))
def test_the_groups_partition_becomes_part_of_the_transaction(
    connection: Connection, version: int
) -> None:
    client = transactor(connection)
    assert add_offsets(client, "g", version) == 0
    request = messages.DescribeTransactionsRequest(transactional_ids=[client.name])
    (state,) = connection.ask("DescribeTransactions", 0, request).transaction_states
    assert [each.topic for each in state.topics] == ["__consumer_offsets"]


def test_who_is_fenced_or_unknown_adds_nothing(connection: Connection) -> None:
    client = transactor(connection)
    client.epoch += 1
    assert add_offsets(client, "g") == 90
    assert add_offsets(client, "g", version=1) == 47
    client.producer_id += 1
    assert add_offsets(client, "g") == 49
    client.name = ""
    assert add_offsets(client, "g") == 42
