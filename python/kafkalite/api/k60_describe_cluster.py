"""DescribeCluster (key 60), versions 0 to 2.

Behaviour: the cluster's id, its controller, and its brokers that have the listener that the client
came in by, with the endpoint of that: those that are alive and, where the client asks for them, the
fenced ones too.

Refusals: MISMATCHED_ENDPOINT_TYPE for a client that looks for controllers,
UNSUPPORTED_ENDPOINT_TYPE for a kind of endpoint that there is not
(`AuthHelper.computeDescribeClusterResponse`).

Version notes: v1 has kinds of endpoints (KIP-919); v2 fenced brokers (KIP-1073).
"""

from kafkalite import _native
from kafkalite.access import CLUSTER, DESCRIBE, OPERATIONS_OMITTED
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "DescribeCluster"

BROKERS = 1
CONTROLLERS = 2


def handle(
    context: Context, request: _native.Request, message: messages.DescribeClusterRequest
) -> messages.DescribeClusterResponse:
    """Describes the brokers of the cluster."""
    kind = messages.DescribeClusterResponse
    if message.endpoint_type == CONTROLLERS:
        return kind(
            error_code=codes.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an "
            "endpoint of type CONTROLLER",
        )
    if message.endpoint_type != BROKERS:
        return kind(
            error_code=codes.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {message.endpoint_type}",
        )
    operations = OPERATIONS_OMITTED
    if message.include_cluster_authorized_operations:
        may_see = context.may(request, DESCRIBE, CLUSTER)
        operations = context.operations(request, CLUSTER) if may_see else 0
    brokers = context.cluster.brokers
    if message.include_fenced_brokers:
        brokers = [each for _, each in sorted(context.image.brokers.items())]
    return kind(
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=context.cluster_id,
        controller_id=context.cluster.controller_id,
        brokers=[
            kind.DescribeClusterBroker(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
            for broker in brokers
            if (endpoint := broker.endpoint(request.listener_name)) is not None
        ],
        cluster_authorized_operations=operations,
    )
