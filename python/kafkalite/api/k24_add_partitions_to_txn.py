"""AddPartitionsToTxn (key 24), versions 0 to 5: partitions become part of a transaction, or it is
verified that they are.

Behaviour: the first partitions begin the transaction, which is on disk before the answer. What is
in it already costs no record. Produce asks in the same form before it appends what belongs to a
transaction (`rust/src/api/k00_produce/transaction.rs`); it waits a little for the end of the last
one, so that the producer need not ask again.

Refusals, for all partitions of a transaction alike: TRANSACTIONAL_ID_AUTHORIZATION_FAILED (of a
broker CLUSTER_AUTHORIZATION_FAILED); TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION for
those that are not there, and OPERATION_NOT_ATTEMPTED for the others then; INVALID_REQUEST for an
empty id; COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR; INVALID_PRODUCER_ID_MAPPING;
PRODUCER_FENCED (before version 2 INVALID_PRODUCER_EPOCH); CONCURRENT_TRANSACTIONS while a change
of it is being written, or it ends; UNSUPPORTED_VERSION from version 4 on in a cluster whose
`transaction.version` is 0. Where only verification is asked for, TRANSACTION_ABORTABLE for a
partition that is not in it.

Version notes: v4 is for brokers, with several transactions (KIP-890); v5 TRANSACTION_ABORTABLE.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from kafkalite import _native
from kafkalite.access import CLUSTER, CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE
from kafkalite.context import Context
from kafkalite.metadata.image import INTERNAL_TOPICS, has_partition
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Task, all_done
from kafkalite.transactions.machine import AddRequest
from kafkalite.transactions.states import CLIENT_TV_OF_EPOCHS, TopicPartition

NAME = "AddPartitionsToTxn"

OF_BROKERS_SINCE: Final = 4
FENCED_SINCE: Final = 2

Response = messages.AddPartitionsToTxnResponse


async def handle(
    context: Context, request: _native.Request, message: messages.AddPartitionsToTxnRequest
) -> Response | None:
    """Answers once all transactions are on disk."""
    version = request.api_version
    if version < OF_BROKERS_SINCE:
        asked = await _partitions(context, message.v3_and_below_topics)
        found = await _add(
            (context, request),
            message.v3_and_below_transactional_id,
            message.v3_and_below_producer_id,
            message.v3_and_below_producer_epoch,
            asked,
        )
        if version < FENCED_SINCE:
            for each in [each for each, code in found.items() if code == codes.PRODUCER_FENCED]:
                found[each] = codes.INVALID_PRODUCER_EPOCH
        names = (each.name for each in message.v3_and_below_topics)
        return Response(results_by_topic_v3_and_below=await _topics(context, names, asked, found))
    if request.is_internal:
        (transaction,) = message.transactions
        asked = await _partitions(context, transaction.topics)
        found = await _add_or_verify(context, transaction, asked, is_own=True)
        context.core.requests.respond_verified(request, [found[each] for each in asked])
        return None
    if not context.may(request, CLUSTER_ACTION, CLUSTER):
        return Response(error_code=codes.CLUSTER_AUTHORIZATION_FAILED)
    response = Response()
    begun: list[tuple[list[TopicPartition], Task[dict[TopicPartition, int]]]] = []
    async for transaction in context.tasks.sliced(message.transactions):
        asked = await _partitions(context, transaction.topics)
        judged = _add_or_verify(context, transaction, asked, is_own=False)
        begun.append((asked, context.tasks.start(judged, request)))
    await all_done([judging for _, judging in begun])
    for transaction, (asked, judging) in zip(message.transactions, begun, strict=True):
        found = judging.result()
        # A partition that is named twice is verified once, and added as often as it is named.
        rows = found if transaction.verify_only else asked
        response.results_by_transaction.append(
            Response.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _topics(context, (), rows, found),
            )
        )
    return response


async def _add(
    asker: tuple[Context, _native.Request],
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    asked: Sequence[TopicPartition],
) -> dict[TopicPartition, int]:
    """As a client adds: all of the partitions, or none."""
    context, request = asker
    if not context.may(request, WRITE, TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(asked, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    sliced = context.tasks.sliced
    topics = {topic async for topic, _ in sliced(asked)} - INTERNAL_TOPICS
    permitted = await context.permitted(request, WRITE, TOPIC, topics)
    if refused := await _refused(context, asked, permitted):
        return refused
    add = AddRequest(producer_id, producer_epoch, frozenset(asked), 0)
    code = await context.transactions.add_partitions(transactional_id, add)
    return dict.fromkeys(asked, code)


async def _refused(
    context: Context, asked: Sequence[TopicPartition], topics: Container[str]
) -> dict[TopicPartition, int]:
    """A code for each partition if some are not there, or not of the topics; else none."""
    sliced = context.tasks.sliced
    refused = {
        each: codes.UNKNOWN_TOPIC_OR_PARTITION
        if each[0] in topics
        else codes.TOPIC_AUTHORIZATION_FAILED
        async for each in sliced(asked)
        if each[0] not in topics or not has_partition(context.image, *each)
    }
    not_attempted = codes.OPERATION_NOT_ATTEMPTED
    return refused and {each: refused.get(each, not_attempted) async for each in sliced(asked)}


async def _add_or_verify(
    context: Context, transaction: Any, asked: Sequence[TopicPartition], *, is_own: bool
) -> dict[TopicPartition, int]:
    """As a broker asks for its client. `is_own`: this one does, for what it leads, whichever broker
    coordinates the transaction."""
    transactional_id = transaction.transactional_id
    if refused := await _refused(context, asked, {topic for topic, _ in asked}):
        return refused
    add = AddRequest(
        transaction.producer_id,
        transaction.producer_epoch,
        frozenset(asked),
        CLIENT_TV_OF_EPOCHS,
    )
    coordinator, verify_only = context.transactions, transaction.verify_only
    if is_own:
        return await coordinator.add_or_verify(
            transactional_id,
            add,
            verify_only=verify_only,
            wait_ms=coordinator.settle_wait_ms,
        )
    if verify_only:
        return coordinator.check_partitions(transactional_id, add)
    return dict.fromkeys(asked, await coordinator.add_partitions(transactional_id, add))


async def _partitions(context: Context, topics: Sequence[Any]) -> list[TopicPartition]:
    sliced = context.tasks.sliced
    return [
        (each.name, partition)
        async for each in sliced(topics)
        async for partition in sliced(each.partitions)
    ]


async def _topics(
    context: Context,
    names: Iterable[str],
    asked: Iterable[TopicPartition],
    found: Mapping[TopicPartition, int],
) -> list[Any]:
    """The topics of these names, and those of the partitions."""
    kind = Response.AddPartitionsToTxnTopicResult
    row = kind.AddPartitionsToTxnPartitionResult
    sliced = context.tasks.sliced
    topics: dict[str, list[Any]] = {name: [] async for name in sliced(names)}
    async for topic, index in sliced(asked):
        rows = topics.setdefault(topic, [])
        rows.append(row(partition_index=index, partition_error_code=found[topic, index]))
    return [kind(name=topic, results_by_partition=rows) for topic, rows in topics.items()]
