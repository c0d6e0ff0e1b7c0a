"""Reads of files that do not come back until they are let go, as those of a disk that hangs."""

import ctypes
import os
import select
import struct
import threading
from pathlib import Path
from typing import Self

import pytest

FAN_CLOEXEC, FAN_CLASS_CONTENT = 1, 4
FAN_MARK_ADD = 1
FAN_ACCESS_PERM, FAN_EVENT_ON_CHILD = 0x20000, 0x08000000
FAN_ALLOW = 1
AT_FDCWD = -100
EVENT = struct.Struct("=IBBHQii")


class HeldReads:
    """Of the files in some directories, by fanotify, which asks before each read. Only those are
    asked for that were opened since there is one of these."""

    def __init__(self, *directories: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._group: int = libc.fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, os.O_RDONLY)
        if self._group < 0:
            pytest.skip(f"fanotify is not allowed here: {os.strerror(ctypes.get_errno())}")
        events = ctypes.c_uint64(FAN_ACCESS_PERM | FAN_EVENT_ON_CHILD)
        for directory in directories:
            name = os.fsencode(directory)
            if libc.fanotify_mark(self._group, FAN_MARK_ADD, events, AT_FDCWD, name) != 0:
                pytest.skip(f"reads cannot be held: {os.strerror(ctypes.get_errno())}")
        self._changed = threading.Condition()
        self._is_holding = False
        self._held: list[int] = []
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        # Whatever waits goes on when the last descriptor of the group is closed.
        os.close(self._woken)
        self._thread.join()
        os.close(self._wake)
        os.close(self._group)

    def hold(self) -> None:
        """No read comes back from now on."""
        with self._changed:
            self._is_holding = True

    def wait_for_one(self, timeout_s: float) -> None:
        """Until a read is held."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._held, timeout_s), "nothing has been read"

    def release(self) -> None:
        """All go on."""
        with self._changed:
            self._is_holding = False
            for file in self._held:
                self._allow(file)
            self._held.clear()

    def _allow(self, file: int) -> None:
        os.write(self._group, struct.pack("=iI", file, FAN_ALLOW))
        os.close(file)

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._group, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            ready = {number for number, _ in poll.poll()}
            if self._wake in ready:
                return
            data = os.read(self._group, 1 << 16)
            with self._changed:
                at = 0
                while at < len(data):
                    size, _, _, _, _, file, _ = EVENT.unpack_from(data, at)
                    at += size
                    if self._is_holding:
                        self._held.append(file)
                        self._changed.notify_all()
                    else:
                        self._allow(file)
