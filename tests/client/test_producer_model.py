"""A producer against everything that may happen to it, drawn by hypothesis: sends of several
threads, pauses, forks, kills of the broker, flushes and closes. Each record is acknowledged once
and in the log once, or its caller has been told that it may not be."""

import gc
import os
import threading
import time
import warnings
import weakref
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import kafkalite
from client.test_lifetime import in_a_fork
from client.test_producer_process import values_of
from kafkalite.client import Admin, Producer
from kafkalite.errors import KafkaliteError

TOPIC = "model"
PARTITIONS = 3


class ProducerMachine(RuleBasedStateMachine):
    """What each record's caller was told is kept by its value."""

    broker: kafkalite.Broker

    @initialize(
        linger_ms=st.sampled_from([0, 1, 20]), batch_bytes=st.sampled_from([1, 300, 16_384])
    )
    def begin(self, linger_ms: int, batch_bytes: int) -> None:
        if not self.broker.is_started:
            self.broker.start()
        with Admin(self.broker.bootstrap_servers) as admin:
            if TOPIC in [topic.name for topic in admin.list_topics()]:
                admin.delete_topics(TOPIC)
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        self.settings = {"linger_ms": linger_ms, "batch_bytes": batch_bytes}
        self.made = 0
        self.told: dict[bytes, list[bool]] = {}
        self.in_children: set[bytes] = set()
        self.lock = threading.Lock()
        self.open()

    def open(self) -> None:
        self.producer = Producer(self.broker.bootstrap_servers, **self.settings)

    def value(self) -> bytes:
        with self.lock:
            self.made += 1
            value = b"%d" % self.made
            self.told[value] = []
        return value

    def send_one(self, partition: int | None) -> None:
        value = self.value()

        def tell(error: KafkaliteError | None, *_where: Any) -> None:
            self.told[value].append(error is None)

        self.producer.send(TOPIC, value, partition=partition, on_delivery=tell)

    @rule(count=st.integers(1, 30), partition=st.none() | st.integers(0, PARTITIONS - 1))
    def send(self, count: int, partition: int | None) -> None:
        for _ in range(count):
            self.send_one(partition)

    @rule(threads=st.integers(2, 4), count=st.integers(1, 20))
    def send_by_threads(self, threads: int, count: int) -> None:
        workers = [threading.Thread(target=self.send, args=(count, None)) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)

    @rule(count=st.integers(1, 10), closes=st.booleans())
    def fork(self, count: int, closes: bool) -> None:
        values = [b"%d of a child" % (self.made * 100 + at) for at in range(count)]
        self.made += 1
        self.in_children.update(values)

        def work() -> None:
            for value in values:
                self.producer.send(TOPIC, value)
            if closes:
                self.producer.close()
            else:
                self.producer.flush()
            os._exit(0)

        in_a_fork(work)

    @rule(seconds=st.sampled_from([0.001, 0.006, 0.03]))
    def pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    @rule()
    def flush(self) -> None:
        self.producer.flush(60_000)
        assert self.producer.pending_count == 0
        with self.lock:
            assert all(self.told.values())

    @rule()
    def close_and_open(self) -> None:
        self.producer.close(60_000)
        assert all(self.told.values())
        self.open()

    @rule()
    def drop_and_open(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            reference = weakref.ref(self.producer)
            del self.producer
            deadline = time.monotonic() + 60
            while reference() is not None or not all(self.told.values()):
                gc.collect()
                assert time.monotonic() < deadline
                time.sleep(0.002)  # poll
        self.open()

    @rule(count=st.integers(0, 10))
    def kill_the_broker(self, count: int) -> None:
        self.broker.kill()
        for _ in range(count if self.producer.cluster.known_topic(TOPIC) else 0):
            self.send_one(None)
        self.broker.start()

    def teardown(self) -> None:
        if not hasattr(self, "producer"):
            return
        self.producer.close(60_000)
        assert all(len(told) == 1 for told in self.told.values())
        found = Counter(values_of(self.broker, TOPIC))
        acknowledged = {value for value, told in self.told.items() if told == [True]}
        assert acknowledged | self.in_children <= found.keys()
        assert set(found.values()) <= {1}
        assert found.keys() <= self.told.keys() | self.in_children


def run(broker: kafkalite.Broker, examples: int, steps: int) -> None:
    machine = type("Machine", (ProducerMachine,), {"broker": broker})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_each_record_is_acknowledged_once_and_in_the_log_once() -> None:
    config = {"kafkalite.acks.fsync": "none"}
    with kafkalite.Broker(config=config, log_level="error") as broker:
        run(broker, 12, 15)


@pytest.mark.long
def test_each_record_is_acknowledged_once_and_in_the_log_once_at_length() -> None:
    with kafkalite.Broker(log_level="error") as broker:
        run(broker, 300, 40)
