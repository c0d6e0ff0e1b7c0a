"""AddOffsetsToTxn (key 25), versions 0 to 4: a group's partition of `__consumer_offsets` becomes
part of a transaction, as AddPartitionsToTxn does it. Producers with epochs for each transaction
leave that to TxnOffsetCommit.

Refusals as those of AddPartitionsToTxn for a client; GROUP_AUTHORIZATION_FAILED;
COORDINATOR_NOT_AVAILABLE where `__consumer_offsets` cannot be made.

Version notes: v2 may answer PRODUCER_FENCED (KIP-588); v4 TRANSACTION_ABORTABLE (KIP-890).
"""

from contextlib import suppress
from typing import Final

from kafkalite import _native
from kafkalite.access import GROUP, READ, TRANSACTIONAL_ID, WRITE
from kafkalite.api.deadline import IMPATIENT_WAIT_MS
from kafkalite.context import Context
from kafkalite.metadata.image import OFFSETS_TOPIC
from kafkalite.protocol import codes, messages
from kafkalite.tasks import TimedOutError
from kafkalite.transactions.machine import AddRequest

NAME = "AddOffsetsToTxn"

FENCED_SINCE: Final = 2


async def handle(
    context: Context, request: _native.Request, message: messages.AddOffsetsToTxnRequest
) -> messages.AddOffsetsToTxnResponse:
    """Answers once the transaction is on disk."""
    kind = messages.AddOffsetsToTxnResponse
    if not context.may(request, WRITE, TRANSACTIONAL_ID, message.transactional_id):
        return kind(error_code=codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(request, READ, GROUP, message.group_id):
        return kind(error_code=codes.GROUP_AUTHORIZATION_FAILED)
    if not message.transactional_id:
        return kind(error_code=codes.INVALID_REQUEST)
    groups = context.groups.runtime
    if not groups.has_topic:
        with suppress(TimedOutError), context.time_limit(IMPATIENT_WAIT_MS):
            await groups.make_topic()
    if not groups.has_topic:
        return kind(error_code=codes.COORDINATOR_NOT_AVAILABLE)
    partition = (OFFSETS_TOPIC, groups.partition_of(message.group_id))
    add = AddRequest(message.producer_id, message.producer_epoch, frozenset((partition,)), 0)
    code = await context.transactions.add_partitions(message.transactional_id, add)
    if code == codes.PRODUCER_FENCED and request.api_version < FENCED_SINCE:
        code = codes.INVALID_PRODUCER_EPOCH
    return kind(error_code=code)
