"""ElectLeaders by frames."""

from typing import Any

from api.raw import Connection
from kafkalite.protocol import messages


def elect(
    connection: Connection, *topics: tuple[str, list[int]], version: int = 2, **fields: Any
) -> Any:
    """Without topics: all."""
    kind = messages.ElectLeadersRequest
    asked = [kind.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    message = kind(topic_partitions=asked or None, **{"timeout_ms": 1000, **fields})
    return connection.ask("ElectLeaders", version, message)


def codes(answer: Any) -> list[int]:
    return [
        partition.error_code
        for topic in answer.replica_election_results
        for partition in topic.partition_result
    ]


def test_no_partition_that_is_led_needs_an_election(connection: Connection, topic: str) -> None:
    for version in (0, 1, 2):
        assert codes(elect(connection, (topic, [0]), version=version)) == [84]
    assert codes(elect(connection, (topic, [0]), election_type=1)) == [84]


def test_what_is_not_there_is_unknown(connection: Connection, topic: str) -> None:
    assert codes(elect(connection, (topic, [1, -1]), ("no-such-topic", [0]))) == [3, 3, 3]


def test_of_all_partitions_those_are_named_that_need_an_election(
    connection: Connection, topic: str
) -> None:
    answer = elect(connection)
    assert topic in [each.topic for each in answer.replica_election_results]
    assert codes(answer) == []


def test_an_unknown_kind_and_no_time_refuse_the_whole_request(
    connection: Connection, topic: str
) -> None:
    for fields, code in (({"election_type": 2}, 42), ({"timeout_ms": 0}, 7)):
        answer = elect(connection, (topic, [0]), **fields)
        assert (answer.error_code, codes(answer)) == (code, [code])
        everything = elect(connection, **fields)
        assert (everything.error_code, everything.replica_election_results) == (code, [])
