"""CreateAcls (key 30), versions 1 to 3.

Behaviour: there is no authorizer that would obey an ACL, and so none is made.

Refusals: CLUSTER_AUTHORIZATION_FAILED for each; SECURITY_DISABLED for each, as Kafka without
`authorizer.class.name`.

Version notes: v1 has patterns (KIP-290), v3 users (KIP-373).
"""

from kafkalite import _native
from kafkalite.access import ALTER, CLUSTER
from kafkalite.api.acl_codes import check_known, refusal_of_changes
from kafkalite.context import Context
from kafkalite.protocol import messages

NAME = "CreateAcls"


async def handle(
    context: Context, request: _native.Request, message: messages.CreateAclsRequest
) -> messages.CreateAclsResponse:
    """Refuses each."""
    async for each in context.tasks.sliced(message.creations):
        check_known(
            each.resource_type, each.resource_pattern_type, each.operation, each.permission_type
        )
    kind = messages.CreateAclsResponse
    code, sentence = refusal_of_changes(is_permitted=context.may(request, ALTER, CLUSTER))
    refused = kind.AclCreationResult(error_code=code, error_message=sentence)
    return kind(results=[refused] * len(message.creations))
