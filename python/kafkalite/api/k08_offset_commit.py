"""OffsetCommit (key 8), versions 2 to 10.

Behaviour: how far a group has read is written to `__consumer_offsets` and on disk before the
answer, with the metadata, the leader epoch and the id of the topic. A commit of a member is a sign
of life. Without generation and member (-1, empty) it comes from an operator or from a consumer that
assigns itself its partitions: the group must be without members then, and is made if it is not
there.

Refusals, per partition: GROUP_AUTHORIZATION_FAILED; UNKNOWN_TOPIC_ID;
TOPIC_AUTHORIZATION_FAILED; UNKNOWN_TOPIC_OR_PARTITION; then for all
others alike COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR; GROUP_ID_NOT_FOUND (before version 9
ILLEGAL_GENERATION) for a member of a group that is not there; UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS; then per partition
OFFSET_METADATA_TOO_LARGE (`offset.metadata.max.bytes`).

Version notes: v2 to v4 may say when the offset expires (`retention_time_ms`); v5 leaves that to the
broker (KIP-211); v6 has leader epochs (KIP-320); v7 static members (KIP-345); v9 GROUP_ID_NOT_FOUND
(KIP-848); v10 topic ids instead of names.
"""

from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kafkalite import _native
from kafkalite.access import GROUP, READ, TOPIC
from kafkalite.api.topics_of_answer import Judged, Row, merged, put_together, with_results
from kafkalite.context import Context
from kafkalite.groups.events import CommitRequest, OffsetToCommit
from kafkalite.metadata.image import TopicImage
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future

NAME = "OffsetCommit"

Partition = messages.OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition

OFFSETS_AT_ONCE: Final = 1_000
"""A commit of more is judged and written in pieces, between which others have their turn."""

NO_ID = bytes(16)

Piece = tuple[TopicImage | None, int, Sequence[Partition], list[Row]]
"""The topic, the code where there is none, some of its partitions, and where their rows go."""


def handle(
    context: Context, request: _native.Request, message: messages.OffsetCommitRequest
) -> messages.OffsetCommitResponse | Coroutine[Any, Any, messages.OffsetCommitResponse] | None:
    """Answers once the offsets are on disk: by a callback, for a task would take a sixth more time
    of each commit; a large one in slices."""
    if not context.may(request, READ, GROUP, message.group_id):
        return _denied(message)
    count = len(message.topics) + sum([len(each.partitions) for each in message.topics])
    if count > OFFSETS_AT_ONCE:
        return _commit_in_slices(context, request, message)
    taken: list[OffsetToCommit] = []
    judged: list[Judged] = []
    by_id = request.api_version >= 10
    for piece in _pieces(context, request, message, judged):
        _judge(*piece, taken)
    reply = partial(_reply, context, request, judged, by_id)
    if taken:
        context.groups.commit(message.group_id, _commit(request, message, taken), reply)
    else:
        reply([])
    return None


async def _commit_in_slices(
    context: Context, request: _native.Request, message: messages.OffsetCommitRequest
) -> messages.OffsetCommitResponse:
    taken: list[OffsetToCommit] = []
    judged: list[Judged] = []
    async for piece in context.tasks.sliced(_pieces(context, request, message, judged)):
        _judge(*piece, taken)
    results: list[int] = []
    for first in range(0, len(taken), OFFSETS_AT_ONCE):
        committed = Future[list[int]]()
        commit = _commit(request, message, taken[first : first + OFFSETS_AT_ONCE])
        context.groups.commit(message.group_id, commit, committed.set)
        results += await committed
        await context.tasks.yield_now()
    sliced = context.tasks.sliced
    told = merged([each async for each in sliced(with_results(judged, results))])
    by_id = request.api_version >= 10
    return messages.OffsetCommitResponse(
        topics=[_told(*each, by_id) async for each in sliced(told)]
    )


def _pieces(
    context: Context,
    request: _native.Request,
    message: messages.OffsetCommitRequest,
    judged: list[Judged],
) -> Iterator[Piece]:
    """All partitions, some of one topic at a time; rows go into what is `judged`."""
    by_id = request.api_version >= 10
    topics: Any = context.image.topics_by_id if by_id else context.image.topics
    for asked in message.topics:
        key = asked.topic_id if by_id else asked.name
        topic = topics.get(key)
        refusal = codes.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None and by_id:
            refusal = codes.UNKNOWN_TOPIC_ID
        elif not context.may(request, READ, TOPIC, asked.name if topic is None else topic.name):
            topic, refusal = None, codes.TOPIC_AUTHORIZATION_FAILED
        rows: list[Row] = []
        judged.append((key, topic is not None, rows))
        for first in range(0, len(asked.partitions), OFFSETS_AT_ONCE):
            yield topic, refusal, asked.partitions[first : first + OFFSETS_AT_ONCE], rows


def _judge(
    topic: TopicImage | None,
    refusal: int,
    partitions: Sequence[Partition],
    rows: list[Row],
    taken: list[OffsetToCommit],
) -> None:
    count = 0 if topic is None else len(topic.partitions)
    for each in partitions:
        index = each.partition_index
        if topic is None or not 0 <= index < count:
            rows.append((index, refusal))
            continue
        rows.append((index, codes.NONE))
        offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
        metadata = each.committed_metadata or ""
        taken.append(OffsetToCommit(topic.name, topic.id, index, offset, leader_epoch, metadata))


def _commit(
    request: _native.Request, message: messages.OffsetCommitRequest, taken: list[OffsetToCommit]
) -> CommitRequest:
    return CommitRequest(
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        generation_id=message.generation_id_or_member_epoch,
        retention_time_ms=message.retention_time_ms,
        knows_missing_groups=request.api_version >= 9,
        offsets=taken,
    )


def _denied(message: messages.OffsetCommitRequest) -> messages.OffsetCommitResponse:
    code = codes.GROUP_AUTHORIZATION_FAILED
    topics: list[Any] = [
        (asked.name, asked.topic_id, [(each.partition_index, code) for each in asked.partitions])
        for asked in message.topics
    ]
    return messages.OffsetCommitResponse(topics=topics)


def _reply(
    context: Context,
    request: _native.Request,
    judged: list[Judged],
    by_id: bool,
    results: list[int],
) -> None:
    topics = put_together(judged, results)
    context.core.requests.respond(request, _response(topics, by_id))


def _response(topics: list[tuple[Any, list[Row]]], by_id: bool) -> messages.OffsetCommitResponse:
    return messages.OffsetCommitResponse(topics=[_told(*each, by_id) for each in topics])


def _told(key: Any, rows: list[Row], by_id: bool) -> Any:
    return ("", key, rows) if by_id else (key, NO_ID, rows)
