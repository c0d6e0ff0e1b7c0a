"""AlterConfigs (key 33), versions 0 to 2: replaces all that is set for a resource.

Behaviour: after it, just the given configs are set for the resource (a topic, this broker, all
brokers, a group, a subscription of client metrics), durably, and they hold. `validate_only` judges
and changes nothing. IncrementalAlterConfigs is its successor.

Refusals: those of IncrementalAlterConfigs, and INVALID_REQUEST for loggers.

Version notes: v2 is flexible; nothing else differs.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite import _native
from kafkalite.api.config_resources import alter_each, changes_of_resource
from kafkalite.config.changes import SET, Changes, replacing_changes
from kafkalite.context import Context
from kafkalite.protocol import messages

NAME = "AlterConfigs"


async def handle(
    context: Context, request: _native.Request, message: messages.AlterConfigsRequest
) -> messages.AlterConfigsResponse:
    """A result for each resource, in order."""

    def judge(resource: Any) -> Changes:
        configs = [(each.name, each.value) for each in resource.configs]

        def changes_of(own: Mapping[str, str], _keys: object, _defaults: object) -> Changes:
            return replacing_changes(own, configs)

        return changes_of_resource(context, request, resource, changes_of)

    response = messages.AlterConfigsResponse()
    await alter_each(context, request, message, response, _operations, judge)
    return response


def _operations(resource: Any) -> list[tuple[str, int, str | None]]:
    return [(each.name, SET, each.value) for each in resource.configs]
