"""Tells clients when their process has forked, and when it ends.

A fork copies sockets, producer ids and memberships into a child, where they must not be used: both
processes would speak on one connection, under one sequence of numbers. What the child does about
that is the client's own affair: a connection closes its copy, a producer begins anew, a consumer
refuses. At the end of the program a client that was not closed is.

A process forks and ends as a whole, so who is to be told is kept here, for the module: weakly, and
nothing is hooked before the first client is made.
"""

import atexit
import os
import sys
import time
from typing import Protocol
from weakref import WeakSet

__all__ = ["Client", "forget", "watch"]


class Client(Protocol):
    """A client that has to know of its process."""

    def after_fork(self) -> None:
        """Gives up, in the child, what belongs to the parent. No other thread runs."""

    def at_exit(self, timeout_ms: int) -> None:
        """Closes it, at the end of the program, which waits no longer for that."""


EXIT_S = 30.0
"""Seconds that the end of a program waits for all its clients together."""

_watched: WeakSet[Client] = WeakSet()
_hooked: set[int] = set()
"""The processes, by their ids, in which the hooks have been set: this one, and those before it."""


def watch(client: Client) -> None:
    """Tells a client of forks and of the end, as long as it lives."""
    if not _hooked:
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_at_exit)
    if os.getpid() not in _hooked:
        _hooked.add(os.getpid())
        _hook_multiprocessing()
    _watched.add(client)


def _hook_multiprocessing() -> None:
    """A process of multiprocessing ends without `atexit`, and calls finalizers of its own, which
    are forgotten where it begins."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _at_exit, exitpriority=0)


def forget(client: Client) -> None:
    """Tells it no more: it has been closed."""
    _watched.discard(client)


def _after_fork() -> None:
    for client in list(_watched):
        client.after_fork()


def _at_exit() -> None:
    """Closes each client, whatever closing the others raises, and raises the first of that. Brokers
    that are gone are waited for once, however many clients wait for them."""
    deadline = time.monotonic() + EXIT_S
    first: BaseException | None = None
    for client in list(_watched):
        try:
            client.at_exit(max(round(1000 * (deadline - time.monotonic())), 0))
        except BaseException as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first
