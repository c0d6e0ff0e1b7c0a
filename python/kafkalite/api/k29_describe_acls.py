"""DescribeAcls (key 29), versions 1 to 3.

Behaviour: there is no authorizer, and so there are no ACLs to tell of.

Refusals: CLUSTER_AUTHORIZATION_FAILED; SECURITY_DISABLED, as Kafka without `authorizer.class.name`.

Version notes: v1 has patterns (KIP-290), v3 users (KIP-373).
"""

from kafkalite import _native
from kafkalite.access import CLUSTER, DENIALS, DESCRIBE
from kafkalite.api.acl_codes import check_known
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "DescribeAcls"

REFUSAL = "No Authorizer is configured on the broker"


def handle(
    context: Context, request: _native.Request, message: messages.DescribeAclsRequest
) -> messages.DescribeAclsResponse:
    """Refuses."""
    check_known(
        message.resource_type_filter,
        message.pattern_type_filter,
        message.operation,
        message.permission_type,
    )
    if not context.may(request, DESCRIBE, CLUSTER):
        code, sentence = DENIALS[CLUSTER]
        return messages.DescribeAclsResponse(error_code=code, error_message=sentence)
    return messages.DescribeAclsResponse(error_code=codes.SECURITY_DISABLED, error_message=REFUSAL)
