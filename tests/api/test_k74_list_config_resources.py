"""ListConfigResources by frames."""

from typing import Any

from api.config_cases import SET
from api.configs import change
from api.raw import Connection
from kafkalite.protocol import messages


def ask(connection: Connection, *kinds: int, version: int = 1) -> Any:
    message = messages.ListConfigResourcesRequest(resource_types=list(kinds))
    return connection.ask("ListConfigResources", version, message)


def listed(connection: Connection, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
    answer = ask(connection, *kinds, version=version)
    assert answer.error_code == 0
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


def test_resources_are_listed_by_type(connection: Connection, topic: str) -> None:
    answer = change(
        connection,
        (32, "listed-group", [("consumer.session.timeout.ms", SET, "46000")]),
        (16, "listed-metrics", [("metrics", SET, "*")]),
    )
    assert answer == [(0, None)] * 2
    assert (2, topic) in listed(connection, 2)
    assert listed(connection, 4) == [(4, "1")]
    assert listed(connection, 8) == [(8, "1")]
    assert (32, "listed-group") in listed(connection, 32)
    assert (16, "listed-metrics") in listed(connection, 16, 2, 16)
    assert {kind for kind, _ in listed(connection)} == {2, 4, 8, 16, 32}
    assert {kind for kind, _ in listed(connection, version=0)} == {16}


def test_a_type_that_cannot_be_listed_is_refused(connection: Connection) -> None:
    assert ask(connection, 99).error_code == 35
    assert ask(connection, 2, 0).error_code == 35
