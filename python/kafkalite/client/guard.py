"""Guards clients against calls that come where they must not: while another thread is in one, in
the midst of another of the same thread, after the end, in a child that was made by a fork.

    alone       a producer's: waits for other threads, refuses a handler that has interrupted a call
    exclusive   a consumer's: refuses other threads, lets its own callbacks in

A consumer that two threads use at once would lose records without a word. To take turns is allowed.
The refusal is that of Kafka's consumer (`ConcurrentModificationException`): whoever comes second is
told so, and nothing is broken.
"""

import threading
from abc import ABC
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from kafkalite.client import lifetime
from kafkalite.client.network.connection import Closing
from kafkalite.client.trouble import Troubles
from kafkalite.errors import InvalidArgumentError

__all__ = ["Alone", "Exclusive", "alone", "exclusive"]

Waiting = TypeVar("Waiting", bound="Alone")
Own = TypeVar("Own", bound="Exclusive")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Alone(Protocol):
    """An object with methods that are `alone`."""

    _lock: Any
    """An RLock."""


def alone(
    method: Callable[Concatenate[Waiting, Parameters], Result],
) -> Callable[Concatenate[Waiting, Parameters], Result]:
    """A method that has the lock. Raises `InvalidArgumentError` in a call that came in the midst of
    another of the same thread: by a signal handler, or a finalizer."""

    @wraps(method)
    def call(self: Waiting, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if self._lock._is_owned():
            raise _in_the_midst()
        with self._lock:
            return method(self, *args, **kwargs)

    return call


def _in_the_midst() -> InvalidArgumentError:
    return InvalidArgumentError(
        "the producer is in the midst of another call of the same thread, which a signal handler "
        "or a finalizer has interrupted"
    )


class Exclusive(Closing, ABC):
    """An object used by one thread at a time. Its lines for the log are written after each call,
    when no lock is held."""

    # Of one whose constructor has not come so far.
    _is_closed = True
    _is_forked = False

    def __init__(self) -> None:
        self._troubles = Troubles()
        self._guard = threading.RLock()
        """The lock of the thread that is in a call."""
        self._is_closed = True  # until the constructor says otherwise
        self._is_forked = False
        self._is_called_back = False
        """A function of the caller's is called, which may use it, after the end too."""
        self._calls = 0
        """Depth of the calls of the thread that is in it: a listener, or a handler of a signal,
        calls within a call. """
        self._end_asked: Callable[[], object] | None = None
        """Called at the end of the outermost call, for which an inner one asked."""

    def after_fork(self) -> None:
        """Refuses all use in a child. The guard may be another thread's, which is not there."""
        self._is_forked = True
        lifetime.free(self._guard)

    def _refuse_closed(self) -> None:
        if self._is_closed and not self._is_called_back:
            raise InvalidArgumentError("the consumer has been closed")

    @property
    def _is_within(self) -> bool:
        """Says whether the call under way comes in the midst of another, of which it knows nothing:
        a handler of a signal's."""
        return self._calls > 1 and not self._is_called_back

    def _refuse_fork(self) -> None:
        if self._is_forked:
            raise InvalidArgumentError(
                "the consumer belongs to the process that has made it, which has forked this one: "
                "make a Consumer in this process"
            )

    def _refuse_another_thread(self) -> None:
        if not self._guard.acquire(blocking=False):
            raise InvalidArgumentError(
                "the consumer is not safe for multi-threaded access, and another thread is in it: "
                "let threads take turns, or make a Consumer for each"
            )

    def _end_if_asked(self) -> None:
        if self._calls == 1 and self._end_asked is not None:
            asked, self._end_asked = self._end_asked, None
            asked()


def exclusive(
    method: Callable[Concatenate[Own, Parameters], Result],
) -> Callable[Concatenate[Own, Parameters], Result]:
    """A method that has the consumer for itself. A handler of a signal may raise at any call within
    it: what the last block sets back, it sets back before it calls anything."""

    @wraps(method)
    def call(self: Own, *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        self._refuse_fork()
        # With no call under way the guard was left by one that a handler ended as it began.
        is_held = self._guard._is_owned()  # type: ignore[attr-defined]
        depth = self._calls if is_held else 0
        is_entered = False
        try:
            if not is_held:
                self._refuse_another_thread()
            is_entered = True
            self._calls = depth + 1
            self._refuse_closed()
            try:
                return method(self, *arguments, **named)
            finally:
                self._end_if_asked()
        finally:
            if is_entered:
                self._calls = depth
                if depth == 0:
                    self._guard.release()
                    self._troubles.write()

    return cast("Callable[Concatenate[Own, Parameters], Result]", call)
