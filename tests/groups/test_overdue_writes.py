"""Writes that are in the log and not committed: who waits for one hears so in time, and once.

A follower that dies before it has the batch leaves fewer than `min.insync.replicas`: the high
watermark stands until there are as many again, and nothing further is appended that could say so.
Kafka's coordinator answers after `offsets.commit.timeout.ms`, and keeps what it has applied.
"""

from typing import Any

from groups.coordinator_calls import commit, fetched, held_by_writes, join, made, stable
from groups.fake_host import FakeHost, collect, make_host
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.groups.events import CommitRequest, OffsetsInTransaction, OffsetToCommit, SyncRequest
from kafkalite.protocol import codes

TIMEOUT_MS = 5_000
REFUSED = codes.COORDINATOR_NOT_AVAILABLE


def made_of_one(**config: Any) -> tuple[FakeHost, GroupCoordinator]:
    """All groups are in one partition."""
    host = make_host(**{"offsets.topic.num.partitions": 1, **config})
    return host, made(host)


def pass_uncommitted(host: FakeHost, by_ms: int) -> None:
    """Time passes, and nothing is committed meanwhile."""
    host.time_ms += by_ms
    host.turn()


def test_a_commit_that_is_not_committed_in_time_is_refused_and_kept() -> None:
    """Its client waited until the follower was back, and with it all that came behind."""
    host, coordinator = made_of_one()
    arrived = commit(coordinator, "g", 7)
    host.turn()
    behind = commit(coordinator, "g", 8)
    pass_uncommitted(host, TIMEOUT_MS - 1)
    assert (arrived, behind) == ([], [])
    pass_uncommitted(host, 1)
    assert (arrived, behind) == ([[REFUSED]], [[REFUSED]])
    assert fetched(coordinator, "g") == {}
    host.run()
    # It is in the log, as the next coordinator will find; the one behind it never came there.
    assert fetched(coordinator, "g") == {0: 7}
    assert (arrived, behind) == ([[REFUSED]], [[REFUSED]])
    assert host.appends == 1
    assert host.core.held_bytes == 0


def test_while_a_write_is_overdue_further_ones_are_refused_and_nothing_is_gathered() -> None:
    """They took the memory of requests, of which other clients had none then."""
    host, coordinator = made_of_one()
    member = stable(host, coordinator, "g")
    commit(coordinator, "g", 1, member_id=member, generation_id=1)
    host.turn()
    pass_uncommitted(host, TIMEOUT_MS)
    held_bytes = held_by_writes(host, coordinator)
    for _ in range(100):
        assert commit(coordinator, "simple", 3) == [[REFUSED]]
    assert join(coordinator, "other")[0].error_code == REFUSED
    assert coordinator.fetch_offsets("g", True).result().error_code == codes.NOT_COORDINATOR
    assert coordinator.heartbeat("g", member, None, 1) == codes.NONE
    # What time asks for is refused, too: the member is gone, and that is not written.
    pass_uncommitted(host, 10_000)
    host.turn()
    assert held_by_writes(host, coordinator) == held_bytes
    host.run()
    assert held_by_writes(host, coordinator) == 0
    assert commit(coordinator, "simple", 4) == []
    host.run()
    assert fetched(coordinator, "simple") == {0: 4}
    assert any("is not committed after 5000 ms" in each for each in host.log.lines)


def test_who_waits_for_stable_offsets_behind_an_overdue_write_is_sent_away() -> None:
    """NOT_COORDINATOR, as Kafka's consumers before 3.9 want it (`handleOffsetFetchException`)."""
    host, coordinator = made_of_one()
    # One of them is in the batch, the other one behind it.
    commit(coordinator, "g", 1)
    inside = coordinator.fetch_offsets("g", True)
    host.turn()
    behind = coordinator.fetch_offsets("g", True)
    pass_uncommitted(host, TIMEOUT_MS)
    assert inside.result().error_code == behind.result().error_code == codes.NOT_COORDINATOR
    # A second answer would be an error of the future.
    host.run()


def test_an_assignment_that_is_not_committed_in_time_begins_another_rebalance() -> None:
    """As in Kafka, where its write has failed then, whatever becomes of the record."""
    host, coordinator = made_of_one()
    joined = join(coordinator, "g")
    host.run()
    member = joined[0].member_id
    request = SyncRequest(member, None, 1, None, None, {member: b"all"})
    arrived = collect(coordinator.sync("g", request))
    host.turn()
    pass_uncommitted(host, TIMEOUT_MS)
    assert [each.error_code for each in arrived] == [REFUSED]
    assert coordinator.heartbeat("g", member, None, 1) == codes.REBALANCE_IN_PROGRESS
    host.run()
    assert len(arrived) == 1
    again = join(coordinator, "g", member)
    host.run()
    assert [each.generation_id for each in again] == [2]


def test_offsets_of_a_transaction_that_are_not_committed_in_time_are_refused_and_kept() -> None:
    host, coordinator = made_of_one()
    guard, code = coordinator.begin_verification("g", 7, 0)
    assert guard is not None
    assert code == codes.NONE
    request = CommitRequest("", None, -1, -1, True, [OffsetToCommit("t", b"i" * 16, 0, 5, -1, "")])
    arrived = collect(
        coordinator.commit_in_transaction("g", request, OffsetsInTransaction(7, 0, guard))
    )
    host.turn()
    pass_uncommitted(host, TIMEOUT_MS)
    assert arrived == [[REFUSED]]
    host.run()
    assert arrived == [[REFUSED]]
    shard = coordinator.runtime.shards[0]
    assert shard.machine.transactions.is_unstable("g", "t", 0)


def test_each_batch_has_its_time() -> None:
    """One that was appended while another's time ran is not late with it."""
    host, coordinator = made_of_one()
    commit(coordinator, "g", 1)
    host.turn()
    pass_uncommitted(host, TIMEOUT_MS - 1)
    host.run()
    arrived = commit(coordinator, "g", 2)
    host.turn()
    pass_uncommitted(host, TIMEOUT_MS - 1)
    assert arrived == []
    pass_uncommitted(host, 1)
    assert arrived == [[REFUSED]]


def test_whoever_was_told_of_an_overdue_write_is_not_told_when_the_partition_is_let_go() -> None:
    host, coordinator = made_of_one()
    arrived = commit(coordinator, "g", 7)
    host.turn()
    pass_uncommitted(host, TIMEOUT_MS)
    coordinator.runtime.shards[0].resign()
    host.run()
    assert arrived == [[REFUSED]]
    assert host.core.held_bytes == 0
