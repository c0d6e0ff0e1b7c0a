"""A log directory that has failed while the broker ran: of two, the second, on an ext4 that refuses
everything from one moment on. What of it is in memory was still told, where Kafka tells nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from api.test_k21_delete_records import delete as delete_records
from api.test_k23_offset_for_leader_epoch import ask as ends_of_epochs
from api.test_k61_describe_producers import ask as describe_producers
from faults.mount import Mount
from faults.nemesis import lose_unflushed
from kafkalite.protocol import codes, messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

NO_LEADER = -1
LEADER_NOT_AVAILABLE = 5
SOON_S = 60.0

Start = Callable[[list[Path], Path], Any]


@contextmanager
def ours(directories: list[Path], _folder: Path) -> Iterator[str]:
    config = {"log.dirs": ",".join(map(str, directories)), "kafkalite.acks.fsync": "none"}
    with kafkalite.Broker(config=config) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["kafkalite", pytest.param("kafka", marks=pytest.mark.oracle)])
def start(request: pytest.FixtureRequest) -> Start:
    if request.param == "kafkalite":
        return ours
    tools: KafkaTools = request.getfixturevalue("kafka_tools")

    @contextmanager
    def kafkas(directories: list[Path], folder: Path) -> Iterator[str]:
        with KafkaBroker(tools, folder, log_dirs=directories) as broker:
            yield broker.bootstrap_servers

    return kafkas


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # between polls of the broker


def topics_in(connection: Connection, directory: Path, count: int) -> list[str]:
    """So many topics of one partition whose logs lie in a log directory."""
    found: list[str] = []
    for number in range(16):
        name = f"topic-{number}"
        assert connection.create_topic(name).error_code == 0
        # Kafka has made it a moment later.
        wait_until(lambda name=name: connection.list_offsets(name, -1).error_code == 0)
        found += [name] if (directory / f"{name}-0").is_dir() else []
        if len(found) == count:
            return found
    raise AssertionError("the other directory has them all")


def partition_of(connection: Connection, name: str) -> Any:
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name=name)])
    (topic,) = connection.ask("Metadata", 12, request).topics
    return topic.partitions[0]


def test_nothing_is_told_of_a_directory_that_failed(
    start: Start, slow: Mount, tmp_path: Path
) -> None:
    logs = slow.path / "logs"
    with (
        start([tmp_path / "quick", logs], tmp_path / "kafka") as servers,
        Connection(servers) as connection,
    ):
        topic, victim = topics_in(connection, logs, 2)
        assert connection.produce(topic, batch([b"x"])).error_code == 0
        assert connection.fetch(topic, 0).high_watermark == 1
        lose_unflushed(slow)
        delete = messages.DeleteTopicsRequest(topic_names=[victim], timeout_ms=60_000)
        assert connection.ask("DeleteTopics", 5, delete).responses[0].error_code == 0
        # Kafka has renamed it a moment later, or has not.
        wait_until(lambda: partition_of(connection, topic).leader_id == NO_LEADER)
        storage_error = codes.KAFKA_STORAGE_ERROR
        for timestamp in (-1, -2, -3, 0):
            assert connection.list_offsets(topic, timestamp).error_code == storage_error
        for version, code in ((5, codes.NOT_LEADER_OR_FOLLOWER), (12, storage_error)):
            told = connection.fetch(topic, 0, version=version)
            assert (told.error_code, told.high_watermark) == (code, -1)
            told = connection.fetch(topic, 1, version=version)
            assert (told.error_code, told.high_watermark) == (code, -1)
        assert connection.produce(topic, batch([b"y"])).error_code == storage_error
        assert delete_records(connection, topic, (0, 1)) == [(0, -1, storage_error)]
        assert [each.error_code for each in describe_producers(connection, topic, 0)] == [
            storage_error
        ]
        assert [code for code, *_ in ends_of_epochs(connection, topic, (0, -1, 0))] == [
            storage_error
        ]
        directories = connection.ask("DescribeLogDirs", 4, messages.DescribeLogDirsRequest())
        failed = {each.log_dir: each.error_code for each in directories.results}
        assert failed == {str(tmp_path / "quick"): 0, str(logs): storage_error}
        partition = partition_of(connection, topic)
        assert (partition.error_code, partition.offline_replicas) == (
            LEADER_NOT_AVAILABLE,
            [1],
        )


def test_a_write_that_is_refused_takes_the_directory_offline(
    start: Start, slow: Mount, tmp_path: Path
) -> None:
    """Its partitions kept a leader that could not write: no fsync had failed."""
    logs = slow.path / "logs"
    with (
        start([tmp_path / "quick", logs], tmp_path / "kafka") as servers,
        Connection(servers) as connection,
    ):
        (topic,) = topics_in(connection, logs, 1)
        assert connection.produce(topic, batch([b"x"])).error_code == 0
        lose_unflushed(slow)
        storage_error = codes.KAFKA_STORAGE_ERROR
        # Kafka's says of the first one that it has met what it did not expect.
        refused = connection.produce(topic, batch([b"y"])).error_code
        assert refused in (storage_error, codes.UNKNOWN_SERVER_ERROR)
        wait_until(lambda: partition_of(connection, topic).leader_id == NO_LEADER)
        directories = connection.ask("DescribeLogDirs", 4, messages.DescribeLogDirsRequest())
        failed = {each.log_dir: each.error_code for each in directories.results}
        assert failed == {str(tmp_path / "quick"): 0, str(logs): storage_error}
        for number in range(16, 20):
            # The directory with the fewest logs was asked for the next one, in vain.
            assert connection.create_topic(f"topic-{number}").error_code == 0
