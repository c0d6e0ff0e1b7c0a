"""LeaveGroup (key 13), versions 0 to 5.

Behaviour: members go, and the others rebalance at once. An operator takes static members out by
their instance id, with an empty member id. The last member hears of it once the empty group is on
disk.

Refusals: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR; per member UNKNOWN_MEMBER_ID (also for a group that is not there),
FENCED_INSTANCE_ID.

Version notes: up to v2 one member, whose code is the answer's; v3 several (KIP-345); v5 reasons
(KIP-800).
"""

from typing import Any

from kafkalite import _native
from kafkalite.access import GROUP, READ
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "LeaveGroup"


async def handle(
    context: Context, request: _native.Request, message: messages.LeaveGroupRequest
) -> messages.LeaveGroupResponse:
    """Answers at once, or when an empty group is on disk."""
    version = request.api_version
    kind = messages.LeaveGroupResponse
    if not context.may(request, READ, GROUP, message.group_id):
        return kind(error_code=codes.GROUP_AUTHORIZATION_FAILED)
    if version < 3:
        leaving: list[Any] = [(message.member_id, None, None)]
    else:
        leaving = [
            (each.member_id, each.group_instance_id, each.reason)
            async for each in context.tasks.sliced(message.members)
        ]

    code, results = await context.groups.leave(message.group_id, leaving)
    if version < 3:
        return kind(error_code=code or results[0])
    return kind(
        error_code=code,
        members=[
            kind.MemberResponse(
                member_id=member_id, group_instance_id=group_instance_id, error_code=result
            )
            async for (member_id, group_instance_id, _), result in context.tasks.sliced(
                zip(leaving, results, strict=False)
            )
        ],
    )
