"""OffsetDelete (key 47), version 0, never flexible.

Behaviour: offsets of a group in topics that none of its members reads are forgotten (KIP-496);
tombstones are on disk before the answer. What is not there is deleted without an error.

Refusals: INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, GROUP_ID_NOT_FOUND,
NON_EMPTY_GROUP for a group with members that are no consumers; with each of these the answer names
no topic. Per partition UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC.
"""

from typing import Any

from kafkalite.api.topics_of_answer import put_together
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "OffsetDelete"


def handle(context: Context, request: Any, message: Any) -> None:
    """Answers once the tombstones are on disk."""
    response = messages.OffsetDeleteResponse()
    kind = messages.OffsetDeleteResponse.OffsetDeleteResponseTopic
    answers: list[tuple[Any, bool]] = []
    has_refusal = False
    known: list[tuple[str, int]] = []
    places: list[Any] = []
    for asked in message.topics:
        answered = kind(name=asked.name)
        topic = context.image.topics.get(asked.name)
        answers.append((answered, topic is not None))
        has_refusal |= topic is None
        for each in asked.partitions:
            index = each.partition_index
            place = kind.OffsetDeleteResponsePartition(partition_index=index)
            answered.partitions.append(place)
            if topic is None or not 0 <= index < len(topic.partitions):
                place.error_code = codes.UNKNOWN_TOPIC_OR_PARTITION
                has_refusal = True
            else:
                known.append((asked.name, index))
                places.append(place)

    def reply(code: int, results: list[int]) -> None:
        response.error_code = code
        if code == codes.NONE:
            for place, result in zip(places, results, strict=True):
                place.error_code = result
            response.topics = put_together(answers, has_refusal, lambda topic: topic.name)
        context.plane.respond(request, response)

    context.groups.delete_offsets(message.group_id, known, reply)
