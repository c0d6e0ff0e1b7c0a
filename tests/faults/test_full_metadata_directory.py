"""A broker that cannot write its metadata stops, as Kafka halts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from faults.mount import Mount
from kafkalite.client.admin import Admin
from kafkalite.errors import ClientError


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Mount]:
    mount = Mount(tmp_path)
    yield mount
    mount.unmount()


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
