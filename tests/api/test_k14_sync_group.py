"""SyncGroup by frames. Codes are those of Apache Kafka 4.3.1 for the same requests."""

import pytest

from api.group_requests import commit, find_coordinator, join, stable_member, sync
from api.raw import Connection


@pytest.mark.parametrize("version", range(6))
def test_every_version_gets_its_assignment(connection: Connection, version: int) -> None:
    group = f"sync-{version}"
    find_coordinator(connection, group)
    member_id = join(connection, group, version=3).member_id
    given = {member_id: b"mine", "stranger": b"x"}
    answer = sync(connection, group, 1, member_id, given, version=version)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == expected
    assert sync(connection, group, 1, member_id, version=version).assignment == b"mine"


def test_what_does_not_fit_is_told_by_its_code(connection: Connection, topic: str) -> None:
    find_coordinator(connection, "fits")
    member_id = join(connection, "sync-fits", version=3).member_id

    def code(group: str = "sync-fits", generation_id: int = 1, **options: object) -> int:
        answer = sync(connection, group, generation_id, **{"member_id": member_id, **options})
        assert (answer.protocol_type, answer.assignment) == (None, b"")
        found: int = answer.error_code
        return found

    assert code(protocol=(None, None)) == 23
    assert code(protocol=("consumer", "other")) == 23
    assert code(protocol=("connect", "range")) == 23
    assert code(generation_id=7) == 22
    assert code(member_id="stranger") == 25
    assert code(instance="i") == 25
    assert code(group="no-such-group") == 25
    assert code(group="") == 24
    commit(connection, "sync-without-members", topic, (0, 1))
    assert code(group="sync-without-members") == 25


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(connection: Connection) -> None:
    find_coordinator(connection, "forgot")
    member_id = join(connection, "forgot", version=3).member_id
    answer = sync(connection, "forgot", 1, member_id, {})
    assert (answer.error_code, answer.assignment) == (0, b"")


def test_a_new_member_ends_what_others_wait_for(connection: Connection) -> None:
    member_id = stable_member(connection, "ends")
    with Connection(":".join(map(str, connection.socket.getpeername()))) as other:
        from api.group_requests import heartbeat, join_request

        joining = other.send(11, 3, join_request("ends").encode(3))
        while heartbeat(connection, "ends", 1, member_id) != 27:
            pass
        assert sync(connection, "ends", 1, member_id).error_code == 27
        join(connection, "ends", member_id)
        assert other.receive(11, 3, joining).generation_id == 2
