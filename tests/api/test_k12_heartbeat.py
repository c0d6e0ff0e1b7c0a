"""Heartbeat by frames. Codes are those of Apache Kafka 4.3.1 for the same requests."""

import pytest

from api.group_requests import commit, find_coordinator, heartbeat, join, stable_member
from api.raw import Connection


@pytest.mark.parametrize("version", range(5))
def test_every_version_is_heard(connection: Connection, version: int) -> None:
    member_id = stable_member(connection, f"heard-{version}")
    assert heartbeat(connection, f"heard-{version}", 1, member_id, version=version) == 0


def test_what_does_not_fit_is_told_by_its_code(connection: Connection, topic: str) -> None:
    member_id = stable_member(connection, "fits")
    assert heartbeat(connection, "fits", 2, member_id) == 22
    assert heartbeat(connection, "fits", 1, "stranger") == 25
    assert heartbeat(connection, "fits", 1, member_id, "i") == 25
    assert heartbeat(connection, "no-such-group", 1, member_id) == 25
    assert heartbeat(connection, "", 1, member_id) == 24
    commit(connection, "without-members", topic, (0, 1))
    assert heartbeat(connection, "without-members", 1, member_id) == 25


def test_a_member_whose_group_waits_for_others_is_told_to_join_again(
    connection: Connection,
) -> None:
    find_coordinator(connection, "again")
    member_id = stable_member(connection, "again")
    pending = join(connection, "again")
    assert pending.error_code == 79
    assert heartbeat(connection, "again", 1, member_id) == 0
    assert heartbeat(connection, "again", 0, pending.member_id) == 25
