"""ListPartitionReassignments (key 46), version 0.

Behaviour: this node alone can hold partitions, so that none is ever on its way to another.
"""

from typing import Any

from kafkalite.context import Context
from kafkalite.protocol import messages

NAME = "ListPartitionReassignments"


def handle(_context: Context, _request: Any, _message: Any) -> Any:
    """None."""
    return messages.ListPartitionReassignmentsResponse(error_message=None)
