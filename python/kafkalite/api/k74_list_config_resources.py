"""ListConfigResources (key 74), versions 0 and 1: what may be described (KIP-1142).

Behaviour: groups and subscriptions of client metrics that have configs, brokers, their loggers, and
topics; with types named, only those. Version 0 knows subscriptions only.

Refusals: CLUSTER_AUTHORIZATION_FAILED; UNSUPPORTED_VERSION for a type that cannot be listed.

Version notes: v1 has types; v0 was named ListClientMetricsResources (KIP-714).
"""

from kafkalite import _native
from kafkalite.access import CLUSTER, DESCRIBE_CONFIGS
from kafkalite.api.config_resources import BROKER_LOGGER
from kafkalite.context import Context
from kafkalite.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kafkalite.protocol import codes, messages

NAME = "ListConfigResources"

ALL_KINDS = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


def handle(
    context: Context, request: _native.Request, message: messages.ListConfigResourcesRequest
) -> messages.ListConfigResourcesResponse:
    """The resources of the types that are asked for."""
    response = messages.ListConfigResourcesResponse()
    if not context.may(request, DESCRIBE_CONFIGS, CLUSTER):
        response.error_code = codes.CLUSTER_AUTHORIZATION_FAILED
        return response
    kinds = [CLIENT_METRICS] if request.api_version == 0 else message.resource_types or ALL_KINDS
    if not set(kinds) <= set(ALL_KINDS):
        response.error_code = codes.UNSUPPORTED_VERSION
        return response
    image = context.image
    for kind in ALL_KINDS:
        if kind in kinds:
            if kind in (BROKER, BROKER_LOGGER):
                names = [str(node_id) for node_id in sorted(image.brokers)]
            elif kind == TOPIC:
                names = sorted(image.topics)
            else:
                names = sorted(name for each, name in image.configs if each == kind)
            response.config_resources += [
                response.ConfigResource(resource_name=name, resource_type=kind) for name in names
            ]
    return response
