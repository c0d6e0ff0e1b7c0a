"""Heartbeat (key 12), versions 0 to 4.

Behaviour: a member lives, and learns whether it is to join again. It costs one look-up and one
number, so that thousands of members are no load.

Refusals: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, NOT_COORDINATOR, UNKNOWN_MEMBER_ID (also for
a group that is not there), FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS. While the
group is loaded the answer is NONE, as in Kafka: nobody is to leave a group because its coordinator
has just started.

Version notes: v3 has static members (KIP-345).
"""

from kafkalite import _native
from kafkalite.access import GROUP, READ
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "Heartbeat"


def handle(
    context: Context, request: _native.Request, message: messages.HeartbeatRequest
) -> messages.HeartbeatResponse:
    """Answers at once."""
    if not context.may(request, READ, GROUP, message.group_id):
        return messages.HeartbeatResponse(error_code=codes.GROUP_AUTHORIZATION_FAILED)
    code = context.groups.heartbeat(
        message.group_id, message.member_id, message.group_instance_id, message.generation_id
    )
    return messages.HeartbeatResponse(error_code=code)
