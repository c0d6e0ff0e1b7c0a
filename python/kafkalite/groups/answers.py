"""Tells what a classic group answers its members, and what the log keeps of it. Changes nothing."""

from typing import TYPE_CHECKING

from kafkalite.groups.events import (
    GroupRecord,
    JoinAnswer,
    JoinRequest,
    MemberRecord,
    StaticMemberStored,
    SyncAnswer,
)
from kafkalite.groups.members import Member
from kafkalite.groups.states import CONSUMER_PROTOCOL_TYPE
from kafkalite.groups.subscriptions import topics_of
from kafkalite.protocol import codes

if TYPE_CHECKING:
    from kafkalite.groups.classic import ClassicGroup


def join_answer(group: "ClassicGroup", member: Member) -> JoinAnswer:
    """The generation, to one of its members; the leader is told of all of them."""
    leader = group.members.leader or ""
    everyone: tuple[tuple[str, str | None, bytes], ...] = ()
    if member.member_id == leader:
        name = group.protocol_name
        everyone = tuple(
            (each.member_id, each.group_instance_id, each.metadata(name)) for each in group.members
        )
    return JoinAnswer(
        codes.NONE,
        member.member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader,
        members=everyone,
    )


def static_member_stored(
    group: "ClassicGroup", member: Member, member_id: str, request: JoinRequest
) -> StaticMemberStored:
    """Keeps what is to be put back if a static member's new id cannot be written."""
    return StaticMemberStored(
        member_id=member_id,
        old_member_id=member.member_id,
        old_leader=group.members.leader or "",
        old_rebalance_timeout_ms=member.rebalance_timeout_ms,
        old_session_timeout_ms=member.session_timeout_ms,
        old_protocols=member.protocols,
        can_skip_assignment=request.can_skip_assignment,
    )


def static_member_answer(
    group: "ClassicGroup", member: Member, what: StaticMemberStored
) -> JoinAnswer:
    """The present generation, to a static member that has come back."""
    answer = join_answer(group, member)
    if what.can_skip_assignment:
        return answer._replace(skip_assignment=answer.leader == member.member_id)
    # To be told that the old id leads keeps an old client from assigning partitions.
    return answer._replace(leader=what.old_leader, members=())


def static_member_refused(
    group: "ClassicGroup", what: StaticMemberStored, error_code: int
) -> JoinAnswer:
    """A static member's new id could not be written."""
    return JoinAnswer(
        error_code,
        "",
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=what.old_leader,
    )


def sync_answer(group: "ClassicGroup", member: Member) -> SyncAnswer:
    """A member's assignment."""
    return SyncAnswer(
        codes.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def to_record(group: "ClassicGroup", assignments: dict[str, bytes] | None = None) -> GroupRecord:
    """The group for the log, with these assignments instead of the present ones."""
    return GroupRecord(
        protocol_type=group.protocol_type or "",
        generation_id=group.generation_id,
        protocol_name=group.protocol_name,
        leader=group.members.leader,
        state_timestamp_ms=group.state_timestamp_ms,
        members=tuple(
            MemberRecord(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                session_timeout_ms=each.session_timeout_ms,
                subscription=each.metadata(group.protocol_name),
                assignment=each.assignment
                if assignments is None
                else assignments.get(each.member_id, b""),
            )
            for each in group.members
        ),
    )


def member_of_record(record: MemberRecord, protocol_name: str | None) -> Member:
    """A member as the log knows it."""
    timeout_ms = record.rebalance_timeout_ms
    return Member(
        member_id=record.member_id,
        group_instance_id=record.group_instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=record.session_timeout_ms if timeout_ms == -1 else timeout_ms,
        session_timeout_ms=record.session_timeout_ms,
        protocols=((protocol_name or "", record.subscription),),
        assignment=record.assignment,
    )


def subscribed_topics(group: "ClassicGroup") -> frozenset[str] | None:
    """Topics that the members read; None where that cannot be told."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    return topics_of(each.metadata(group.protocol_name) for each in group.members)
