"""CreatePartitions (key 37), versions 0 to 3.

Behaviour: each topic of the request is refused on its own, and the others grow together. A topic
gets as many more partitions as it takes to have `count`; they are on disk before the answer.
`validate_only` judges and makes nothing. Topics that are being made, or grow, do so first, and
other changes are written. Where a directory does not answer within the request's time it is
REQUEST_TIMED_OUT, and partitions that were judged may be there later.

Refusals, per topic, in Kafka's order (`ReplicationControlManager.createPartitions`):
REQUEST_TIMED_OUT for all without a positive time-out; INVALID_REQUEST if it is named twice;
UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS if it has as many or more; INVALID_REPLICA_ASSIGNMENT
for an assignment of another number of partitions, or not to this node; POLICY_VIOLATION beyond
10,000 new partitions a request, which Kafka takes up to and then answers UNKNOWN_SERVER_ERROR. Then
KAFKA_STORAGE_ERROR for all that were to grow, if the disk takes one of them not.

Version notes: v2 is flexible (KIP-482), v3 may be throttled (KIP-599).
"""

from collections import Counter
from typing import Any

from kafkalite.api.deadline import CHANGE_WAIT_MS_MIN, Deadline, in_turn, left_ms
from kafkalite.context import Context
from kafkalite.metadata.controller import RECORDS_PER_OPERATION_MAX, ControllerError
from kafkalite.metadata.controller.partitions import check_growth
from kafkalite.protocol import codes, messages

NAME = "CreatePartitions"


def handle(context: Context, request: Any, message: Any) -> None:
    """Makes the partitions of the request when it has its turn and none of its topics is changing;
    one result a topic."""
    counts = Counter(topic.name for topic in message.topics)

    def late() -> None:
        # As Kafka's controller, which has those that come once, does not begin what is due by now.
        kind = messages.CreatePartitionsResponse
        results = [
            kind.CreatePartitionsTopicResult(
                name=topic.name, error_code=codes.REQUEST_TIMED_OUT, error_message=None
            )
            for topic in message.topics
        ]
        context.plane.respond(request, kind(results=results))

    def judge(due_ms: int) -> None:
        _judge_and_grow(context, request, message, counts, due_ms)

    if (message.timeout_ms <= 0 and 1 in counts.values()) or context.plane.is_change_held_up():
        late()
        return
    in_turn(
        context, request, max(message.timeout_ms, CHANGE_WAIT_MS_MIN), counts.keys(), late, judge
    )


def _judge_and_grow(
    context: Context, request: Any, message: Any, counts: Counter[str], due_ms: int
) -> None:
    response = messages.CreatePartitionsResponse()
    room = RECORDS_PER_OPERATION_MAX
    judged: dict[str, tuple[int, Any]] = {}
    asked = {topic.name: topic for topic in message.topics}
    # Kafka answers those that come twice first.
    for name in sorted(counts, key=lambda name: counts[name] == 1):
        result = response.CreatePartitionsTopicResult(name=name, error_message=None)
        try:
            if counts[name] > 1:
                raise ControllerError(codes.INVALID_REQUEST, "Duplicate topic name.")
            broker_ids = context.cluster.broker_ids
            room -= check_growth(context.image, asked[name], room, broker_ids)
            judged[name] = asked[name].count, result
        except ControllerError as refusal:
            _refuse(result, refusal)
        response.results.append(result)
    if judged and not message.validate_only:
        _grow(context, request, response, judged, due_ms)
    else:
        context.plane.respond(request, response)


def _refuse(result: Any, refusal: ControllerError) -> None:
    result.error_code = refusal.code
    # Kafka has no sentence for a topic that is not there.
    is_unknown = refusal.code == codes.UNKNOWN_TOPIC_OR_PARTITION
    result.error_message = None if is_unknown else str(refusal)


def _grow(
    context: Context,
    request: Any,
    response: Any,
    judged: dict[str, tuple[int, Any]],
    due_ms: int,
) -> None:
    """Makes what was judged, all of it or nothing, and answers."""

    def end(refusal: ControllerError | None) -> None:
        if refusal is not None:
            for _, result in judged.values():
                _refuse(result, refusal)
        context.plane.respond(request, response)

    def made(refusal: ControllerError | None) -> None:
        for name, (count, _) in () if refusal else judged.items():
            context.log.info(f"topic {name} has {count} partitions now")
        if deadline.met():
            end(refusal)

    counts = {name: count for name, (count, _) in judged.items()}
    try:
        context.controller.create_partitions(counts, made)
    except ControllerError as refusal:
        end(refusal)
        return
    late = ControllerError(codes.REQUEST_TIMED_OUT, "")
    deadline = Deadline(context, left_ms(context, due_ms), lambda: end(late))
