"""ListGroups by frames. Answers are those of Apache Kafka 4.3.1 for the same requests."""

from typing import Any

import pytest

from api.group_requests import commit, find_coordinator, stable_member
from api.raw import Connection
from kafkalite.protocol import messages


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
