"""Offsets that are to be forgotten, of deleted topics and expired ones: too many to be forgotten in
one step, which would hold the control thread. Their tombstones are made and written some at a time.

A topic may be there again before it is its offsets' turn, and what is committed in it then is to
stay: before that commit all of them are forgotten (`before`).
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from kafkalite.coordinator.machine import Append, Moment
from kafkalite.groups.events import CommitRequest

STEP_OFFSETS: Final = 5_000
"""Offsets that are looked at, or forgotten, before other work has its turn."""
GROUP_COSTS: Final = 50
"""Looking at a group costs as much as at so many offsets."""
STEP_PAUSE_MS: Final = 1


class Deletions:
    """The deletions of one partition, in the order in which they were requested."""

    def __init__(self) -> None:
        self.wake_ms: int | None = None
        """When `step` is due next, monotonic."""
        self._queue = deque[tuple[frozenset[str], Iterator[Append]]]()
        """Topics, and what makes the tombstones of offsets in them."""

    def add(self, topics: frozenset[str], tombstones: Iterator[Append], moment: Moment) -> None:
        """Has tombstones of offsets in the topics written, from the next step on."""
        self._queue.append((topics, tombstones))
        self.wake_ms = moment.now_ms

    def step(self, moment: Moment) -> list[Append]:
        """Gives the next tombstones."""
        found: list[Append] = []
        left = STEP_OFFSETS
        while self._queue and left > 0:
            append = next(self._queue[0][1], None)
            if append is None:
                self._queue.popleft()
            else:
                found.append(append)
                left -= len(append.records) + GROUP_COSTS
        self.wake_ms = moment.now_ms + STEP_PAUSE_MS if self._queue else None
        return found

    def before(self, request: CommitRequest) -> list[Append]:
        """Gives all tombstones that are left, if an offset is committed in one of the topics."""
        found: list[Append] = []
        if any(each.topic in topics for topics, _ in self._queue for each in request.offsets):
            for _, tombstones in self._queue:
                found += tombstones
            self.clear()
        return found

    def clear(self) -> None:
        """Leaves what is left as it is."""
        self._queue.clear()
        self.wake_ms = None
