"""Troubles that come again and again are told once, and counted."""

from kafkalite.service.repeated import KINDS_MAX, TROUBLES_INTERVAL_MS, Repeated


def test_a_trouble_is_told_once_a_minute_with_how_often_it_came() -> None:
    said: list[str] = []
    repeated = Repeated(said.append, TROUBLES_INTERVAL_MS)
    for now_ms in range(0, TROUBLES_INTERVAL_MS, 1_000):
        repeated.tell(f"no room at {now_ms}", now_ms, "full")
    assert said == ["no room at 0"]
    repeated.tell("nobody is there", 5, "away")
    repeated.tell("no room", TROUBLES_INTERVAL_MS, "full")
    assert said[1:] == ["nobody is there", "no room (and 59 more since the last such line)"]
    repeated.tell("no room", 2 * TROUBLES_INTERVAL_MS, "full")
    assert said[-1] == "no room"


def test_troubles_that_clients_name_pause_whatever_their_kind() -> None:
    """A client could have a line written for each of the names that it made up."""
    said: list[str] = []
    repeated = Repeated(said.append, TROUBLES_INTERVAL_MS, 1_000)
    for now_ms in range(0, 3_000, 10):
        repeated.tell(f"no {now_ms}", now_ms, now_ms)
    assert said == [
        "no 0",
        "no 1000 (and 99 more since the last such line)",
        "no 2000 (and 99 more since the last such line)",
    ]
    # One that comes again is told each minute all the same.
    repeated.tell("no 0", TROUBLES_INTERVAL_MS, 0)
    assert said[-1] == "no 0 (and 99 more since the last such line)"


def test_troubles_of_ever_new_kinds_take_no_more_memory() -> None:
    said: list[str] = []
    repeated = Repeated(said.append, TROUBLES_INTERVAL_MS)
    for kind in range(3 * KINDS_MAX):
        repeated.tell("new", 0, kind)
    assert len(said) == 3 * KINDS_MAX
    assert len(repeated._told) <= KINDS_MAX
