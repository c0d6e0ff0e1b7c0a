"""DescribeLogDirs by frames."""

import os
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from kafkalite.protocol import codes, messages


def ask(
    connection: Connection, topics: dict[str, list[int]] | None = None, version: int = 5
) -> Any:
    kind = messages.DescribeLogDirsRequest
    asked = topics and [
        kind.DescribableLogDirTopic(topic=name, partitions=partitions)
        for name, partitions in topics.items()
    ]
    return connection.ask("DescribeLogDirs", version, kind(topics=asked))


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version_says_what_a_directory_holds(
    connection: Connection, topic: str, version: int
) -> None:
    records = batch([b"x" * 100])
    assert connection.produce(topic, records).error_code == 0
    (result,) = ask(connection, version=version).results
    assert result.error_code == 0
    assert sizes(result)[topic, 0] == len(records)
    if version >= 4:
        disk = os.statvfs(result.log_dir)
        assert result.total_bytes == disk.f_blocks * disk.f_frsize
        assert 0 < result.usable_bytes <= result.total_bytes
    else:
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)


def test_only_what_is_asked_for_and_there_is_described(connection: Connection, topic: str) -> None:
    (result,) = ask(connection, {topic: [0, 7], "no-topic": [0]}).results
    assert sizes(result) == {(topic, 0): 0}


def test_each_directory_is_described_and_one_that_failed_has_its_code(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one", "two", "bad")]
    paths[2].write_text("not a directory")
    dirs = ",".join(map(str, paths))
    with (
        kafkalite.Broker(config={"log.dirs": dirs}) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        assert connection.create_topic("spread", partitions=4).error_code == 0
        one, two, bad = ask(connection).results
        assert [each.log_dir for each in (one, two, bad)] == [str(path) for path in paths]
        assert [each.error_code for each in (one, two, bad)] == [0, 0, 56]
        assert len(sizes(one)) == len(sizes(two)) == 2
        assert bad.topics == []


def test_a_directory_that_was_taken_away_does_not_keep_the_others_from_being_described(
    tmp_path: Path,
) -> None:
    """The whole request failed, and its connection was closed."""
    one, two = tmp_path / "one", tmp_path / "two"
    # Nobody else is to find out that it is gone.
    never = dict.fromkeys(
        (
            "log.flush.offset.checkpoint.interval.ms",
            "log.flush.start.offset.checkpoint.interval.ms",
            "log.retention.check.interval.ms",
        ),
        "86400000",
    )
    with (
        kafkalite.Broker(config={"log.dirs": f"{one},{two}", **never}) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        assert connection.create_topic("spread", partitions=2).error_code == 0
        two.rename(tmp_path / "away")
        try:
            there, gone = ask(connection).results
        finally:
            (tmp_path / "away").rename(two)
        assert [each.error_code for each in (there, gone)] == [0, codes.UNKNOWN_SERVER_ERROR]
        assert len(sizes(there)) == 1
        assert gone.topics == []
        assert [each.error_code for each in ask(connection).results] == [0, 0]
