"""DescribeTransactions (key 65), version 0: what their coordinator knows of transactional ids
(KIP-664).

Topics that the client may not describe are left out.

Refusals, per id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED; INVALID_REQUEST for an empty one;
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR; TRANSACTIONAL_ID_NOT_FOUND.
"""

from kafkalite import _native
from kafkalite.access import DESCRIBE, TOPIC, TRANSACTIONAL_ID
from kafkalite.context import Context
from kafkalite.protocol import codes, messages
from kafkalite.transactions.states import STATE_NAMES

NAME = "DescribeTransactions"

State = messages.DescribeTransactionsResponse.TransactionState


async def handle(
    context: Context, request: _native.Request, message: messages.DescribeTransactionsRequest
) -> messages.DescribeTransactionsResponse:
    """Each id that is named, as it is on disk."""
    response = messages.DescribeTransactionsResponse()
    known: dict[str, State] = {}
    async for each in context.tasks.sliced(message.transactional_ids):
        if each not in known:
            # As often as it is named, which need not take memory.
            known[each] = await _state(context, request, each)
        response.transaction_states.append(known[each])
    return response


async def _state(context: Context, request: _native.Request, transactional_id: str) -> State:
    if not context.may(request, DESCRIBE, TRANSACTIONAL_ID, transactional_id):
        code = codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return State(error_code=code, transactional_id=transactional_id)
    if not transactional_id:
        return State(error_code=codes.INVALID_REQUEST, transactional_id="")
    found = context.transactions.describe(transactional_id)
    if isinstance(found, int):
        return State(error_code=found, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    permitted = await context.permitted(
        request, DESCRIBE, TOPIC, {each for each, _ in found.partitions}
    )
    for topic, partition in sorted(each for each in found.partitions if each[0] in permitted):
        topics.setdefault(topic, []).append(partition)
    return State(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[found.state],
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[State.TopicData(topic=name, partitions=ids) for name, ids in topics.items()],
    )
