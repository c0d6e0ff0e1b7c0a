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
from kafkalite.client.network.connection import Closing, Writable

__all__ = ["Wakeup", "poller"]


def poller(descriptors: Iterable[int]) -> select.poll:
    """Waits for descriptors, but those below 0. No epoll: gevent has none."""
    made = select.poll()
    for descriptor in descriptors:
        if descriptor >= 0:
            is_writing = isinstance(descriptor, Writable)
            made.register(descriptor, select.POLLIN | (select.POLLOUT if is_writing else 0))
    return made


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
        """Waits until one of the descriptors is ready, or `set` was called, but no longer; not
        at all once it is closed."""
        if self._descriptor < 0:
            return
        wait_ms = None if seconds == float("inf") else max(seconds, 0.0) * 1000
        found = poller((self._descriptor, *descriptors)).poll(wait_ms)
        if any(ready == self._descriptor for ready, _ in found):
            with suppress(BlockingIOError):
                os.eventfd_read(self._descriptor)
