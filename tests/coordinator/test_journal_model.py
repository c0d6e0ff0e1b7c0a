"""Changes that are taken back leave the state as it was before them."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinator.journal import Journal, dependents, undo

change = st.tuples(st.integers(0, 1), st.sampled_from("abc"), st.none() | st.integers(0, 3))
writes = st.lists(st.lists(change, max_size=4), max_size=8)


def make(tables, journal, changes):
    """Has the changes happen; their steps."""
    for table, key, value in changes:
        if value is None:
            journal.pop(tables[table], key)
        else:
            journal.put(tables[table], key, value)
    return journal.take()


@given(writes, st.integers(0, 8))
def test_what_is_undone_last_first_was_never_there(all_writes, kept) -> None:
    tables: tuple[dict[str, int], ...] = ({}, {})
    journal = Journal()
    states, steps = [[dict(each) for each in tables]], []
    for changes in all_writes:
        steps.append(make(tables, journal, changes))
        states.append([dict(each) for each in tables])
    kept = min(kept, len(steps))
    for each in reversed(steps[kept:]):
        undo(each)
    assert list(tables) == states[kept]


@given(writes, st.integers(0, 7))
def test_a_write_that_fails_takes_with_it_what_was_built_upon_it_and_nothing_else(
    all_writes, failing
) -> None:
    """The state is that of the other writes alone."""
    if failing >= len(all_writes):
        return
    tables: tuple[dict[str, int], ...] = ({}, {})
    journal = Journal()
    steps = [make(tables, journal, changes) for changes in all_writes]
    later = steps[failing + 1 :]
    falls = dependents(steps[failing], later)
    for each, builds in zip(reversed(later), reversed(falls), strict=True):
        if builds:
            undo(each)
    undo(steps[failing])
    left = [*all_writes[:failing]]
    left += [
        each for each, builds in zip(all_writes[failing + 1 :], falls, strict=True) if not builds
    ]
    expected: tuple[dict[str, int], ...] = ({}, {})
    for changes in left:
        make(expected, journal, changes)
    assert tables == expected


def test_what_was_put_since_without_the_journal_stays() -> None:
    table = {"a": "old"}
    journal = Journal()
    journal.pop(table, "a")
    steps = journal.take()
    table["a"] = "made again"
    undo(steps)
    assert table == {"a": "made again"}
