"""A file system of its own for a test, so that it can be frozen or filled up."""

import errno
import fcntl
import os
import subprocess
from pathlib import Path

import pytest

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878


class Mount:
    """An ext4 in a file."""

    def __init__(self, directory: Path, name: str = "slow") -> None:
        """At `directory/name`; skips where it may not be mounted."""
        self.image = directory / f"{name}.image"
        self.path = directory / name
        self.path.mkdir()
        with self.image.open("wb") as image:
            image.truncate(64 << 20)
        self._run("mkfs.ext4", "-q", "-F", str(self.image))
        self.mount()

    def mount(self) -> None:
        self._run("mount", "-o", "loop", str(self.image), str(self.path))

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"{command[0]} is not allowed here: {done.stderr.decode().strip()}")

    def _control(self, request: int) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, request, 0)
        finally:
            os.close(descriptor)

    def freeze(self) -> None:
        self._control(FIFREEZE)

    def thaw(self) -> None:
        self._control(FITHAW)

    def pin(self, directory: Path) -> None:
        """It cannot be renamed or removed; skips where that may not be had."""
        self._run("chattr", "+i", str(directory))

    def unpin(self, directory: Path) -> None:
        self._run("chattr", "-i", str(directory))

    def fill(self) -> None:
        """Until not a byte more goes on it."""
        with (self.path / "filler").open("wb", buffering=0) as filler:
            for size_bytes in (1 << 20, 4096, 1):
                try:
                    while True:
                        filler.write(bytes(size_bytes))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True)
