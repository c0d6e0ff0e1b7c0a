"""ListOffsets by frames."""

import pytest

from api.batches import batch
from api.raw import Connection
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


def test_unknown_partitions_and_repeated_ones_are_refused(
    connection: Connection, topic: str
) -> None:
    assert connection.list_offsets("missing", -1).error_code == 3
    kind = messages.ListOffsetsRequest
    partition = kind.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = kind.ListOffsetsTopic(name=topic, partitions=[partition, partition])
    response = connection.ask("ListOffsets", 7, kind(replica_id=-1, topics=[asked]))
    assert [each.error_code for each in response.topics[0].partitions] == [42]
