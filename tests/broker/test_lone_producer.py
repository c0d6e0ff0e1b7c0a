"""Who makes records durable: the network thread where one producer is alone, else the flusher. Told
apart by whether the flusher's threads wake."""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from api.batches import batch, values_of
from api.raw import Connection
from tasks import told_of_threads

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
DEADLINE_S = 120


@pytest.fixture
def durable() -> Iterator[kafkalite.Broker]:
    """A broker whose flushes are fast, whatever else the disk has to do."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        pytest.skip("no /dev/shm to write in here")
    config = {"kafkalite.acks.fsync": "group", "num.network.threads": "1"}
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as name,
        kafkalite.Broker(Path(name) / "data", config=config) as broker,
    ):
        yield broker


def flusher_wakes(broker: kafkalite.Broker) -> int:
    """How often the flusher's threads have gone to sleep so far, all together."""
    wakes = 0
    for told in told_of_threads(broker.pid, "status"):
        if told.startswith("Name:\tflush-data"):
            found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", told, re.M)
            assert found is not None
            wakes += int(found[1])
    return wakes


def test_the_flusher_sleeps_while_one_producer_is_alone(durable: kafkalite.Broker) -> None:
    with Connection(durable.bootstrap_servers) as connection:
        assert connection.create_topic("t").error_code == 0
        end = 0

        def produce(producer: Connection, count: int) -> None:
            nonlocal end
            for _ in range(count):
                assert producer.produce("t", batch([b"%d" % end])).base_offset == end
                end += 1

        deadline = time.monotonic() + DEADLINE_S
        while True:
            before = flusher_wakes(durable)
            produce(connection, 20)
            if flusher_wakes(durable) == before:
                break
            assert time.monotonic() < deadline, "the flusher is woken again and again"
        # Acknowledged is on disk, and so it is shown.
        records = b""
        while len(found := values_of(records)) < end:
            records += connection.fetch("t", len(found)).records
        assert found == [(offset, b"%d" % offset) for offset in range(end)]
        with Connection(durable.bootstrap_servers) as other:
            before = flusher_wakes(durable)
            for _ in range(20):
                produce(connection, 1)
                produce(other, 1)
            assert flusher_wakes(durable) > before
