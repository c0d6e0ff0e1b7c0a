"""What tests of several files break."""

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
