"""DeleteGroups (key 42), versions 0 to 2.

Behaviour: groups without members end, and their offsets are forgotten; tombstones are on disk
before the answer. A group that is named twice is answered once.

Refusals, per group: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, GROUP_ID_NOT_FOUND,
NON_EMPTY_GROUP.
"""

from kafkalite import _native
from kafkalite.context import Context
from kafkalite.protocol import messages
from kafkalite.tasks import Future

NAME = "DeleteGroups"


async def handle(
    context: Context, _request: _native.Request, message: messages.DeleteGroupsRequest
) -> messages.DeleteGroupsResponse:
    """Answers once all groups have ended or were refused."""
    kind = messages.DeleteGroupsResponse
    ended: dict[str, Future[int]] = {}
    for group_id in dict.fromkeys(message.groups_names):
        ended[group_id] = Future[int]()
        context.groups.delete_group(group_id, ended[group_id].set)
    results = [
        kind.DeletableGroupResult(group_id=group_id, error_code=await code)
        for group_id, code in ended.items()
    ]
    return kind(results=results)
