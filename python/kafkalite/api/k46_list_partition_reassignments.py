"""ListPartitionReassignments (key 46), version 0.

Behaviour: this node alone can hold partitions, so that none is ever on its way to another.

Refusals: CLUSTER_AUTHORIZATION_FAILED, with the partitions that were named.
"""

from kafkalite import _native
from kafkalite.access import CLUSTER, DENIALS, DESCRIBE
from kafkalite.context import Context
from kafkalite.protocol import messages

NAME = "ListPartitionReassignments"


def handle(
    context: Context,
    request: _native.Request,
    message: messages.ListPartitionReassignmentsRequest,
) -> messages.ListPartitionReassignmentsResponse:
    """None."""
    kind = messages.ListPartitionReassignmentsResponse
    if context.may(request, DESCRIBE, CLUSTER):
        return kind(error_message=None)
    code, sentence = DENIALS[CLUSTER]
    partition_kind = kind.OngoingTopicReassignment.OngoingPartitionReassignment
    named = [
        kind.OngoingTopicReassignment(
            name=topic.name,
            partitions=[partition_kind(partition_index=each) for each in topic.partition_indexes],
        )
        for topic in message.topics or ()
    ]
    return kind(error_code=code, error_message=sentence, topics=named)
