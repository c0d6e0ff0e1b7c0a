"""Deadlines of many names, against a dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinator.deadlines import STALE_MIN, Deadlines

step = st.tuples(
    st.sampled_from(["set", "forget", "pop"]), st.sampled_from("abcd"), st.integers(0, 9)
)


@given(st.lists(step))
def test_names_are_due_as_a_dictionary_says(steps: list[tuple[str, str, int]]) -> None:
    deadlines = Deadlines()
    model: dict[str, int] = {}
    for kind, name, time_ms in steps:
        if kind == "set":
            deadlines.set(name, time_ms)
            model[name] = min(model.get(name, time_ms), time_ms)
        elif kind == "forget":
            deadlines.forget(name)
            model.pop(name, None)
        else:
            due = deadlines.pop_due(time_ms)
            first = min(model.values(), default=None)
            if first is None or first > time_ms:
                assert due is None
            else:
                assert due is not None
                assert model.pop(due) == first
        assert deadlines.next_ms() == min(model.values(), default=None)


def test_names_that_come_and_go_take_no_memory() -> None:
    deadlines = Deadlines()
    for index in range(10_000):
        deadlines.set("group", 1_000_000 + index)
        deadlines.forget("group")
    assert len(deadlines._heap) <= STALE_MIN + 1
