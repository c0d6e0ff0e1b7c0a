"""The times within which requests are answered that change the metadata, or wait for a directory,
which may hang.

    async with may_change(…) ──► the write lock ──► judged ──► a task of its own ──► answer
              │                                                    │ goes on
              └──────── TimedOutError: the time is over, or the broker stops ──► answer

Who begins a change refers to its request until the change is through (`holding`): so changes that
wait count as memory of requests, and are bounded with it (`Logs.is_change_held_up`). Nothing
is left of a request that only waited.

Kafka's controller answers REQUEST_TIMED_OUT when the time that a client gives for a change is over
and it has not begun, of which nothing is left then; what was begun goes on. So here.
"""

from collections.abc import Collection
from typing import Final

from kafkalite.context import Context
from kafkalite.metadata.write_lock import Hold
from kafkalite.tasks import TimedOutError

CHANGE_WAIT_MS_MIN: Final = 1_000
"""Log directories have so long to change, also where the client gives less: what Kafka's controller
has begun it does not give up."""
IMPATIENT_WAIT_MS: Final = 2_500
"""So long waits what need not wait for a log directory: the client asks again, or knows enough.
Longer than the silence for which a directory is avoided (`DIRECTORY_SILENCE_MS`), so that who asks
again does not have a topic made in it."""
CHANGE_WAIT_MS: Final = 30_000
"""So long waits a change for whose time its request has no field: a client's `request.timeout.ms`
where it is not set."""
TOO_MANY_WAIT: Final = "too many requests wait for a directory that does not answer"


def may_change(context: Context, names: Collection[str] = ()) -> Hold:
    """`async with` this: the write lock, with none of the topics changing. Raises TimedOutError
    where it would have to wait, and too many do."""
    if context.core.logs.is_change_held_up() and context.write_lock.has_to_wait(names):
        raise TimedOutError(TOO_MANY_WAIT)
    return context.write_lock.held(names)
