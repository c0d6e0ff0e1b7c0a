"""Requests of DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

from typing import Any

from api.config_cases import OWN_SOURCES, SET
from api.raw import Connection
from kafkalite.protocol import messages

Operation = tuple[str, int, str | None]


def describe(
    connection: Connection,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = True,
    documentation: bool = False,
) -> Any:
    """The result of the resource."""
    request = messages.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    message = request(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    return connection.ask("DescribeConfigs", version, message).results[0]


def own(connection: Connection, kind: int, name: str) -> dict[str, str | None]:
    """What is set for just this resource."""
    source = 3 if (kind, name) == (4, "") else OWN_SOURCES[kind]
    result = describe(connection, kind, name)
    assert result.error_code == 0
    return {each.name: each.value for each in result.configs if each.config_source == source}


def change(
    connection: Connection,
    *resources: tuple[int, str, list[Operation]],
    version: int = 1,
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    """Code and sentence of each resource."""
    kind = messages.IncrementalAlterConfigsRequest
    message = kind(
        validate_only=validate_only,
        resources=[
            kind.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    kind.AlterConfigsResource.AlterableConfig(
                        name=key, config_operation=operation, value=text
                    )
                    for key, operation, text in operations
                ],
            )
            for resource_type, name, operations in resources
        ],
    )
    answer = connection.ask("IncrementalAlterConfigs", version, message)
    asked = [(resource_type, name) for resource_type, name, _ in resources]
    assert sorted((each.resource_type, each.resource_name) for each in answer.responses) == sorted(
        asked
    )
    return [(each.error_code, each.error_message) for each in answer.responses]


def set_topic(connection: Connection, topic: str, **configs: str) -> None:
    """Sets a topic's configs, which must be taken."""
    operations = [(key.replace("_", "."), SET, text) for key, text in configs.items()]
    assert change(connection, (2, topic, list(operations))) == [(0, None)]


def replace(
    connection: Connection,
    *resources: tuple[int, str, list[tuple[str, str | None]]],
    version: int = 2,
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    """AlterConfigs: code and sentence of each resource."""
    kind = messages.AlterConfigsRequest
    message = kind(
        validate_only=validate_only,
        resources=[
            kind.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    kind.AlterConfigsResource.AlterableConfig(name=key, value=text)
                    for key, text in configs
                ],
            )
            for resource_type, name, configs in resources
        ],
    )
    answer = connection.ask("AlterConfigs", version, message)
    return [(each.error_code, each.error_message) for each in answer.responses]
