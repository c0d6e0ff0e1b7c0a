"""Tasks go on when what they await is there or their time is over, in order, and leave nothing."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.tasks import (
    SLICE_NS,
    Computation,
    Future,
    Task,
    Tasks,
    TimedOutError,
    Turns,
    all_done,
)
from kafkalite.timers import Timers


class Thread:
    """What the control thread does with tasks, on a clock of the test."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.reported: list[Exception] = []
        self.tasks = Tasks(Timers(), self.reported.append)

    def run(self) -> None:
        while self.tasks.ready:
            self.tasks.ready.popleft()()

    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        while (callback := self.tasks.timers.pop_due(self.now_ms)) is not None:
            callback()
            self.run()


FUTURES = 4
WAITS = st.tuples(st.integers(0, FUTURES - 1), st.one_of(st.none(), st.integers(0, 20)))
SCRIPTS = st.lists(st.lists(WAITS, max_size=5), min_size=1, max_size=5)
COMMANDS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["start", "set", "fail"]), st.integers(0, 4)),
        st.tuples(st.just("pass"), st.integers(0, 15)),
        st.tuples(st.just("stop"), st.just(0)),
    ),
    max_size=30,
)


class Model:
    """The plain second implementation: looks at every task again after every event."""

    def __init__(self, scripts: list[list[tuple[int, int | None]]]) -> None:
        self.scripts = scripts
        self.outcomes: dict[int, str] = {}
        self.waiting: list[tuple[int, int, int | None]] = []
        """Task, its step and when its time is over, by when it began to wait."""
        self.now_ms = 0
        self.is_stopped = False
        self.told: list[tuple[int, int, str]] = []

    def go_on(self, task: int, step: int) -> None:
        for at, (future, limit) in enumerate(self.scripts[task][step:], step):
            if limit is not None and self.is_stopped:
                self.told.append((task, at, "late"))
            elif future in self.outcomes:
                self.told.append((task, at, self.outcomes[future]))
            else:
                due_ms = None if limit is None else self.now_ms + limit
                self.waiting.append((task, at, due_ms))
                return

    def end(self, ended: list[tuple[int, int, int | None]], word: str) -> None:
        self.waiting = [each for each in self.waiting if each not in ended]
        for task, step, _ in ended:
            self.told.append((task, step, word))
            self.go_on(task, step + 1)

    def settle(self, future: int, word: str) -> None:
        self.outcomes[future] = word
        self.end(
            [each for each in self.waiting if self.scripts[each[0]][each[1]][0] == future], word
        )

    def pass_time(self, by_ms: int) -> None:
        until_ms = self.now_ms + by_ms
        while True:
            due = [each for each in self.waiting if each[2] is not None and each[2] <= until_ms]
            if not due:
                break
            self.now_ms = until_ms
            self.end([min(due, key=lambda each: each[2] or 0)], "late")
        self.now_ms = until_ms

    def stop(self) -> None:
        self.is_stopped = True
        self.end([each for each in self.waiting if each[2] is not None], "late")


@given(SCRIPTS, COMMANDS)
def test_tasks_agree_with_a_model(
    scripts: list[list[tuple[int, int | None]]], commands: list[tuple[str, int]]
) -> None:
    thread, model = Thread(), Model(scripts)
    futures = [Future[str]() for _ in range(FUTURES)]
    told: list[tuple[int, int, str]] = []
    started: list[int] = []

    async def wait(future: Future[str], limit: int | None) -> str:
        try:
            if limit is None:
                return await future
            with thread.tasks.until(thread.now_ms + limit):
                return await future
        except TimedOutError:
            return "late"
        except StorageError:
            return "error"

    async def follow(task: int) -> None:
        for step, (future, limit) in enumerate(scripts[task]):
            told.append((task, step, await wait(futures[future], limit)))

    for command, argument in commands:
        if command == "start" and argument < len(scripts) and argument not in started:
            started.append(argument)
            thread.tasks.start(follow(argument))
            model.go_on(argument, 0)
        elif command == "set" and argument < FUTURES and not futures[argument].is_done:
            futures[argument].set("value")
            model.settle(argument, "value")
        elif command == "fail" and argument < FUTURES and not futures[argument].is_done:
            futures[argument].fail(StorageError("no room"))
            model.settle(argument, "error")
        elif command == "pass":
            thread.pass_time(argument)
            model.pass_time(argument)
        elif command == "stop":
            thread.tasks.stop()
            model.stop()
        thread.run()
        assert told == model.told
    assert not thread.reported
    waiting = [each for each in model.waiting if each[2] is not None]
    assert len(thread.tasks.limits) == len(waiting)


def test_a_change_goes_on_after_the_time_of_who_waits_for_it() -> None:
    thread, disk, done = Thread(), Future[int](), []

    async def change() -> int:
        offset = await disk
        done.append(offset)
        return offset

    async def handle() -> str:
        try:
            with thread.tasks.until(10):
                return f"offset {await thread.tasks.start(change())}"
        except TimedOutError:
            return "late"

    task = thread.tasks.start(handle())
    thread.pass_time(10)
    assert task.result() == "late"
    disk.set(7)
    thread.run()
    assert done == [7]


def test_an_outer_limit_ends_each_wait_of_the_inner_block() -> None:
    thread, never, told = Thread(), Future[None](), []

    async def handle() -> None:
        with suppress(TimedOutError), thread.tasks.until(10):
            for _ in range(2):
                with suppress(TimedOutError), thread.tasks.until(thread.now_ms + 50):
                    await never
                told.append(thread.now_ms)
            await never
        told.append(-1)

    thread.tasks.start(handle())
    thread.pass_time(20)
    assert told == [20, 20, -1]
    assert not thread.tasks.limits and thread.tasks.timers.next_ms() is None


def test_a_value_that_came_before_the_time_was_over_counts() -> None:
    thread, future = Thread(), Future[str]()

    async def handle() -> str:
        with thread.tasks.until(10):
            return await future

    task = thread.tasks.start(handle())
    future.set("there")
    thread.pass_time(10)
    assert task.result() == "there"


def test_no_wait_begins_once_the_broker_stops() -> None:
    thread, begun = Thread(), []

    async def handle() -> None:
        with thread.tasks.until(10):
            begun.append(True)

    thread.tasks.stop()
    task = thread.tasks.start(handle())
    with pytest.raises(TimedOutError):
        task.result()
    assert not begun


def test_a_failure_is_reported_where_nobody_waits_for_it() -> None:
    thread, future = Thread(), Future[None]()

    async def fail() -> None:
        await future
        raise ValueError("a defect")

    async def watch() -> None:
        with suppress(ValueError):
            await thread.tasks.start(fail())

    thread.tasks.start(watch())
    thread.tasks.start(fail())
    future.set(None)
    thread.run()
    assert [str(each) for each in thread.reported] == ["a defect"]


def test_all_of_several_are_waited_for_whatever_becomes_of_each() -> None:
    thread = Thread()
    futures = [Future[int]() for _ in range(3)]
    task = thread.tasks.start(all_done(futures))
    futures[1].fail(StorageError("no room"))
    futures[2].set(2)
    thread.run()
    assert not task.is_done
    futures[0].set(0)
    thread.run()
    assert task.is_done and futures[2].result() == 2


def test_the_time_of_several_together_can_be_over() -> None:
    thread, futures = Thread(), [Future[int](), Future[int]()]

    async def handle() -> list[bool]:
        with suppress(TimedOutError), thread.tasks.until(10):
            await all_done(futures)
        return [each.is_done for each in futures]

    task = thread.tasks.start(handle())
    futures[0].set(0)
    thread.run()
    thread.pass_time(10)
    assert task.result() == [True, False]


class Request:
    """Only to be seen to be gone."""


@pytest.fixture
def no_collections() -> Iterator[None]:
    """What a request takes is counted until it is gone, which must not wait for a collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("end", ["value", "error", "late", "stop"])
def test_nothing_is_left_of_a_request_that_was_answered(end: str) -> None:
    thread, future = Thread(), Future[None]()
    hung = [future]

    async def change(_request: Any) -> None:
        await hung[0]

    async def handle(request: Any) -> str:
        try:
            with thread.tasks.until(10):
                await hung[0]
                await thread.tasks.start(change(request), holding=request)
        except KafkaliteError as error:
            return str(error)
        return "answered"

    request = Request()
    left = weakref.ref(request)
    thread.tasks.start(handle(request))
    del request
    assert left() is not None
    if end == "value":
        future.set(None)
    elif end == "error":
        future.fail(StorageError("no room"))
    elif end == "stop":
        thread.tasks.stop()
    thread.run()
    thread.pass_time(10)
    if end == "error":
        # It knows whom it was raised to, but is itself of the past.
        del future
        hung.clear()
    assert left() is None


@pytest.mark.usefixtures("no_collections")
def test_a_request_is_held_as_long_as_its_change_is_under_way() -> None:
    thread, future = Thread(), Future[None]()

    async def change() -> None:
        await future
        raise StorageError("no room")

    async def handle(request: Any) -> None:
        with suppress(TimedOutError), thread.tasks.until(10):
            await thread.tasks.start(change(), holding=request)

    request = Request()
    left = weakref.ref(request)
    thread.tasks.start(handle(request))
    del request
    thread.pass_time(10)
    assert left() is not None
    future.set(None)
    thread.run()
    assert left() is None
    assert [str(each) for each in thread.reported] == ["no room"]


def test_a_task_of_many_elements_lets_others_have_their_turn_between_them() -> None:
    """One request kept the control thread until it had looked at its last element."""
    now_ns = 0

    def clock_ns() -> int:
        return now_ns

    tasks = Tasks(Timers(), lambda _error: None, clock_ns)
    looked_at: list[int] = []

    async def look() -> int:
        nonlocal now_ns
        async for each in tasks.sliced(range(100)):
            now_ns += SLICE_NS // 4
            looked_at.append(each)
        return len(looked_at)

    task = tasks.start(look())
    turns = [len(looked_at)]
    while not task.is_done:
        tasks.yielded.popleft().set(None)
        while tasks.ready:
            tasks.ready.popleft()()
        turns.append(len(looked_at))
    assert turns == list(range(4, 101, 4))
    assert task.result() == 100


def test_the_time_of_a_task_may_be_over_while_others_have_their_turn() -> None:
    thread = Thread()
    tasks = thread.tasks

    async def look() -> str:
        try:
            with tasks.until(10):
                await tasks.yield_now()
        except TimedOutError:
            return "late"
        return "in time"

    task = tasks.start(look())
    thread.pass_time(10)
    assert task.result() == "late"
    tasks.yielded.popleft().set(None)
    assert not tasks.ready


def test_turns_are_taken_one_at_a_time_in_order_whatever_becomes_of_them() -> None:
    thread = Thread()
    turns = Turns()
    begun: list[int] = []
    ends = [Future[None]() for _ in range(3)]

    async def work(number: int) -> None:
        with await turns.take():
            begun.append(number)
            await ends[number]

    tasks = [thread.tasks.start(work(number)) for number in range(3)]
    assert begun == [0]
    ends[0].fail(KafkaliteError("it failed"))
    thread.run()
    assert begun == [0, 1]
    ends[2].set(None)
    ends[1].set(None)
    thread.run()
    assert begun == [0, 1, 2]
    assert all(each.is_done for each in tasks)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("in_time", [True, False])
def test_a_turn_that_is_kept_ends_when_its_task_or_one_that_it_awaits_waits(
    depth: int, in_time: bool
) -> None:
    """And not while they compute. A large request had its turn while it waited for a log directory
    or for other brokers, unless its handler was marked as one that might: of the others that did,
    each held all large requests up for as long as its client liked."""
    thread = Thread()
    tasks, turns = thread.tasks, Turns()
    computed, waited = Computation[None](), Future[None]()
    begun: list[int] = []

    async def handle(below: int) -> None:
        if below:
            handling: Task[None] = tasks.start(handle(below - 1))
            await (all_done([handling]) if in_time else handling)
            return
        await tasks.yield_now()
        await computed
        await waited
        # It does not get the turn again.
        await tasks.yield_now()

    async def answer(number: int, depth: int) -> None:
        turn = await turns.take()
        with turn:
            tasks.keep(turn)
            begun.append(number)
            await handle(depth)

    first = tasks.start(answer(1, depth))
    second = tasks.start(answer(2, 0))
    tasks.yielded.popleft().set(None)
    thread.run()
    assert begun == [1], "it computes still"
    computed.set(None)
    thread.run()
    assert begun == [1, 2]
    third = tasks.start(answer(3, 0))
    assert begun == [1, 2], "the second one has the turn"
    waited.set(None)
    while tasks.yielded:
        tasks.yielded.popleft().set(None)
        thread.run()
    assert begun == [1, 2, 3]
    assert first.is_done and second.is_done and third.is_done


def test_a_turn_ends_with_its_task_that_has_not_waited_or_has_failed() -> None:
    thread = Thread()
    turns = Turns()
    begun: list[int] = []

    async def answer(number: int) -> None:
        turn = await turns.take()
        with turn:
            thread.tasks.keep(turn)
            begun.append(number)
            await thread.tasks.yield_now()
            raise KafkaliteError("it failed")

    for number in range(3):
        thread.tasks.start(answer(number))
    while thread.tasks.yielded:
        thread.tasks.yielded.popleft().set(None)
        thread.run()
    assert begun == [0, 1, 2]
