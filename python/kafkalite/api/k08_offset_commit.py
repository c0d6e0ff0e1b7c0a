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

from functools import partial
from typing import Any

from kafkalite import _native
from kafkalite.access import GROUP, READ, TOPIC
from kafkalite.api.topics_of_answer import Judged, put_together
from kafkalite.context import Context
from kafkalite.groups.events import CommitRequest, OffsetToCommit
from kafkalite.protocol import codes, messages

NAME = "OffsetCommit"

NO_ID = bytes(16)


def handle(
    context: Context, request: _native.Request, message: messages.OffsetCommitRequest
) -> messages.OffsetCommitResponse | None:
    """Answers once the offsets are on disk: by a callback, for a task would take a sixth more time
    of each commit."""
    by_id = request.api_version >= 10
    if not context.may(request, READ, GROUP, message.group_id):
        return _denied(message)
    topics: Any = context.image.topics_by_id if by_id else context.image.topics
    taken: list[OffsetToCommit] = []
    judged: list[Judged] = []
    for asked in message.topics:
        key = asked.topic_id if by_id else asked.name
        topic = topics.get(key)
        refusal = codes.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None and by_id:
            refusal = codes.UNKNOWN_TOPIC_ID
        elif not context.may(request, READ, TOPIC, asked.name if topic is None else topic.name):
            topic, refusal = None, codes.TOPIC_AUTHORIZATION_FAILED
        count = 0 if topic is None else len(topic.partitions)
        partitions = []
        for each in asked.partitions:
            index = each.partition_index
            if not 0 <= index < count:
                partitions.append((index, refusal))
                continue
            partitions.append((index, codes.NONE))
            offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
            metadata = each.committed_metadata or ""
            taken.append(
                OffsetToCommit(topic.name, topic.id, index, offset, leader_epoch, metadata)
            )
        judged.append((key, topic is not None, partitions))

    reply = partial(_reply, context, request, judged, by_id)
    if not taken:
        reply([])
        return None
    commit = CommitRequest(
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        generation_id=message.generation_id_or_member_epoch,
        retention_time_ms=message.retention_time_ms,
        knows_missing_groups=request.api_version >= 9,
        offsets=taken,
    )
    context.groups.commit(message.group_id, commit, reply)
    return None


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
    answered: list[Any] = [
        ("", key, rows) if by_id else (key, NO_ID, rows)
        for key, rows in put_together(judged, results)
    ]
    response = messages.OffsetCommitResponse(topics=answered)
    context.core.requests.respond(request, response)
