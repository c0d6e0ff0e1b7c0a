"""Operations and resources, by the codes that ACLs have for them. What clients are told who may not
do the one to the other is here, too. Handlers ask `Context.may` before they look anything up: who
may not see a thing is not told whether it exists.

Kafka: `AclOperation`, `ResourceType`, `AuthHelper`.
"""

from typing import Final

from kafkalite.protocol import codes

READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12

TOPIC: Final = 2
GROUP: Final = 3
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5

DENIALS: Final = {
    TOPIC: (codes.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    GROUP: (codes.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    TRANSACTIONAL_ID: (
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
    CLUSTER: (codes.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
}
"""Code and sentence for whoever may not do something to a resource of this kind."""

OPERATIONS_OMITTED: Final = -(2**31)
"""A field of authorized operations that was not asked for (KIP-430)."""
