"""DeleteGroups (key 42), versions 0 to 2.

Behaviour: groups without members end, and their offsets are forgotten; tombstones are on disk
before the answer. A group that is named twice is answered once.

Refusals, per group: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, GROUP_ID_NOT_FOUND,
NON_EMPTY_GROUP.
"""

from collections.abc import Callable
from typing import Any

from kafkalite.context import Context
from kafkalite.protocol import messages

NAME = "DeleteGroups"


def handle(context: Context, request: Any, message: Any) -> None:
    """Answers once all groups have ended or were refused."""
    kind = messages.DeleteGroupsResponse
    response = kind()
    group_ids = list(dict.fromkeys(message.groups_names))
    response.results = [kind.DeletableGroupResult(group_id=each) for each in group_ids]
    waiting = len(group_ids)

    def reply_for(result: Any) -> Callable[[int], None]:
        def reply(code: int) -> None:
            nonlocal waiting
            result.error_code = code
            waiting -= 1
            if waiting == 0:
                context.plane.respond(request, response)

        return reply

    for result in response.results:
        context.groups.delete_group(result.group_id, reply_for(result))
    if not group_ids:
        context.plane.respond(request, response)
