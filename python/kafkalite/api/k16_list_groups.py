"""ListGroups (key 16), versions 0 to 5.

Behaviour: every group of this node that the client may describe (all of them, if it may describe
the cluster), with its type of protocol and its state; those in one of the states, and of one of the
types, if any are named. Case does not matter in either, nor do spaces around a state.

Refusals: COORDINATOR_LOAD_IN_PROGRESS while some groups are not known yet.

Version notes: v4 has states (KIP-518); v5 types (KIP-848), of which `classic` is the one served
here.
"""

from kafkalite import _native
from kafkalite.access import CLUSTER, DESCRIBE, GROUP
from kafkalite.context import Context
from kafkalite.groups.states import DEAD
from kafkalite.protocol import messages

NAME = "ListGroups"

CLASSIC = "classic"


async def handle(
    context: Context, request: _native.Request, message: messages.ListGroupsRequest
) -> messages.ListGroupsResponse:
    """Answers at once."""
    sliced = context.tasks.sliced
    states = {each.strip().lower() async for each in sliced(message.states_filter)}
    types = {each.lower() async for each in sliced(message.types_filter)}
    code, groups = context.groups.list_groups()
    may_see_all = context.may(request, DESCRIBE, CLUSTER)
    kind = messages.ListGroupsResponse
    return kind(
        error_code=code,
        groups=[
            kind.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state,
                group_type=CLASSIC,
            )
            async for group in sliced(groups)
            # Not those of a partition that is let go meanwhile: they go on elsewhere.
            if group.state != DEAD
            and (not states or group.state.lower() in states)
            and (not types or CLASSIC in types)
            and (may_see_all or context.may(request, DESCRIBE, GROUP, group.group_id))
        ],
    )
