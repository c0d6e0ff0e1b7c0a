"""The directory of the metadata does not answer: Python waits for it, and every request of Python's
waits for Python. Produce, Fetch and the like go on, and have their memory."""

import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection
from broker.test_scarce_memory import ASK, fetch_of_many, uvarint
from faults.mount import Mount
from faults.test_slow_directory import PROMPT_S
from kafkalite.protocol import messages
from tasks import told_of_threads

BUDGET_BYTES = 300_000
LARGE_BYTES = 50_000
FEW = 300
"""Partitions of a Fetch that takes a sixth of the memory while it waits."""
MANY = 100
PADDING = bytes(7_000)
"""Of a request that takes 17 kB while Python has it, and nothing that counts before: half of the
memory is nine of them."""
AWAY_S = 2.0
"""Python has to be away for one second, in which all requests are taken."""


@pytest.fixture
def scarce(slow: Mount, tmp_path: Path) -> Iterator[kafkalite.Broker]:
    """Little memory for requests, and the metadata where it can be frozen. It has a topic "t"."""
    config = {
        "log.dirs": str(tmp_path / "quick"),
        "metadata.log.dir": str(slow.path / "metadata"),
        "num.network.threads": "1",
        "kafkalite.acks.fsync": "none",
        "queued.max.request.bytes": str(BUDGET_BYTES),
    }
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("t").error_code == 0
        yield broker


def new_topic(name: str) -> Any:
    kind = messages.CreateTopicsRequest
    topic = kind.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return kind(topics=[topic], timeout_ms=60_000)


def wait_until_stuck(broker: kafkalite.Broker) -> None:
    """Until threads of the broker have waited for a disk for a while."""
    began = waits_since = time.monotonic()
    while time.monotonic() - waits_since < AWAY_S:
        told = told_of_threads(broker.pid, "stat")
        if "D" not in [each.rpartition(")")[2].split()[0] for each in told]:
            waits_since = time.monotonic()
        assert time.monotonic() - began < PROMPT_S
        time.sleep(0.01)  # between polls of the system


def test_requests_that_wait_for_the_metadata_take_half_of_the_memory_and_no_more(
    scarce: kafkalite.Broker, slow: Mount
) -> None:
    """All were taken, as many as came, and none was left for those that do not wait."""
    asked = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    # A tagged field of a later version.
    body = asked.encode(4)[:-1] + b"\x01\x64" + uvarint(len(PADDING)) + PADDING
    init = KEYS["InitProducerId"]
    clients = [Connection(scarce.bootstrap_servers) for _ in range(MANY)]
    with (
        Connection(scarce.bootstrap_servers) as maker,
        Connection(scarce.bootstrap_servers) as fetcher,
        Connection(scarce.bootstrap_servers) as other,
    ):
        other.socket.settimeout(PROMPT_S)
        slow.freeze()
        try:
            made = maker.send(KEYS["CreateTopics"], 7, new_topic("late").encode(7))
            wait_until_stuck(scarce)
            sent = []
            for client in clients:
                sent.append(client.send(init, 4, body))
                # So that the broker has it before the next one.
                assert other.ask("Metadata", 9, ASK).brokers
            # When memory is short, it is answered with what there is.
            fetch = fetcher.send(KEYS["Fetch"], 12, fetch_of_many(fetcher, count=FEW).encode(12))
            assert not select.select([fetcher.socket], [], [], 3)[0]
            assert other.produce("t", batch([bytes(LARGE_BYTES)])).error_code == 0
            fetcher.receive(KEYS["Fetch"], 12, fetch)
        finally:
            slow.thaw()
        assert maker.receive(KEYS["CreateTopics"], 7, made).topics[0].error_code == 0
        found = set()
        for client, number in zip(clients, sent, strict=True):
            answer = client.receive(init, 4, number)
            assert answer.error_code == 0
            found.add(answer.producer_id)
            client.socket.close()
        assert len(found) == MANY
