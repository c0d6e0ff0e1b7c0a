"""Says each trouble in the log once a minute at most, with how often it has come meanwhile, so that
one which comes with each request or answer does not hide all others.

    trouble ──► told at once ── a minute in which it is counted ──► told again: "… (7 times more)"
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

PAUSE_MS: Final = 60_000
KINDS_MAX: Final = 1_000
"""Troubles that are remembered; beyond, all are told anew."""


class _Told(NamedTuple):
    at_ms: int
    since: int
    """How often it has come since, untold."""


class Repeated:
    """Pure but for `say`, which is given each sentence that is to be told."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._told: dict[Hashable, _Told] = {}

    def tell(self, kind: Hashable, sentence: str, now_ms: int) -> None:
        """Tells of a trouble; those of the same kind are one, whatever the sentence."""
        known = self._told.get(kind)
        if known is not None and now_ms - known.at_ms < PAUSE_MS:
            self._told[kind] = known._replace(since=known.since + 1)
            return
        if known is None and len(self._told) >= KINDS_MAX:
            self._told.clear()
        more = known.since if known is not None else 0
        self._told[kind] = _Told(now_ms, 0)
        self._say(f"{sentence} ({more} times more since it was told last)" if more else sentence)
