"""OffsetDelete (key 47), version 0, never flexible.

Behaviour: offsets of a group in topics that none of its members reads are forgotten (KIP-496);
tombstones are on disk before the answer. What is not there is deleted without an error.

Refusals: INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, GROUP_ID_NOT_FOUND,
NON_EMPTY_GROUP for a group with members that are no consumers; with each of these the answer names
no topic. Per partition UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC.
"""

from typing import Any

from kafkalite.api.topics_of_answer import Judged, put_together
from kafkalite.context import Context
from kafkalite.groups.events import GroupAnswer
from kafkalite.protocol import codes, messages

NAME = "OffsetDelete"


def handle(context: Context, request: Any, message: Any) -> None:
    """Answers once the tombstones are on disk."""
    known: list[tuple[str, int]] = []
    judged: list[Judged] = []
    unknown = codes.UNKNOWN_TOPIC_OR_PARTITION
    for asked in message.topics:
        topic = context.image.topics.get(asked.name)
        count = 0 if topic is None else len(topic.partitions)
        partitions = []
        for each in asked.partitions:
            index = each.partition_index
            is_there = 0 <= index < count
            partitions.append((index, codes.NONE if is_there else unknown))
            if is_there:
                known.append((asked.name, index))
        judged.append((asked.name, topic is not None, partitions))

    def reply(answer: GroupAnswer) -> None:
        code, results = answer
        response: Any = messages.OffsetDeleteResponse(error_code=code)
        if code == codes.NONE:
            response.topics = put_together(judged, results)
        context.plane.respond(request, response)

    context.groups.delete_offsets(message.group_id, known, reply)
