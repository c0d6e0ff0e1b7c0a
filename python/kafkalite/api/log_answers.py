"""Requests that ask the logs of several partitions, and are answered in time though a log directory
may not answer: what it has not said by then is REQUEST_TIMED_OUT.

    handler ── `context.logs` ──► a future each ── `in_time` ──► `answer_of` each ──► the response
"""

from collections.abc import Collection
from contextlib import suppress
from typing import Any, TypeVar

from kafkalite.calls import SILENCE
from kafkalite.context import Context
from kafkalite.tasks import Future, TimedOutError, all_done

T = TypeVar("T")


async def in_time(
    context: Context, request: Any, wait_ms: int, asked: Collection[Future[Any]]
) -> None:
    """Returns once all logs have answered, after so many milliseconds at the latest, or when the
    broker begins to stop. The request counts as memory until the last log has answered, however
    late that is."""
    with suppress(TimedOutError), context.time_limit(wait_ms):
        await context.tasks.start(all_done(asked), holding=request)


def answer_of(asked: Future[T]) -> T:
    """Returns the answer of a log. Raises KafkaliteError: why it was refused, or that it said
    nothing."""
    if not asked.is_done:
        raise TimedOutError(SILENCE)
    return asked.result()
