"""The time within which a request is answered that waits for a log directory, which may hang.

    handler ── Deadline(…, late) ──► the log directory ──► `met()`: True, the request is answered
                      └── time is over, or the broker stops ──► `late()` answers, `met()`: False

Kafka's controller answers REQUEST_TIMED_OUT when the time that a client gives for a change is over,
and what was begun goes on. So here.
"""

from collections.abc import Callable
from typing import Final

from kafkalite.context import Context

CHANGE_WAIT_MS_MIN: Final = 1_000
"""Log directories have so long to change, also where the client gives less: what Kafka's controller
has begun it does not give up."""
IMPATIENT_WAIT_MS: Final = 2_000
"""So long waits what need not wait for a log directory: the client asks again, or knows enough."""


class Deadline:
    """Of one request. Used by the control thread only."""

    def __init__(self, context: Context, wait_ms: int, late: Callable[[], None]) -> None:
        """`late()` is called after so many milliseconds, or when the broker begins to stop, at once
        if it has, unless `met` was called before."""
        self._context = context
        self._late = late
        self._is_over = False
        self._timer = context.timers.call_at(context.now_ms() + wait_ms, self._pass)
        context.on_stop(self._pass)

    def met(self) -> bool:
        """What was waited for is there. False: too late, or not for the first time."""
        was_over, self._is_over = self._is_over, True
        if not was_over:
            self._timer.cancel()
            self._context.forget_on_stop(self._pass)
        return not was_over

    def _pass(self) -> None:
        if self.met():
            self._late()
