"""ListGroups by frames. Answers are those of Apache Kafka 4.3.1 for the same requests."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.group_requests import commit, find_coordinator, stable_member
from api.raw import Connection
from kafkalite.api import k16_list_groups
from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.events import GroupLimits
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Tasks
from kafkalite.timers import Timers


def listed(connection: Connection, version: int = 5, **filters: Any) -> dict[str, Any]:
    answer = connection.ask("ListGroups", version, messages.ListGroupsRequest(**filters))
    assert answer.error_code == 0
    return {each.group_id: each for each in answer.groups}


@pytest.fixture(autouse=True)
def groups(connection: Connection, topic: str) -> None:
    find_coordinator(connection, "any")
    commit(connection, "listed-empty", topic, (0, 1))
    if "listed-stable" not in listed(connection):
        stable_member(connection, "listed-stable", session_ms=600_000)


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_every_group(connection: Connection, version: int) -> None:
    found = listed(connection, version)
    assert found["listed-empty"].protocol_type == ""
    assert found["listed-stable"].protocol_type == "consumer"
    if version >= 4:
        assert found["listed-empty"].group_state == "Empty"
        assert found["listed-stable"].group_state == "Stable"
    if version >= 5:
        assert {each.group_type for each in found.values()} == {"classic"}


def test_states_and_types_choose_whatever_their_case(connection: Connection) -> None:
    assert "listed-empty" not in listed(connection, states_filter=[" stable"])
    assert "listed-stable" in listed(connection, states_filter=["STABLE", "Dead"])
    assert "listed-empty" in listed(connection, states_filter=["empty"])
    assert listed(connection, states_filter=["no such state"]) == {}
    assert "listed-empty" in listed(connection, types_filter=["Classic"])
    assert listed(connection, types_filter=["consumer"]) == {}
    assert listed(connection, types_filter=["no such type"]) == {}


def test_a_group_that_is_let_go_while_others_are_listed_is_not_called_dead() -> None:
    """Another broker coordinates it by then."""
    first, second = (ClassicGroup(name, GroupLimits(1, 0), 0) for name in ("first", "second"))

    def groups() -> Iterator[ClassicGroup]:
        yield first
        second.unload()
        yield second

    context = SimpleNamespace(
        tasks=Tasks(Timers(), lambda error: pytest.fail(str(error))),
        groups=SimpleNamespace(list_groups=lambda: (codes.NONE, groups())),
        may=lambda *_: True,
    )
    handled = k16_list_groups.handle(
        cast(Any, context), cast(Any, None), messages.ListGroupsRequest()
    )
    answer = context.tasks.start(handled).result()
    assert [(each.group_id, each.group_state) for each in answer.groups] == [("first", "Empty")]
