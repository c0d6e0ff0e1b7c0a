"""The metadata write lock, and who waits for it."""

import pytest

from kafkalite.metadata.write_lock import WriteLock
from kafkalite.tasks import Future, Tasks, TimedOutError
from kafkalite.timers import Timers


@pytest.mark.parametrize("has_next", [False, True])
def test_a_turn_that_comes_when_the_time_is_over_goes_to_the_next(has_next: bool) -> None:
    """The time of a waiter ended, and before it was told so the holder let the lock go: it was the
    waiter's then, which failed with a ValueError and kept it for good."""
    failures: list[Exception] = []
    tasks = Tasks(Timers(), failures.append)
    lock = WriteLock()
    gate = Future[None]()
    order: list[str] = []

    async def hold() -> None:
        async with lock.held():
            await gate

    async def wait_until(due_ms: int) -> None:
        try:
            with tasks.until(due_ms):
                async with lock.held():
                    order.append("late")
        except TimedOutError:
            order.append("timed out")

    async def wait() -> None:
        async with lock.held():
            order.append("next")

    tasks.start(hold())
    tasks.start(wait_until(10))
    if has_next:
        tasks.start(wait())
    # The holder is ready to go on when the time of the other is over.
    gate.set(None)
    end = tasks.timers.pop_due(11)
    assert end is not None
    end()
    while tasks.ready:
        tasks.ready.popleft()()
    assert order == ["timed out", "next"][: 1 + has_next]
    assert not failures
    assert not lock.has_to_wait()
