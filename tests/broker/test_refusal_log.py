"""What a client is refused for is told, but a flood of it does not fill the disk."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection, request_frame
from kafkalite.service.repeated import REFUSALS_INTERVAL_MS, Repeated


def test_a_flood_of_refusals_is_one_line_a_second_and_a_count() -> None:
    lines: list[str] = []
    refusals = Repeated(lines.append, REFUSALS_INTERVAL_MS)
    for now_ms in range(5_000, 7_500, 10):
        refusals.tell(f"refused at {now_ms}", now_ms)
    assert lines == [
        "refused at 5000",
        "refused at 6000 (and 99 more since the last such line)",
        "refused at 7000 (and 99 more since the last such line)",
    ]


@pytest.fixture
def broker() -> Iterator[kafkalite.Broker]:
    """With one network thread: what it is told first it tells first."""
    with kafkalite.Broker(config={"num.network.threads": "1"}) as broker:
        yield broker


def told(broker: kafkalite.Broker, sent: bytes) -> str:
    """The line of the log about a client that sends this and is closed. There is one a second at
    most, so it may take another such client."""
    peers = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with Connection(broker.bootstrap_servers) as connection:
            peers.append("{}:{}".format(*connection.socket.getsockname()))
            connection.socket.sendall(sent)
            assert connection.is_closed()
        for line in broker.log_tail().splitlines():
            if any(peer in line for peer in peers):
                return line
        time.sleep(0.01)  # polls the log
    raise AssertionError(f"not a word in the log:\n{broker.log_tail()}")


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (
            request_frame(KEYS["Produce"], 2, b""),
            "refused: malformed request: Produce (API key 0) has no version 2",
        ),
        (request_frame(999, 0, b""), "refused: malformed request: unknown API key 999"),
        (request_frame(KEYS["Metadata"], 9, b"\xff"), "refused: malformed request"),
        (b"GET / HTTP/1.1\r\n\r\n", "refused: malformed request: a frame of 1195725856 bytes"),
    ],
    ids=["version", "key", "body", "size"],
)
def test_why_a_connection_was_closed_is_told_with_its_address(
    broker: kafkalite.Broker, sent: bytes, words: str
) -> None:
    """The client saw a disconnect and the log said nothing."""
    line = told(broker, sent)
    assert words in line and "WARNING" in line.upper()


def test_with_acks_0_the_log_alone_can_say_what_was_refused(broker: kafkalite.Broker) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        request = connection.produce_request("no-such-topic", batch([b"x"]), acks=0)
    line = told(broker, request_frame(KEYS["Produce"], 9, request.encode(9)))
    assert "with acks=0 refused: partition 0: error code 3" in line


def test_nothing_is_told_of_clients_that_go(broker: kafkalite.Broker) -> None:
    good = request_frame(KEYS["ApiVersions"], 0, b"")
    peers = []
    for sent in (b"", good, good[:7], good + good[:3]):
        for resets in (False, True):
            with Connection(broker.bootstrap_servers) as connection:
                peers.append("{}:{}".format(*connection.socket.getsockname()))
                connection.socket.sendall(sent)
                if resets:
                    linger = struct.pack("ii", 1, 0)
                    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    told(broker, request_frame(999, 0, b""))
    log = broker.log_tail(lines=1000)
    assert not any(peer in log for peer in peers)
