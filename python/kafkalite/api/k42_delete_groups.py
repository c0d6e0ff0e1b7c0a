"""DeleteGroups (key 42), versions 0 to 2.

Behaviour: groups without members end, and their offsets are forgotten; tombstones are on disk
before the answer. A group that is named twice is answered once.

Refusals, per group: GROUP_AUTHORIZATION_FAILED, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR,
GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
"""

from kafkalite import _native
from kafkalite.access import DELETE, DENIALS, GROUP
from kafkalite.context import Context
from kafkalite.protocol import messages
from kafkalite.tasks import Future

NAME = "DeleteGroups"


async def handle(
    context: Context, request: _native.Request, message: messages.DeleteGroupsRequest
) -> messages.DeleteGroupsResponse:
    """Answers once all groups have ended or were refused."""
    kind = messages.DeleteGroupsResponse
    ended: dict[str, Future[int]] = {}
    denied: list[str] = []
    sliced = context.tasks.sliced
    async for group_id in sliced(dict.fromkeys(message.groups_names)):
        if not context.may(request, DELETE, GROUP, group_id):
            denied.append(group_id)
            continue
        ended[group_id] = context.groups.delete_group(group_id)
    results = [
        kind.DeletableGroupResult(group_id=group_id, error_code=await code)
        async for group_id, code in sliced(ended.items())
    ]
    refused, _ = DENIALS[GROUP]
    results += [kind.DeletableGroupResult(group_id=each, error_code=refused) for each in denied]
    return kind(results=results)
