"""IncrementalAlterConfigs (key 44), versions 0 and 1: changes single configs of resources
(KIP-339).

Behaviour: sets (0), deletes (1), or appends to (2) and subtracts from (3) a list; the resource is a
topic, this broker, all brokers (the empty name), the broker's log levels, a group, a subscription
of client metrics. What is changed is durable and holds when the answer leaves. An element that is
there already is not appended again; a key that is not set may be deleted. `validate_only` judges
and changes nothing.

Refusals, per resource, in Kafka's order (`ConfigAdminManager`, `ConfigurationControlManager`):
INVALID_REQUEST for a resource or a key that comes twice, for a null value and for another broker's
id; TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED, of a broker's configs after all that follows
here; INVALID_CONFIG for appending to what is no list of a topic or broker, and for a value that has
grown beyond 32,767 bytes (of a broker after all others); INVALID_REQUEST or
INVALID_TOPIC_EXCEPTION for the resource's name; INVALID_CONFIG (of a broker: INVALID_REQUEST) for a
key or a value that cannot be; UNKNOWN_TOPIC_OR_PARTITION. A broker's key that could not take effect
while it runs is INVALID_REQUEST. An operation that there is none of is INVALID_REQUEST for a broker
and UNKNOWN_SERVER_ERROR for a logger; of another resource it is UNKNOWN_SERVER_ERROR for all
resources but loggers and those that were refused before Kafka's controller was asked. Last,
POLICY_VIOLATION for all that were to change if that takes more than 10,000 records.

Version notes: v1 is flexible; nothing else differs.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from kafkalite import _native
from kafkalite.access import ALTER_CONFIGS, CLUSTER
from kafkalite.api.config_resources import (
    BROKER_LOGGER,
    JUDGED_BY_CONTROLLER,
    NO_LISTS,
    alter_each,
    alter_loggers,
    changes_of_resource,
    check_permitted,
    in_background,
)
from kafkalite.config.changes import (
    OPERATIONS,
    ChangeRefusedError,
    Changes,
    DefaultOf,
    check_broker_lists,
    check_texts,
    incremental_changes,
)
from kafkalite.config.keys import Key
from kafkalite.context import Context
from kafkalite.metadata.image import BROKER, TOPIC
from kafkalite.protocol import codes, messages

NAME = "IncrementalAlterConfigs"


async def handle(
    context: Context, request: _native.Request, message: messages.IncrementalAlterConfigsRequest
) -> messages.IncrementalAlterConfigsResponse:
    """A result for each resource, in order."""
    sliced = context.tasks.sliced
    names = [(each.resource_type, each.resource_name) async for each in sliced(message.resources)]
    counts = Counter(names)
    is_broken = False
    breaks = partial(_breaks, context, request)
    # A controller that is another node says so itself.
    async for each in sliced(message.resources if context.ask_controller is None else ()):
        if not is_broken and counts[each.resource_type, each.resource_name] == 1:
            is_broken = await in_background(context, each, breaks)

    def judge(resource: Any) -> Changes | None:
        operations = _operations(resource)
        kind, name = resource.resource_type, resource.resource_name
        if is_broken and kind in JUDGED_BY_CONTROLLER:
            raise ChangeRefusedError(codes.UNKNOWN_SERVER_ERROR, "")

        def changes_of(
            own: Mapping[str, str], keys: Mapping[str, Key], default_of: DefaultOf
        ) -> Changes:
            unknown = [what for _, what, _ in operations if what not in OPERATIONS]
            if unknown and kind == BROKER:
                sentence = f"Unknown operations type {unknown[0]}"
                raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
            if kind == BROKER:
                check_broker_lists(operations, keys)
            return incremental_changes(own, operations, keys, default_of)

        if kind == BROKER_LOGGER:
            if not context.may(request, ALTER_CONFIGS, CLUSTER):
                raise ChangeRefusedError(codes.CLUSTER_AUTHORIZATION_FAILED, "")
            alter_loggers(context, name, operations, validate_only=message.validate_only)
            return None
        made = changes_of_resource(context, request, resource, changes_of)
        if is_broken:
            raise ChangeRefusedError(codes.UNKNOWN_SERVER_ERROR, "")
        return made

    response = messages.IncrementalAlterConfigsResponse()
    await alter_each(context, request, message, response, _operations, judge)
    return response


def _operations(resource: Any) -> list[tuple[str, int, str | None]]:
    return [(each.name, each.config_operation, each.value) for each in resource.configs]


def _breaks(context: Context, request: _native.Request, resource: Any) -> bool:
    """Says that Kafka's controller would come upon an operation that there is none of."""
    if resource.resource_type not in JUDGED_BY_CONTROLLER:
        return False
    keys = context.config.topic_keys if resource.resource_type == TOPIC else NO_LISTS
    try:
        check_texts(_operations(resource))
        check_permitted(context, request, ALTER_CONFIGS, resource)
        incremental_changes({}, _operations(resource), keys, NO_LISTS.get)
    except ChangeRefusedError as refusal:
        return refusal.code == codes.UNKNOWN_SERVER_ERROR
    return False
