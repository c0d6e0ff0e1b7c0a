"""Says each trouble in the log once in a while at most, with how often it has come meanwhile. So
one that comes with each request or answer neither hides all others nor fills the disk.

    trouble ──► told at once ── a while in which it is counted ──► told again: "… (and 7 more …)"
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

REFUSALS_INTERVAL_MS: Final = 1_000
"""The interval of lines about refusals of clients."""
TROUBLES_INTERVAL_MS: Final = 60_000
"""The interval of lines about other brokers, which this one asks again all the time, and about
what clients ask for again all the time."""
KINDS_MAX: Final = 1_000
"""Troubles that are remembered; beyond, all are told anew."""


class _Told(NamedTuple):
    at_ms: int
    since: int
    """How often it has come since, untold."""


class Repeated:
    """Pure but for `say`, which is given each sentence that is to be told."""

    def __init__(self, say: Callable[[str], object], interval_ms: int, pause_ms: int = 0) -> None:
        """Each kind of trouble is told once in so many milliseconds at most. `pause_ms` is between
        any two lines, where clients choose the kinds."""
        self._say = say
        self._interval_ms = interval_ms
        self._pause_ms = pause_ms
        self._quiet_until_ms = 0
        self._passed_over = 0
        """Troubles whose lines fell into a pause."""
        self._told: dict[Hashable, _Told] = {}

    def tell(self, sentence: str, now_ms: int, kind: Hashable = None) -> None:
        """Tells of a trouble; those of the same kind are one, whatever the sentence. `now_ms` is
        monotonic."""
        known = self._told.get(kind)
        if known is not None and now_ms - known.at_ms < self._interval_ms:
            self._told[kind] = known._replace(since=known.since + 1)
            return
        if now_ms < self._quiet_until_ms:
            self._passed_over += 1
            return
        if known is None and len(self._told) >= KINDS_MAX:
            self._told.clear()
        more = self._passed_over + (known.since if known is not None else 0)
        self._passed_over = 0
        self._quiet_until_ms = now_ms + self._pause_ms
        self._told[kind] = _Told(now_ms, 0)
        self._say(f"{sentence} (and {more} more since the last such line)" if more else sentence)
