"""Why a classic group refuses a request: codes, in Kafka's order (`ClassicGroup.validateMember`,
`GroupMetadataManager.validateSyncGroup` and others). Nothing is changed here.

Each function takes the group, and gives NONE where the request is taken.
"""

from typing import TYPE_CHECKING

from kafkalite.groups.events import JoinRequest, SyncRequest
from kafkalite.groups.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kafkalite.protocol import codes

if TYPE_CHECKING:
    from kafkalite.groups.classic import ClassicGroup


def check_join(group: "ClassicGroup", request: JoinRequest, size_max: int) -> int:
    """JoinGroup, before it is known who asks."""
    if not _has_room_for(group, request.member_id, size_max):
        return codes.GROUP_MAX_SIZE_REACHED
    if group.state == DEAD:
        return codes.COORDINATOR_NOT_AVAILABLE
    if not _supports(group, request):
        return codes.INCONSISTENT_GROUP_PROTOCOL
    return codes.NONE


def check_sync(group: "ClassicGroup", request: SyncRequest) -> int:
    """SyncGroup."""
    if group.state == DEAD:
        return codes.COORDINATOR_NOT_AVAILABLE
    if group.state == EMPTY:
        return codes.UNKNOWN_MEMBER_ID
    if error_code := check_member(group, request.member_id, request.group_instance_id):
        return error_code
    if request.generation_id != group.generation_id:
        return codes.ILLEGAL_GENERATION
    for asked, own in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and own is not None and asked != own:
            return codes.INCONSISTENT_GROUP_PROTOCOL
    if group.state == PREPARING_REBALANCE:
        return codes.REBALANCE_IN_PROGRESS
    return codes.NONE


def check_heartbeat(
    group: "ClassicGroup", member_id: str, group_instance_id: str | None, generation_id: int
) -> int:
    """Heartbeat, of a member that is not known to live."""
    if group.state == DEAD:
        return codes.COORDINATOR_NOT_AVAILABLE
    if error_code := check_member(group, member_id, group_instance_id):
        return error_code
    return codes.NONE if generation_id == group.generation_id else codes.ILLEGAL_GENERATION


def check_commit(
    group: "ClassicGroup", member_id: str, group_instance_id: str | None, generation_id: int
) -> int:
    """OffsetCommit."""
    if group.state == DEAD:
        return codes.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state == EMPTY:
        return codes.NONE
    if generation_id < 0 and not member_id and group_instance_id is None:
        return codes.UNKNOWN_MEMBER_ID
    if error_code := check_member(group, member_id, group_instance_id):
        return error_code
    if generation_id != group.generation_id:
        return codes.ILLEGAL_GENERATION
    return codes.REBALANCE_IN_PROGRESS if group.state == COMPLETING_REBALANCE else codes.NONE


def check_transactional_commit(
    group: "ClassicGroup", member_id: str, group_instance_id: str | None, generation_id: int
) -> int:
    """TxnOffsetCommit: whoever names no member need be none (KIP-447)."""
    if group.state == DEAD:
        return codes.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and (group.state == EMPTY or not (member_id or group_instance_id)):
        return codes.NONE
    if error_code := check_member(group, member_id, group_instance_id):
        return error_code
    return codes.ILLEGAL_GENERATION if generation_id != group.generation_id else codes.NONE


def check_member(group: "ClassicGroup", member_id: str, group_instance_id: str | None) -> int:
    """UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where another holds the instance id."""
    if group_instance_id is not None:
        holder = group.members.static_member_id(group_instance_id)
        if holder is None:
            return codes.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return codes.FENCED_INSTANCE_ID
    return codes.NONE if member_id in group.members else codes.UNKNOWN_MEMBER_ID


def _has_room_for(group: "ClassicGroup", member_id: str, size_max: int) -> bool:
    """While a rebalance is prepared those who wait already are counted, so that the last to come
    back to a group that is too large are left out."""
    member = group.members.get(member_id)
    if group.state == PREPARING_REBALANCE:
        is_waiting = member is not None and member.awaiting_join is not None
        return is_waiting or group.members.awaiting_join < size_max
    if group.state in (COMPLETING_REBALANCE, STABLE):
        return member is not None or len(group.members) < size_max
    return True


def _supports(group: "ClassicGroup", request: JoinRequest) -> bool:
    if group.state == EMPTY:
        return bool(request.protocol_type) and bool(request.protocols)
    if request.protocol_type != group.protocol_type:
        return False
    return group.members.supports(request.protocols)
