"""Timers of the control thread, and the clocks: callbacks by their monotonic due time, soonest
first.

Used by one thread. A timer that is cancelled stays in the heap until its time has come or half of
the heap is such timers, so that cancelling costs nothing.
"""

import heapq
import time
from collections.abc import Callable, Iterator

CANCELLED_MIN = 64
"""Cancelled timers below which the heap is not swept."""


def monotonic_ms() -> int:
    """Milliseconds of the clock of timers."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, for timestamps."""
    return time.time_ns() // 1_000_000


class Timer:
    """One callback, called once at or after `deadline_ms` unless it is cancelled before."""

    __slots__ = ("_callback", "_timers", "deadline_ms")

    def __init__(self, timers: "Timers", deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self._callback: Callable[[], None] | None = callback
        self._timers: Timers | None = timers
        """None once it is not in the heap."""

    def cancel(self) -> None:
        """Nothing happens if it has been called or cancelled."""
        if self._callback is not None:
            self._callback = None
            if self._timers is not None:
                self._timers._count_cancelled()

    def _take(self) -> Callable[[], None] | None:
        callback, self._callback = self._callback, None
        return callback


class Timers:
    """The timers of one thread. Times are milliseconds of one monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._made = 0
        self._cancelled = 0

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """`callback` is given by `pop_due` once `deadline_ms` has come; of two with the same time,
        the one made first."""
        timer = Timer(self, deadline_ms, callback)
        self._made += 1
        heapq.heappush(self._heap, (deadline_ms, self._made, timer))
        return timer

    def next_ms(self) -> int | None:
        """When `pop_due` has something; None if there is no timer."""
        while self._heap and self._heap[0][2]._callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Callable[[], None] | None:
        """The next callback whose time has come, given once; None if there is none. To be called
        before the next is asked for, since it may cancel that."""
        deadline_ms = self.next_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        return heapq.heappop(self._heap)[2]._take()

    def due(self, now_ms: int) -> Iterator[Callable[[], None]]:
        """As `pop_due` for all callbacks whose time has come, except those of timers that are made
        meanwhile: one that always makes another keeps nobody out. To be gone through to the end."""
        due: list[Timer] = []
        while (deadline_ms := self.next_ms()) is not None and deadline_ms <= now_ms:
            timer = heapq.heappop(self._heap)[2]
            timer._timers = None
            due.append(timer)
        for timer in due:
            callback = timer._take()
            if callback is not None:
                yield callback

    def _count_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > CANCELLED_MIN and 2 * self._cancelled > len(self._heap):
            self._heap = [each for each in self._heap if each[2]._callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
