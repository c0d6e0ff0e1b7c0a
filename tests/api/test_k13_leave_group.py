"""LeaveGroup by frames. Codes are those of Apache Kafka 4.3.1 for the same requests."""

import pytest

from api.group_requests import describe, find_coordinator, heartbeat, leave, stable_member
from api.raw import Connection


@pytest.mark.parametrize("version", range(6))
def test_every_version_leaves_an_empty_group_behind(connection: Connection, version: int) -> None:
    group = f"leave-{version}"
    member_id = stable_member(connection, group)
    answer = leave(connection, group, (member_id, None), version=version)
    assert answer.error_code == 0
    if version >= 3:
        assert [(each.member_id, each.error_code) for each in answer.members] == [(member_id, 0)]
    (described,) = describe(connection, group)
    assert (described.group_state, described.members) == ("Empty", [])
    assert heartbeat(connection, group, 2, member_id) == 25


def test_each_member_is_judged_on_its_own(connection: Connection) -> None:
    member_id = stable_member(connection, "judged", instance="i")
    leaving = [("stranger", None), ("", "j"), ("", None), (member_id, "j"), ("", "i")]
    answer = leave(connection, "judged", *leaving)
    assert answer.error_code == 0
    assert [each.error_code for each in answer.members] == [25, 25, 25, 25, 0]
    assert answer.members[4].group_instance_id == "i"


def test_groups_that_cannot_be_left(connection: Connection) -> None:
    find_coordinator(connection, "any")
    answer = leave(connection, "no-such-group", ("x", None))
    assert (answer.error_code, answer.members[0].error_code) == (0, 25)
    assert leave(connection, "no-such-group", ("x", None), version=0).error_code == 25
    answer = leave(connection, "", ("x", None))
    assert (answer.error_code, answer.members) == (24, [])
    stable_member(connection, "nobody-leaves")
    answer = leave(connection, "nobody-leaves")
    assert (answer.error_code, answer.members) == (0, [])
