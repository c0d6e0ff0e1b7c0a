"""DescribeGroups (key 15), versions 0 to 6.

Behaviour: state, protocol and members of groups. What members can do and what they are assigned is
told of a stable group; before that, members alone. With `include_authorized_operations` it is named
what the client may do with a group.

Refusals, per group: GROUP_AUTHORIZATION_FAILED, before the others; COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR; GROUP_ID_NOT_FOUND from version 6 on for a group that is not there, which in
earlier versions is a `Dead` one without an error.

Version notes: v3 has authorized operations (KIP-430); v4 instance ids (KIP-345); v6
GROUP_ID_NOT_FOUND with a message (KIP-1043).
"""

from typing import Any

from kafkalite import _native
from kafkalite.access import DENIALS, DESCRIBE, GROUP
from kafkalite.context import Context
from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.states import DEAD, STABLE
from kafkalite.protocol import codes, messages

NAME = "DescribeGroups"


async def handle(
    context: Context, request: _native.Request, message: messages.DescribeGroupsRequest
) -> messages.DescribeGroupsResponse:
    """Answers at once."""
    response = messages.DescribeGroupsResponse()
    known: dict[str, Any] = {}
    denied, _ = DENIALS[GROUP]
    permitted: list[str] = []
    async for group_id in context.tasks.sliced(message.groups):
        if context.may(request, DESCRIBE, GROUP, group_id):
            permitted.append(group_id)
        else:
            refused = response.DescribedGroup(group_id=group_id, error_code=denied)
            response.groups.append(refused)
    async for group_id in context.tasks.sliced(permitted):
        if group_id in known:
            # As often as it is named, which need not take memory.
            response.groups.append(known[group_id])
            continue
        code, group = context.groups.describe(group_id)
        described = _described(group_id, group)
        described.error_code = code
        if code != codes.NONE:
            described.group_state = ""
        elif group is None and request.api_version >= 6:
            described.error_code = codes.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
        elif message.include_authorized_operations:
            described.authorized_operations = context.operations(request, GROUP, group_id)
        response.groups.append(described)
        known[group_id] = described
    return response


def _described(group_id: str, group: ClassicGroup | None) -> Any:
    kind = messages.DescribeGroupsResponse.DescribedGroup
    if group is None:
        return kind(group_id=group_id, group_state=DEAD)
    is_stable = group.state == STABLE
    name = group.protocol_name
    return kind(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=name or "" if is_stable else "",
        members=[
            kind.DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata(name) if is_stable else b"",
                member_assignment=each.assignment,
            )
            for each in group.members
        ],
    )
