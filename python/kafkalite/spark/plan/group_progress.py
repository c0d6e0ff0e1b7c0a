"""When a stream tells a consumer group how far it is: the option `commitOffsetsToGroup`.

Spark's checkpoint alone says where a query goes on. The group is for who looks from outside: tools
that show lag by committed offsets, alarms, brokers that keep the newest record that was read.

What is committed is where the next micro-batch begins, at the trigger that asks for it: Spark has
noted the one before as done by then, sink and checkpoint, so that no offset is ever ahead of the
sink. `spark/jvm/GroupProgress.java` is the same of the columnar engine.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["GroupProgress"]

# Committed anew though nothing was read: a broker forgets offsets of a group without members after
# `offsets.retention.minutes`, a week.
AGAIN_S = 3_600.0
# After a commit that failed: a stream must not wait for a coordinator at each trigger.
PAUSE_S = 10.0


class GroupProgress:
    """The offsets that a run of a query has committed, and whether it is time for more."""

    def __init__(self) -> None:
        """Nothing is committed yet."""
        self._offsets: Mapping[Any, int] | None = None
        self._not_before_s = 0.0
        """The pause before the same offsets after a commit, and before any after a failure."""
        self._has_failed = False

    @property
    def is_first(self) -> bool:
        """True before the first commit. Its failure fails the query, since most likely an option is
        wrong; the failure of a later one is logged, and the commit tried again."""
        return self._offsets is None

    def is_due(self, offsets: Mapping[Any, int], now_s: float) -> bool:
        """Tells whether to commit these, at a time of any one clock."""
        if now_s >= self._not_before_s:
            return True
        return not self._has_failed and offsets != self._offsets

    def committed(self, offsets: Mapping[Any, int], now_s: float) -> None:
        """These are committed."""
        self._offsets, self._has_failed = dict(offsets), False
        self._not_before_s = now_s + AGAIN_S

    def failed(self, now_s: float) -> None:
        """A commit has failed."""
        self._has_failed = True
        self._not_before_s = now_s + PAUSE_S
