"""DeleteAcls by frames."""

from typing import Any

from api.raw import Connection
from kafkalite.protocol import messages

REFUSAL = (54, "No Authorizer is configured.")


def request(*permissions: int) -> Any:
    """A filter for each permission."""
    kind = messages.DeleteAclsRequest
    return kind(
        filters=[
            kind.DeleteAclsFilter(
                resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=each
            )
            for each in permissions
        ]
    )


def test_each_filter_is_refused_without_an_authorizer(connection: Connection) -> None:
    for version in (1, 2, 3):
        found = connection.ask("DeleteAcls", version, request(1, 3)).filter_results
        assert [(each.error_code, each.error_message) for each in found] == [REFUSAL] * 2
        assert [each.matching_acls for each in found] == [[], []]


def test_the_code_of_what_is_unknown_closes_the_connection(connection: Connection) -> None:
    connection.send(31, 3, request(1, 0).encode(3))
    assert connection.receive_frame() is None
