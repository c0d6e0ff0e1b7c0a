"""Programs as they are, for an hour: one that sends seldom, a server whose workers are forked, one
with threads, and a reader of a group, while the broker is killed and started again. Nothing is
lost, nothing is there twice, all of it is read, and memory stays what it is.

    CLIENT_SOAK_SECONDS=3600 pytest -m long tests/client/test_client_soak.py
"""

import gc
import multiprocessing
import os
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

import kafkalite
from client.test_producer_process import values_of
from kafkalite.client import Admin, Consumer, GroupOptions, Producer
from kafkalite.errors import KafkaliteError

SECONDS = float(os.environ.get("CLIENT_SOAK_SECONDS", "120"))
SEED = int(os.environ.get("CLIENT_SOAK_SEED", "1"))
GROWTH_BYTES_MAX = 32 << 20
KILL_PERIOD_S = 15.0
SESSION_MS = 6_000
"""A member whose LeaveGroup the dead broker did not get holds up its group for so long, counted
from each start of the broker: kills that follow each other faster would keep it there for ever."""
START_S = 300.0
READ_S = 300.0
"""The time that a reader may be behind when the load is over."""
TOPICS = ("seldom", "threads", "prefork")


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def bytes_of(values: Collection[bytes]) -> int:
    """Memory of a set of values, or of a dictionary with them, as CPython gives it out."""
    return sys.getsizeof(values) + sum((sys.getsizeof(each) + 15) // 16 * 16 for each in [*values])


class Load:
    """What the programs have sent, and whether their callers were told that it is there."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.is_over = threading.Event()
        self.is_sent = threading.Event()
        self.read_until = float("inf")
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.failures: list[BaseException] = []

    def send(self, producer: Producer, topic: str, value: bytes) -> None:
        def tell(error: KafkaliteError | None, *_where: object) -> None:
            (self.refused if error else self.acknowledged).add(value)

        producer.send(topic, value, on_delivery=tell)

    def seldom(self) -> None:
        with Producer(self.servers, wait_for_servers_ms=60_000) as producer:
            number = 0
            while not self.is_over.wait(1.5):
                self.send(producer, "seldom", b"seldom-%d" % number)
                number += 1

    def threads(self) -> None:
        with Producer(self.servers, linger_ms=2, wait_for_servers_ms=60_000) as producer:

            def work(name: int) -> None:
                number = 0
                while not self.is_over.wait(0.01):
                    for _ in range(20):
                        self.send(producer, "threads", b"thread%d-%d" % (name, number))
                        number += 1

            workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    def prefork(self, round_number: int) -> None:
        """A server that is forked after it has sent; each worker answers some requests."""
        with Producer(self.servers, wait_for_servers_ms=60_000) as producer:
            self.send(producer, "prefork", b"master-%d" % round_number)
            producer.flush()

            def work(name: int) -> None:
                for number in range(50):
                    producer.send("prefork", b"worker-%d-%d-%d" % (round_number, name, number))
                producer.flush()

            fork = multiprocessing.get_context("fork")
            workers = [fork.Process(target=work, args=(name,)) for name in range(3)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(180)
                assert worker.exitcode == 0
        for name in range(3):
            values = {b"worker-%d-%d-%d" % (round_number, name, number) for number in range(50)}
            self.acknowledged |= values

    def is_read(self, came: Counter[bytes]) -> bool:
        """Whether all has come that threads have sent, and were told of that it is there."""
        of_threads = (value for value in self.acknowledged if value.startswith(b"thread"))
        return self.is_sent.is_set() and all(value in came for value in of_threads)

    def guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failures.append(error)


def read_all(servers: str, load: Load, came: Counter[bytes]) -> None:
    """A member of a group that is closed and made anew now and then, until it has read all."""
    while time.monotonic() < load.read_until and not load.is_read(came):
        group = GroupOptions("soak", session_timeout_ms=SESSION_MS)
        with Consumer(
            servers, group=group, auto_commit_interval_ms=200, wait_for_servers_ms=60_000
        ) as consumer:
            consumer.subscribe(["threads"])
            until = time.monotonic() + 10
            while time.monotonic() < until and not load.is_sent.is_set():
                came.update(filter(None, (record.value for record in consumer.poll(200))))
            while load.is_sent.is_set() and (records := consumer.poll(10_000)):
                came.update(filter(None, (record.value for record in records)))


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 900)
def test_nothing_is_lost_and_nothing_doubled_while_the_broker_is_killed() -> None:
    drawn = random.Random(SEED)
    with kafkalite.Broker(
        config={"log.retention.ms": "-1"}, log_level="error", start_timeout_s=START_S
    ) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, partitions=2)
        load = Load(broker.bootstrap_servers)
        came: Counter[bytes] = Counter()
        works = [load.seldom, load.threads, lambda: read_all(load.servers, load, came)]
        workers = [threading.Thread(target=load.guarded, args=(work,)) for work in works]
        *senders, reader = workers
        for worker in workers:
            worker.start()
        until, round_number, resident = time.monotonic() + SECONDS, 0, 0
        kill_at = time.monotonic() + drawn.uniform(0.0, KILL_PERIOD_S)
        while time.monotonic() < until:
            load.guarded(lambda number=round_number: load.prefork(number))
            round_number += 1
            if time.monotonic() >= kill_at:
                broker.kill()
                threading.Event().wait(drawn.uniform(0.0, 2.0))
                broker.start()
                # From here, however long the start has taken: the clients come back in between.
                kill_at = time.monotonic() + drawn.uniform(1.0, 2.0) * KILL_PERIOD_S
            gc.collect()
            if round_number == 3:
                resident = resident_bytes() - bytes_of(load.acknowledged) - bytes_of(came)
        load.is_over.set()
        for sender in senders:
            sender.join(180)
        load.read_until = time.monotonic() + READ_S
        load.is_sent.set()
        reader.join(180 + READ_S)
        grown = resident_bytes() - bytes_of(load.acknowledged) - bytes_of(came) - resident
        found = Counter(
            value
            for topic in ("seldom", "threads", "prefork")
            for value in values_of(broker, topic)
        )
    assert load.failures == []
    assert load.refused == set()
    assert load.acknowledged <= found.keys()
    assert set(found.values()) == {1}
    print(f"{len(found)} records, {round_number} rounds, {grown >> 20} MiB grown")
    assert load.is_read(came)
    assert grown < GROWTH_BYTES_MAX
