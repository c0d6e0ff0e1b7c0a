"""The answers that requests about ACLs have in common, as long as there is no authorizer.

Kafka's broker without one refuses them all with SECURITY_DISABLED (`AclApis`), which tools that ask
for ACLs by the way (MirrorMaker, AKHQ) take for an answer.
"""

from kafkalite.access import CLUSTER, DENIALS
from kafkalite.errors import MalformedRequestError
from kafkalite.protocol import codes

UNKNOWN = 0
"""A code of resources, patterns, operations and permissions."""


def refusal_of_changes(*, is_permitted: bool) -> tuple[int, str]:
    """The code and the sentence with which each change is refused."""
    if not is_permitted:
        return DENIALS[CLUSTER]
    return codes.SECURITY_DISABLED, "No Authorizer is configured."


def check_known(*of_acl: int) -> None:
    """Raises MalformedRequestError for a code that says itself that it is unknown: Kafka cannot
    read such a request. Any other code it takes."""
    if UNKNOWN in of_acl:
        raise MalformedRequestError(
            "an ACL of an unknown resource, pattern, operation or permission"
        )
