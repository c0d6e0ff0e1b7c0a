"""Resources with a configuration, and how it changes: topics, brokers, loggers, groups,
subscriptions of client metrics. DescribeConfigs, AlterConfigs and IncrementalAlterConfigs are faces
of this.

Changes are judged by `kafkalite.config.changes` and stored by the controller, whose record is on
disk before the answer; logs and broker obey from then on. Where the metadata's directory does not
answer for half a minute, it is REQUEST_TIMED_OUT; what was judged by then may hold later. A broker
of other controllers judges what is its own, and has them judge the rest and change it all:

    request ──► loggers: changed here
            ├─► brokers: judged here ──────┐
            └─► topics, groups, … ─────────┴──► one request to the controller ──► one answer
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafkalite import _native, access
from kafkalite.api.deadline import CHANGE_WAIT_MS, may_change
from kafkalite.config import changes, key_of_listener
from kafkalite.config.changes import ChangeRefusedError, Changes, DefaultOf, check_texts
from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.configs import config_records
from kafkalite.metadata.controller.topics import name_refusal
from kafkalite.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kafkalite.protocol import codes
from kafkalite.protocol.java import java_int
from kafkalite.tasks import TimedOutError

T = TypeVar("T")

BROKER_LOGGER = 8

LOGGED_CHARACTERS_MAX = 200
"""So much of a value the log shows."""

CONFIGS_AT_ONCE = 1_000
"""The configs of one resource that are judged by the control thread; some milliseconds."""

ROOT_LOGGER = "root"
"""The only logger."""

# Kafka's words to ours.
LOG_LEVELS = {
    "DEBUG": "debug",
    "ERROR": "error",
    "FATAL": "error",
    "INFO": "info",
    "TRACE": "debug",
    "WARN": "warning",
}

RIGHTS_OF = {TOPIC: access.TOPIC, GROUP: access.GROUP}
"""The rights to a resource that count for its configs; of others those to the cluster."""

Operations = Sequence[tuple[str, int, str | None]]
"""Key, operation (`changes.SET` and so on), text."""

ChangesOf = Callable[[Mapping[str, str], Mapping[str, Any], DefaultOf], Changes]
"""(what is set, the rows of the keys, the defaults of lists) -> changes."""

JUDGED_BY_CONTROLLER = (TOPIC, GROUP, CLIENT_METRICS)
"""The kinds of resources that a controller judges; a broker judges its own configs itself."""

NO_LISTS: Mapping[str, Any] = {}
"""Only lists of topics and brokers are appended to; for Kafka's controller the others have none."""

ELR_FEATURE = "eligible.leader.replicas.version"


def own_configs(context: Context, kind: int, name: str) -> Mapping[str, str]:
    """The configs that are set for a resource."""
    return context.image.configs.get((kind, name), {})


def check_permitted(
    context: Context, request: _native.Request, operation: int, resource: Any
) -> None:
    """Raises ChangeRefusedError where the client may not do that to a resource's configs."""
    kind = RIGHTS_OF.get(resource.resource_type, access.CLUSTER)
    name = None if kind == access.CLUSTER else resource.resource_name
    if not context.may(request, operation, kind, name):
        raise ChangeRefusedError(*access.DENIALS[kind])


Judged = dict[tuple[int, str], tuple[Changes, Any]]
"""The changes of each resource, and its result."""


async def alter_each(
    context: Context,
    request: _native.Request,
    message: Any,
    response: Any,
    operations_of: Callable[[Any], Operations],
    judge: Callable[[Any], Changes | None],
) -> None:
    """Fills in a result for each resource, in `response.responses`; one that comes twice is refused
    each time. `judge` says what changes, None if the controller is not concerned, and raises
    ChangeRefusedError, ControllerError; it is given those whose `operations_of` are texts that can
    be. It is asked when the request has the lock, at once if no resource is the controller's. The
    changes that it lets pass are made together, all of them or none, by one flush of the metadata;
    or by another controller, which judges what is no broker's itself."""

    def judge_whole(resource: Any) -> Changes | None:
        check_texts(operations_of(resource))
        return judge(resource)

    def judge_own(resource: Any) -> Changes | None:
        check_texts(operations_of(resource))
        return {} if resource.resource_type in JUDGED_BY_CONTROLLER else judge(resource)

    async for each in context.tasks.sliced(message.resources):
        result = response.AlterConfigsResourceResponse(
            error_code=0,
            error_message=None,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        response.responses.append(result)
    results = response.responses
    if context.ask_controller is not None:
        judged = await _judge_each(context, message.resources, results, judge_own)
        left = {name: result for name, (_, result) in judged.items()}
        await _alter_elsewhere(context, request, message, left)
        return
    if all(each.resource_type == BROKER_LOGGER for each in message.resources):
        await _judge_each(context, message.resources, results, judge_whole)
        return
    try:
        with context.time_limit(CHANGE_WAIT_MS):
            async with may_change(context):
                judged = await _judge_each(context, message.resources, results, judge_whole)
                # From here on it concerns only those that are to change.
                results = [result for _, result in judged.values()]
                changed = {name: made for name, (made, _) in judged.items()}
                if message.validate_only:
                    config_records(context.image, changed)
                else:
                    await context.tasks.start(_set(context, changed), holding=request)
    except TimedOutError:
        _refuse_all(results, ControllerError(codes.REQUEST_TIMED_OUT, ""))
    except ControllerError as refusal:
        _refuse_all(results, refusal)


async def _alter_elsewhere(
    context: Context,
    request: _native.Request,
    message: Any,
    left: dict[tuple[int, str], Any],
) -> None:
    """Has the controllers, which are other nodes, change those resources for which there is still
    a result to come, by type and name."""
    if not left or context.ask_controller is None:
        return
    rest = type(message)(validate_only=message.validate_only)
    async for each in context.tasks.sliced(message.resources):
        if (each.resource_type, each.resource_name) in left:
            rest.resources.append(each)
    try:
        answer = await context.ask_controller(request, rest)
    except ControllerError as refusal:
        _refuse_all(list(left.values()), refusal)
        return
    async for each in context.tasks.sliced(answer.responses):
        result = left.pop((each.resource_type, each.resource_name), None)
        if result is not None:
            result.error_code, result.error_message = each.error_code, each.error_message
    _refuse_all(list(left.values()), ControllerError(codes.UNKNOWN_SERVER_ERROR, ""))


async def _set(context: Context, changed: Mapping[tuple[int, str], Changes]) -> None:
    await context.controller.set_configs(changed)
    async for (kind, name), made in context.tasks.sliced(changed.items()):
        sentence = _sentence(context, kind, made)
        context.log.info(f"configuration of {_resource(kind, name)}: {sentence}")


async def in_background(context: Context, resource: Any, judge: Callable[[Any], T]) -> T:
    """Judges a resource, one with many configs by a thread of its own: it is not done in slices.
    The metadata does not change meanwhile, if the request has the lock."""
    if resource.resource_type == BROKER_LOGGER or len(resource.configs) <= CONFIGS_AT_ONCE:
        return judge(resource)
    return await context.background.compute(partial(judge, resource))


async def _judge_each(
    context: Context,
    resources: Sequence[Any],
    results: Sequence[Any],
    judge: Callable[[Any], Changes | None],
) -> Judged:
    """The resources that are to change; the results of others say why not."""
    sliced = context.tasks.sliced
    counts = Counter([(each.resource_type, each.resource_name) async for each in sliced(resources)])
    judged: Judged = {}
    async for resource, result in sliced(zip(resources, results, strict=True)):
        name = resource.resource_type, resource.resource_name
        try:
            if counts[name] > 1:
                sentence = "Each resource must appear at most once."
                raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
            made = await in_background(context, resource, judge)
        except (ChangeRefusedError, ControllerError) as refusal:
            refusal.fill(result)
        else:
            if made is not None:
                judged[name] = made, result
    return judged


def _refuse_all(results: Sequence[Any], refusal: ControllerError) -> None:
    for result in results:
        refusal.fill(result)


def changes_of_resource(
    context: Context, request: _native.Request, resource: Any, changes_of: ChangesOf
) -> Changes:
    """The changes of a resource's configuration. Raises ChangeRefusedError."""
    kind, name = resource.resource_type, resource.resource_name
    rules = {
        TOPIC: _topic_changes,
        BROKER: _broker_changes,
        GROUP: _group_changes,
        CLIENT_METRICS: _client_metrics_changes,
    }
    if kind not in rules:
        raise ChangeRefusedError(codes.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind != BROKER:
        check_permitted(context, request, access.ALTER_CONFIGS, resource)
    made = rules[kind](context, name, changes_of)
    if kind == BROKER:
        # Kafka's broker judges its own configs before its controller asks.
        check_permitted(context, request, access.ALTER_CONFIGS, resource)
    return made


def _topic_changes(context: Context, name: str, changes_of: ChangesOf) -> Changes:
    own = own_configs(context, TOPIC, name)
    config = context.config
    made = changes_of(own, config.topic_keys, config.topic_default)
    changes.check_lengths(own, made)
    if not name:
        raise ChangeRefusedError(codes.INVALID_REQUEST, "Default topic resources are not allowed.")
    refusal = name_refusal(name)
    if refusal:
        raise ChangeRefusedError(codes.INVALID_TOPIC_EXCEPTION, refusal)
    changes.check_topic(config, changes.merged(own, made))
    if name not in context.image.topics:
        sentence = f"The topic '{name}' does not exist."
        raise ChangeRefusedError(codes.UNKNOWN_TOPIC_OR_PARTITION, sentence)
    return made


def _broker_changes(context: Context, name: str, changes_of: ChangesOf) -> Changes:
    if name:
        check_node_id(context, name)
    config = context.config
    own = own_configs(context, BROKER, name)
    made = changes_of(own, config.broker_keys, config.text)
    after = changes.merged(own, made)
    changes.check_broker(config, after, made, for_all=not name)
    changes.check_lengths(own, made)
    if context.image.features.get(ELR_FEATURE, 0) > 0:
        changes.check_replicas_in_sync(made, for_all=not name)
    return made


def _group_changes(context: Context, name: str, changes_of: ChangesOf) -> Changes:
    own = own_configs(context, GROUP, name)
    made = changes_of(own, NO_LISTS, NO_LISTS.get)
    if not name:
        raise ChangeRefusedError(codes.INVALID_REQUEST, "Default group resources are not allowed.")
    changes.check_group(context.config, changes.merged(own, made))
    return made


def _client_metrics_changes(context: Context, name: str, changes_of: ChangesOf) -> Changes:
    own = own_configs(context, CLIENT_METRICS, name)
    made = changes_of(own, NO_LISTS, NO_LISTS.get)
    if not name:
        raise ChangeRefusedError(codes.INVALID_REQUEST, "Subscription name can't be empty")
    changes.check_client_metrics(changes.merged(own, made))
    return made


def check_node_id(context: Context, name: str) -> None:
    """Raises ChangeRefusedError if the name is not this node's id."""
    own_id = context.cluster.node_id
    other = f"Unexpected broker id, expected {own_id}, but received {name}"
    check_own_id(context, name, "Node", other)


def check_own_id(context: Context, name: str, what: str, other: str) -> None:
    """Raises ChangeRefusedError if the name is not this node's id, with the sentence `other` if it
    is another's. Kafka has other words in each place, for the id also, which is `what`'s."""
    node_id = java_int(name)
    if node_id is None:
        sentence = f"{what} id must be an integer, but it is: {name}"
        raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
    if node_id != context.cluster.node_id:
        raise ChangeRefusedError(codes.INVALID_REQUEST, other)


def alter_loggers(
    context: Context, name: str, operations: Operations, *, validate_only: bool
) -> None:
    """Sets the level of the log. Raises ChangeRefusedError."""
    own_id = context.cluster.node_id
    other = f"Unexpected node id. Expected {own_id}, but received {name}"
    check_own_id(context, name, "Node", other)
    for logger, operation, level in operations:
        _check_level(logger, operation, level)
    for _, _, level in operations:
        if not validate_only and level is not None:
            context.log.set_level(LOG_LEVELS[level])


def _check_level(logger: str, operation: int, level: str | None) -> None:
    if operation not in changes.OPERATIONS:
        raise ChangeRefusedError(codes.UNKNOWN_SERVER_ERROR, "")
    verbs = {changes.APPEND: "APPEND", changes.SUBTRACT: "SUBTRACT"}
    if operation in verbs:
        raise ChangeRefusedError(
            codes.INVALID_REQUEST,
            f"{verbs[operation]} operation is not allowed for the BROKER_LOGGER resource",
        )
    if logger != ROOT_LOGGER:
        raise ChangeRefusedError(codes.INVALID_CONFIG, f"Logger {logger} does not exist!")
    if operation == changes.DELETE:
        sentence = "Removing the log level of the root logger is not allowed"
        raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
    if level not in LOG_LEVELS:
        raise ChangeRefusedError(
            codes.INVALID_CONFIG,
            f"Cannot set the log level of {logger} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LOG_LEVELS)}",
        )


def _resource(kind: int, name: str) -> str:
    kinds = {TOPIC: "topic", BROKER: "broker", GROUP: "group", CLIENT_METRICS: "client metrics"}
    return f"{kinds[kind]} {name}" if name else "all brokers"


def _sentence(context: Context, kind: int, made: Changes) -> str:
    words = []
    for name, text in made.items():
        keys = context.config.broker_keys
        # A broker's key without a row may be a password (`KafkaConfigSchema.isSensitive`).
        key = key_of_listener(name) or name
        is_secret = kind == BROKER and (key not in keys or keys[key].is_sensitive)
        value = "[hidden]" if is_secret else _shortened(text or "")
        words.append(f"{name} unset" if text is None else f"{name}={value}")
    return ", ".join(words) or "no change"


def _shortened(text: str) -> str:
    if len(text) <= LOGGED_CHARACTERS_MAX:
        return text
    return f"{text[:LOGGED_CHARACTERS_MAX]}… ({len(text)} characters)"
