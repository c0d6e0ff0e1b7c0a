"""SIGKILL and restart of the broker while a client writes and a group of its reads."""

import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from clients.conftest import Cluster
from clients.neutral import Client, ConsumerOptions, ProducerOptions, Record
from clients.table import behaviour

CALLS = 20
KILL_AFTER_CALLS = 6
RECORDS_A_CALL = 25


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What a client has left is found here, not in a later test."""
    yield
    gc.collect()


@behaviour("restart")
def test_a_stream_goes_on_over_a_kill_and_a_restart(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic(3)
    enough = threading.Event()

    def write() -> None:
        made = ProducerOptions(codec="gzip", idempotent=True)
        try:
            with contextlib.closing(client.producer(cluster.servers, made)) as producer:
                for call in range(CALLS):
                    numbers = range(call * RECORDS_A_CALL, (call + 1) * RECORDS_A_CALL)
                    producer.send([Record(topic, f"{n}".encode(), b"%d" % n) for n in numbers])
                    if call == KILL_AFTER_CALLS:
                        enough.set()
        finally:
            enough.set()

    def restart() -> None:
        enough.wait()
        cluster.broker.kill()
        cluster.broker.start()

    # Where each number lies: an idempotent producer leaves it once, though a group whose last
    # commit the kill has cost may read it twice.
    places: dict[int, set[tuple[int | None, int]]] = {}
    wanted = CALLS * RECORDS_A_CALL
    options = ConsumerOptions(topics=(topic,), group=f"g-{topic}", auto_commit=True)
    with (
        ThreadPoolExecutor(2) as pool,
        contextlib.closing(client.consumer(cluster.servers, options)) as consumer,
    ):
        beside = [pool.submit(write), pool.submit(restart)]
        deadline = time.monotonic() + 200
        while len(places) < wanted and time.monotonic() < deadline:
            for record in consumer.poll(0.2):
                number = int(record.value or b"")
                places.setdefault(number, set()).add((record.partition, record.offset))
            if any(each.done() and each.exception() for each in beside):
                break
        for each in beside:
            each.result(120)
    assert set(places) == set(range(wanted))
    assert all(len(each) == 1 for each in places.values())
