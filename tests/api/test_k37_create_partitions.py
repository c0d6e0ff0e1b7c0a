"""CreatePartitions by frames. Codes and sentences are those that Kafka 4.3.1 gave to the same
requests."""

from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from kafkalite._native import SegmentBatches
from kafkalite.protocol import messages

TOPIC = messages.CreatePartitionsRequest.CreatePartitionsTopic


def growing(name: str, count: int, assigned: list[list[int]] | None = None) -> Any:
    kind = TOPIC.CreatePartitionsAssignment
    assignments = None if assigned is None else [kind(broker_ids=each) for each in assigned]
    return TOPIC(name=name, count=count, assignments=assignments)


def grow(
    connection: Connection, *topics: Any, version: int = 3, validate_only: bool = False
) -> list[tuple[str, int, str | None]]:
    request = messages.CreatePartitionsRequest(
        topics=list(topics), timeout_ms=5000, validate_only=validate_only
    )
    results = connection.ask("CreatePartitions", version, request).results
    return [(each.name, each.error_code, each.error_message) for each in results]


def partition_count(connection: Connection, name: str) -> int:
    asked = [messages.MetadataRequest.MetadataRequestTopic(name=name)]
    found = connection.ask("Metadata", 9, messages.MetadataRequest(topics=asked)).topics[0]
    return len(found.partitions)


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions(connection: Connection, topic: str, version: int) -> None:
    assert grow(connection, growing(topic, 3), version=version) == [(topic, 0, None)]
    assert partition_count(connection, topic) == 3


def test_records_in_the_old_partitions_stay_and_go_on(connection: Connection, topic: str) -> None:
    assert connection.produce(topic, batch([b"before"])).base_offset == 0
    grow(connection, growing(topic, 2))
    assert connection.produce(topic, batch([b"after"])).base_offset == 1


def test_a_topic_never_shrinks(connection: Connection, topic: str) -> None:
    grow(connection, growing(topic, 3))
    assert grow(connection, growing(topic, 3)) == [(topic, 37, "Topic already has 3 partition(s).")]
    for count in (2, 0, -1):
        sentence = (
            f"The topic {topic} currently has 3 partition(s); {count} would not be an increase."
        )
        assert grow(connection, growing(topic, count)) == [(topic, 37, sentence)]
    assert partition_count(connection, topic) == 3


def test_what_cannot_be_is_refused(connection: Connection, topic: str) -> None:
    for name in ("never-made", "a/b", "", "__cluster_metadata"):
        assert grow(connection, growing(name, 2)) == [(name, 3, None)]
    assert grow(connection, growing(topic, 2), growing(topic, 3)) == [
        (topic, 42, "Duplicate topic name.")
    ]
    assert grow(connection, growing(topic, 10_002))[0][1] == 44
    assert partition_count(connection, topic) == 1


@pytest.mark.parametrize(
    ("assigned", "sentence"),
    [
        (
            [[2]],
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        ([[1, 1]], "The manual partition assignment includes the broker 1 more than once."),
        ([[]], "The manual partition assignment includes an empty replica list."),
    ],
)
def test_an_assignment_must_name_this_broker(
    connection: Connection, topic: str, assigned: list[list[int]], sentence: str
) -> None:
    assert grow(connection, growing(topic, 2, assigned)) == [(topic, 39, sentence)]
    assert grow(connection, growing(topic, 3, [[1]]))[0][1] == 39
    assert grow(connection, growing(topic, 2, [[1]])) == [(topic, 0, None)]


def test_validate_only_makes_nothing(connection: Connection, topic: str) -> None:
    assert grow(connection, growing(topic, 5), validate_only=True) == [(topic, 0, None)]
    assert partition_count(connection, topic) == 1


def test_topics_of_one_request_grow_by_one_write_and_the_refused_stay(tmp_path: Path) -> None:
    """Each topic was a batch of the metadata log and a flush of its own."""
    segment = tmp_path / "data/__cluster_metadata-0/00000000000000000000.log"

    def written() -> int:
        return len(SegmentBatches(segment).next(1 << 24, records=False))

    with (
        kafkalite.Broker(tmp_path / "data") as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        for name in ("a", "b", "c"):
            assert connection.create_topic(name).error_code == 0
        before = written()
        assert grow(connection, growing("a", 4), growing("b", 1), growing("c", 2)) == [
            ("a", 0, None),
            ("b", 37, "Topic already has 1 partition(s)."),
            ("c", 0, None),
        ]
        assert written() == before + 1
        assert [partition_count(connection, name) for name in ("a", "b", "c")] == [4, 1, 2]


def test_new_partitions_survive_a_kill(tmp_path: Path) -> None:
    broker = kafkalite.Broker(tmp_path / "data")
    with broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("grown").error_code == 0
            assert grow(connection, growing("grown", 4))[0][1] == 0
        broker.kill()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert partition_count(connection, "grown") == 4
