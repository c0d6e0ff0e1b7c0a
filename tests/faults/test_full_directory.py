"""Directories without room: the log says so; a broker that cannot write its metadata stops, as
Kafka halts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from faults.mount import Mount
from kafkalite.client import Producer
from kafkalite.client.admin import Admin
from kafkalite.errors import ClientError


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
