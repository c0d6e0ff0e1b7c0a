"""AlterPartitionReassignments by frames."""

from typing import Any

from api.raw import Connection
from kafkalite.protocol import messages


def reassign(
    connection: Connection,
    topic: str,
    *partitions: tuple[int, list[int] | None],
    timeout_ms: int = 1000,
) -> Any:
    """Index and replicas of each."""
    kind = messages.AlterPartitionReassignmentsRequest
    asked = kind.ReassignableTopic(
        name=topic,
        partitions=[
            kind.ReassignableTopic.ReassignablePartition(partition_index=index, replicas=replicas)
            for index, replicas in partitions
        ],
    )
    message = kind(topics=[asked], timeout_ms=timeout_ms)
    return connection.ask("AlterPartitionReassignments", 1, message)


def codes(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.responses for each in topic.partitions]


def test_a_partition_is_where_it_can_be_already(connection: Connection, topic: str) -> None:
    assert codes(reassign(connection, topic, (0, [1]))) == [0]


def test_it_goes_nowhere_else(connection: Connection, topic: str) -> None:
    assert (
        codes(reassign(connection, topic, (0, [2]), (0, [1, 2]), (0, []), (0, [1, 1]))) == [39] * 4
    )


def test_no_move_is_under_way_that_could_be_cancelled(connection: Connection, topic: str) -> None:
    assert codes(reassign(connection, topic, (0, None))) == [85]


def test_what_is_not_there_is_unknown(connection: Connection, topic: str) -> None:
    assert codes(reassign(connection, topic, (1, [1]), (-1, None))) == [3, 3]
    assert codes(reassign(connection, "no-such-topic", (0, [1]))) == [3]


def test_no_time_refuses_the_whole_request(connection: Connection, topic: str) -> None:
    answer = reassign(connection, topic, (0, [1]), timeout_ms=0)
    assert (answer.error_code, codes(answer)) == (7, [7])
