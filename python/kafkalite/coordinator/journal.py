"""State that is changed at once, and taken back if its records cannot be written.

    put, pop ──► table changed ──► take(): the steps go with the write ──► on disk: forgotten
                                                                      └──► refused: undo, last first

A table is a dictionary of immutable values. What was built upon a change that is taken back goes
with it: steps that touch the same key of the same table, those that touch theirs, and so on
(`dependents`). An operation that relies on what another has changed therefore puts that key again.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final = object()


class Step(NamedTuple):
    """One change: the value before and after, or that there is none."""

    table: dict[Any, Any]
    key: Any
    before: Any
    after: Any

    @property
    def place(self) -> tuple[int, Any]:
        """The table and the key: what depends on it names it too."""
        return id(self.table), self.key


Steps = Sequence[Step]


class Journal:
    """Records the changes of tables since the last `take`."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        """Sets a key of a table."""
        self._steps.append(Step(table, key, table.get(key, _ABSENT), value))
        table[key] = value

    def pop(self, table: dict[K, V], key: K) -> None:
        """Removes a key of a table. One that is not there counts as touched all the same: whoever
        removes it relies on that."""
        self._steps.append(Step(table, key, table.pop(key, _ABSENT), _ABSENT))

    def take(self) -> Steps:
        """Gives the changes since the last call, for the write that makes them durable."""
        steps, self._steps = self._steps, []
        return steps


def undo(steps: Steps) -> None:
    """Takes changes back, the last first. A key that somebody has set since without the journal is
    left as it is."""
    for table, key, before, after in reversed(steps):
        if table.get(key, _ABSENT) is not after:
            continue
        if before is _ABSENT:
            table.pop(key, None)
        else:
            table[key] = before


def dependents(failed: Steps, later: Iterable[Steps]) -> list[bool]:
    """Tells of each of the later groups of steps whether it builds upon the failed ones."""
    places = {step.place for step in failed}
    found = []
    for steps in later:
        touched = {step.place for step in steps}
        builds = not places.isdisjoint(touched)
        if builds:
            places |= touched
        found.append(builds)
    return found
