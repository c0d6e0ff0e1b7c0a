"""The answers that requests about ACLs have in common, as long as there is no authorizer.

Kafka's broker without one refuses them all with SECURITY_DISABLED (`AclApis`), which tools that ask
for ACLs by the way (MirrorMaker, AKHQ) take for an answer.
"""

from kafkalite.errors import MalformedRequestError

UNKNOWN = 0
"""A code of resources, patterns, operations and permissions."""


def check_known(*codes: int) -> None:
    """Raises MalformedRequestError for a code that says itself that it is unknown: Kafka cannot
    read such a request. Any other code it takes."""
    if UNKNOWN in codes:
        raise MalformedRequestError(
            "an ACL of an unknown resource, pattern, operation or permission"
        )
