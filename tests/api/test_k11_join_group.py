"""JoinGroup by frames. Codes are those of Apache Kafka 4.3.1 for the same requests."""

from collections.abc import Iterator
from typing import Any

import pytest

import kafkalite
from api.group_requests import find_coordinator, heartbeat, join, join_request, stable_member, sync
from api.raw import Connection
from kafkalite.api.k11_join_group import PROTOCOLS_MAX
from kafkalite.protocol import codes


@pytest.fixture(autouse=True)
def coordinator(connection: Connection) -> None:
    find_coordinator(connection, "any")


@pytest.fixture
def second(broker: kafkalite.Broker) -> Iterator[Connection]:
    with Connection(broker.bootstrap_servers) as opened:
        yield opened


@pytest.mark.parametrize("version", range(10))
def test_every_version_joins(connection: Connection, version: int) -> None:
    protocols = (("range", b"1"), ("other", b"2"))
    answer = join(connection, f"join-{version}", version=version, protocols=protocols)
    if version >= 4:
        assert answer.error_code == 79
        assert answer.protocol_name == ("" if version < 7 else None)
        answer = join(
            connection,
            f"join-{version}",
            answer.member_id,
            version=version,
            protocols=protocols,
            reason="why",
        )
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
    assert answer.protocol_name == "range"
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert [(each.member_id, each.metadata) for each in answer.members] == [
        (answer.member_id, b"1")
    ]
    assert answer.member_id.startswith("test-")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"group": ""}, 24),
        ({"session_ms": 5999}, 26),
        ({"session_ms": 1_800_001}, 26),
        ({"member_id": "stranger"}, 25),
        ({"member_id": "stranger", "instance": "i"}, 25),
        ({"protocols": ()}, 23),
        ({"protocol_type": ""}, 23),
    ],
)
def test_what_cannot_join_is_refused(
    connection: Connection, options: dict[str, Any], code: int
) -> None:
    answer = join(connection, **{"group": "refused", **options})
    assert (answer.error_code, answer.generation_id, answer.leader) == (code, -1, "")
    assert (answer.member_id, answer.members) == (options.get("member_id", ""), [])


def test_two_members_meet_in_one_generation(connection: Connection, second: Connection) -> None:
    first_id = stable_member(connection, "meet")
    joining = second.send(11, 3, join_request("meet").encode(3))
    while heartbeat(connection, "meet", 1, first_id) != 27:
        pass
    answer = join(connection, "meet", first_id)
    other = second.receive(11, 3, joining)
    assert answer.generation_id == other.generation_id == 2
    assert answer.leader == other.leader == first_id
    assert {each.member_id for each in answer.members} == {first_id, other.member_id}
    assert other.members == []
    waiting = second.send(14, 3, _sync_body(other.member_id))
    sync(connection, "meet", 2, first_id, {first_id: b"a", other.member_id: b"b"})
    assert second.receive(14, 3, waiting).assignment == b"b"


def _sync_body(member_id: str) -> bytes:
    from kafkalite.protocol import messages

    request = messages.SyncGroupRequest(group_id="meet", generation_id=2, member_id=member_id)
    body: bytes = request.encode(3)
    return body


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_member_returns_without_a_rebalance(connection: Connection, version: int) -> None:
    group = f"static-{version}"
    old = stable_member(connection, group, instance="i")
    answer = join(connection, group, version=version, instance="i")
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.member_id != old
    if version >= 9:
        assert (answer.skip_assignment, answer.leader) == (True, answer.member_id)
        assert [each.group_instance_id for each in answer.members] == ["i"]
    else:
        assert (answer.leader, answer.members) == (old, [])
    assert heartbeat(connection, group, 1, old, "i") == 82
    synced = sync(connection, group, 1, answer.member_id, instance="i")
    assert synced.assignment == b"all"


def test_members_take_a_quarter_of_the_memory_for_requests_and_leave_the_rest() -> None:
    """What they had joined with stayed in memory, uncounted, for half an hour after their
    connections were closed: a hundred joins took the memory of the machine."""
    config = {"queued.max.request.bytes": str(8 << 20), "offsets.topic.num.partitions": "1"}
    with kafkalite.Broker(config=config) as broker:
        seen: list[int] = []
        for number in range(20):
            with Connection(broker.bootstrap_servers) as connection:
                find_coordinator(connection, "any")
                protocols = (("range", bytes(1_000_000)),)
                answer = join(connection, f"g{number}", version=3, protocols=protocols)
                seen.append(answer.error_code)
        taken = seen.count(codes.NONE)
        assert seen == [codes.NONE] * taken + [codes.COORDINATOR_NOT_AVAILABLE] * (20 - taken)
        assert 2 <= taken <= 3
        with Connection(broker.bootstrap_servers) as connection:
            assert join(connection, "small", version=3).error_code == codes.NONE
            assert connection.create_topic("t").error_code == 0


@pytest.mark.parametrize("version", [4, 9])
def test_who_names_more_protocols_than_a_rebalance_can_go_through_is_refused(
    connection: Connection, version: int
) -> None:
    """99,000 of them held up everybody else for a quarter of a second in each rebalance."""
    protocols = tuple((str(number), b"") for number in range(PROTOCOLS_MAX + 1))
    taken = join(connection, "many", version=version, protocols=protocols[1:])
    assert taken.error_code == codes.MEMBER_ID_REQUIRED
    member_id = taken.member_id
    refused = join(connection, "many", member_id, version=version, protocols=protocols)
    assert refused.error_code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert (refused.member_id, refused.generation_id) == (member_id, -1)
    joined = join(connection, "many", member_id, version=version, protocols=protocols[1:])
    assert joined.error_code == codes.NONE
