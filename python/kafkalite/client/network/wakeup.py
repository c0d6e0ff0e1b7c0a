"""Ends the wait of a thread for its sockets: another thread has something for it, or wants it to
return.

An eventfd is waited for beside the sockets: it is readable from `set` until the wait has ended.
"""

import os
import select
import threading
from collections.abc import Iterable
from contextlib import suppress

from kafkalite.client import lifetime
from kafkalite.client.network.connection import Closing

__all__ = ["Wakeup"]


class Wakeup(Closing):
    """One thread waits; any may set it, a handler of a signal too."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Once closed the number belongs to another file. A handler of a signal comes in between.
        self._lock = threading.RLock()

    def close(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            # Forgotten first: a process that forks in the midst of `os.close` has perhaps opened
            # another file under the number, and the child would close that.
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

    def after_fork(self) -> None:
        """Closes the child's copy, though a thread of the parent may have been in `set`."""
        lifetime.free(self._lock)
        self.close()

    def set(self) -> None:
        """Ends the wait, or the next one."""
        with self._lock:
            if self._descriptor >= 0:
                with suppress(BlockingIOError):
                    os.eventfd_write(self._descriptor, 1)

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> None:
        """Waits until one of the descriptors is readable, or `set` was called, but no longer; not
        at all once it is closed."""
        if self._descriptor < 0:
            return
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        for descriptor in descriptors:
            if descriptor >= 0:
                poller.register(descriptor, select.POLLIN)
        wait_ms = None if seconds == float("inf") else max(seconds, 0.0) * 1000
        if any(ready == self._descriptor for ready, _ in poller.poll(wait_ms)):
            with suppress(BlockingIOError):
                os.eventfd_read(self._descriptor)
