"""Tasks of the control thread: coroutines that await futures, driven by `send`, without asyncio.

    request ──► handle() ──► await future ─┐ parked          ┌──► goes on ──► its answer
                                           └─ set() or fail()┘ before the next request is looked at

A handler is a coroutine where it has to wait; what it returns is the answer:

    async def handle(context, request, message):
        batch = judge(message)
        try:
            with context.time_limit(message.timeout_ms):
                offset = await context.logs.append("topic", 0, batch)
        except TimedOutError:
            return refused(codes.REQUEST_TIMED_OUT)
        except KafkaliteError as error:
            return refused(error.kafka_code)
        return messages.SomeResponse(offset=offset)

- A time limit raises TimedOutError at the innermost `await` of its block: when its time is over, or
  when the broker begins to stop, at once if it has. What is awaited goes on: only the wait is over.
- What must go on whatever becomes of the request, as a change that has begun, is a task of its own:
  `await context.tasks.start(change(…), holding=request)`. It runs at once, up to its first `await`.
  `holding` counts as memory of requests until the task is through. Without it nothing is left of a
  request that was answered: a future forgets who does not wait for it any more.
- Several at a time: make the futures first, then `await all_done(futures)` and look at each.
- A connection that closes interrupts nothing, as in Kafka: the answer is dropped where it arrives.
- What takes long is done in slices: `async for each in context.tasks.sliced(elements)` lets others
  have their turn between two elements once a slice is over. What it relied on may have changed
  then: whoever has to have one image holds the metadata write lock.
- A large request has a turn of its own (`Turns.take`, `Tasks.keep`) and keeps it while it computes:
  in slices, or in a thread of the background by `compute`. At its first `await` of anything else,
  its own or that of a task that it awaits, others have the turn.
- Which task goes on first: in the order in which what they wait for came to be; never from within
  the call that sets a future.

No thread or socket is in here: `kafkalite.server` runs what is ready, `Timers` has the time.
"""

import time
import types
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from typing import Any, Final, Generic, TypeVar, cast

from kafkalite.errors import KafkaliteError
from kafkalite.timers import Timer, Timers

T = TypeVar("T")
Step = Callable[[], object]

SLICE_NS: Final = 5_000_000
"""So long a task works before others have their turn (`Tasks.sliced`)."""


class TimedOutError(KafkaliteError):
    """The time of a `TimeLimit` is over, or the broker stops."""

    kafka_code = 7


class Future(Generic[T]):
    """A value, or an error, that is not there yet. It comes once, and stays."""

    __slots__ = ("__weakref__", "_error", "_is_seen", "_value", "_watchers", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._is_seen = False
        """Somebody has looked at it."""
        self._watchers: dict[Step, None] = {}
        """Called once it is done, in this order."""

    def set(self, value: T) -> None:
        """It is there: who waits for it goes on."""
        self._value = value
        self._end()

    def fail(self, error: Exception) -> None:
        """It will never be there: `error` is raised where it is awaited."""
        self._error = error
        self._end()

    def result(self) -> T:
        """The value of one that is done; raises its error."""
        if not self.is_done:
            raise RuntimeError("a future that is not done has no result")
        self._is_seen = True
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self  # or the error refers to itself, by its traceback
        return cast(T, self._value)

    def watch(self, watcher: Step) -> None:
        """`watcher()` is called by `set` or `fail`, which have not been called yet."""
        self._watchers[watcher] = None

    def forget(self, watcher: Step) -> None:
        """`watcher` is not called any more. Nothing happens if it was."""
        self._watchers.pop(watcher, None)

    def __await__(self) -> Generator["Future[Any]", None, T]:
        if not self.is_done:
            yield self
        try:
            return self.result()
        finally:
            del self

    @types.coroutine
    def done(self) -> Generator["Future[Any]", None, None]:
        """Awaited, returns once it is there, or will never be."""
        if not self.is_done:
            yield self

    def _end(self) -> None:
        if self.is_done:
            raise RuntimeError("a future is set twice")
        self.is_done = True
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher()


class Computation(Future[T]):
    """One that waits for nothing but the time of a processor. Whoever awaits it keeps its turn."""

    __slots__ = ()


def completed(value: T) -> Future[T]:
    """A future whose value is there already."""
    future = Future[T]()
    future.set(value)
    return future


async def all_done(futures: Iterable[Future[Any]]) -> None:
    """Returns once all of them are there, or will never be."""
    for each in futures:
        await each.done()


class Task(Future[T]):
    """A coroutine under way, and the future of what it returns. `Tasks.start` makes one."""

    __slots__ = ("_awaited", "_coroutine", "_holding", "_limits", "_tasks", "_turn")

    def __init__(self, tasks: "Tasks", coroutine: Coroutine[Any, Any, T], holding: object) -> None:
        super().__init__()
        self._tasks = tasks
        self._coroutine = coroutine
        self._holding = holding
        self._awaited: Future[Any] | None = None
        """None as long as it runs, or is about to."""
        self._limits: list[TimeLimit] = []
        """The time limits that it is in, the outermost first."""
        self._turn: Turn | None = None
        """Given back when it first waits, or whoever awaits it does."""

    def _step(self, error: Exception | None = None) -> None:
        """Has the coroutine run to its next `await`."""
        tasks, coroutine = self._tasks, self._coroutine
        before, tasks.current = tasks.current, self
        if before is None:
            tasks.begin_slice()
        try:
            while True:
                awaited = coroutine.send(None) if error is None else coroutine.throw(error)
                if not isinstance(awaited, Future) or awaited.is_done:
                    raise RuntimeError(f"a task awaits {awaited!r}")
                error = self._error_of_limits() if self._limits else None
                if error is None:
                    break
            self._awaited = awaited
            awaited.watch(self._wake)
            if self._turn is not None:
                self.keep(self._turn)
        except StopIteration as end:
            self._holding = None
            self.set(end.value)
        except Exception as failure:  # noqa: BLE001 - it is raised where the task is awaited
            self._holding = None
            if not self._watchers:
                tasks.soon(self._report)
            # Without this frame, which refers to the task, and so to the error.
            self.fail(failure.with_traceback(_without_first(failure.__traceback__)))
        finally:
            error = None
            tasks.current = before

    def keep(self, turn: "Turn") -> None:
        """Has `turn` end when this task waits, or does so now, for more than a processor; or when
        that is true of a task that it awaits."""
        self._turn = turn
        if isinstance(self._awaited, Task):
            self._awaited.keep(turn)
        elif self._awaited is not None and not isinstance(self._awaited, Computation):
            self._turn = None
            turn.end()

    def _error_of_limits(self) -> TimedOutError | None:
        is_over = any(each.is_over for each in self._limits)
        return TimedOutError("the time is over") if is_over else None

    def _wake(self) -> None:
        """The future that it waits for is done."""
        self._awaited = None
        self._tasks.ready.append(self._step)

    def interrupt(self) -> None:
        """One of its limits is over. A task that is about to go on does so first."""
        if self._awaited is not None:
            self._awaited.forget(self._wake)
            self._awaited = None
            self._tasks.soon(self._time_out)

    def _time_out(self) -> None:
        self._step(self._error_of_limits())

    def _report(self) -> None:
        """Nobody has waited for what has failed."""
        if not self._is_seen and self._error is not None:
            self._tasks.report(self._error)


def _without_first(traceback: types.TracebackType | None) -> types.TracebackType | None:
    return traceback.tb_next if traceback else None


class Turn:
    """A right that somebody has until its `end`, which may be called again; or `with` it."""

    __slots__ = ("_turns",)

    def __init__(self, turns: "Turns") -> None:
        self._turns: Turns | None = turns

    def end(self) -> None:
        """Lets the next one have it."""
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.pass_on()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_outcome: object) -> None:
        self.end()


class Turns:
    """A right that one task has at a time, first come first served."""

    def __init__(self) -> None:
        self._is_taken = False
        self._queue: deque[Future[None]] = deque()

    async def take(self) -> Turn:
        """Waits for the right, which is had until the `Turn` ends."""
        if self._is_taken:
            turn = Future[None]()
            self._queue.append(turn)
            await turn
        self._is_taken = True
        return Turn(self)

    def pass_on(self) -> None:
        """Has the next one go on, by whoever has had the right."""
        if self._queue:
            self._queue.popleft().set(None)
        else:
            self._is_taken = False


class TimeLimit:
    """`with` this, awaiting in one task; see above. `Tasks.until` makes one.

    A limit inside another is over first or with it: if the outer one is, each `await` of the inner
    block raises TimedOutError, too.
    """

    def __init__(self, tasks: "Tasks", due_ms: int) -> None:
        self.is_over = False
        self._tasks = tasks
        self._due_ms = due_ms
        self._task: Task[Any] | None = None
        self._timer: Timer | None = None

    def __enter__(self) -> None:
        tasks = self._tasks
        if tasks.is_stopping:
            raise TimedOutError("the broker stops")
        if tasks.current is None:
            raise RuntimeError("a time limit is for a task")
        self._task = tasks.current
        self._task._limits.append(self)
        tasks.limits[self] = None
        self._timer = tasks.timers.call_at(self._due_ms, self.end)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: types.TracebackType | None,
    ) -> None:
        self._tasks.limits.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task._limits.remove(self)
            self._task = None

    def end(self) -> None:
        """The time is over, or the broker stops."""
        self.is_over = True
        if self._task is not None:
            self._task.interrupt()


class Tasks:
    """The tasks of the control thread, and what is ready to go on."""

    def __init__(
        self,
        timers: Timers,
        report: Callable[[Exception], object],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`report(error)` is told of what a task fails with that nobody waits for."""
        self.timers = timers
        self.report = report
        self.current: Task[Any] | None = None
        """The one that runs."""
        self.ready: deque[Step] = deque()
        """To be called before another request is looked at."""
        self.yielded: deque[Future[None]] = deque()
        """Futures of tasks whose slice is over: one is set after requests were looked at."""
        self.limits: dict[TimeLimit, None] = {}
        self.is_stopping = False
        self._clock_ns = clock_ns
        self._slice_end_ns = 0

    def start(self, coroutine: Coroutine[Any, Any, T], holding: object = None) -> Task[T]:
        """Has a coroutine run, at once up to its first `await`; `holding` is kept until its end."""
        task = Task(self, coroutine, holding)
        task._step()
        return task

    def soon(self, step: Step) -> None:
        """`step()` before another request is looked at, never from within this call."""
        self.ready.append(step)

    def begin_slice(self) -> None:
        """A task has its turn from now on."""
        self._slice_end_ns = self._clock_ns() + SLICE_NS

    def is_slice_over(self) -> bool:
        """Says that the task that runs is to `yield_now`."""
        return self._clock_ns() >= self._slice_end_ns

    async def yield_now(self) -> None:
        """Lets others have their turn: requests that have come are looked at before it returns."""
        turn = Computation[None]()
        self.yielded.append(turn)
        await turn

    async def sliced(self, elements: Iterable[T]) -> AsyncIterator[T]:
        """The elements; others have their turn between two of them where a slice is over."""
        for each in elements:
            if self.is_slice_over():
                await self.yield_now()
            yield each

    def keep(self, turn: Turn) -> None:
        """Has the task that runs give `turn` back as soon as it waits."""
        if self.current is None:
            raise RuntimeError("a turn is for a task")
        self.current.keep(turn)

    def until(self, due_ms: int) -> TimeLimit:
        """Limits the time of a block: `with tasks.until(due_ms)`, on the clock of `timers`."""
        return TimeLimit(self, due_ms)

    def stop(self) -> None:
        """The broker begins to stop: the time of every limit is over, now and from now on."""
        self.is_stopping = True
        for each in list(self.limits):
            each.end()
