"""The first real run: librdkafka produces, a group of three reads meanwhile, the broker is killed.

Every record is known by its hash: what was acknowledged is read where it was acknowledged, and
nothing else is there.
"""

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

import kafkalite

TOPIC = "real"
PARTITIONS = 6
RECORD_BYTES = 1_000
CONFIG = {
    "num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}

# A member of the group, in a process of its own: it says how many partitions it is given, as
# `assigned 2`, and every 100 ms what has come, as lines of `partition offset hash`; it ends at the
# end of its input.
MEMBER = """
import hashlib, select, sys
from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": "real", "auto.offset.reset": "earliest",
    "enable.auto.commit": True, "auto.commit.interval.ms": 500, "heartbeat.interval.ms": 500,
    "session.timeout.ms": 6000, "check.crcs": True, "reconnect.backoff.max.ms": 500,
    "fetch.wait.max.ms": 100, "log_level": 0,
})
def assigned(consumer, partitions):
    sys.stdout.write(f"assigned {len(partitions)}\\n")
    sys.stdout.flush()

consumer.subscribe(["real"], on_assign=assigned)
while not select.select([sys.stdin], [], [], 0)[0]:
    lines = []
    for message in consumer.consume(5_000, 0.1):
        if message.error() is None:
            digest = hashlib.blake2b(message.value(), digest_size=16).hexdigest()
            lines.append(f"{message.partition()} {message.offset()} {digest}\\n")
    sys.stdout.write("".join(lines))
    sys.stdout.flush()
consumer.close()
"""


def value(number: int) -> bytes:
    """1 KB that compresses about as real data does, different for each number."""
    seed = hashlib.sha256(b"%d" % number).hexdigest().encode()
    return (b"%09d " % number + seed * 4 + b"the rest is the same in every record; " * 20)[
        :RECORD_BYTES
    ]


def digest(record: bytes) -> str:
    return hashlib.blake2b(record, digest_size=16).hexdigest()


class Members:
    """Three processes that share the group, and what they have read."""

    def __init__(self, servers: str) -> None:
        self.found: dict[tuple[int, int], str] = {}
        self.counts = [0, 0, 0]
        self.shares = [0, 0, 0]
        self._lock = threading.Condition()
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", MEMBER, servers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        self._threads = [
            threading.Thread(target=self._read, args=(at,), daemon=True) for at in range(3)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, at: int) -> None:
        output = self._processes[at].stdout
        assert output is not None
        for line in output:
            if line.startswith("assigned"):
                with self._lock:
                    self.shares[at] = int(line.split()[1])
                    self._lock.notify_all()
                continue
            partition, offset, told = line.split()
            with self._lock:
                self.counts[at] += 1
                # Read again after a rebalance or a lost commit, a record is the same.
                earlier = self.found.setdefault((int(partition), int(offset)), told)
                assert earlier == told
                self._lock.notify_all()

    def wait_until_shared(self, timeout_s: float) -> None:
        """Each member has its share: else two may have read everything before the third joins."""
        with self._lock:
            share = PARTITIONS // len(self.shares)
            assert self._lock.wait_for(
                lambda: all(each == share for each in self.shares), timeout_s
            ), f"the members have {self.shares} partitions after {timeout_s} s"

    def wait_for(self, count: int, timeout_s: float) -> None:
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.found) >= count, timeout_s), (
                f"{len(self.found)} of {count} records were read in {timeout_s} s"
            )

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process, thread in zip(self._processes, self._threads, strict=True):
            thread.join(60)
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kafkalite.Broker]:
    with kafkalite.Broker(tmp_path / "data", config=CONFIG) as broker:
        yield broker


def run(broker: kafkalite.Broker, records: int) -> dict[str, float]:
    """The whole run; returns what it measured."""
    delivered: dict[tuple[int, int], int] = {}
    failed: list[KafkaError] = []
    half = threading.Event()

    def report(number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            delivered[message.partition(), message.offset()] = number
        if len(delivered) == records // 2:
            half.set()

    def restart() -> None:
        half.wait()
        broker.kill()
        broker.start()

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": 50_000,
            "reconnect.backoff.max.ms": 500,
            "message.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    pool = ThreadPoolExecutor(1)
    restarted = pool.submit(restart)
    producer.list_topics(TOPIC, timeout=30)  # which makes it
    members = Members(broker.bootstrap_servers)
    try:
        members.wait_until_shared(60)
        started = time.monotonic()
        for number in range(records):
            if restarted.done():
                restarted.result()  # raises what kept the broker from coming back
            while True:
                try:
                    producer.produce(
                        TOPIC,
                        value(number),
                        partition=number % PARTITIONS,
                        on_delivery=lambda error, message, n=number: report(n, error, message),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(150) == 0
        produced_s = time.monotonic() - started
        restarted.result()
        assert failed == []
        assert len(delivered) == records
        members.wait_for(records, 120)
        read_s = time.monotonic() - started
    finally:
        half.set()
        pool.shutdown()
        members.close()
    assert all(members.counts), f"a member read nothing: {members.counts}"
    expected = {where: digest(value(number)) for where, number in delivered.items()}
    assert members.found == expected
    return {"produced_s": produced_s, "read_s": read_s}


def test_50_000_records_survive_a_kill_while_a_group_reads(broker: kafkalite.Broker) -> None:
    run(broker, 50_000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_million_records_survive_a_kill_while_a_group_reads(broker: kafkalite.Broker) -> None:
    told = run(broker, 1_000_000)
    sys.stdout.write(json.dumps(told) + "\n")
