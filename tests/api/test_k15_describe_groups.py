"""DescribeGroups by frames. Answers are those of Apache Kafka 4.3.1 for the same requests."""

import pytest

from api.group_requests import commit, describe, find_coordinator, join, stable_member
from api.raw import Connection

NOT_SAID = -(2**31)


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_told_in_full(connection: Connection, version: int) -> None:
    group = f"described-{version}"
    member_id = stable_member(connection, group, instance="i", protocols=(("range", b"can"),))
    (told,) = describe(connection, group, version=version)
    assert (told.error_code, told.error_message, told.group_state) == (0, None, "Stable")
    assert (told.protocol_type, told.protocol_data) == ("consumer", "range")
    (member,) = told.members
    assert (member.member_id, member.client_id, member.client_host) == (
        member_id,
        "test",
        "/127.0.0.1",
    )
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert (member.member_metadata, member.member_assignment) == (b"can", b"all")
    assert told.authorized_operations == (3400 if version >= 3 else NOT_SAID)


def test_before_it_is_stable_only_the_members_are_told(connection: Connection) -> None:
    find_coordinator(connection, "completing")
    join(connection, "completing", version=3)
    (told,) = describe(connection, "completing")
    assert (told.group_state, told.protocol_data) == ("CompletingRebalance", "")
    assert told.members[0].member_metadata == b""


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead(connection: Connection, version: int) -> None:
    find_coordinator(connection, "any")
    (told,) = describe(connection, "no-such-group", version=version)
    assert told.group_state == "Dead"
    if version >= 6:
        assert (told.error_code, told.error_message) == (69, "Group no-such-group not found.")
        assert told.authorized_operations == NOT_SAID
    else:
        assert told.error_code == 0
        assert told.authorized_operations == (3400 if version >= 3 else NOT_SAID)


def test_a_group_without_members_is_empty(connection: Connection, topic: str) -> None:
    find_coordinator(connection, "any")
    commit(connection, "without", topic, (0, 1))
    told, other = describe(connection, "without", "no-such-group")
    assert (told.group_state, told.protocol_type, told.members) == ("Empty", "", [])
    assert other.group_state == "Dead"


def test_a_group_that_is_named_twice_is_told_twice(connection: Connection) -> None:
    find_coordinator(connection, "twice")
    join(connection, "twice", version=3)
    first, other, again = describe(connection, "twice", "no such group", "twice")
    assert len(first.members) == 1
    assert (again.group_id, again.members) == ("twice", first.members)
    assert other.group_state == "Dead"
