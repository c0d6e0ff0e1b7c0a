"""Has a fork come where it cuts nothing in two: no line of the log that another thread writes, and
not its own hooks, which the handler of a signal would break off.

    before_fork ──► signals are blocked ──► writers are waited for, and none begins ──► fork
    after_fork  ──► writers go on ──► signals are taken, behind the call that has forked

A stream of the log has a lock, which nobody frees in a child of a fork that comes while a thread
writes. That thread may need the lock of `logging`, too, which the hook of `logging` takes for who
forks. Hooks that were set last are called first: ours is set once more behind that import.
"""

import _thread
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["after_fork", "after_fork_in_child", "before_fork", "writing"]

WRITE_S = 1.0
"""The time that a fork waits for a handler of the log, which may hang, and a handler for a fork."""

_writing: set[int] = set()
"""Threads that write to the log, or import it for the first time."""
_forking: set[int] = set()
"""Threads that are in the hooks of a fork."""
_blocked = threading.local()
"""`depth`: the hooks that were called, of which there may be two. `mask`: the signals that the
thread did not take before. `due`: those whose handlers are to be called behind the fork: Python
would keep what they raise in a hook."""
_is_hooked_behind_logging = False


@contextmanager
def writing() -> Iterator[None]:
    """Has the block write to the log while nobody forks."""
    me, deadline = threading.get_ident(), time.monotonic() + WRITE_S
    if me in _writing:  # called by a handler of the log
        yield
        return
    try:
        _writing.add(me)
        while _forking and time.monotonic() < deadline:
            _writing.discard(me)
            time.sleep(0.001)
            _writing.add(me)
        _hook_behind_logging()
        yield
    finally:
        _writing.discard(me)


def _hook_behind_logging() -> None:
    global _is_hooked_behind_logging
    import logging  # noqa: F401 - sets its hook when it is imported first

    if not _is_hooked_behind_logging:
        _is_hooked_behind_logging = True
        os.register_at_fork(
            before=before_fork, after_in_parent=after_fork, after_in_child=after_fork_in_child
        )


def before_fork() -> None:
    """Keeps out handlers of signals and writers, until `after_fork`. Signals without a handler
    still end the process."""
    _blocked.depth = getattr(_blocked, "depth", 0) + 1
    if _blocked.depth > 1:
        return
    _blocked.mask, _blocked.due = signal.pthread_sigmask(signal.SIG_BLOCK, ()), []
    handled = [each for each in signal.valid_signals() if callable(signal.getsignal(each))]
    _forking.add(threading.get_ident())
    deadline = time.monotonic() + WRITE_S
    while True:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, handled)
            if not _has_to_wait(deadline):
                return
            time.sleep(0.001)
        except KeyboardInterrupt:  # another thread has taken the signal
            _blocked.due.append(signal.SIGINT)


def _has_to_wait(deadline: float) -> bool:
    me = {threading.get_ident()}
    if time.monotonic() >= deadline:
        _writing.intersection_update(me)  # nor does the next fork wait for it
    return bool(_writing - me)


def after_fork() -> None:
    """Lets writers go on, and handlers of signals."""
    _blocked.depth = max(getattr(_blocked, "depth", 0) - 1, 0)
    if _blocked.depth > 0 or not hasattr(_blocked, "mask"):
        return
    _forking.discard(threading.get_ident())
    mask, due = _blocked.__dict__.pop("mask"), _blocked.__dict__.pop("due")
    for each in signal.sigpending() - mask:
        if callable(signal.getsignal(each)) and signal.sigtimedwait([each], 0) is not None:
            due.append(each)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except KeyboardInterrupt:
        due.append(signal.SIGINT)
    # Handlers are called behind the end of a call. This is none for Python: that of the fork is
    # the next.
    none: list[None] = []
    none += map(_thread.interrupt_main, due)


def after_fork_in_child() -> None:
    """Forgets the threads that are not there, and lets handlers of signals go on."""
    _forking.clear()
    _writing.intersection_update({threading.get_ident()})
    if hasattr(_blocked, "due"):
        _blocked.due.clear()  # the parent's
    after_fork()
