"""DeleteAcls (key 31), versions 1 to 3.

Behaviour: there is no authorizer, and so there are no ACLs to delete.

Refusals: CLUSTER_AUTHORIZATION_FAILED for each filter; SECURITY_DISABLED for each, as Kafka without
`authorizer.class.name`.

Version notes: v1 has patterns (KIP-290), v3 users (KIP-373).
"""

from kafkalite import _native
from kafkalite.access import ALTER, CLUSTER
from kafkalite.api.acl_codes import check_known, refusal_of_changes
from kafkalite.context import Context
from kafkalite.protocol import messages

NAME = "DeleteAcls"


async def handle(
    context: Context, request: _native.Request, message: messages.DeleteAclsRequest
) -> messages.DeleteAclsResponse:
    """Refuses each filter."""
    async for each in context.tasks.sliced(message.filters):
        check_known(
            each.resource_type_filter,
            each.pattern_type_filter,
            each.operation,
            each.permission_type,
        )
    kind = messages.DeleteAclsResponse
    code, sentence = refusal_of_changes(is_permitted=context.may(request, ALTER, CLUSTER))
    refused = kind.DeleteAclsFilterResult(error_code=code, error_message=sentence)
    return kind(filter_results=[refused] * len(message.filters))
