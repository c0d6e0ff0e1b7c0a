"""CreateTopics (key 19), versions 2 to 7.

Behaviour: each topic of the request is refused on its own, and the others are made together. A
topic has a new id, the given number of partitions (-1: `num.partitions`), and the broker's
configuration with the given configs on top; it is on disk before the answer. `validate_only` judges
and makes nothing. What changes the metadata is judged one after the other. Where a directory does
not answer within the request's time it is REQUEST_TIMED_OUT: for all topics if they were not even
judged, else for those that were to be made, which may be there later.

Refusals of all topics (`ControllerApis.createTopics`): REQUEST_TIMED_OUT without a positive
time-out; POLICY_VIOLATION for more than 10,000 partitions, and for what takes more than 10,000
records in all: one a topic, one a config, one a partition.

Refusals per topic, in Kafka's order (`ReplicationControlManager.createTopics`): INVALID_REQUEST if
it is named twice, or is `__cluster_metadata`; TOPIC_AUTHORIZATION_FAILED; INVALID_TOPIC_EXCEPTION
for an illegal name; TOPIC_ALREADY_EXISTS; INVALID_TOPIC_EXCEPTION for a name that collides with
another (`.` and `_` are one in metric names); INVALID_CONFIG; with a manual assignment
INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT; without one INVALID_REPLICATION_FACTOR,
INVALID_PARTITIONS. Then KAFKA_STORAGE_ERROR for all that were to be made, if the disk takes one of
them not.

Version notes: v5 answers with the topic's configs (KIP-525); v7 with its id (KIP-516).
"""

from collections import Counter
from functools import partial

from kafkalite import _native
from kafkalite.access import CLUSTER, CREATE, DESCRIBE_CONFIGS, TOPIC
from kafkalite.api.config_resources import CONFIGS_AT_ONCE
from kafkalite.api.deadline import CHANGE_WAIT_MS_MIN, TOO_MANY_WAIT, may_change
from kafkalite.config.changes import ChangeRefusedError, check_topic
from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.topics import (
    METADATA_TOPIC,
    NewTopic,
    check_new_topic,
    count_partitions,
    partition_count,
)
from kafkalite.metadata.image import AlikeNames
from kafkalite.protocol import codes, messages
from kafkalite.tasks import TimedOutError

NAME = "CreateTopics"

Request = messages.CreateTopicsRequest
Asked = Request.CreatableTopic
Response = messages.CreateTopicsResponse
Result = Response.CreatableTopicResult

PARTITIONS_PER_REQUEST_MAX = 10_000
"""`ReplicationControlManager.MAX_PARTITIONS_PER_BATCH`"""


async def handle(context: Context, request: _native.Request, message: Request) -> Response:
    """Makes the topics of the request when it has the lock; one result each, in order."""
    sliced = context.tasks.sliced
    counts = Counter([topic.name async for topic in sliced(message.topics)])
    asked = {each.name: each async for each in sliced(message.topics) if counts[each.name] == 1}
    denied = await _denied(context, request, asked)
    timed_out = ControllerError(codes.REQUEST_TIMED_OUT, "")
    # Kafka's controller is not asked for the others.
    judgeable = [
        topic for name, topic in asked.items() if name != METADATA_TOPIC and name not in denied
    ]
    if message.timeout_ms <= 0 and judgeable:
        # It does not begin what is to be done by now.
        return await _refused(context, message, timed_out)
    total = 0
    async for topic in sliced(judgeable):
        total += len(topic.assignments) or max(0, _or_default(context, topic.num_partitions))
    if total > PARTITIONS_PER_REQUEST_MAX:
        sentence = "Excessively large number of partitions per request."
        return await _refused(context, message, ControllerError(codes.POLICY_VIOLATION, sentence))
    response: Response | None = None
    made: list[tuple[NewTopic, Result]] = []
    topic_ids: dict[str, bytes] = {}
    try:
        with context.time_limit(max(message.timeout_ms, CHANGE_WAIT_MS_MIN)):
            async with may_change(context):
                response, made = await _judge_each(context, message, asked, denied)
                if made and not message.validate_only:
                    topic_ids = await _create(context, request, [wanted for wanted, _ in made])
    except TimedOutError:
        return await _failed(context, message, response, made, timed_out)
    except ControllerError as refusal:
        context.tell_refused_change(f"{NAME} of {request.peer}", refusal)
        return await _failed(context, message, response, made, refusal)
    await _describe(context, request, made)
    for name, result in ((wanted.name, result) for wanted, result in made if topic_ids):
        result.topic_id = topic_ids[name]
    return response


async def _denied(context: Context, request: _native.Request, asked: dict[str, Asked]) -> set[str]:
    """The topics that the client may not make."""
    if context.may(request, CREATE, CLUSTER):
        return set()
    permitted = await context.permitted(request, CREATE, TOPIC, asked)
    return asked.keys() - permitted - {METADATA_TOPIC}


async def _judge_each(
    context: Context, message: Request, asked: dict[str, Asked], denied: set[str]
) -> tuple[Response, list[tuple[NewTopic, Result]]]:
    """The response, and those topics that are to be made, with their results. `asked` are the
    topics that are named once. Raises ControllerError where together they cannot be made."""
    response = Response()
    made: list[tuple[NewTopic, Result]] = []
    names = AlikeNames()
    in_order = dict.fromkeys([topic.name async for topic in context.tasks.sliced(message.topics)])
    async for name in context.tasks.sliced(in_order):
        result = Result(name=name, error_message=None)
        try:
            if name not in asked:
                raise ControllerError(codes.INVALID_REQUEST, "Duplicate topic name.")
            if name in denied:
                sentence = "Authorization failed."
                raise ControllerError(codes.TOPIC_AUTHORIZATION_FAILED, sentence)
            judged = partial(_judged, context, asked[name], names)
            is_large = len(asked[name].configs) > CONFIGS_AT_ONCE
            wanted = await context.background.compute(judged) if is_large else judged()
            made.append((wanted, result))
            names.add(name)
        except ControllerError as refusal:
            refusal.fill(result)
        response.topics.append(result)
    count_partitions([wanted for wanted, _ in made])
    return response, made


async def _create(
    context: Context, request: _native.Request, wanted: list[NewTopic]
) -> dict[str, bytes]:
    """Makes what was judged, all of it or nothing; ids by name."""
    if context.core.logs.is_change_held_up():
        raise TimedOutError(TOO_MANY_WAIT)
    return await context.tasks.start(context.create_topics(wanted), holding=request)


async def _failed(
    context: Context,
    message: Request,
    response: Response | None,
    made: list[tuple[NewTopic, Result]],
    refusal: ControllerError,
) -> Response:
    """The answer where nothing was made, after the topics were judged or before."""
    if response is None:
        return await _refused(context, message, refusal)
    for _, result in made:
        refusal.fill(result)
    return response


async def _refused(context: Context, message: Request, refusal: ControllerError) -> Response:
    """The answer where Kafka's controller refuses the request as a whole: that to each topic as it
    was asked for, whatever else there is to say of it."""
    response = Response()
    async for topic in context.tasks.sliced(message.topics):
        result = Result(name=topic.name)
        refusal.fill(result)
        response.topics.append(result)
    return response


def _judged(context: Context, topic: Asked, others: AlikeNames) -> NewTopic:
    """The topic that is to be made, after the `others`. Raises ControllerError where it cannot."""
    check_new_topic(context.image, topic.name, others)
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        sentence = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise ControllerError(codes.INVALID_CONFIG, sentence)
    configs = {each.name: each.value for each in topic.configs if each.value is not None}
    try:
        check_topic(context.config, configs)
    except ChangeRefusedError as refusal:
        raise ControllerError(refusal.code, str(refusal)) from refusal
    default_count: int = context.config["num.partitions"]
    count = partition_count(topic, default_count, context.cluster.broker_ids)
    return NewTopic(topic.name, count, configs)


async def _describe(
    context: Context, request: _native.Request, judged: list[tuple[NewTopic, Result]]
) -> None:
    """Fills in what the topics are, of those whose configs the client may see."""
    # Most topics of a request have the same configs, and these are most of the answer.
    described: dict[frozenset[tuple[str, str]], list[Result.CreatableTopicConfigs]] = {}
    async for wanted, result in context.tasks.sliced(judged):
        if not context.may(request, DESCRIBE_CONFIGS, TOPIC, wanted.name):
            result.topic_config_error_code = codes.TOPIC_AUTHORIZATION_FAILED
            continue
        result.num_partitions = wanted.partition_count
        result.replication_factor = 1
        own = frozenset(wanted.configs.items())
        if own not in described:
            described[own] = _described(context, wanted)
        result.configs = described[own]


def _described(context: Context, wanted: NewTopic) -> list[Result.CreatableTopicConfigs]:
    return [
        Result.CreatableTopicConfigs(
            name=each.name,
            value=each.value,
            read_only=False,
            config_source=each.source,
            is_sensitive=False,
        )
        for each in context.config.topic_configs(wanted.configs, as_written=True)
    ]


def _or_default(context: Context, partition_count: int) -> int:
    default: int = context.config["num.partitions"]
    return default if partition_count == -1 else partition_count
