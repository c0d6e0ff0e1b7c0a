"""DeleteAcls (key 31), versions 1 to 3.

Behaviour: there is no authorizer, and so there are no ACLs to delete.

Refusals: SECURITY_DISABLED for each filter, as Kafka without `authorizer.class.name`.

Version notes: v1 has patterns (KIP-290), v3 users (KIP-373).
"""

from kafkalite import _native
from kafkalite.api.acl_codes import check_known
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "DeleteAcls"

REFUSAL = "No Authorizer is configured."


def handle(
    _context: Context, _request: _native.Request, message: messages.DeleteAclsRequest
) -> messages.DeleteAclsResponse:
    """Refuses each filter."""
    for each in message.filters:
        check_known(
            each.resource_type_filter,
            each.pattern_type_filter,
            each.operation,
            each.permission_type,
        )
    kind = messages.DeleteAclsResponse
    refused = kind.DeleteAclsFilterResult(error_code=codes.SECURITY_DISABLED, error_message=REFUSAL)
    return kind(filter_results=[refused] * len(message.filters))
