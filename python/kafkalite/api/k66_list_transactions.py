"""ListTransactions (key 66), versions 0 to 2: the transactional ids of this node, with their states
(KIP-664).

Behaviour: every id that the client may describe; those in one of the states, of one of the
producers, that are open for longer than a time, and whose whole id matches a pattern, where any of
these is asked for. States that there are not are named in the answer. As in Kafka the ids of a
partition that could not be loaded are left out, and nothing says so. To match one long id may take
a second: a thread beside the control thread does it, for one request at a time.

Refusals: COORDINATOR_LOAD_IN_PROGRESS while some ids are not known yet; INVALID_REGULAR_EXPRESSION
for what is no pattern of RE2, or beyond its bounds (`rust/src/re2.rs`).

Version notes: v1 has the time (KIP-994), v2 the pattern (KIP-1152).
"""

from collections.abc import AsyncIterator
from functools import partial
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
PIECE_CHARACTERS: Final = 8_000
"""So many, and what the last id exceeds them by, are matched before another request has its turn.
One id may have 32,767."""


async def handle(context: Context, request: _native.Request, message: Request) -> Response:
    """Answers at once, unless there is a pattern."""
    if context.transactions.runtime.is_loading:
        return Response(error_code=codes.COORDINATOR_LOAD_IN_PROGRESS)
    sliced = context.tasks.sliced
    states = {each async for each in sliced(message.state_filters)}
    unknown = states.difference(STATE_NAMES, NEVER_WRITTEN)
    rows = _listed(context, request, message, states)
    if message.transactional_id_pattern:
        pattern = await _compiled(context, request, message.transactional_id_pattern)
        if pattern is None:
            return Response(error_code=codes.INVALID_REGULAR_EXPRESSION)
        rows = _matching(context, request, pattern, rows)
    return Response(
        unknown_state_filters=sorted(unknown), transaction_states=[each async for each in rows]
    )


async def _listed(
    context: Context, request: _native.Request, message: Request, states: set[str]
) -> AsyncIterator[Any]:
    """Those that are asked for, whatever the pattern."""
    sliced = context.tasks.sliced
    producers = {each async for each in sliced(message.producer_id_filters)}
    started_before_ms = context.wall_ms() - message.duration_filter
    row: Any = Response.TransactionState
    for shard in context.transactions.runtime.shards:
        async for name, entry in sliced(list(shard.machine.entries.items())):
            now = entry.now
            if (
                (not states or STATE_NAMES[now.state] in states)
                and (not producers or now.producer_id in producers)
                and (message.duration_filter < 0 or now.start_ms < started_before_ms)
                and context.may(request, DESCRIBE, TRANSACTIONAL_ID, name)
            ):
                yield row(
                    transactional_id=name,
                    producer_id=now.producer_id,
                    transaction_state=STATE_NAMES[now.state],
                )


async def _compiled(context: Context, request: _native.Request, text: str) -> _native.Re2 | None:
    """The pattern; None for what is refused, and for a client that has gone."""
    with await context.transactions.matching.take():
        if not request.is_connected:
            return None
        return await context.background.compute(partial(_native.Re2.compile, text))


async def _matching(
    context: Context, request: _native.Request, pattern: _native.Re2, rows: AsyncIterator[Any]
) -> AsyncIterator[Any]:
    """Those whose id matches; not all of them for a client that has gone meanwhile."""
    async for piece in _pieces(rows):
        ids = [each.transactional_id for each in piece]
        with await context.transactions.matching.take():
            if not request.is_connected:
                return
            matches = await context.background.compute(partial(pattern.matches, ids))
        for each, is_match in zip(piece, matches, strict=True):
            if is_match:
                yield each


async def _pieces(rows: AsyncIterator[Any]) -> AsyncIterator[list[Any]]:
    piece, characters = [], 0
    async for each in rows:
        piece.append(each)
        characters += len(each.transactional_id)
        if characters >= PIECE_CHARACTERS:
            yield piece
            piece, characters = [], 0
    if piece:
        yield piece
