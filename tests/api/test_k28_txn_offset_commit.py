"""TxnOffsetCommit by frames."""

from typing import Any

import pytest

from api.raw import Connection
from api.transactions import Transactor, add_offsets, transactor
from kafkalite.protocol import messages


def commit(client: Transactor, group: str, topic: str, version: int, **fields: Any) -> int:
    """TxnOffsetCommit of offset 5."""
    kind = messages.TxnOffsetCommitRequest
    place = kind.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition
    request = kind(
        transactional_id=client.name,
        group_id=group,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        topics=[
            kind.TxnOffsetCommitRequestTopic(
                name=topic, partitions=[place(partition_index=0, committed_offset=5)]
            )
        ],
        **{"generation_id": -1, **fields},
    )
    answer = client.connection.ask("TxnOffsetCommit", version, request)
    return int(answer.topics[0].partitions[0].error_code)


def stable_offset(connection: Connection, group: str, topic: str) -> tuple[int, int]:
    """Offset and code, as OffsetFetch with `require_stable` tells them."""
    kind = messages.OffsetFetchRequest
    asked = kind.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    request = kind(group_id=group, topics=[asked], require_stable=True)
    row = connection.ask("OffsetFetch", 7, request).topics[0].partitions[0]
    return row.committed_offset, row.error_code


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commits", [True, False])
def test_offsets_hold_from_the_marker_on(
    connection: Connection, topic: str, version: int, commits: bool
) -> None:
    client = transactor(connection)
    group = client.name
    assert add_offsets(client, group) == 0
    assert commit(client, group, topic, version) == 0
    assert stable_offset(connection, group, topic) == (-1, 88)
    assert client.end(commits) == 0
    while (found := stable_offset(connection, group, topic)) == (-1, 88):
        pass
    assert found == (5 if commits else -1, 0)


@pytest.mark.parametrize(("version", "code"), [(0, 48), (3, 48), (4, 120)])
def test_offsets_outside_of_a_transaction_are_not_taken(
    connection: Connection, topic: str, version: int, code: int
) -> None:
    client = transactor(connection)
    assert add_offsets(client, "another-group") == 0
    group = f"{client.name}-2"
    assert commit(client, group, topic, version) == code
    assert stable_offset(connection, group, topic) == (-1, 0)


def test_the_newest_version_makes_offsets_part_of_their_transaction(
    connection: Connection, topic: str
) -> None:
    client = transactor(connection)
    for at in range(2):
        group = f"{client.name}-{at}"
        while (code := commit(client, group, topic, 5)) == 51:
            pass
        assert code == 0
        assert stable_offset(connection, group, topic) == (-1, 88)
        assert client.end(True, version=5) == 0
        while (found := stable_offset(connection, group, topic)) == (-1, 88):
            pass
        assert found == (5, 0)


def test_offsets_that_are_written_in_several_steps_hold_together(
    connection: Connection, topic: str
) -> None:
    client = transactor(connection)
    group = client.name
    assert add_offsets(client, group) == 0
    rows = [(0, offset, -1, "") for offset in range(2_500)]
    request = messages.TxnOffsetCommitRequest(
        transactional_id=client.name,
        group_id=group,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        generation_id=-1,
        topics=[(topic, rows)],
    )
    answer = connection.ask("TxnOffsetCommit", 3, request)
    assert [each.error_code for each in answer.topics[0].partitions] == [0] * 2_500
    assert stable_offset(connection, group, topic) == (-1, 88)
    assert client.end(True) == 0
    while (found := stable_offset(connection, group, topic)) == (-1, 88):
        pass
    assert found == (2_499, 0)


def test_who_is_no_member_of_the_generation_commits_nothing(
    connection: Connection, topic: str
) -> None:
    client = transactor(connection)
    assert add_offsets(client, client.name) == 0
    assert commit(client, client.name, topic, 3, generation_id=1) == 22
    assert commit(client, client.name, topic, 3, member_id="m", generation_id=3) == 22
    assert commit(client, "", topic, 3) == 24
    assert commit(client, client.name, "missing", 3) == 3
    client.epoch += 1
    assert commit(client, client.name, topic, 3) == 47
