"""Troubles that come again and again are told once, and counted."""

from kafkalite.replication.repeated import KINDS_MAX, PAUSE_MS, Repeated


def test_a_trouble_is_told_once_a_minute_with_how_often_it_came() -> None:
    said: list[str] = []
    repeated = Repeated(said.append)
    for now_ms in range(0, PAUSE_MS, 1_000):
        repeated.tell("full", f"no room at {now_ms}", now_ms)
    assert said == ["no room at 0"]
    repeated.tell("away", "nobody is there", 5)
    repeated.tell("full", "no room", PAUSE_MS)
    assert said[1:] == ["nobody is there", "no room (59 times more since it was told last)"]
    repeated.tell("full", "no room", 2 * PAUSE_MS)
    assert said[-1] == "no room"


def test_troubles_of_ever_new_kinds_take_no_more_memory() -> None:
    said: list[str] = []
    repeated = Repeated(said.append)
    for kind in range(3 * KINDS_MAX):
        repeated.tell(kind, "new", 0)
    assert len(said) == 3 * KINDS_MAX
    assert len(repeated._told) <= KINDS_MAX
