"""ListPartitionReassignments (key 46), version 0.

Behaviour: this node alone can hold partitions, so that none is ever on its way to another.
"""

from kafkalite import _native
from kafkalite.context import Context
from kafkalite.protocol import messages

NAME = "ListPartitionReassignments"


def handle(
    _context: Context,
    _request: _native.Request,
    _message: messages.ListPartitionReassignmentsRequest,
) -> messages.ListPartitionReassignmentsResponse:
    """None."""
    return messages.ListPartitionReassignmentsResponse(error_message=None)
