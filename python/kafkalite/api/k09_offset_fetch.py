"""OffsetFetch (key 9), versions 1 to 10.

Behaviour: how far groups have read, of the partitions that are named or, with null for the topics,
of all that they have an offset in. What a group has not committed is offset -1 with empty metadata,
whether topic, partition or group exist or not. With `require_stable` commits that are being written
are waited for.

Refusals, per group: GROUP_AUTHORIZATION_FAILED, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR; per
partition UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED (which leaves topics out where all are asked
for), and with `require_stable` UNSTABLE_OFFSET_COMMIT while a transaction that commits it is open.

Version notes: v2 takes null for all topics, and has an error for the group; v5 leader epochs
(KIP-320); v7 `require_stable` (KIP-447); v8 several groups (KIP-709); v9 member and epoch, which
concern newer types of groups (KIP-848); v10 topic ids instead of names.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from kafkalite import _native
from kafkalite.access import DESCRIBE, GROUP, TOPIC
from kafkalite.context import Context
from kafkalite.groups.offsets import CommittedOffset, GroupOffsets, OffsetsAnswer
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future, completed

NAME = "OffsetFetch"

GROUPS_AT_ONCE = 500
"""So many are asked before the first is awaited."""

NO_OFFSET = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)


async def handle(
    context: Context, request: _native.Request, message: messages.OffsetFetchRequest
) -> messages.OffsetFetchResponse:
    """Answers once all groups are known."""
    version, sliced = request.api_version, context.tasks.sliced
    kind = messages.OffsetFetchResponse
    response = kind()
    if version < 8:
        asked: list[tuple[str, Any, Any]] = [(message.group_id, message.topics, response)]
    else:
        group_kind = kind.OffsetFetchResponseGroup
        response.groups = [
            group_kind(group_id=each.group_id) async for each in sliced(message.groups)
        ]
        asked = [
            (each.group_id, each.topics, place)
            async for each, place in sliced(zip(message.groups, response.groups, strict=True))
        ]
    whole_groups: dict[str, list[Any]] = {}
    """All topics of groups, which are told as often as they are asked for."""
    for first in range(0, len(asked), GROUPS_AT_ONCE):
        piece = asked[first : first + GROUPS_AT_ONCE]
        answers = [_fetch(context, request, message, group_id) for group_id, _, _ in piece]
        async for (group_id, topics, place), answer in sliced(zip(piece, answers, strict=True)):
            known = await answer
            place.error_code = code = known.error_code
            if code == codes.NONE or version < 2:
                found = whole_groups.get(group_id) if topics is None else None
                if found is None:
                    told = _topics(context, request, topics, known)
                    found = [each async for each in told]
                if topics is None:
                    whole_groups[group_id] = found
                place.topics = found
    return response


def _fetch(
    context: Context,
    request: _native.Request,
    message: messages.OffsetFetchRequest,
    group_id: str,
) -> Future[OffsetsAnswer]:
    if not context.may(request, DESCRIBE, GROUP, group_id):
        return completed(OffsetsAnswer.refusal(codes.GROUP_AUTHORIZATION_FAILED))
    return context.groups.fetch_offsets(group_id, message.require_stable)


async def _topics(
    context: Context,
    request: _native.Request,
    asked: Any,
    known: OffsetsAnswer,
) -> AsyncIterator[tuple[Any, ...]]:
    """The answer for each topic, as tuples of the fields that the table has for it. The code of the
    group is in each, as version 1 has no other room for it."""
    version, sliced, code = request.api_version, context.tasks.sliced, known.error_code
    by_id = version >= 10
    wanted = [
        (name, topic_id, indexes, name is None or context.may(request, DESCRIBE, TOPIC, name))
        async for name, topic_id, indexes in sliced(_wanted(context, by_id, asked, known.offsets))
    ]
    if asked is None:
        wanted = [each for each in wanted if each[3]]
    # Topics that are refused come last, as in Kafka.
    wanted.sort(key=lambda each: each[0] is None or not each[3])
    async for name, topic_id, indexes, is_permitted in sliced(wanted):
        partitions = []
        async for index in sliced(indexes):
            found, error_code = NO_OFFSET, code
            if name is None:
                error_code = codes.UNKNOWN_TOPIC_ID
            elif code == codes.NONE and not is_permitted:
                error_code = codes.TOPIC_AUTHORIZATION_FAILED
            elif known.is_unstable is not None and known.is_unstable(name, index):
                error_code = codes.UNSTABLE_OFFSET_COMMIT
            elif is_permitted:
                found = known.find(name, index) or NO_OFFSET
            offset, leader_epoch, metadata = found[:3]
            partitions.append((index, offset, leader_epoch, metadata, error_code))
        if version < 8:
            yield name or "", partitions
        else:
            yield name or "", topic_id, partitions


def _wanted(
    context: Context, by_id: bool, asked: Any, offsets: GroupOffsets
) -> Iterator[tuple[str | None, bytes, list[int]]]:
    """Name (None for an id that nobody knows), id and partitions of each topic to answer for."""
    image = context.image
    if asked is None:
        # A copy: there may be others before the answer is made.
        for name, partitions in list(offsets.items()):
            topic = image.topics.get(name)
            if topic is not None or not by_id:
                yield name, bytes(16) if topic is None else topic.id, list(partitions)
        return
    for each in asked:
        if by_id:
            topic = image.topics_by_id.get(each.topic_id)
            yield None if topic is None else topic.name, each.topic_id, each.partition_indexes
        else:
            yield each.name, bytes(16), each.partition_indexes
