"""ApiVersions by frames."""

import struct

import pytest

from api.raw import Connection
from kafkalite.api import find_handlers
from kafkalite.protocol import messages

# What Kafka 4.3.1 answers.
# fmt: off
KAFKAS = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0,
    9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19:
    (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5),
    27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1,
    2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3), 42:
    (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1),
    50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0,
    0), 66: (0, 2), 68: (0, 1), 69: (0, 1), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1), 78:
    (1, 2), 79: (1, 2), 80: (0, 1), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0),
    87: (0, 1), 88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0),
}
# fmt: on
HOT = {0, 1, 2, 3, 18}


@pytest.mark.parametrize("version", range(5))
def test_every_version_answers_with_keys_in_kafkas_versions(
    connection: Connection, version: int
) -> None:
    request = messages.ApiVersionsRequest(
        client_software_name="test-client", client_software_version="1.0"
    )
    response = connection.ask("ApiVersions", version, request)
    assert response.error_code == 0
    found = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert {*HOT, *find_handlers()} == set(found)
    assert found == {key: KAFKAS[key] for key in found}


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
