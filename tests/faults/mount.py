"""A file system of its own for a test, so that it can be frozen or filled up."""

import errno
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
BLOCK_BYTES = 1024


class Mount:
    """An ext4 in a file."""

    def __init__(self, directory: Path, name: str = "slow") -> None:
        """At `directory/name`; skips where it may not be mounted or frozen."""
        self.image = directory / f"{name}.image"
        self.path = directory / name
        self.path.mkdir()
        with self.image.open("wb") as image:
            image.truncate(64 << 20)
        # How much goes into a full file system's last blocks must not hang on its maker's version.
        self._run("mkfs.ext4", "-q", "-F", "-b", str(BLOCK_BYTES), str(self.image))
        self.mount()
        try:
            self.freeze()
            self.thaw()
        except OSError as error:
            self.unmount()
            pytest.skip(f"a file system cannot be frozen here: {error}")

    def mount(self) -> None:
        self._run("mount", "-o", "loop", str(self.image), str(self.path))

    def _run(self, *command: str) -> None:
        # Who is not root may have no folder of such programs on the path.
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
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
