"""JoinGroup (key 11), versions 0 to 9.

Behaviour: a client becomes, or stays, a member. The answer comes when the rebalance has gathered
the members: when all have joined, when the slowest time-out is over, and for a group's first
rebalance after `group.initial.rebalance.delay.ms`, again as long as new ones come. The leader gets
what every member can do and is to answer with an assignment (SyncGroup). A static member that comes
back without its id gets a new one and, if nothing else has changed, no rebalance takes place.

Refusals: GROUP_AUTHORIZATION_FAILED, INCONSISTENT_GROUP_PROTOCOL for more than `PROTOCOLS_MAX`
protocols, INVALID_GROUP_ID, UNKNOWN_SERVER_ERROR for metadata that the topic could never hold,
INVALID_SESSION_TIMEOUT, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE
where members take too much memory, UNKNOWN_MEMBER_ID for an id in a group that is not there,
GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID.

Version notes: v0 has one time-out for session and rebalance; v1 two (KIP-62); v4 comes back with
the id that it is given (KIP-394); v5 static members (KIP-345); v7 the protocol's type in the answer
(KIP-559); v8 reasons (KIP-800); v9 tells a returning leader to skip the assignment (KIP-814).
"""

from collections.abc import Coroutine
from typing import Any

from kafkalite import _native
from kafkalite.access import GROUP, READ
from kafkalite.context import Context
from kafkalite.groups.events import JoinAnswer, JoinRequest
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future, completed

NAME = "JoinGroup"

PROTOCOLS_MAX = 250
"""Each rebalance goes through those of all members at once. Clients have a handful of them."""


def handle(
    context: Context, request: _native.Request, message: messages.JoinGroupRequest
) -> messages.JoinGroupResponse | Coroutine[Any, Any, messages.JoinGroupResponse]:
    """Answers when the rebalance is complete."""
    version = request.api_version
    if not context.may(request, READ, GROUP, message.group_id):
        return messages.JoinGroupResponse(
            error_code=codes.GROUP_AUTHORIZATION_FAILED,
            protocol_name="" if version < 7 else None,
        )
    if len(message.protocols) > PROTOCOLS_MAX:
        refused = JoinAnswer(codes.INCONSISTENT_GROUP_PROTOCOL, message.member_id)
        return _answer(completed(refused), version)
    timeout_ms = message.rebalance_timeout_ms if version >= 1 else message.session_timeout_ms
    joining = JoinRequest(
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",
        rebalance_timeout_ms=timeout_ms,
        session_timeout_ms=message.session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in message.protocols),
        reason=message.reason,
        needs_member_id=version >= 4,
        can_skip_assignment=version >= 9,
    )
    return _answer(context.groups.join(message.group_id, joining), version)


async def _answer(joined: Future[JoinAnswer], version: int) -> messages.JoinGroupResponse:
    answer = await joined
    kind = messages.JoinGroupResponse
    protocol_name = answer.protocol_name
    return kind(
        error_code=answer.error_code,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name="" if protocol_name is None and version < 7 else protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            kind.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=group_instance_id, metadata=metadata
            )
            for member_id, group_instance_id, metadata in answer.members
        ],
    )
