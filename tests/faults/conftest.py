"""What tests of several files break."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from faults.directories import OFFSETS_PARTITIONS, SESSION_MS, two_directories
from faults.mount import Mount


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Mount]:
    """A file system of its own, to be frozen."""
    mount = Mount(tmp_path)
    yield mount
    mount.unmount()


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[list[Mount]]:
    """Two file systems for two log directories."""
    made: list[Mount] = []
    try:
        for name in ("first", "second"):
            made.append(Mount(tmp_path, name))
            (made[-1].path / "logs").mkdir()
        os.sync()
        yield made
    finally:
        for each in made:
            each.unmount()


@pytest.fixture(params=["none", "group"])
def two(request: pytest.FixtureRequest, slow: Mount, tmp_path: Path) -> Iterator[kafkalite.Broker]:
    """A broker with two log directories, of which `slow` is one, with and without a flush for
    each write."""
    config = {
        **two_directories(slow, tmp_path / "quick"),
        "kafkalite.acks.fsync": request.param,
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": str(SESSION_MS),
    }
    with kafkalite.Broker(config=config) as broker:
        yield broker
