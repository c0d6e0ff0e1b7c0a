"""What tests of several files break."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

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
