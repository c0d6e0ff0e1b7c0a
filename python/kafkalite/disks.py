"""How large the disks of the log directories are. One that does not answer, over a network say, is
asked by one thread of its own, whoever wants to know, and nobody else waits for it."""

import os
from functools import partial
from typing import NamedTuple

from kafkalite.calls import Background
from kafkalite.errors import StorageError
from kafkalite.tasks import Future


class DiskSize(NamedTuple):
    """Bytes of a disk, and how many of them are left."""

    total_bytes: int
    usable_bytes: int


class Disks:
    """Used by the control thread only."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._asked: dict[str, Future[DiskSize]] = {}
        """Disks that have not answered yet, by the directory."""

    def size(self, path: str) -> Future[DiskSize]:
        """The size of the disk of a directory; StorageError where that cannot be known."""
        asked = self._asked.get(path)
        if asked is None:
            asked = self._background.run(partial(_look, path))
            if not asked.is_done:
                self._asked[path] = asked
                asked.watch(partial(self._asked.pop, path))
        return asked


def _look(path: str) -> DiskSize:
    try:
        disk = os.statvfs(path)
    except OSError as error:
        sentence = f"the log directory {path} cannot be described: {error}"
        raise StorageError(sentence) from error
    return DiskSize(disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)
