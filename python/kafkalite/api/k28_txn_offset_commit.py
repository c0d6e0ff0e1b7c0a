"""TxnOffsetCommit (key 28), versions 0 to 5: offsets that a group has read up to hold if a
transaction is committed.

Behaviour: the offsets are on disk before the answer, and unstable until the transaction's marker
(OffsetFetch with `require_stable`). From version 5 on the group's partition of `__consumer_offsets`
becomes part of the transaction here; before, it is verified that it is.

Refusals, per partition: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED;
TOPIC_AUTHORIZATION_FAILED; UNKNOWN_TOPIC_OR_PARTITION; then for all others alike INVALID_GROUP_ID;
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS (before version 2
COORDINATOR_NOT_AVAILABLE); what AddPartitionsToTxn refuses with, TRANSACTION_ABORTABLE being
INVALID_TXN_STATE before version 4; ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID for a
member that is not of this generation; INVALID_PRODUCER_EPOCH; INVALID_TXN_STATE where the
transaction has ended meanwhile; then per partition OFFSET_METADATA_TOO_LARGE.

Version notes: v2 leader epochs; v3 generation, member and instance (KIP-447); v4
TRANSACTION_ABORTABLE; v5 adds the partition itself (KIP-890).
"""

from typing import Any, Final

from kafkalite import _native
from kafkalite.access import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from kafkalite.api.topics_of_answer import Judged
from kafkalite.context import Context
from kafkalite.groups.events import CommitRequest, OffsetsInTransaction, OffsetToCommit
from kafkalite.metadata.image import OFFSETS_TOPIC
from kafkalite.protocol import codes, messages
from kafkalite.transactions.machine import AddRequest
from kafkalite.transactions.states import CLIENT_TV_OF_EPOCHS

NAME = "TxnOffsetCommit"

LOADING_SINCE: Final = 2
MEMBERS_SINCE: Final = 3
ABORTABLE_SINCE: Final = 4
ADDS_SINCE: Final = 5

NO_TOPIC_ID: Final = bytes(16)
"""Kafka notes the topic's id with offsets of OffsetCommit only."""

OFFSETS_AT_ONCE: Final = 1_000
"""So many are written in one step, which takes some milliseconds."""

Response = messages.TxnOffsetCommitResponse


async def handle(
    context: Context, request: _native.Request, message: messages.TxnOffsetCommitRequest
) -> Response:
    """Answers once the offsets are on disk."""
    version = request.api_version
    refusal = _refusal(context, request, message)
    taken: list[OffsetToCommit] = []
    judged: list[Judged] = []
    permitted = await context.permitted(
        request, READ, TOPIC, {each.name for each in message.topics}
    )
    sliced = context.tasks.sliced
    async for asked in sliced(message.topics):
        topic = context.image.topics.get(asked.name)
        rows = []
        async for each in sliced(asked.partitions):
            index = each.partition_index
            if refusal:
                rows.append((index, refusal))
                continue
            if asked.name not in permitted:
                rows.append((index, codes.TOPIC_AUTHORIZATION_FAILED))
                continue
            if topic is None or not 0 <= index < len(topic.partitions):
                rows.append((index, codes.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            rows.append((index, codes.NONE))
            offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
            metadata = each.committed_metadata or ""
            taken.append(
                OffsetToCommit(topic.name, NO_TOPIC_ID, index, offset, leader_epoch, metadata)
            )
        judged.append((asked.name, topic is not None, rows))
    results = await _commit(context, version, message, taken) if taken else []
    return await _response(context, judged, [_code(each, version) for each in results])


def _refusal(
    context: Context, request: _native.Request, message: messages.TxnOffsetCommitRequest
) -> int:
    """Why the client may commit nothing."""
    if not context.may(request, WRITE, TRANSACTIONAL_ID, message.transactional_id):
        return codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.may(request, READ, GROUP, message.group_id):
        return codes.GROUP_AUTHORIZATION_FAILED
    return codes.NONE


async def _commit(
    context: Context,
    version: int,
    message: messages.TxnOffsetCommitRequest,
    taken: list[OffsetToCommit],
) -> list[int]:
    """A code for each offset."""
    group_id, producer_id, epoch = message.group_id, message.producer_id, message.producer_epoch
    if not group_id:
        return [codes.INVALID_GROUP_ID] * len(taken)
    guard, code = context.groups.begin_verification(group_id, producer_id, epoch)
    if not code and guard is not None:
        code = await _verify(context, version, message)
        if code:
            # Nothing that clients name takes memory.
            context.groups.forget_verification(group_id, producer_id, guard)
    if code:
        return [code] * len(taken)
    transaction = OffsetsInTransaction(producer_id, epoch, guard)
    results: list[int] = []
    for first in range(0, len(taken), OFFSETS_AT_ONCE):
        commit = CommitRequest(
            member_id=message.member_id if version >= MEMBERS_SINCE else "",
            group_instance_id=message.group_instance_id if version >= MEMBERS_SINCE else None,
            generation_id=message.generation_id if version >= MEMBERS_SINCE else -1,
            retention_time_ms=-1,
            knows_missing_groups=False,
            offsets=taken[first : first + OFFSETS_AT_ONCE],
        )
        results += await context.groups.commit_in_transaction(group_id, commit, transaction)
        if len(results) < len(taken):
            await context.tasks.yield_now()
    return results


async def _verify(context: Context, version: int, message: messages.TxnOffsetCommitRequest) -> int:
    """Asks the transaction's coordinator."""
    partition = (OFFSETS_TOPIC, context.groups.runtime.partition_of(message.group_id))
    add = AddRequest(
        message.producer_id, message.producer_epoch, frozenset((partition,)), CLIENT_TV_OF_EPOCHS
    )
    found = await context.transactions.add_or_verify(
        message.transactional_id, add, verify_only=version < ADDS_SINCE
    )
    return found[partition]


def _code(code: int, version: int) -> int:
    """The code as the version knows it."""
    match code:
        case codes.COORDINATOR_LOAD_IN_PROGRESS if version < LOADING_SINCE:
            return codes.COORDINATOR_NOT_AVAILABLE
        case codes.TRANSACTION_ABORTABLE if version < ABORTABLE_SINCE:
            return codes.INVALID_TXN_STATE
        case codes.PRODUCER_FENCED:
            return codes.INVALID_PRODUCER_EPOCH
        case _:
            return code


async def _response(context: Context, judged: list[Judged], results: list[int]) -> Response:
    left = iter(results)
    topics: dict[Any, list[Any]] = {}
    kind = Response.TxnOffsetCommitResponseTopic
    row = kind.TxnOffsetCommitResponsePartition
    sliced = context.tasks.sliced
    async for name, _, rows in sliced(judged):
        async for index, refusal in sliced(rows):
            told = topics.setdefault(name, [])
            told.append(row(partition_index=index, error_code=refusal or next(left)))
    return Response(topics=[kind(name=name, partitions=rows) for name, rows in topics.items()])
