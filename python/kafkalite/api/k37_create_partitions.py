"""CreatePartitions (key 37), versions 0 to 3.

Behaviour: each topic of the request is refused on its own, and the others grow together. A topic
gets as many more partitions as it takes to have `count`; they are on disk before the answer.
`validate_only` judges and makes nothing. Topics that are being made, or grow, do so first, and
other changes are written. Where a directory does not answer within the request's time it is
REQUEST_TIMED_OUT, and partitions that were judged may be there later.

Refusals, per topic, in Kafka's order (`ReplicationControlManager.createPartitions`):
REQUEST_TIMED_OUT for all without a positive time-out; INVALID_REQUEST if it is named twice;
TOPIC_AUTHORIZATION_FAILED; UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS if it has as many or
more; INVALID_REPLICA_ASSIGNMENT for an assignment of another number of partitions, or not to this
node; POLICY_VIOLATION beyond 10,000 new partitions a request, which Kafka takes up to and then
answers UNKNOWN_SERVER_ERROR. Then KAFKA_STORAGE_ERROR for all that were to grow, if the disk takes
one of them not.

Version notes: v2 is flexible (KIP-482), v3 may be throttled (KIP-599).
"""

from collections import Counter

from kafkalite import _native
from kafkalite.access import ALTER, TOPIC
from kafkalite.api.deadline import CHANGE_WAIT_MS_MIN, may_change
from kafkalite.context import Context
from kafkalite.metadata.controller import RECORDS_PER_OPERATION_MAX, ControllerError
from kafkalite.metadata.controller.partitions import check_growth
from kafkalite.protocol import codes, messages
from kafkalite.tasks import TimedOutError

NAME = "CreatePartitions"

Request = messages.CreatePartitionsRequest
Response = messages.CreatePartitionsResponse
Result = Response.CreatePartitionsTopicResult


async def handle(context: Context, request: _native.Request, message: Request) -> Response:
    """Makes the partitions of the request when it has the lock and none of its topics is changing;
    one result a topic."""
    sliced = context.tasks.sliced
    counts = Counter([topic.name async for topic in sliced(message.topics)])
    timed_out = ControllerError(codes.REQUEST_TIMED_OUT, "")
    # As Kafka's controller, which has those that come once, does not begin what is due by now.
    denied = counts.keys() - await context.permitted(request, ALTER, TOPIC, counts)
    is_asked = any(count == 1 and name not in denied for name, count in counts.items())
    is_due = message.timeout_ms <= 0 and is_asked
    if is_due or context.core.logs.is_change_held_up():
        return await _late(context, message)
    response: Response | None = None
    judged: dict[str, tuple[int, Result]] = {}
    try:
        with context.time_limit(max(message.timeout_ms, CHANGE_WAIT_MS_MIN)):
            async with may_change(context, counts.keys()):
                response, judged = await _judge_each(context, message, counts, denied)
                if judged and not message.validate_only:
                    growing = _grow(context, {name: count for name, (count, _) in judged.items()})
                    await context.tasks.start(growing, holding=request)
    except TimedOutError:
        return _failed(response, judged, timed_out) if response else await _late(context, message)
    except ControllerError as refusal:
        context.tell_refused_change(f"{NAME} of {request.peer}", refusal)
        return _failed(response, judged, refusal) if response else await _late(context, message)
    return response


async def _late(context: Context, message: Request) -> Response:
    results = [
        Result(name=topic.name, error_code=codes.REQUEST_TIMED_OUT, error_message=None)
        async for topic in context.tasks.sliced(message.topics)
    ]
    return Response(results=results)


def _failed(
    response: Response, judged: dict[str, tuple[int, Result]], refusal: ControllerError
) -> Response:
    for _, result in judged.values():
        _refuse(result, refusal)
    return response


async def _judge_each(
    context: Context, message: Request, counts: Counter[str], denied: set[str]
) -> tuple[Response, dict[str, tuple[int, Result]]]:
    """The response, and by their names the totals of those topics that are to grow, with their
    results."""
    response = Response()
    room = RECORDS_PER_OPERATION_MAX
    judged: dict[str, tuple[int, Result]] = {}
    sliced = context.tasks.sliced
    asked = {topic.name: topic async for topic in sliced(message.topics)}
    # Kafka answers those that come twice first.
    in_order = [name async for name, count in sliced(counts.items()) if count > 1]
    in_order += [name async for name, count in sliced(counts.items()) if count == 1]
    async for name in sliced(in_order):
        result = Result(name=name, error_message=None)
        try:
            if counts[name] > 1:
                raise ControllerError(codes.INVALID_REQUEST, "Duplicate topic name.")
            if name in denied:
                raise ControllerError(codes.TOPIC_AUTHORIZATION_FAILED, "")
            broker_ids = context.cluster.broker_ids
            room -= check_growth(context.image, asked[name], room, broker_ids)
            judged[name] = asked[name].count, result
        except ControllerError as refusal:
            _refuse(result, refusal)
        response.results.append(result)
    return response, judged


async def _grow(context: Context, counts: dict[str, int]) -> None:
    """Makes what was judged, all of it or nothing."""
    await context.controller.create_partitions(counts)
    for name, count in counts.items():
        context.log.info(f"topic {name} has {count} partitions now")


def _refuse(result: Result, refusal: ControllerError) -> None:
    result.error_code = refusal.code
    # Kafka has no sentence for a topic that is not there, or is not to be touched.
    is_silent = refusal.code in (codes.UNKNOWN_TOPIC_OR_PARTITION, codes.TOPIC_AUTHORIZATION_FAILED)
    result.error_message = None if is_silent else str(refusal)
