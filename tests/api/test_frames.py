"""Frames that are no requests: a closed connection, never a hang, and no one else is disturbed."""

import random
import socket
import struct

import psutil
import pytest

import kafkalite
from api.batches import batch
from api.raw import NAMES, Connection, request_frame
from kafkalite.protocol import messages

VERSIONS = {0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 4), 19: (2, 7)}


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1])
def test_a_size_out_of_bounds_closes_the_connection(connection: Connection, size: int) -> None:
    connection.socket.sendall(struct.pack(">i", size))
    assert connection.is_closed()


def test_a_claimed_size_takes_no_memory(broker: kafkalite.Broker) -> None:
    before = psutil.Process(broker.pid).memory_info().rss
    opened = [Connection(broker.bootstrap_servers) for _ in range(50)]
    for connection in opened:
        connection.socket.sendall(struct.pack(">i", 100 * 1024 * 1024) + b"\0\0\0\3")
    with Connection(broker.bootstrap_servers) as other:
        other.ask("Metadata", 1, messages.MetadataRequest(topics=[]))
    grown = psutil.Process(broker.pid).memory_info().rss - before
    for connection in opened:
        connection.socket.close()
    assert grown < 20 << 20


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        struct.pack(">hhi", 3, 1, 1),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 3, 99, 1, -1),
        struct.pack(">hhih", 19, 1, 1, -1),
        struct.pack(">hhih", 3, 1, 1, -5),
        struct.pack(">hhih", 3, 1, 1, 500),
        struct.pack(">hhih2s", 3, 1, 1, 2, b"\xff\xfe"),
    ],
)
def test_a_header_that_is_none_closes_the_connection(
    connection: Connection, content: bytes
) -> None:
    connection.send_frame(content)
    assert connection.is_closed()


# A key of either language, a version with compact strings, and what is before and behind one.
STRINGS = {
    "Metadata": (3, 9, b"\2", b"\0\0\0\0\0"),
    "ApiVersions": (18, 3, b"", b"\2x\0"),
    "FindCoordinator": (10, 4, b"\0\2", b"\0"),
}


@pytest.mark.parametrize("name", STRINGS)
def test_a_string_beyond_32767_bytes_closes_the_connection(
    connection: Connection, name: str
) -> None:
    """As in Kafka, compact or not; compact ones had no bound: a name of 30 MB went into records."""
    key, version, before, behind = STRINGS[name]
    for length, is_string in ((32_767, True), (32_768, False)):
        size = length + 1
        prefix = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
        connection.send(key, version, before + prefix + b"x" * length + behind)
        assert (connection.receive_frame() is not None) == is_string


def request_body(connection: Connection, key: int, version: int) -> bytes:
    request = {
        0: lambda: connection.produce_request("frames", batch([b"x"])),
        1: lambda: connection.fetch_request("frames", 0),
        18: lambda: messages.ApiVersionsRequest(
            client_software_name="a", client_software_version="1"
        ),
    }.get(key, lambda: _with_one_topic(key))()
    body: bytes = request.encode(version)
    return body


def _with_one_topic(key: int) -> messages.Message:
    kind = getattr(messages, f"{NAMES[key]}Request")
    request = kind()
    index = kind._fields.index("topics")
    request.topics.append(kind._structs[index]())
    if key == 2:
        request.topics[0].partitions.append(kind._structs[index]._structs[1]())
    return request


@pytest.mark.parametrize("key", VERSIONS)
def test_every_truncation_of_every_version_is_survived(broker: kafkalite.Broker, key: int) -> None:
    first, last = VERSIONS[key]
    for version in range(first, last + 1):
        with Connection(broker.bootstrap_servers) as one:
            body = request_body(one, key, version)
        for length in sorted({*range(0, len(body), max(1, len(body) // 12)), len(body) - 1}):
            with Connection(broker.bootstrap_servers) as connection:
                connection.send(key, version, body[:length])
                # Half a request is no request: it is never answered as if it were whole.
                assert connection.is_closed() or key in (18,)


@pytest.mark.parametrize("key", VERSIONS)
def test_random_changes_never_hang_the_broker(broker: kafkalite.Broker, key: int) -> None:
    chance = random.Random(key)
    first, last = VERSIONS[key]
    for _ in range(150):
        version = chance.randint(first, last)
        with Connection(broker.bootstrap_servers) as connection:
            body = bytearray(request_body(connection, key, version))
            for _ in range(chance.randint(1, 4)):
                if body:
                    body[chance.randrange(len(body))] = chance.choice(
                        (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
                    )
            connection.send(key, version, bytes(body))
            connection.socket.shutdown(socket.SHUT_WR)
            # An answer or the end, before the time-out of the socket.
            connection.receive_frame()
    with Connection(broker.bootstrap_servers) as other:
        other.ask("Metadata", 1, messages.MetadataRequest(topics=[]))


def test_a_frame_that_comes_byte_by_byte_is_answered(connection: Connection) -> None:
    for byte in request_frame(18, 0, b"", correlation_id=77):
        connection.socket.sendall(bytes([byte]))
    frame = connection.receive_frame()
    assert frame is not None
    assert frame[:4] == struct.pack(">i", 77)


def test_many_frames_in_one_segment_are_answered_in_order(connection: Connection) -> None:
    frames = [request_frame(18, 0, b"", correlation_id=number) for number in range(500)]
    connection.socket.sendall(b"".join(frames))
    for number in range(500):
        frame = connection.receive_frame()
        assert frame is not None
        assert struct.unpack_from(">i", frame)[0] == number
