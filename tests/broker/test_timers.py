"""Timers give what is due, in order, once, and nothing that was cancelled."""

from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.timers import CANCELLED_MIN, Timers

COMMANDS = st.lists(
    st.one_of(
        st.tuples(st.just("call_at"), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 200)),
        st.tuples(st.just("pass"), st.integers(0, 20)),
    ),
    max_size=200,
)


AllDue = Callable[[Timers, int], Iterable[Callable[[], None]]]


def one_by_one(timers: Timers, now_ms: int) -> Iterator[Callable[[], None]]:
    while (callback := timers.pop_due(now_ms)) is not None:
        yield callback


@pytest.mark.parametrize("all_due", [Timers.due, one_by_one])
@given(COMMANDS)
def test_timers_agree_with_a_sorted_list(all_due: AllDue, commands: list[tuple[str, int]]) -> None:
    timers, made, waiting, now_ms = Timers(), [], [], 0
    called: list[int] = []
    for command, argument in commands:
        if command == "call_at":
            number = len(made)
            deadline_ms = now_ms + argument
            made.append(timers.call_at(deadline_ms, lambda number=number: called.append(number)))
            waiting.append((deadline_ms, number))
        elif command == "cancel" and made:
            number = argument % len(made)
            made[number].cancel()
            waiting = [each for each in waiting if each[1] != number]
        else:
            now_ms += argument
            called.clear()
            for callback in all_due(timers, now_ms):
                callback()
            due = sorted(each for each in waiting if each[0] <= now_ms)
            assert called == [number for _, number in due]
            waiting = [each for each in waiting if each[0] > now_ms]
        assert timers.next_ms() == min((each[0] for each in waiting), default=None)


@pytest.mark.parametrize("all_due", [Timers.due, one_by_one])
def test_a_callback_can_cancel_one_that_is_due_with_it(all_due: AllDue) -> None:
    timers, called = Timers(), []
    second = None

    def first() -> None:
        called.append("first")
        second.cancel()

    timers.call_at(1, first)
    second = timers.call_at(1, lambda: called.append("second"))
    for callback in all_due(timers, 1):
        callback()
    assert called == ["first"]
    timers.call_at(2, lambda: None)
    assert timers.next_ms() == 2


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.call_at(1_000_000 + number, lambda: None).cancel()
    assert len(timers._heap) <= 2 * CANCELLED_MIN
