"""DescribeAcls by frames."""

from typing import Any

import pytest

from api.raw import Connection
from kafkalite.protocol import messages

REFUSAL = (54, "No Authorizer is configured on the broker")


def request() -> Any:
    """For all ACLs."""
    return messages.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_who_asks_for_acls_is_told_that_there_is_no_authorizer(
    connection: Connection, version: int
) -> None:
    answer = connection.ask("DescribeAcls", version, request())
    assert (answer.error_code, answer.error_message) == REFUSAL
    assert answer.resources == []


def test_the_code_of_what_is_unknown_closes_the_connection(connection: Connection) -> None:
    message = request()
    message.operation = 0
    connection.send(29, 3, message.encode(3))
    assert connection.receive_frame() is None
