"""DescribeConfigs (key 32), versions 1 to 4.

Behaviour: every key of each resource, or those that are named (none named: all), with its value and
where that comes from. Resources are a topic (2), this broker (4, its id), what is set for all
brokers (4, the empty name), the log's levels (8, this broker's id), a subscription of client
metrics (16), a group (32). A group or subscription need not exist: it is described by its defaults.
Values of passwords, and of keys that have no row, are null.

Refusals: INVALID_REQUEST for all resources if one is of an unknown type. Per resource, in Kafka's
order (`ConfigHelper`): TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED, behind the results of the
others; topic: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION; the others:
INVALID_REQUEST for an empty name or a name that is not this broker's id.

Version notes: v1 has synonyms (KIP-226), v3 types and documentation (KIP-569).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kafkalite import _native, access
from kafkalite.api.config_resources import (
    BROKER_LOGGER,
    LOG_LEVELS,
    ROOT_LOGGER,
    check_own_id,
    check_permitted,
    own_configs,
)
from kafkalite.config import describe
from kafkalite.config.changes import ChangeRefusedError
from kafkalite.config.describe import Described
from kafkalite.context import Context
from kafkalite.metadata.controller.topics import name_refusal
from kafkalite.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kafkalite.protocol import codes, messages

NAME = "DescribeConfigs"

LOGGER_SOURCE = 6
DENIED = {code for code, _ in access.DENIALS.values()}
KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


async def handle(
    context: Context, request: _native.Request, message: messages.DescribeConfigsRequest
) -> messages.DescribeConfigsResponse:
    """A result for each resource, in order."""
    response = messages.DescribeConfigsResponse()
    described: dict[Any, list[Any]] = {}
    unknown = [each.resource_type for each in message.resources if each.resource_type not in KINDS]
    denied: list[Any] = []
    async for resource in context.tasks.sliced(message.resources):
        result = messages.DescribeConfigsResponse.DescribeConfigsResult(
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            if unknown:
                raise ChangeRefusedError(
                    codes.INVALID_REQUEST, f"Unknown resource type {unknown[0]}"
                )
            check_permitted(context, request, access.DESCRIBE_CONFIGS, resource)
            result.configs = _configs(context, resource, message, described)
        except ChangeRefusedError as refusal:
            # Kafka answers the empty text here where there is no sentence.
            result.error_code = refusal.code
            result.error_message = str(refusal)
        (denied if result.error_code in DENIED else response.results).append(result)
    response.results += denied
    return response


def _configs(
    context: Context, resource: Any, message: Any, described: dict[Any, list[Any]]
) -> list[Any]:
    """Describes a resource. Most topics of a request have the same configs, so that what was
    `described` once is said again."""
    kind, name = resource.resource_type, resource.resource_name
    _check(context, kind, name)
    own = own_configs(context, kind, name)
    wanted = frozenset(resource.configuration_keys or ())
    alike = kind, kind == BROKER and bool(name), frozenset(own.items()), wanted
    if alike not in described:
        described[alike] = [
            _config(each, message)
            for each in _describe(context, kind, name, own)
            if not wanted or each.name in wanted
        ]
    return described[alike]


def _check(context: Context, kind: int, name: str) -> None:
    """Raises ChangeRefusedError where there is no such resource."""
    if kind == TOPIC:
        refusal = name_refusal(name)
        if refusal:
            raise ChangeRefusedError(codes.INVALID_TOPIC_EXCEPTION, refusal)
        if name not in context.image.topics:
            raise ChangeRefusedError(codes.UNKNOWN_TOPIC_OR_PARTITION, "")
    elif kind == BROKER:
        if name:
            _check_broker_id(context, name, " or empty string,")
    elif kind == BROKER_LOGGER:
        if not name:
            raise ChangeRefusedError(codes.INVALID_REQUEST, "Broker id must not be empty")
        _check_broker_id(context, name, "")
    elif kind == CLIENT_METRICS and not name:
        sentence = "Client metrics subscription name must not be empty"
        raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
    elif kind == GROUP and not name:
        raise ChangeRefusedError(codes.INVALID_REQUEST, "Group name must not be empty")


def _describe(
    context: Context, kind: int, name: str, own: Mapping[str, str]
) -> Sequence[Described]:
    if kind == TOPIC:
        return describe.describe_topic(context.config, own)
    if kind == BROKER and not name:
        return describe.describe_all_brokers(context.config, own)
    if kind == BROKER:
        return describe.describe_broker(context.config)
    if kind == BROKER_LOGGER:
        return [_logger(context)]
    if kind == CLIENT_METRICS:
        return describe.describe_client_metrics(own)
    return describe.describe_group(context.config, own)


def _check_broker_id(context: Context, name: str, alternative: str) -> None:
    own_id = context.cluster.node_id
    other = f"Unexpected broker id, expected {own_id}{alternative} but received {name}"
    check_own_id(context, name, "Broker", other)


def _logger(context: Context) -> Described:
    level = next(word for word, ours in LOG_LEVELS.items() if ours == context.log.level)
    return Described(ROOT_LOGGER, level, False, LOGGER_SOURCE, False, [], 0, "")


def _config(described: Described, message: Any) -> Any:
    kind = messages.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult
    # Kafka leaves a logger's at the field's default, the empty text.
    is_logger = described.source == LOGGER_SOURCE
    synonyms = described.synonyms if message.include_synonyms else []
    return kind(
        name=described.name,
        value=described.value,
        read_only=described.is_read_only,
        config_source=described.source,
        is_sensitive=described.is_sensitive,
        synonyms=[
            kind.DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in synonyms
        ],
        config_type=described.kind,
        documentation=described.doc if message.include_documentation or is_logger else None,
    )
