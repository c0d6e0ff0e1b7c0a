"""DeleteRecords by frames, with the answers that Kafka 4.3.1 gave."""

from typing import Any

import pytest

from api.batches import batch
from api.configs import set_topic
from api.raw import Connection
from kafkalite.protocol import messages


def delete(
    connection: Connection, name: str, *offsets: tuple[int, int], version: int = 2
) -> list[tuple[int, int, int]]:
    """Partition, low watermark and error code of each."""
    kind = messages.DeleteRecordsRequest
    topic = kind.DeleteRecordsTopic(
        name=name,
        partitions=[
            kind.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=index, offset=offset)
            for index, offset in offsets
        ],
    )
    answer = connection.ask("DeleteRecords", version, kind(topics=[topic], timeout_ms=5_000))
    return [
        (each.partition_index, each.low_watermark, each.error_code)
        for each in answer.topics[0].partitions
    ]


@pytest.fixture
def six(connection: Connection, topic: str) -> str:
    """A topic with six records, two a batch."""
    for _ in range(3):
        assert connection.produce(topic, batch([b"x", b"y"])).error_code == 0
    return topic


@pytest.mark.parametrize("version", range(3))
def test_records_below_the_offset_are_gone(connection: Connection, six: str, version: int) -> None:
    assert delete(connection, six, (0, 3), version=version) == [(0, 3, 0)]
    assert connection.list_offsets(six, -2).offset == 3
    assert connection.fetch(six, 2).error_code == 1
    assert connection.fetch(six, 3).error_code == 0
    # Never down again.
    assert delete(connection, six, (0, 1), version=version) == [(0, 3, 0)]


def test_minus_one_is_the_high_watermark(connection: Connection, six: str) -> None:
    assert delete(connection, six, (0, -1)) == [(0, 6, 0)]
    assert connection.list_offsets(six, -2).offset == 6


def test_the_last_of_two_offsets_counts(connection: Connection, six: str) -> None:
    assert delete(connection, six, (0, 5), (0, 3)) == [(0, 3, 0)]


@pytest.mark.parametrize(("offset", "code"), [(7, 1), (-2, 1)])
def test_an_offset_that_is_not_there_is_refused(
    connection: Connection, six: str, offset: int, code: int
) -> None:
    assert delete(connection, six, (0, offset)) == [(0, -1, code)]
    assert connection.list_offsets(six, -2).offset == 0


def test_partitions_that_are_not_there_are_refused(connection: Connection, topic: str) -> None:
    assert delete(connection, topic, (0, 0), (9, 0), (-1, 0)) == [
        (0, 0, 0),
        (9, -1, 3),
        (-1, -1, 3),
    ]
    assert delete(connection, "no-topic", (0, 0)) == [(0, -1, 3)]
    assert delete(connection, "bad name", (0, 0)) == [(0, -1, 3)]


def test_a_topic_that_is_only_compacted_keeps_its_records(
    connection: Connection, topic: str
) -> None:
    for policy, code in (("compact", 44), ("compact,delete", 0), ("delete", 0)):
        set_topic(connection, topic, cleanup_policy=policy)
        ((_, _, answer),) = delete(connection, topic, (0, 0))
        assert answer == code, policy


def test_the_log_start_survives_a_clean_restart(tmp_path: Any) -> None:
    import kafkalite

    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("cut")
            connection.produce("cut", batch([b"x", b"y", b"z"]))
            assert delete(connection, "cut", (0, 2)) == [(0, 2, 0)]
        broker.stop()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.list_offsets("cut", -2).offset == 2


def test_an_internal_topic_keeps_its_records(connection: Connection) -> None:
    finding = messages.FindCoordinatorRequest(coordinator_keys=["some-group"])
    while connection.ask("FindCoordinator", 4, finding).coordinators[0].error_code:
        pass
    assert delete(connection, "__consumer_offsets", (0, 0)) == [(0, -1, 17)]
