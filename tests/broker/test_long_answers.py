"""Answers of several MB, which a thread of their own sends (`rust/src/net/storage_io/`)."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection
from kafkalite.protocol import messages

BATCHES = 3
BATCH_BYTES = 1_000_000
ROUNDS = 300
STEP_S = 5e-6
"""By how much later each round asks: 300 of them cover the time in which an answer leaves."""

FETCH_VERSION = 12
ASK = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1").encode(3)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalite.Broker]:
    """Its topic "t" holds 3 MB."""
    folder: Path = tmp_path_factory.mktemp("long-answers")
    config = {"kafkalite.acks.fsync": "none", "num.network.threads": "1"}
    with kafkalite.Broker(folder / "data", config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("t").error_code == 0
            records = batch([bytes(BATCH_BYTES)])
            for number in range(BATCHES):
                assert connection.produce("t", records).base_offset == number
        yield broker


def send_fetch(connection: Connection) -> int:
    """Asks for everything in "t"; returns the correlation id."""
    request = connection.fetch_request("t", 0, max_bytes=100 << 20)
    return connection.send(KEYS["Fetch"], FETCH_VERSION, request.encode(FETCH_VERSION))


def receive_fetch(connection: Connection, correlation_id: int) -> None:
    answer = connection.receive(KEYS["Fetch"], FETCH_VERSION, correlation_id)
    assert len(answer.responses[0].partitions[0].records) > BATCHES * BATCH_BYTES


def ask_versions(connection: Connection) -> None:
    correlation_id = connection.send(KEYS["ApiVersions"], 3, ASK)
    assert connection.receive(KEYS["ApiVersions"], 3, correlation_id).error_code == 0


def test_what_is_asked_while_a_long_answer_leaves_is_answered_behind_it(
    broker: kafkalite.Broker,
) -> None:
    """What came between the answer's last byte and the network thread's hearing of it was answered
    into the queue and never sent."""
    with Connection(broker.bootstrap_servers) as connection:
        # The whole answer leaves before the client has read any of it.
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        for number in range(ROUNDS):
            fetch = send_fetch(connection)
            until = time.perf_counter() + number * STEP_S
            while time.perf_counter() < until:
                pass
            versions = connection.send(KEYS["ApiVersions"], 3, ASK)
            receive_fetch(connection, fetch)
            answer = connection.receive(KEYS["ApiVersions"], 3, versions)
            assert answer.error_code == 0


def test_who_does_not_read_a_long_answer_holds_up_nobody(broker: kafkalite.Broker) -> None:
    with (
        Connection(broker.bootstrap_servers) as silent,
        Connection(broker.bootstrap_servers) as other,
    ):
        silent.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
        unread = send_fetch(silent)
        for _ in range(20):
            receive_fetch(other, send_fetch(other))
            ask_versions(other)
        receive_fetch(silent, unread)
        ask_versions(silent)
