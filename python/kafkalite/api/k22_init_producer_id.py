"""InitProducerId (key 22), versions 0 to 5.

Behaviour: a producer without a transactional id gets an id that nobody else has, with epoch 0;
what it says of an earlier id and epoch is for transactions. Ids come in blocks of 1,000, each
taken by a record of the metadata, so that a restart never gives one twice.

Refusals, in Kafka's order (`KafkaApis.handleInitProducerIdRequest`):
TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional id, as long as there are no
transactions: every client takes that as final. An empty one, and an id without an epoch or the
other way round, is INVALID_REQUEST.

Version notes: v3 tells an earlier id and epoch (KIP-360); v4 may answer PRODUCER_FENCED
(KIP-588); v5 TRANSACTION_ABORTABLE (KIP-890); v6 is not stable in Kafka 4.3.
"""

from typing import Any

from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "InitProducerId"

NO_ID = -1
"""Also of an epoch."""


def handle(context: Context, _request: Any, message: Any) -> Any:
    """Gives out a producer id."""
    response = messages.InitProducerIdResponse(producer_id=NO_ID, producer_epoch=NO_ID)
    if message.transactional_id:
        response.error_code = codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif message.transactional_id == "" or _is_half(message):
        response.error_code = codes.INVALID_REQUEST
    else:
        response.producer_id = context.controller.next_producer_id()
        response.producer_epoch = 0
    return response


def _is_half(message: Any) -> bool:
    """An earlier id goes with its epoch."""
    has_id: bool = message.producer_id != NO_ID
    has_epoch: bool = message.producer_epoch != NO_ID
    return has_id != has_epoch
