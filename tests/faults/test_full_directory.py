"""Directories without room: the log says so; a broker that cannot write its metadata stops, as
Kafka halts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kafkalite
from api.group_requests import find_coordinator
from api.raw import Connection
from faults.directories import commit, committed
from faults.mount import Mount
from kafkalite.client import Producer
from kafkalite.client.admin import Admin
from kafkalite.errors import ClientError, KafkaliteError
from kafkalite.protocol import codes, messages


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Mount]:
    mount = Mount(tmp_path)
    yield mount
    mount.unmount()


def test_a_directory_without_room_is_named_in_the_log_of_the_broker(
    full: Mount, tmp_path: Path
) -> None:
    """The producer alone was told, and the broker's log said nothing."""
    config = {"log.dirs": str(full.path / "logs"), "metadata.log.dir": str(tmp_path / "metadata")}
    with kafkalite.Broker(config=config) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=1)
        full.fill()
        with (
            pytest.raises(ClientError, match="No space left on device"),
            Producer(broker.bootstrap_servers, delivery_timeout_ms=3_000) as producer,
        ):
            for _ in range(10):
                producer.send("orders", bytes(100_000))
            producer.flush()
        told = [line for line in broker.log_tail().splitlines() if "records are refused" in line]
        assert " ERROR records are refused: " in told[0]
        assert "orders-0" in told[0]
        assert len(told) < 10
        (full.path / "filler").unlink()


def test_a_broker_whose_metadata_cannot_be_written_says_so_and_stops(
    full: Mount, tmp_path: Path
) -> None:
    metadata = full.path / "metadata"
    config = {"log.dirs": str(tmp_path / "logs"), "metadata.log.dir": str(metadata)}
    with kafkalite.Broker(config=config) as broker:
        with Admin(broker.bootstrap_servers, timeout_ms=5_000) as admin:
            admin.create_topic("kept", partitions=1)
            full.fill()
            made = 0
            with pytest.raises(ClientError):
                for made in range(1_000):
                    admin.create_topic(f"{made}-{'x' * 200}", partitions=1)
        assert made < 999
        os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
        assert broker.stop() == 1
        assert "the metadata cannot be written" in broker.log_tail()
        (full.path / "filler").unlink()
        broker.start()
        with Admin(broker.bootstrap_servers) as admin:
            assert "kept" in [each.name for each in admin.list_topics()]


def test_a_change_is_served_though_its_snapshot_has_no_room(full: Mount, tmp_path: Path) -> None:
    """The log's last block had room for the topic and no other was left for the snapshot: the topic
    was on disk, no client saw it, and a clean stop closed no log."""
    config = {
        "log.dirs": str(tmp_path / "logs"),
        "metadata.log.dir": str(full.path / "metadata"),
        "metadata.log.max.record.bytes.between.snapshots": "1",
    }
    with kafkalite.Broker(config=config) as broker:
        full.fill()
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=1)
            assert [each.name for each in admin.list_topics()] == ["orders"]
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("orders", b"value")
        broker.stop()
        assert "the snapshot of the metadata failed" in broker.log_tail(1_000)
        assert "Traceback" not in broker.log_tail(1_000)
        assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
        (full.path / "filler").unlink()
        broker.start()
        assert "logs are recovered" not in broker.log_tail()
        with Admin(broker.bootstrap_servers) as admin:
            assert [each.name for each in admin.list_topics()] == ["orders"]


def partitions_in(*folders: Path) -> list[str]:
    """The directories of partitions, but for the metadata's."""
    names = [each.name for folder in folders for each in folder.iterdir() if each.is_dir()]
    return sorted(name for name in names if name != "__cluster_metadata-0")


def test_topics_that_cannot_be_made_leave_nothing_behind(full: Mount, tmp_path: Path) -> None:
    """The topic stayed in the metadata, where no client saw it, and kept its name from being given
    again; the directories of its first partitions stayed too."""
    roomy, logs = tmp_path / "roomy", full.path / "logs"
    config = {"log.dirs": f"{roomy},{logs}", "metadata.log.dir": str(tmp_path / "metadata")}
    with kafkalite.Broker(config=config) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("kept", partitions=2)
            before = partitions_in(roomy, logs)
            assert before == ["kept-0", "kept-1"]
            full.fill()
        with Connection(broker.bootstrap_servers) as connection:
            kind = messages.CreateTopicsRequest
            topics = [
                kind.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
                for name, count in (("one", 1), ("many", 500), ("bad name", 1))
            ]
            answer = connection.ask("CreateTopics", 7, kind(topics=topics))
            assert [each.error_code for each in answer.topics] == [56, 56, 17]
            assert "No space left on device" in answer.topics[0].error_message
            grow = messages.CreatePartitionsRequest
            row = grow.CreatePartitionsTopic(name="kept", count=500, assignments=None)
            grown = connection.ask("CreatePartitions", 3, grow(topics=[row], timeout_ms=5_000))
            assert grown.results[0].error_code == 56
            assert "No space left on device" in grown.results[0].error_message
            lines = broker.log_tail().splitlines()
            (line,) = [each for each in lines if " WARNING CreateTopics of " in each]
            assert line.endswith(f"refused: {answer.topics[0].error_message}")
        assert partitions_in(roomy, logs) == before
        with Admin(broker.bootstrap_servers) as admin:
            assert [each.name for each in admin.list_topics()] == ["kept"]
            (full.path / "filler").unlink()
            for name in ("one", "many"):
                admin.create_topic(name, partitions=20)
            admin.create_partitions("kept", 4)
            described = admin.describe_topics(["one", "many", "kept"])
            assert [len(each.partitions) for each in described] == [20, 20, 4]
        assert broker.stop() == 0
        broker.start()
        assert "stray" not in broker.log_tail(1_000)


@contextmanager
def log_shown(broker: kafkalite.Broker) -> Iterator[None]:
    """With whatever fails: it once was a connection that the broker closed, and nobody knew why."""
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"the broker's log:\n{broker.log_tail(200)}")
        raise


@pytest.mark.parametrize("fsync", ["group", "none"])
def test_a_stop_without_room_says_what_it_means_and_loses_nothing_acknowledged(
    full: Mount, tmp_path: Path, fsync: str
) -> None:
    """It named one file, and left the directories that had room without their clean stop."""
    crowded, roomy = full.path / "logs", tmp_path / "roomy"
    config = {"log.dirs": f"{crowded},{roomy}", "kafkalite.acks.fsync": fsync}
    acknowledged = {0: 0, 1: 0}

    def note(error: KafkaliteError | None, _topic: str, partition: int, _offset: int) -> None:
        acknowledged[partition] += error is None

    with kafkalite.Broker(config=config) as broker, log_shown(broker):
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=2)
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("orders", bytes(1000), partition=number % 2, on_delivery=note)
        full.fill()
        with (
            pytest.raises(ClientError, match="No space left on device"),
            Producer(broker.bootstrap_servers, delivery_timeout_ms=3_000) as producer,
        ):
            for number in range(100):
                producer.send("orders", bytes(1000), partition=number % 2, on_delivery=note)
        assert broker.stop() == 1
        (line,) = [each for each in broker.log_tail().splitlines() if "not stopped" in each]
        assert line.endswith("No space left on device (os error 28))")
        assert f"the next start reads the logs of {crowded} again (the metadata cannot be" in line
        assert (roomy / ".kafka_cleanshutdown").exists()
        assert not (crowded / ".kafka_cleanshutdown").exists()
        assert "Traceback" not in broker.log_tail(1_000)
        (full.path / "filler").unlink()
        broker.start()
        assert f"{crowded} was not stopped cleanly: its logs are recovered" in broker.log_tail()
        assert f"{roomy} was not stopped" not in broker.log_tail()
        ends = kafkalite.read_arrow("orders", broker.bootstrap_servers).ranges
    assert {partition: stop for _, partition, _, stop in ends} == acknowledged
    assert sum(acknowledged.values()) >= 100


def test_groups_commit_again_once_there_is_room(full: Mount, tmp_path: Path) -> None:
    """A commit for which there was no room took the partition of `__consumer_offsets` from its
    groups until the next start, while producers went on as soon as there was room again."""
    config = {
        "log.dirs": str(full.path / "logs"),
        "metadata.log.dir": str(tmp_path / "metadata"),
        "offsets.topic.num.partitions": "1",
    }
    with (
        kafkalite.Broker(config=config) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        assert connection.create_topic("read").error_code == 0
        find_coordinator(connection, "group-without-room")
        assert commit(connection, "group-without-room", "read", 1) == 0
        full.fill()
        offset = 1
        # The last block of the file has room for some more.
        while (code := commit(connection, "group-without-room", "read", offset + 1)) == 0:
            offset += 1
        assert code == codes.NOT_COORDINATOR
        assert committed(connection, "group-without-room", "read") == offset
        (full.path / "filler").unlink()
        assert commit(connection, "group-without-room", "read", 1_000) == 0
        assert committed(connection, "group-without-room", "read") == 1_000
        assert "is lost" not in broker.log_tail(1_000)
