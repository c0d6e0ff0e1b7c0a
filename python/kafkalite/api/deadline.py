"""The time within which a request is answered that waits for a directory, which may hang.

    handler ── in_turn(…, late) ──► its turn ── Deadline(…, late) ──► on disk ──► `met()`: True, it
                      │                               │                               is answered
                      └───────────────────────────────┴── time is over, or the broker stops ──►
                                                          `late()` answers, `met()`: False

Who begins a change refers to its request until the change is through: so changes that wait count as
memory of requests, and are bounded with it (`_native.Logs.is_change_held_up`). Who only waits for a
change of others is a `Waiter`.

Kafka's controller answers REQUEST_TIMED_OUT when the time that a client gives for a change is over
and it has not begun, of which nothing is left then; what was begun goes on. So here.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from kafkalite.context import Context

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


class Deadline:
    """Of one request that has begun a change. Used by the control thread only."""

    def __init__(self, context: Context, wait_ms: int, late: Callable[[], None]) -> None:
        """`late()` is called after so many milliseconds, or when the broker begins to stop, at once
        if it has, unless `met` was called before."""
        self._context = context
        self._late: Callable[[], None] | None = late
        self._timer = context.timers.call_at(context.now_ms() + wait_ms, self._pass)
        context.on_stop(self._pass)

    def met(self) -> bool:
        """What was waited for is there. False: too late, or not for the first time."""
        return self._end() is not None

    def _end(self) -> Callable[[], None] | None:
        """`late`, the first time, and refers to nothing of the request any more."""
        late, self._late = self._late, None
        if late is not None:
            self._timer.cancel()
            self._context.forget_on_stop(self._pass)
        return late

    def _pass(self) -> None:
        late = self._end()
        if late is not None:
            late()


class Waiter(Deadline):
    """Of one request that waits for what goes on without it. It alone refers to the request: who
    calls `end` some day has `end` only, and is told to forget even that when the time is over. So
    nothing is left of a request that was answered late, however long the directory hangs."""

    def __init__(
        self,
        context: Context,
        wait_ms: int,
        late: Callable[[], None],
        then: Callable[[], None],
        forget: Callable[[Callable[..., None]], object] | None = None,
    ) -> None:
        """`then()` is called by `end`, or `late()` as of a Deadline, before which `forget(end)` has
        whoever was given `end` forget it."""
        self._then: Callable[[], None] | None = then
        self._forget = forget
        super().__init__(context, wait_ms, late)

    def end(self, *_outcome: object) -> None:
        """What was waited for is there, or will never be."""
        then = self._then
        if self.met() and then is not None:
            then()

    def _end(self) -> Callable[[], None] | None:
        self._then = None
        return super()._end()

    def _pass(self) -> None:
        if self._forget is not None:
            self._forget(self.end)
        super()._pass()


def in_turn(
    context: Context,
    request: Any,
    wait_ms: int,
    names: Collection[str],
    late: Callable[[], None],
    then: Callable[[int], None],
) -> None:
    """`then(due_ms)` once its request may change the metadata and none of the topics is changing,
    maybe at once; `due_ms` is when its time is over. `late()` if that comes first, or if it would
    have to wait and too many do. If `then` fails, which is a defect, the connection is closed."""
    turns = context.controller.turns
    if context.plane.is_change_held_up() and turns.has_to_wait(names):
        late()
        return
    due_ms = context.now_ms() + wait_ms

    begin = closing(context, request, partial(then, due_ms))
    waiter = Waiter(context, wait_ms, late, begin, turns.forget)
    turns.in_turn(names, waiter.end)


def closing(context: Context, request: Any, then: Callable[[], None]) -> Callable[[], None]:
    """`then`, for when the handler of the request has returned: if it fails, which is a defect, the
    connection is closed."""

    def call() -> None:
        try:
            then()
        except Exception:
            context.plane.requests.close_connection(request)
            raise

    return call


def left_ms(context: Context, due_ms: int) -> int:
    """Milliseconds until then, or none."""
    return max(0, due_ms - context.now_ms())
