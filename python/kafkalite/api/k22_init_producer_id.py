"""InitProducerId (key 22), versions 0 to 5.

Behaviour: a producer without a transactional id gets an id that nobody else has, with epoch 0.
With one it gets the id that goes with it, in a new epoch, so that an earlier producer of the same
name is shut out; a transaction that that one has left open is aborted first, and the client asks
again. Ids come in blocks of 1,000, each taken by a record of the metadata, so that a restart never
gives one twice. Where that takes longer than two and a half seconds, the client is to ask again.

Refusals, in Kafka's order (`KafkaApis.handleInitProducerIdRequest`):
TRANSACTIONAL_ID_AUTHORIZATION_FAILED; CLUSTER_AUTHORIZATION_FAILED without an id for who may
neither write idempotently nor write to any topic. INVALID_REQUEST for an empty transactional id,
and for an id without an epoch or the other way round. COORDINATOR_LOAD_IN_PROGRESS while there is
no id to be had. With a transactional id also INVALID_TRANSACTION_TIMEOUT
(`transaction.max.timeout.ms`); NOT_COORDINATOR; CONCURRENT_TRANSACTIONS while a change of it is
being written, or it ends; PRODUCER_FENCED (before version 4 INVALID_PRODUCER_EPOCH) for a client
that names an earlier producer.

Version notes: v3 tells an earlier id and epoch (KIP-360); v4 may answer PRODUCER_FENCED
(KIP-588); v5 TRANSACTION_ABORTABLE (KIP-890); v6 is not stable in Kafka 4.3.
"""

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from kafkalite import _native
from kafkalite.access import CLUSTER, IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from kafkalite.api.deadline import IMPATIENT_WAIT_MS, may_change
from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.protocol import codes, messages
from kafkalite.tasks import TimedOutError
from kafkalite.transactions.machine import InitRequest
from kafkalite.transactions.states import Expected

NAME = "InitProducerId"

Response = messages.InitProducerIdResponse

FENCED_SINCE: Final = 4
NO_ID = -1
"""Also of an epoch."""


def handle(
    context: Context, request: _native.Request, message: messages.InitProducerIdRequest
) -> Response | Coroutine[Any, Any, Response]:
    """Gives out a producer id, later where there is none left of this node's block."""
    if message.transactional_id is not None:
        if not context.may(request, WRITE, TRANSACTIONAL_ID, message.transactional_id):
            return _refused(codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not (
        context.may(request, IDEMPOTENT_WRITE, CLUSTER) or context.may(request, WRITE, TOPIC)
    ):
        return _refused(codes.CLUSTER_AUTHORIZATION_FAILED)
    if message.transactional_id == "" or _is_half(message):
        return _refused(codes.INVALID_REQUEST)
    if message.transactional_id is not None:
        return _init_transactions(context, request, message)
    producer_id = context.engine.next_producer_id()
    return _give_later(context, request) if producer_id is None else _given(producer_id)


async def _init_transactions(
    context: Context, request: _native.Request, message: messages.InitProducerIdRequest
) -> Response:
    expected = None
    if message.producer_id != NO_ID:
        expected = Expected(message.producer_id, message.producer_epoch)
    answer = await context.transactions.init_producer_id(
        message.transactional_id or "", InitRequest(message.transaction_timeout_ms, expected)
    )
    code = answer.error_code
    if code == codes.PRODUCER_FENCED and request.api_version < FENCED_SINCE:
        code = codes.INVALID_PRODUCER_EPOCH
    return Response(
        error_code=code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


async def _give_later(context: Context, request: _native.Request) -> Response:
    engine = context.engine
    with suppress(TimedOutError, ControllerError), context.time_limit(IMPATIENT_WAIT_MS):
        async with may_change(context):
            # Somebody before may have taken the next block.
            producer_id = engine.next_producer_id()
            if producer_id is None:
                allocating = engine.allocate_producer_ids()
                await context.tasks.start(allocating, holding=request)
                producer_id = engine.next_producer_id()
        if producer_id is not None:
            return _given(producer_id)
    return _refused(codes.COORDINATOR_LOAD_IN_PROGRESS)


def _given(producer_id: int) -> Response:
    return Response(producer_id=producer_id, producer_epoch=0)


def _refused(code: int) -> Response:
    return Response(error_code=code, producer_id=NO_ID, producer_epoch=NO_ID)


def _is_half(message: messages.InitProducerIdRequest) -> bool:
    """An earlier id goes with its epoch."""
    return (message.producer_id != NO_ID) != (message.producer_epoch != NO_ID)
