"""Offsets that are to be forgotten, of deleted topics and expired ones: too many to be forgotten in
one step, which would hold the control thread. Their tombstones are made and written some at a time.

A topic may be there again before it is its offsets' turn. What a group commits in it then is to
stay: just that is forgotten before the commit (`before`), and left out when it is the group's turn.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from kafkalite.coordinator.machine import Append, Moment
from kafkalite.groups.events import CommitRequest

STEP_OFFSETS: Final = 5_000
"""Offsets that are looked at, or forgotten, before other work has its turn."""
GROUP_COSTS: Final = 50
"""Looking at a group costs as much as at so many offsets."""
STEP_PAUSE_MS: Final = 1


Places = set[tuple[str, int]]
"""Topics, each with the index of a partition."""


class _Deletion:
    """Offsets of some groups, in topics or just in some partitions."""

    def __init__(
        self,
        names: Collection[str] | Collection[tuple[str, int]],
        groups: Iterable[str],
        tombstones: Callable[[str, Places], Iterator[Append]],
    ) -> None:
        self._names = frozenset[str | tuple[str, int]](names)
        self.committed: dict[str, Places] = {group_id: set() for group_id in groups}
        """Groups that are left -> what they have committed since."""
        self.appends = self._make(tombstones)

    def has(self, place: tuple[str, int]) -> bool:
        """Says whether it forgets the offsets of a partition."""
        return place in self._names or place[0] in self._names

    def _make(
        self, tombstones: Callable[[str, Places], Iterator[Append]]
    ) -> Iterator[Append | None]:
        """None after each group."""
        for group_id in list(self.committed):
            yield from tombstones(group_id, self.committed[group_id])
            del self.committed[group_id]
            yield None


class Deletions:
    """The deletions of one partition, in the order in which they were requested."""

    def __init__(self) -> None:
        self.wake_ms: int | None = None
        """When `step` is due next, monotonic."""
        self._queue = deque[_Deletion]()

    def add(
        self,
        names: Collection[str] | Collection[tuple[str, int]],
        groups: Iterable[str],
        tombstones: Callable[[str, Places], Iterator[Append]],
        moment: Moment,
    ) -> None:
        """Has the groups' offsets in the topics, or partitions, forgotten, from the next step on.
        `tombstones` makes those of a group one after the other, each without what is in the set by
        then."""
        self._queue.append(_Deletion(names, groups, tombstones))
        self.wake_ms = moment.now_ms

    def step(self, moment: Moment) -> list[Append]:
        """Gives the next tombstones."""
        found: list[Append] = []
        left = STEP_OFFSETS
        while self._queue and left > 0:
            deletion = self._queue[0]
            append = next(deletion.appends, None)
            if append is not None:
                found.append(append)
                left -= len(append.records)
            elif deletion.committed:
                left -= GROUP_COSTS
            else:
                self._queue.popleft()
        self.wake_ms = moment.now_ms + STEP_PAUSE_MS if self._queue else None
        return found

    def before(self, group_id: str, request: CommitRequest) -> list[tuple[str, int]]:
        """Gives what a group is to forget before this commit, and what it has committed stays."""
        found: dict[tuple[str, int], None] = {}
        for deletion in self._queue:
            committed = deletion.committed.get(group_id)
            if committed is None:
                continue
            places = [(each.topic, each.partition) for each in request.offsets]
            new = [each for each in places if deletion.has(each) and each not in committed]
            committed.update(new)
            found.update(dict.fromkeys(new))
        return list(found)

    def clear(self) -> None:
        """Leaves what is left as it is."""
        self._queue.clear()
        self.wake_ms = None
