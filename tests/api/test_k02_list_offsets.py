"""ListOffsets by frames."""

import select
from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from api.test_k21_delete_records import delete
from kafkalite._native import BatchBuilder
from kafkalite.protocol import messages

T0 = 1_700_000_000_000


@pytest.fixture
def timed_topic(connection: Connection, topic: str) -> str:
    """Offsets 0 to 5 at T0 + 0, 10, 20, 50, 40, 30."""
    connection.produce(topic, batch([b"x"] * 3, timestamps=[T0, T0 + 10, T0 + 20]))
    connection.produce(topic, batch([b"x"] * 3, timestamps=[T0 + 50, T0 + 40, T0 + 30]))
    return topic


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_finds_start_end_and_time(
    connection: Connection, timed_topic: str, version: int
) -> None:
    def ask(timestamp: int) -> tuple[int, int, int]:
        found = connection.list_offsets(timed_topic, timestamp, version)
        return found.error_code, found.offset, found.timestamp

    assert ask(-1) == (0, 6, -1)
    assert ask(-2) == (0, 0, -1)
    assert ask(T0 + 11) == (0, 2, T0 + 20)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_timestamp"),
    [
        (0, 0, T0),
        (T0, 0, T0),
        (T0 + 1, 1, T0 + 10),
        (T0 + 21, 3, T0 + 50),
        (T0 + 50, 3, T0 + 50),
        (T0 + 51, -1, -1),
    ],
)
def test_a_time_is_found_to_the_record(
    connection: Connection, timed_topic: str, timestamp: int, offset: int, found_timestamp: int
) -> None:
    found = connection.list_offsets(timed_topic, timestamp)
    assert (found.offset, found.timestamp) == (offset, found_timestamp)
    assert found.leader_epoch == (0 if offset >= 0 else -1)


def test_an_emptied_log_begins_in_the_epoch_of_its_leader(tmp_path: Path) -> None:
    """After a start it was -1, since no record is of any epoch."""
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("orders")
            connection.produce("orders", batch([b"x", b"y"]))
            assert delete(connection, "orders", (0, -1)) == [(0, 2, 0)]
        broker.stop()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            latest, earliest = (connection.list_offsets("orders", time) for time in (-1, -2))
            assert (earliest.offset, earliest.leader_epoch) == (2, latest.leader_epoch)
            assert latest.leader_epoch > 0


@pytest.mark.parametrize(
    ("special", "since", "offset"),
    [(-3, 7, 3), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 99, -1)],
)
def test_special_times_are_known_since_their_version(
    connection: Connection, timed_topic: str, special: int, since: int, offset: int
) -> None:
    for version in range(1, 12):
        found = connection.list_offsets(timed_topic, special, version)
        expected = (0, offset) if version >= since else (35, -1)
        assert (found.error_code, found.offset) == expected


def test_an_empty_partition_has_no_largest_timestamp(connection: Connection, topic: str) -> None:
    found = connection.list_offsets(topic, -3)
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


def test_the_largest_timestamp_is_told_though_its_record_is_deleted(
    connection: Connection, timed_topic: str
) -> None:
    """As in Kafka, which goes by what it remembers of its segments (KIP-734)."""
    kind = messages.DeleteRecordsRequest
    partition = kind.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=6)
    asked = kind.DeleteRecordsTopic(name=timed_topic, partitions=[partition])
    connection.ask("DeleteRecords", 2, kind(topics=[asked], timeout_ms=5000))
    assert connection.list_offsets(timed_topic, -2).offset == 6
    assert connection.list_offsets(timed_topic, -3).offset == 3


def test_a_topic_that_comes_twice_is_answered_once_and_an_empty_one_not_at_all(
    connection: Connection, topic: str
) -> None:
    kind = messages.ListOffsetsRequest.ListOffsetsTopic
    connection.create_topic("two-of-them", partitions=2)
    first, second = (
        kind.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)
    )
    asked = [
        kind(name="two-of-them", partitions=[first]),
        kind(name=topic, partitions=[]),
        kind(name="two-of-them", partitions=[second]),
    ]
    request = messages.ListOffsetsRequest(replica_id=-1, topics=asked)
    (answer,) = connection.ask("ListOffsets", 7, request).topics
    assert [each.partition_index for each in answer.partitions] == [0, 1]


def test_unknown_partitions_and_repeated_ones_are_refused(
    connection: Connection, topic: str
) -> None:
    assert connection.list_offsets("missing", -1).error_code == 3
    kind = messages.ListOffsetsRequest
    partition = kind.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = kind.ListOffsetsTopic(name=topic, partitions=[partition, partition])
    response = connection.ask("ListOffsets", 7, kind(replica_id=-1, topics=[asked]))
    assert [each.error_code for each in response.topics[0].partitions] == [42]


def test_look_ups_of_one_request_do_not_hold_up_those_of_another(
    broker: kafkalite.Broker, connection: Connection, timed_topic: str
) -> None:
    """A log directory has one thread for them, which searched all partitions of a request before it
    turned to the next: for seconds where batches have to be inflated, or the disk is slow."""
    partitions, large = range(64), "look-ups-that-take-long"
    connection.create_topic(large, len(partitions))
    builder = BatchBuilder("gzip")
    builder.append(T0, None, bytes(96 << 20))
    builder.append(T0 + 1, None, b"behind all that")
    records = builder.finish()
    produce = connection.produce_request(large, records)
    (first,) = produce.topic_data[0].partition_data
    for index in partitions:
        first.index = index
        answer = connection.ask("Produce", 9, produce)
        assert answer.responses[0].partition_responses[0].error_code == 0
    kind = messages.ListOffsetsRequest
    place = kind.ListOffsetsTopic.ListOffsetsPartition
    asked = [place(partition_index=index, timestamp=T0 + 1) for index in partitions]
    request = kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name=large, partitions=asked)])
    with Connection(broker.bootstrap_servers) as other:
        correlation_id = other.send(2, 7, request.encode(7))
        # The first one may come before the long request, or while it searches.
        for _ in range(2):
            assert connection.list_offsets(timed_topic, T0 + 1).offset == 1
        assert not select.select([other.socket], [], [], 0)[0], "it was answered first"
        (found,) = other.receive(2, 7, correlation_id).topics
    assert [each.offset for each in found.partitions] == [1] * len(partitions)
