"""DescribeTopicPartitions by frames, with the answers that Kafka 4.3.1 gave."""

from typing import Any

import pytest

from api.raw import Connection
from kafkalite.protocol import messages

KIND = messages.DescribeTopicPartitionsRequest
ALL_OPERATIONS = 3576


@pytest.fixture(scope="module", autouse=True)
def three_topics(broker: Any) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        for name in ("page-a", "page-b", "page-c"):
            assert connection.create_topic(name, partitions=3).error_code == 0


def ask(
    connection: Connection,
    names: list[str],
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> Any:
    message = KIND(
        topics=[KIND.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and KIND.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return connection.ask("DescribeTopicPartitions", 0, message)


Page = tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]


def page(connection: Connection, *arguments: Any) -> Page:
    """(name, error code, partitions) of each topic, and the cursor."""
    answer = ask(connection, *arguments)
    cursor = answer.next_cursor
    return (
        [
            (topic.name, topic.error_code, [each.partition_index for each in topic.partitions])
            for topic in answer.topics
        ],
        cursor and (cursor.topic_name, cursor.partition_index),
    )


def test_a_partition_is_described_whole(connection: Connection) -> None:
    (topic,) = ask(connection, ["page-a"]).topics
    assert (topic.error_code, topic.is_internal) == (0, False)
    assert topic.topic_id != bytes(16)
    assert topic.topic_authorized_operations == ALL_OPERATIONS
    partition = topic.partitions[1]
    assert (partition.partition_index, partition.leader_id, partition.error_code) == (1, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            (["page-c", "page-a", "page-a"],),
            ([("page-a", 0, [0, 1, 2]), ("page-c", 0, [0, 1, 2])], None),
        ),
        (
            (["page-a", "page-b", "page-c"], 4),
            ([("page-a", 0, [0, 1, 2]), ("page-b", 0, [0])], ("page-b", 1)),
        ),
        (
            (["page-a", "page-b", "page-c"], 4, ("page-b", 1)),
            ([("page-b", 0, [1, 2]), ("page-c", 0, [0, 1])], ("page-c", 2)),
        ),
        ((["page-a", "page-b"], 3), ([("page-a", 0, [0, 1, 2])], ("page-b", 0))),
        ((["page-a"], 0), ([("page-a", 0, [0])], ("page-a", 1))),
        ((["page-a"], -1), ([("page-a", 0, [0])], ("page-a", 1))),
        ((["page-a", "page-z"], 3), ([("page-a", 0, [0, 1, 2])], ("page-z", 0))),
        ((["page-a", "page-b"], 2000, ("page-b", 99)), ([("page-b", 0, [])], None)),
        (
            (["page-a", "page-b"], 2000, ("page-a", 5)),
            ([("page-a", 0, []), ("page-b", 0, [0, 1, 2])], None),
        ),
        ((["page-a"], 2000, ("zz", 0)), ([("page-a", 42, [])], None)),
        ((["page-a", "page-b"], 2000, ("aa", 0)), ([("page-a", 42, []), ("page-b", 42, [])], None)),
        ((["page-a"], 2000, ("page-a", -1)), ([("page-a", 42, [])], None)),
        (
            (["nope", "page-a"], 2000, ("nope", 3)),
            ([("nope", 3, []), ("page-a", 0, [0, 1, 2])], None),
        ),
        ((["bad name"],), ([("bad name", 17, [])], None)),
        ((["page-a", ""],), ([("page-a", -1, []), ("", -1, [])], None)),
        (([], 2000, ("page-b", -1)), ([], None)),
        (([], 2000, ("~", 3)), ([], None)),
    ],
)
def test_pages(connection: Connection, arguments: tuple[Any, ...], answer: Page) -> None:
    assert page(connection, *arguments) == answer


def test_all_topics_are_read_page_by_page(connection: Connection) -> None:
    cursor: tuple[str, int] | None = None
    seen: list[tuple[str, int]] = []
    while True:
        topics, cursor = page(connection, [], 2, cursor)
        assert sum(len(partitions) for _, _, partitions in topics) <= 2
        seen += [(name, index) for name, _, partitions in topics for index in partitions]
        if cursor is None:
            break
    assert seen == sorted(set(seen))
    assert {("page-a", 2), ("page-b", 0), ("page-c", 1)} <= set(seen)
