"""OffsetDelete (key 47), version 0, never flexible.

Behaviour: offsets of a group in topics that none of its members reads are forgotten (KIP-496);
tombstones are on disk before the answer. What is not there is deleted without an error.

Refusals: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS,
NOT_COORDINATOR, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP for a group with members that are no consumers;
with each of these the answer names no topic. Per partition TOPIC_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC.
"""

from typing import Any, Final

from kafkalite import _native
from kafkalite.access import DELETE, GROUP, READ, TOPIC
from kafkalite.api.topics_of_answer import Judged, merged, with_results
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "OffsetDelete"

OFFSETS_AT_ONCE: Final = 1_000
"""More are deleted in pieces, between which others have their turn."""


async def handle(
    context: Context, request: _native.Request, message: messages.OffsetDeleteRequest
) -> messages.OffsetDeleteResponse:
    """Answers once the tombstones are on disk."""
    if not context.may(request, DELETE, GROUP, message.group_id):
        return messages.OffsetDeleteResponse(error_code=codes.GROUP_AUTHORIZATION_FAILED)
    known: list[tuple[str, int]] = []
    judged: list[Judged] = []
    sliced = context.tasks.sliced
    async for asked in sliced(message.topics):
        topic, refusal = None, codes.TOPIC_AUTHORIZATION_FAILED
        if context.may(request, READ, TOPIC, asked.name):
            topic, refusal = context.image.topics.get(asked.name), codes.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if topic is None else len(topic.partitions)
        partitions = []
        async for each in sliced(asked.partitions):
            index = each.partition_index
            is_there = 0 <= index < count
            partitions.append((index, codes.NONE if is_there else refusal))
            if is_there:
                known.append((asked.name, index))
        judged.append((asked.name, topic is not None, partitions))

    code, results = codes.NONE, list[int]()
    # Of none, too: the group may be refused.
    for first in range(0, max(1, len(known)), OFFSETS_AT_ONCE):
        piece = known[first : first + OFFSETS_AT_ONCE]
        code, answers = await context.groups.delete_offsets(message.group_id, piece)
        if code != codes.NONE:
            break
        results += answers
        if first + OFFSETS_AT_ONCE < len(known):
            await context.tasks.yield_now()
    if code != codes.NONE:
        return messages.OffsetDeleteResponse(error_code=code)
    topics: Any = merged([each async for each in sliced(with_results(judged, results))])
    return messages.OffsetDeleteResponse(error_code=code, topics=topics)
