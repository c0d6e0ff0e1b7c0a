"""Changes of the metadata as pure functions: an image and a request in, records or a refusal out.

    topics, partitions, configs, features, producer_ids     judge, and make records
    active                                                  has them written, and their effects made

A refusal is a ControllerError with Kafka's code. No function of the first five reads a clock, draws
a random number or waits, so that each change can be told from its table of tests.

Kafka: `QuorumController`, `ReplicationControlManager`, `ConfigurationControlManager`,
`FeatureControlManager`, `ProducerIdControlManager`.
"""

from kafkalite.protocol import codes
from kafkalite.protocol.refused import RefusedError

RECORDS_PER_OPERATION_MAX = 10_000
"""Records that a client may ask for at once (`QuorumController.MAX_RECORDS_PER_USER_OP`)."""


class ControllerError(RefusedError):
    """A change that is refused."""


def check_record_count(count: int) -> None:
    """Raises ControllerError where a client asks for too many records."""
    if count > RECORDS_PER_OPERATION_MAX:
        raise ControllerError(
            codes.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
