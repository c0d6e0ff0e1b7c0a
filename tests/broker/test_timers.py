"""Timers give what is due, in order, once, and nothing that was cancelled."""

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


@given(COMMANDS)
def test_timers_agree_with_a_sorted_list(commands: list[tuple[str, int]]) -> None:
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
            while (callback := timers.pop_due(now_ms)) is not None:
                callback()
            due = sorted(each for each in waiting if each[0] <= now_ms)
            assert called == [number for _, number in due]
            waiting = [each for each in waiting if each[0] > now_ms]
        assert timers.next_ms() == min((each[0] for each in waiting), default=None)


def test_a_callback_can_cancel_one_that_is_due_with_it() -> None:
    timers, called = Timers(), []
    second = None

    def first() -> None:
        called.append("first")
        second.cancel()

    timers.call_at(1, first)
    second = timers.call_at(1, lambda: called.append("second"))
    while (callback := timers.pop_due(1)) is not None:
        callback()
    assert called == ["first"]


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.call_at(1_000_000 + number, lambda: None).cancel()
    assert len(timers._heap) <= 2 * CANCELLED_MIN
