"""CreateAcls by frames."""

from typing import Any

from api.raw import Connection
from kafkalite.protocol import messages

REFUSAL = (54, "No Authorizer is configured.")


def request(*operations: int) -> Any:
    """An ACL for each operation."""
    kind = messages.CreateAclsRequest
    return kind(
        creations=[
            kind.AclCreation(
                resource_type=2,
                resource_name="orders",
                principal="User:alice",
                host="*",
                operation=operation,
                permission_type=3,
            )
            for operation in operations
        ]
    )


def test_each_acl_is_refused_without_an_authorizer(connection: Connection) -> None:
    for version in (1, 2, 3):
        answer = connection.ask("CreateAcls", version, request(3, 4))
        assert [(each.error_code, each.error_message) for each in answer.results] == [REFUSAL] * 2


def test_the_code_of_what_is_unknown_closes_the_connection(connection: Connection) -> None:
    connection.send(30, 3, request(3, 0).encode(3))
    assert connection.receive_frame() is None
