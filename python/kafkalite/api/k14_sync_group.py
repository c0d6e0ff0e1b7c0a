"""SyncGroup (key 14), versions 0 to 5.

Behaviour: a member asks for its assignment. The leader's request brings everyone's; it is written
to `__consumer_offsets`, and once it is on disk all members that wait get theirs. Members that do
not ask within the rebalance time-out are taken out.

Refusals: INCONSISTENT_GROUP_PROTOCOL without the protocol's type and name from version 5 on;
GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR,
UNKNOWN_MEMBER_ID (also for a group that is empty or not there), FENCED_INSTANCE_ID,
ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.

Version notes: v3 has static members (KIP-345); v5 the protocol's type and name, both ways
(KIP-559).
"""

from collections.abc import Coroutine
from typing import Any

from kafkalite import _native
from kafkalite.access import GROUP, READ
from kafkalite.context import Context
from kafkalite.groups.events import SyncAnswer, SyncRequest
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future, completed

NAME = "SyncGroup"


def handle(
    context: Context, request: _native.Request, message: messages.SyncGroupRequest
) -> Coroutine[Any, Any, messages.SyncGroupResponse]:
    """Answers once the leader's assignment is on disk."""
    names_protocol = message.protocol_type is not None and message.protocol_name is not None
    if request.api_version >= 5 and not names_protocol:
        return _answer(completed(SyncAnswer(codes.INCONSISTENT_GROUP_PROTOCOL)))
    if not context.may(request, READ, GROUP, message.group_id):
        return _answer(completed(SyncAnswer(codes.GROUP_AUTHORIZATION_FAILED)))
    asked = SyncRequest(
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        generation_id=message.generation_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments={each.member_id: each.assignment for each in message.assignments},
    )
    return _answer(context.groups.sync(message.group_id, asked))


async def _answer(synced: Future[SyncAnswer]) -> messages.SyncGroupResponse:
    answer = await synced
    return messages.SyncGroupResponse(
        error_code=answer.error_code,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
