"""ListTransactions (key 66), versions 0 to 2: the transactional ids of this node, with their states
(KIP-664).

Behaviour: every id that the client may describe; those in one of the states, of one of the
producers, that are open for longer than a time, and whose whole id matches a pattern, where any of
these is asked for. States that there are not are named in the answer. As in Kafka the ids of a
partition that could not be loaded are left out, and nothing says so.

Refusals: COORDINATOR_LOAD_IN_PROGRESS while some ids are not known yet; INVALID_REGULAR_EXPRESSION
for what is no pattern of RE2, or beyond its bounds (`rust/src/re2.rs`).

Version notes: v1 has the time (KIP-994), v2 the pattern (KIP-1152).
"""

from typing import Any, Final

from kafkalite import _native
from kafkalite.access import DESCRIBE, TRANSACTIONAL_ID
from kafkalite.context import Context
from kafkalite.protocol import codes, messages
from kafkalite.transactions.states import STATE_NAMES

NAME = "ListTransactions"

Request = messages.ListTransactionsRequest
Response = messages.ListTransactionsResponse

NEVER_WRITTEN: Final = ("Dead", "PrepareEpochFence")
"""States that Kafka knows, and that no id is ever seen in."""


async def handle(context: Context, request: _native.Request, message: Request) -> Response:
    """Answers at once."""
    coordinator = context.transactions
    if coordinator.runtime.is_loading:
        return Response(error_code=codes.COORDINATOR_LOAD_IN_PROGRESS)
    pattern = None
    if message.transactional_id_pattern:
        pattern = _native.Re2.compile(message.transactional_id_pattern)
        if pattern is None:
            return Response(error_code=codes.INVALID_REGULAR_EXPRESSION)
    sliced = context.tasks.sliced
    states = {each async for each in sliced(message.state_filters)}
    unknown = states.difference(STATE_NAMES, NEVER_WRITTEN)
    response = Response(unknown_state_filters=sorted(unknown))
    producers = {each async for each in sliced(message.producer_id_filters)}
    started_before_ms = context.wall_ms() - message.duration_filter
    row: Any = Response.TransactionState
    for shard in coordinator.runtime.shards:
        async for name, entry in sliced(list(shard.machine.entries.items())):
            now = entry.now
            if (
                (not states or STATE_NAMES[now.state] in states)
                and (not producers or now.producer_id in producers)
                and (message.duration_filter < 0 or now.start_ms < started_before_ms)
                and (pattern is None or pattern.matches(name))
                and context.may(request, DESCRIBE, TRANSACTIONAL_ID, name)
            ):
                response.transaction_states.append(
                    row(
                        transactional_id=name,
                        producer_id=now.producer_id,
                        transaction_state=STATE_NAMES[now.state],
                    )
                )
    return response
