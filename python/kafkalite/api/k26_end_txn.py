"""EndTxn (key 26), versions 0 to 5: a transaction is committed or aborted.

Behaviour: the decision is on disk before the answer; the markers follow, and until they are written
the next request is told CONCURRENT_TRANSACTIONS. From version 5 on each transaction has an epoch of
its own, and the answer tells producer id and epoch of the next one; a retry is told the same.

Refusals: TRANSACTIONAL_ID_AUTHORIZATION_FAILED; INVALID_REQUEST for an empty id;
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR; INVALID_PRODUCER_ID_MAPPING;
PRODUCER_FENCED (before version 2 INVALID_PRODUCER_EPOCH);
CONCURRENT_TRANSACTIONS; INVALID_TXN_STATE where there is nothing that could be ended so;
UNSUPPORTED_VERSION for version 5 in a cluster whose `transaction.version` is 0.

Version notes: v2 may answer PRODUCER_FENCED (KIP-588); v4 TRANSACTION_ABORTABLE; v5 epochs for each
transaction (KIP-890).
"""

from typing import Final

from kafkalite import _native
from kafkalite.access import TRANSACTIONAL_ID, WRITE
from kafkalite.context import Context
from kafkalite.protocol import codes, messages
from kafkalite.transactions.states import CLIENT_TV_OF_EPOCHS, End

NAME = "EndTxn"

FENCED_SINCE: Final = 2
EPOCHS_SINCE_VERSION: Final = 5


async def handle(
    context: Context, request: _native.Request, message: messages.EndTxnRequest
) -> messages.EndTxnResponse:
    """Answers once the decision is on disk."""
    kind = messages.EndTxnResponse
    version = request.api_version
    if not context.may(request, WRITE, TRANSACTIONAL_ID, message.transactional_id):
        return kind(error_code=codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not message.transactional_id:
        return kind(error_code=codes.INVALID_REQUEST)
    client_version = CLIENT_TV_OF_EPOCHS if version >= EPOCHS_SINCE_VERSION else 0
    end = End(message.producer_id, message.producer_epoch, message.committed, client_version)
    answer = await context.transactions.end(message.transactional_id, end)
    code = answer.error_code
    if code == codes.PRODUCER_FENCED and version < FENCED_SINCE:
        code = codes.INVALID_PRODUCER_EPOCH
    if version < EPOCHS_SINCE_VERSION:
        return kind(error_code=code)
    return kind(
        error_code=code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )
