"""AlterPartitionReassignments (key 45), versions 0 and 1.

Behaviour: this node alone can hold a partition, and does. To move one here is done already; a move
that could be cancelled (null for the replicas) is never under way.

Refusals, of the whole request: CLUSTER_AUTHORIZATION_FAILED; REQUEST_TIMED_OUT without a positive
time-out. Per partition (`ReplicationControlManager.alterPartitionReassignment`):
UNKNOWN_TOPIC_OR_PARTITION; NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT.

Version notes: v1 may forbid another number of replicas (KIP-860), which there cannot be.
"""

from kafkalite import _native
from kafkalite.access import ALTER, CLUSTER, DENIALS
from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.partitions import check_reassignment
from kafkalite.protocol import codes, messages

NAME = "AlterPartitionReassignments"

Asked = messages.AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition


async def handle(
    context: Context,
    request: _native.Request,
    message: messages.AlterPartitionReassignmentsRequest,
) -> messages.AlterPartitionReassignmentsResponse:
    """An outcome for each partition."""
    kind = messages.AlterPartitionReassignmentsResponse
    response = kind(
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_message=None if message.topics else "",
    )
    refused: ControllerError | None = None
    if not context.may(request, ALTER, CLUSTER):
        refused = ControllerError(*DENIALS[CLUSTER])
        response.error_code, response.error_message = refused.code, str(refused)
    elif message.timeout_ms <= 0 and message.topics:
        refused = ControllerError(codes.REQUEST_TIMED_OUT, "")
        response.error_code = refused.code
    sliced = context.tasks.sliced
    async for topic in sliced(message.topics):
        answered = kind.ReassignableTopicResponse(name=topic.name)
        response.responses.append(answered)
        async for each in sliced(topic.partitions):
            refusal = refused or _refusal(context, topic.name, each)
            answered.partitions.append(
                answered.ReassignablePartitionResponse(
                    partition_index=each.partition_index,
                    error_code=refusal.code if refusal else codes.NONE,
                    error_message=str(refusal or "") or None,
                )
            )
    return response


def _refusal(context: Context, name: str, asked: Asked) -> ControllerError | None:
    """Why the partition cannot lie as is asked."""
    try:
        check_reassignment(context.image, name, asked, context.cluster.broker_ids)
    except ControllerError as refusal:
        return refusal
    return None
