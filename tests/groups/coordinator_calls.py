"""A coordinator over a log in memory, and what its clients ask of it."""

from typing import Any

from groups.fake_host import FakeHost, collect, make_host
from groups.play import subscription
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.groups.events import (
    CommitRequest,
    JoinAnswer,
    JoinRequest,
    OffsetToCommit,
    SyncRequest,
)

ID = b"i" * 16


def started(host: FakeHost) -> GroupCoordinator:
    coordinator = GroupCoordinator(host)
    coordinator.runtime.start()
    return coordinator


def made(host: FakeHost) -> GroupCoordinator:
    coordinator = started(host)
    host.tasks.start(coordinator.runtime.make_topic())
    return coordinator


def commit(
    coordinator: GroupCoordinator, group: str, offset: int, partition: int = 0, **fields: Any
) -> list[list[int]]:
    """Where the codes arrive."""
    arrived: list[list[int]] = []
    given = {"member_id": "", "generation_id": -1, "metadata": "", "retention_ms": -1, **fields}
    request = CommitRequest(
        member_id=given["member_id"],
        group_instance_id=None,
        generation_id=given["generation_id"],
        retention_time_ms=given["retention_ms"],
        knows_missing_groups=True,
        offsets=[OffsetToCommit("t", ID, partition, offset, -1, given["metadata"])],
    )
    coordinator.commit(group, request, arrived.append)
    return arrived


def fetched(coordinator: GroupCoordinator, group: str, stable: bool = False) -> dict[int, int]:
    answer = coordinator.fetch_offsets(group, stable)
    offsets = answer.result().offsets.get("t", {}) if answer.is_done else {}
    return {index: each.offset for index, each in offsets.items()}


def join(
    coordinator: GroupCoordinator,
    group: str,
    member_id: str = "",
    instance: str | None = None,
    session_ms: int = 10_000,
    *,
    client_id: str = "client",
    metadata: bytes = subscription("u"),
    needs_member_id: bool = False,
) -> list[JoinAnswer]:
    request = JoinRequest(
        member_id=member_id,
        group_instance_id=instance,
        client_id=client_id,
        client_host="/h",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=session_ms,
        protocol_type="consumer",
        protocols=(("range", metadata),),
        reason=None,
        needs_member_id=needs_member_id,
        can_skip_assignment=True,
    )
    return collect(coordinator.join(group, request))


def stable(
    host: FakeHost,
    coordinator: GroupCoordinator,
    group: str,
    instance: str | None = None,
    session_ms: int = 10_000,
) -> str:
    joined = join(coordinator, group, "", instance, session_ms)
    host.run()
    member_id = joined[0].member_id
    request = SyncRequest(member_id, instance, 1, None, None, {member_id: b"all"})
    synced = coordinator.sync(group, request)
    host.run()
    assert synced.result().assignment == b"all"
    return member_id


def held_by_writes(host: FakeHost, coordinator: GroupCoordinator) -> int:
    """Bytes of memory that are held for what waits for the disk, not for members."""
    return host.core.held_bytes - sum(each.counted_bytes for each in coordinator.runtime.shards)


def held_by_members(coordinator: GroupCoordinator) -> int:
    """Bytes of memory that members take, counted or not."""
    return sum(each.held_bytes for each in coordinator.runtime.shards)


def restarted(host: FakeHost) -> tuple[FakeHost, GroupCoordinator]:
    """What a new process finds in the logs."""
    again = make_host(host.memory_logs, **dict(host.config))
    coordinator = started(again)
    again.pass_time(1000)
    return again, coordinator
