"""Requests of group members and operators, as tests of the keys send them."""

from collections.abc import Sequence
from typing import Any

from api.raw import Connection
from kafkalite.protocol import messages

Protocols = Sequence[tuple[str, bytes]]
RANGE: Protocols = (("range", b""),)


def subscription(*topics: str) -> bytes:
    """What a consumer sends with a protocol."""
    data: bytes = messages.ConsumerProtocolSubscription(topics=list(topics)).encode(3)
    return b"\0\3" + data


def find_coordinator(connection: Connection, *groups: str, key_type: int = 0) -> Any:
    """The coordinators; the topic is there afterwards."""
    request = messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(groups))
    return connection.ask("FindCoordinator", 6, request).coordinators


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    session_ms: int = 30_000,
    rebalance_ms: int = 30_000,
    protocol_type: str = "consumer",
    protocols: Protocols = RANGE,
    reason: str | None = None,
) -> Any:
    kind = messages.JoinGroupRequest
    return kind(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[
            kind.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols
        ],
        reason=reason,
    )


def join(connection: Connection, group: str, *given: Any, version: int = 9, **options: Any) -> Any:
    """One JoinGroup request and its answer."""
    return connection.ask("JoinGroup", version, join_request(group, *given, **options))


def sync(
    connection: Connection,
    group: str,
    generation_id: int,
    member_id: str,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    version: int = 5,
    protocol: tuple[str | None, str | None] = ("consumer", "range"),
) -> Any:
    kind = messages.SyncGroupRequest
    request = kind(
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol[0],
        protocol_name=protocol[1],
        assignments=[
            kind.SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in (assignments or {}).items()
        ],
    )
    return connection.ask("SyncGroup", version, request)


def heartbeat(
    connection: Connection,
    group: str,
    generation_id: int,
    member_id: str,
    instance: str | None = None,
    version: int = 4,
) -> int:
    """The error code."""
    request = messages.HeartbeatRequest(
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance,
    )
    code: int = connection.ask("Heartbeat", version, request).error_code
    return code


def leave(
    connection: Connection, group: str, *members: tuple[str, str | None], version: int = 5
) -> Any:
    kind = messages.LeaveGroupRequest
    request = kind(
        group_id=group,
        member_id=members[0][0] if members else "",
        members=[
            kind.MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in members
        ],
    )
    return connection.ask("LeaveGroup", version, request)


def stable_member(
    connection: Connection, group: str, instance: str | None = None, **options: Any
) -> str:
    """The id of the only member of a stable group in generation 1."""
    find_coordinator(connection, group)
    answer = join(connection, group, "", version=9, instance=instance, **options)
    if answer.error_code == 79:
        answer = join(connection, group, answer.member_id, **options)
    assert answer.error_code == 0
    member_id: str = answer.member_id
    protocol = (answer.protocol_type, answer.protocol_name)
    synced = sync(
        connection,
        group,
        answer.generation_id,
        member_id,
        {member_id: b"all"},
        instance=instance,
        protocol=protocol,
    )
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return member_id


def commit(
    connection: Connection,
    group: str,
    topic: str,
    *offsets: tuple[int, int],
    version: int = 9,
    generation_id: int = -1,
    member_id: str = "",
    metadata: str | None = None,
    leader_epoch: int = -1,
    topic_id: bytes = bytes(16),
    retention_ms: int = -1,
) -> list[int]:
    """Commits (partition, offset) each; the error codes."""
    kind = messages.OffsetCommitRequest
    topic_kind = kind.OffsetCommitRequestTopic
    partitions = [
        topic_kind.OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        for partition, offset in offsets
    ]
    request = kind(
        group_id=group,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=[topic_kind(name=topic, topic_id=topic_id, partitions=partitions)],
    )
    answer = connection.ask("OffsetCommit", version, request).topics[0]
    assert answer.topic_id == topic_id
    return [each.error_code for each in answer.partitions]


def fetch_offsets(
    connection: Connection,
    group: str,
    topic: str | None,
    *partitions: int,
    version: int = 9,
    topic_id: bytes = bytes(16),
    require_stable: bool = False,
) -> list[Any]:
    """The topics of the answer; all of the group's without a topic."""
    kind = messages.OffsetFetchRequest
    if version < 8:
        topics = [kind.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
        request = kind(
            group_id=group,
            topics=None if topic is None else topics,
            require_stable=require_stable,
        )
        return list(connection.ask("OffsetFetch", version, request).topics)
    group_kind = kind.OffsetFetchRequestGroup
    wanted = group_kind.OffsetFetchRequestTopics(
        name=topic or "", topic_id=topic_id, partition_indexes=list(partitions)
    )
    asked = group_kind(group_id=group, topics=None if topic is None else [wanted])
    request = kind(groups=[asked], require_stable=require_stable)
    (answer,) = connection.ask("OffsetFetch", version, request).groups
    assert answer.error_code == 0
    return list(answer.topics)


def committed(connection: Connection, group: str, topic: str, partition: int = 0) -> int:
    """The offset, -1 for none."""
    (answer,) = fetch_offsets(connection, group, topic, partition)
    offset: int = answer.partitions[0].committed_offset
    return offset


def describe(connection: Connection, *groups: str, version: int = 6) -> list[Any]:
    request = messages.DescribeGroupsRequest(
        groups=list(groups), include_authorized_operations=version >= 3
    )
    return list(connection.ask("DescribeGroups", version, request).groups)
