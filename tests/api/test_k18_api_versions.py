"""ApiVersions by frames."""

import struct

import pytest

from api.raw import Connection
from kafkalite.protocol import messages

TABLE = {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 4), 19: (2, 7)}


@pytest.mark.parametrize("version", range(5))
def test_every_version_answers_with_the_table_of_keys(connection: Connection, version: int) -> None:
    request = messages.ApiVersionsRequest(
        client_software_name="test-client", client_software_version="1.0"
    )
    response = connection.ask("ApiVersions", version, request)
    assert response.error_code == 0
    found = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert found == TABLE


def test_an_unknown_version_is_answered_by_version_0_and_error_35(connection: Connection) -> None:
    correlation_id = connection.send(18, 99, b"\x05name\x02v\0")
    frame = connection.receive_frame()
    assert frame is not None
    assert struct.unpack_from(">ih", frame) == (correlation_id, 35)
    response = messages.ApiVersionsResponse.decode(frame[4:], 0)
    keys = [(each.api_key, each.min_version, each.max_version) for each in response.api_keys]
    assert keys == [(18, 0, 4)]


@pytest.mark.parametrize("name", ["", "-client", "client ", "cl ient", "client-"])
def test_a_software_name_that_is_none_is_refused(connection: Connection, name: str) -> None:
    request = messages.ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert connection.ask("ApiVersions", 3, request).error_code == 42
