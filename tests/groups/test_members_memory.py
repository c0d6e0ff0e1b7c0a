"""The memory of members: they stay for as long as their sessions last, and their clients need not.
Six joins of 16 MiB each, whose connections were closed, left 120 MB that nobody had counted."""

import pytest

from groups.coordinator_calls import held_by_members, join, made, restarted, stable
from groups.fake_host import FakeHost, make_host
from kafkalite.coordinator.shard import HELD_FREE_BYTES
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.groups.events import SyncRequest
from kafkalite.protocol import codes

SHARE_BYTES = 16 << 20
METADATA = b"\0\1" + bytes(1_000_000)
FULL = codes.COORDINATOR_NOT_AVAILABLE


def roomy(**config: int) -> tuple[FakeHost, GroupCoordinator]:
    """The disk takes all, so that what is held is held for members."""
    host = make_host(**config)
    return host, made(host)


def test_what_a_member_has_joined_with_counts_until_its_session_ends() -> None:
    host, coordinator = roomy()
    answers = join(coordinator, "g", metadata=METADATA)
    host.run()
    assert answers[0].error_code == codes.NONE
    assert len(METADATA) < held_by_members(coordinator) < len(METADATA) + 10_000
    assert host.core.held_bytes == held_by_members(coordinator) - HELD_FREE_BYTES
    host.pass_time(30_000)
    assert held_by_members(coordinator) < 1000
    # The time that a join may wait for its first answer.
    host.pass_time(300_000)
    assert held_by_members(coordinator) == 0


def test_what_a_member_joins_again_with_takes_the_place_of_what_it_had() -> None:
    host, coordinator = roomy()
    first = join(coordinator, "g", metadata=METADATA)
    host.run()
    join(coordinator, "g", first[0].member_id)
    host.run()
    assert 0 < held_by_members(coordinator) < 10_000


def test_an_assignment_counts() -> None:
    host, coordinator = roomy()
    joined = join(coordinator, "g")
    host.run()
    before = held_by_members(coordinator)
    member_id = joined[0].member_id
    coordinator.sync("g", SyncRequest(member_id, None, 1, None, None, {member_id: bytes(5000)}))
    host.run()
    assert before + 4900 < held_by_members(coordinator) < before + 6000


def test_an_id_counts_until_it_lapses_and_begins_with_255_characters_of_the_client() -> None:
    """It began with all 32,767 that there may be, so that the answer could not be encoded, and the
    id was kept for as long as the client had asked for."""
    host, coordinator = roomy()
    for _ in range(10):
        (answer,) = join(coordinator, "g", client_id="c" * 32_767, needs_member_id=True)
        assert answer.error_code == codes.MEMBER_ID_REQUIRED
        assert answer.member_id.startswith("c" * 255 + "-")
        assert len(answer.member_id) == 255 + 1 + 36
    host.run()
    assert held_by_members(coordinator) >= 10 * 600
    host.pass_time(10_001)
    assert held_by_members(coordinator) == 0


def test_a_group_that_is_deleted_counts_no_longer() -> None:
    host, coordinator = roomy()
    join(coordinator, "g", needs_member_id=True)
    host.run()
    assert held_by_members(coordinator) > 0
    deleted = coordinator.delete_group("g")
    host.run()
    assert deleted.result() == codes.NONE
    assert held_by_members(coordinator) == 0


def test_members_out_of_the_log_count_until_their_partition_is_let_go() -> None:
    host, coordinator = roomy()
    stable(host, coordinator, "g")
    again, loaded = restarted(host)
    assert held_by_members(loaded) > 1000
    for shard in loaded.runtime.shards:
        shard.resign()
    again.run()
    assert held_by_members(loaded) == 0


def test_members_take_a_quarter_of_the_memory_of_requests_at_most() -> None:
    """Who is there already may come back: a group must not lose its members to others."""
    host, coordinator = roomy()
    host.core.may_hold_bytes = 4 * SHARE_BYTES
    small = join(coordinator, "small")
    join(coordinator, "static", instance="i", metadata=METADATA)
    host.run()
    count = 0
    while True:
        answers = join(coordinator, f"g{count}", metadata=METADATA)
        host.run()
        if answers[0].error_code:
            break
        count += 1
    assert answers[0].error_code == FULL
    assert host.core.held_bytes <= SHARE_BYTES < host.core.held_bytes + 1_100_000
    again = join(coordinator, "small", small[0].member_id)
    host.run()
    assert again[0].error_code == codes.NONE
    returned = join(coordinator, "static", instance="i", metadata=METADATA)
    host.run()
    assert returned[0].error_code == codes.NONE
    others = join(coordinator, "static", instance="j", metadata=METADATA)
    assert others[0].error_code == FULL
    assert join(coordinator, "small", small[0].member_id, metadata=METADATA)[0].error_code == FULL
    member_id, generation_id = again[0].member_id, again[0].generation_id
    for size_bytes, code in ((1_000_000, FULL), (10, codes.NONE)):
        assignments = {member_id: bytes(size_bytes)}
        request = SyncRequest(member_id, None, generation_id, None, None, assignments)
        synced = coordinator.sync("small", request)
        host.run()
        assert synced.result().error_code == code
    host.pass_time(30_000)
    assert join(coordinator, "other", metadata=METADATA) == []


@pytest.mark.parametrize(
    ("size_bytes", "code"), [(1000, codes.NONE), (1001, codes.UNKNOWN_SERVER_ERROR)]
)
def test_metadata_that_no_batch_of_the_topic_may_hold_is_refused(
    size_bytes: int, code: int
) -> None:
    """Kafka says so to the leader's SyncGroup, after each rebalance anew."""
    host, coordinator = roomy(**{"message.max.bytes": 1000})
    answers = join(coordinator, "g", metadata=bytes(size_bytes))
    host.run()
    assert answers[0].error_code == code
