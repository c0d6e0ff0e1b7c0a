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
import threading
import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from kafkalite.client.forks import after_fork, after_fork_in_child, before_fork

__all__ = ["Client", "forget", "free", "is_untold", "watch"]


class Client(Protocol):
    """A client that has to know of its process."""

    def after_fork(self) -> None:
        """Gives up, in the child, what belongs to the parent. No other thread runs: a lock that
        one of the parent's had is held for ever, unless it is freed (`free`)."""

    def at_exit(self, timeout_ms: int) -> None:
        """Closes it, at the end of the program, which waits no longer for that."""


EXIT_S = 30.0
"""Seconds that the end of a program waits for all its clients together."""

# After the finalizers of multiprocessing's own, the last of which waits for queues at -5.
END_PRIORITY = -100

_watched: WeakValueDictionary[int, Client] = WeakValueDictionary()
"""The clients by their ids. Its list of references is taken in one step, whatever other threads do
meanwhile."""
_hooked_in = 0
"""The process of multiprocessing, by its id, whose end is hooked: this one, or one before it."""
_told_in = 0
"""The process in which clients know that it is theirs."""
_is_hook_due = False


def watch(client: Client) -> None:
    """Tells a client of forks and of the end, as long as it lives."""
    global _told_in
    if not _told_in:
        os.register_at_fork(
            before=before_fork, after_in_parent=after_fork, after_in_child=_after_fork
        )
        atexit.register(_at_exit)
        _told_in = os.getpid()
    _hook_multiprocessing()
    _watched[id(client)] = client


def _hook_multiprocessing() -> None:
    """A process of multiprocessing ends without `atexit`, and calls finalizers of its own, which
    are forgotten where it begins."""
    global _hooked_in
    if _hooked_in == os.getpid():
        return
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        sys.modules["multiprocessing.util"].Finalize(
            None, _at_end_of_child, exitpriority=END_PRIORITY
        )
        _hooked_in = os.getpid()
    else:
        _hook_later()


def forget(client: Client) -> None:
    """Tells it no more: it has been closed."""
    _watched.pop(id(client), None)


def is_untold() -> bool:
    """Says whether this is a child whose clients do not know it so far. Hooks of others, and
    finalizers that the collector calls in them, come before: they leave all to the parent."""
    return _told_in not in (0, os.getpid())


def free(lock: "threading.RLock") -> None:
    """Frees, in a child, the lock that another thread of the parent's has had. That of this thread
    stays: it has forked in the midst of a call, to which it comes back."""
    if not lock._is_owned():  # type: ignore[attr-defined]
        lock._at_fork_reinit()  # type: ignore[attr-defined]


def _tell_all(tell: Callable[[Client], None]) -> None:
    """Tells each client, whatever telling the others raises, and raises the first of that."""
    first: BaseException | None = None
    for reference in _watched.valuerefs():
        client = reference()
        try:
            if client is not None:
                tell(client)
        except BaseException as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first


def _hook_later() -> None:
    """Has the hook set where a process of multiprocessing begins, be it this one: that of a fork
    server imports the program before it is one."""
    global _is_hook_due
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _is_hook_due:
        _is_hook_due = True
        util.register_after_fork(_hook_multiprocessing, lambda hook: hook())


def _after_fork() -> None:
    global _told_in
    try:
        _tell_all(lambda client: client.after_fork())
    finally:
        _told_in = os.getpid()
        _hook_later()
        after_fork_in_child()


def _at_end_of_child() -> None:
    """As `_at_exit`, where it comes in every other process: behind the end of those threads that
    the process waits for, which may send until then."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    finally:
        _at_exit()


def _at_exit() -> None:
    """Closes each client. Brokers that are gone are waited for once, however many clients wait for
    them."""
    deadline = time.monotonic() + EXIT_S
    _tell_all(lambda client: client.at_exit(max(round(1000 * (deadline - time.monotonic())), 0)))
