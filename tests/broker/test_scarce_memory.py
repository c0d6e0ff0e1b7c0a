"""Requests that arrive while the memory for them is short (`rust/src/net/budget.rs`)."""

import os
import signal
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection
from kafkalite.protocol import messages

ASK = messages.MetadataRequest(topics=[])

BUDGET_BYTES = 300_000
LARGE_BYTES = 200_000
BEGINNING_BYTES = 120_000
"""Two beginnings fit into the budget, three do not."""


@pytest.fixture
def scarce() -> Iterator[kafkalite.Broker]:
    """Memory for little more than one large request; its topic "t" is empty."""
    config = {"queued.max.request.bytes": str(BUDGET_BYTES), "num.network.threads": "1"}
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("t").error_code == 0
        yield broker


def framed(name: str, version: int, message: Any) -> bytes:
    content = (
        struct.pack(">hhih4s", KEYS[name], version, 7, 4, b"test") + b"\0" + message.encode(version)
    )
    return struct.pack(">i", len(content)) + content


def test_beginnings_of_frames_that_fill_the_memory_do_not_wait_for_each_other(
    scarce: kafkalite.Broker,
) -> None:
    """Each had its beginning in memory and waited for room for the rest, which nobody could make
    but by being closed after half a minute. A beginning comes in unasked behind a request that a
    Fetch holds back."""
    clients = [Connection(scarce.bootstrap_servers) for _ in range(4)]
    record = batch([bytes(LARGE_BYTES)])
    fetch = clients[0].fetch_request("t", 0, max_wait_ms=500, min_bytes=1 << 20)
    before = framed("Fetch", 12, fetch) + framed("Metadata", 9, ASK)
    frames = [before + framed("Produce", 9, each.produce_request("t", record)) for each in clients]
    cut = len(before) + BEGINNING_BYTES
    # So that it finds them all at once.
    os.kill(scarce.pid, signal.SIGSTOP)
    for client, frame in zip(clients, frames, strict=True):
        client.socket.sendall(frame[:cut])
    os.kill(scarce.pid, signal.SIGCONT)
    with Connection(scarce.bootstrap_servers) as other:
        assert other.ask("Metadata", 9, ASK).brokers
    for client, frame in zip(clients, frames, strict=True):
        threading.Thread(target=client.socket.sendall, args=[frame[cut:]]).start()
    for client in clients:
        client.socket.settimeout(20)
        client.receive(KEYS["Fetch"], 12, 7)
        client.receive(KEYS["Metadata"], 9, 7)
        answer = client.receive(0, 9, 7).responses[0].partition_responses[0]
        assert answer.error_code == 0
        client.socket.close()
