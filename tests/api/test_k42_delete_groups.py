"""DeleteGroups by frames. Codes are those of Apache Kafka 4.3.1 for the same requests."""

import pytest

from api.group_requests import (
    commit,
    committed,
    describe,
    find_coordinator,
    leave,
    stable_member,
)
from api.raw import Connection
from kafkalite.protocol import messages


def delete(connection: Connection, *groups: str, version: int = 2) -> dict[str, int]:
    request = messages.DeleteGroupsRequest(groups_names=list(groups))
    results = connection.ask("DeleteGroups", version, request).results
    found = {each.group_id: each.error_code for each in results}
    assert len(found) == len(results)
    return found


@pytest.mark.parametrize("version", range(3))
def test_every_version_ends_a_group_and_forgets_its_offsets(
    connection: Connection, topic: str, version: int
) -> None:
    find_coordinator(connection, "any")
    group = f"ended-{version}"
    commit(connection, group, topic, (0, 9))
    assert delete(connection, group, version=version) == {group: 0}
    assert committed(connection, group, topic) == -1
    assert describe(connection, group)[0].group_state == "Dead"
    assert delete(connection, group, version=version) == {group: 69}


def test_groups_with_members_stay(connection: Connection, topic: str) -> None:
    member_id = stable_member(connection, "stays")
    commit(connection, "stays", topic, (0, 9), generation_id=1, member_id=member_id)
    assert delete(connection, "stays", "no-such-group", "stays") == {
        "stays": 68,
        "no-such-group": 69,
    }
    assert committed(connection, "stays", topic) == 9
    leave(connection, "stays", (member_id, None))
    assert delete(connection, "stays") == {"stays": 0}
    assert delete(connection) == {}


def test_a_group_that_ended_can_begin_anew(connection: Connection) -> None:
    member_id = stable_member(connection, "anew")
    leave(connection, "anew", (member_id, None))
    delete(connection, "anew")
    assert stable_member(connection, "anew") != member_id
