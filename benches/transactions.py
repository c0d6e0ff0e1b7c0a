"""Transactions beside Apache Kafka, in turns in one run: rate, latency, CPU of the broker.

    python benches/transactions.py                    # all of it, three rounds
    python benches/transactions.py --only serial --rounds 5 --seconds 8
    python benches/transactions.py --only load --ids 100000

`serial`: one producer, transactions of one record one after the other. `many`: 50 producers, the
same. `paced`: 100 transactions a second of 9 records of 1 KB in three partitions; how long EndTxn
takes, and until a `read_committed` reader has the last record. Each producer has an epoch for each
transaction (KIP-890): a transaction is a Produce of version 12 and an EndTxn of version 5, prepared
bytes sent by this process, which on two cores takes one of them. Who meets CONCURRENT_TRANSACTIONS
asks again at once. While one broker is measured the others stand still (SIGSTOP).

`load`: so many transactional ids, a clean stop, and the time until all are answered for again.
"""

import argparse
import os
import selectors
import signal
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent / "vs_kafka"))

from group_coordinator import frame
from processes import cpu_s
from sides import Kafka, Kafkalite, Side

import kafkalite
from api.raw import Connection
from api.transactions import Transactor
from kafkalite import _native
from kafkalite.protocol import messages
from oracle.tools import KafkaTools

TOPIC, PARTITIONS = "bench", 50
PRODUCE, END_TXN, INIT = 0, 26, 22
AGAIN = (51, 14, 15, 16, 19)
CODE_OF_END_AT = 13  # size, correlation id, tags, throttle time
RATE, RECORDS, WIDE = 100, 9, 3


class Producer:
    """One transactional id on a connection of its own."""

    def __init__(self, servers: str, name: str, partitions: Sequence[int], records: int) -> None:
        self.connection = Connection(servers)
        self.socket = self.connection.socket
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        known = Transactor(self.connection, name)
        assert known.init() == 0
        self.name, self.producer_id, self.epoch = name, known.producer_id, known.epoch
        self.partitions, self.records, self.value = partitions, records, b"x"

    def produce(self) -> bytes:
        """The frame of a Produce request with the next transaction's records."""
        kind = messages.ProduceRequest
        data = []
        for index in self.partitions:
            builder = _native.BatchBuilder(
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=0,
                transactional=True,
            )
            for _ in range(self.records):
                builder.append(int(time.time() * 1000), None, self.value)
            records = builder.finish()
            data.append(kind.TopicProduceData.PartitionProduceData(index=index, records=records))
        topic = kind.TopicProduceData(name=TOPIC, partition_data=data)
        request = kind(transactional_id=self.name, acks=-1, timeout_ms=30_000, topic_data=[topic])
        return frame(PRODUCE, 12, True, request.encode(12))

    def end(self) -> bytes:
        """The frame of the EndTxn that commits it."""
        request = messages.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=True,
        )
        return frame(END_TXN, 5, True, request.encode(5))

    def receive(self) -> bytes:
        """The next answer, with its size."""
        content = self.connection.receive_frame()
        assert content is not None
        return struct.pack(">i", len(content)) + content

    def is_produced(self, answer: bytes) -> bool:
        """False if the producer is to ask again."""
        response = messages.ProduceResponse.decode(answer[9:], 12)
        found = {row.error_code for row in response.responses[0].partition_responses}
        assert found <= {0, *AGAIN}, found
        return found == {0}

    def is_ended(self, answer: bytes) -> bool:
        """As `is_produced`; takes the epoch of the next transaction."""
        code: int
        code, producer_id, epoch = struct.unpack_from(">hqh", answer, CODE_OF_END_AT)
        assert code in (0, *AGAIN), code
        if code == 0:
            self.producer_id, self.epoch = producer_id, epoch
        return code == 0

    def transact(self) -> float:
        """One transaction; returns how long its EndTxn took."""
        self.socket.sendall(self.produce())
        return self.finish(is_ending=False)

    def finish(self, is_ending: bool) -> float:
        """Goes on to the end of the transaction, with one request under way."""
        if not is_ending:
            while not self.is_produced(self.receive()):
                self.socket.sendall(self.produce())
            self.socket.sendall(self.end())
        asked = time.perf_counter()
        while not self.is_ended(self.receive()):
            self.socket.sendall(self.end())
        return time.perf_counter() - asked


class Measured:
    """The figures of a run."""

    def __init__(self, side: Side, seconds: float, count: int, **latencies: list[float]) -> None:
        self.side, self.rate, self.latencies = side.name, count / seconds, latencies
        self.cpu_us = 0.0
        self.count = count

    def __str__(self) -> str:
        told = [f"{self.side:20} {self.rate:9,.0f}/s {self.cpu_us:8.1f} us of CPU each"]
        for name, values in self.latencies.items():
            values = sorted(values)
            p50, p99 = values[len(values) // 2], values[len(values) * 99 // 100]
            told.append(f"{name} p50 {p50 * 1e3:.2f} p99 {p99 * 1e3:.2f} ms")
        return ", ".join(told)


def serial(side: Side, run: str, seconds: float) -> Measured:
    producer = Producer(side.bootstrap_servers, f"{run}-0", [0], 1)
    ends: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() < begin + seconds:
        ends.append(producer.transact())
    took = time.perf_counter() - begin
    producer.socket.close()
    return Measured(side, took, len(ends), EndTxn=ends)


def many(side: Side, run: str, seconds: float) -> Measured:
    selector = selectors.DefaultSelector()
    for number in range(50):
        producer = Producer(side.bootstrap_servers, f"{run}-{number}", [number], 1)
        selector.register(producer.socket, selectors.EVENT_READ, [producer, False, 0.0])
    states = [key.data for key in selector.get_map().values()]
    begin = time.perf_counter()
    for state in states:
        state[0].socket.sendall(state[0].produce())
    ends: list[float] = []
    while time.perf_counter() < begin + seconds:
        for key, _ in selector.select(0.1):
            _advance(key.data, ends)
    took = time.perf_counter() - begin
    for producer, is_ending, _ in states:
        producer.finish(is_ending)
        producer.socket.close()
    return Measured(side, took, len(ends), EndTxn=ends)


def _advance(state: list[Any], ends: list[float]) -> None:
    producer, is_ending, asked = state
    answer = producer.receive()
    now = time.perf_counter()
    if not is_ending:
        is_done = producer.is_produced(answer)
    elif is_done := producer.is_ended(answer):
        ends.append(now - asked)
    if is_done:
        state[1:] = [not is_ending, now]
    producer.socket.sendall(producer.end() if state[1] else producer.produce())


def paced(side: Side, run: str, seconds: float) -> Measured:
    producer = Producer(side.bootstrap_servers, f"{run}-0", range(WIDE), RECORDS // WIDE)
    seen: list[float] = []
    is_over = threading.Event()
    reader = threading.Thread(target=read_committed, args=(side.bootstrap_servers, seen, is_over))
    reader.start()
    ends: list[float] = []
    begin = time.perf_counter()
    while (now := time.perf_counter()) < begin + seconds:
        due = begin + len(ends) / RATE
        time.sleep(max(0.0, due - now))
        producer.value = struct.pack(">d", time.perf_counter()) + b"x" * 1_000
        ends.append(producer.transact())
    took = time.perf_counter() - begin
    is_over.set()
    reader.join()
    producer.socket.close()
    return Measured(side, took, len(ends), EndTxn=ends, visible=seen)


def read_committed(servers: str, seen: list[float], is_over: threading.Event) -> None:
    """Notes how old each transaction is when it is read."""
    with Connection(servers) as connection:
        offset = int(connection.list_offsets(TOPIC, -1, version=7).offset)
        while not is_over.is_set():
            answer = connection.fetch(TOPIC, offset, isolation=1, max_wait_ms=300)
            assert answer.error_code == 0, answer.error_code
            now = time.perf_counter()
            for batch in _native.read_batches(answer.records or b""):
                if batch.base_offset >= offset and not batch.is_control:
                    seen.append(now - struct.unpack_from(">d", batch.records[-1][3] or b"")[0])
                offset = max(offset, batch.last_offset + 1)


SHAPES = {"serial": serial, "many": many, "paced": paced}


@contextmanager
def alone(side: Side, sides: Sequence[Side]) -> Iterator[None]:
    """The others stand still."""
    others = [each.pid for each in sides if each is not side]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def compare(folder: Path, only: Sequence[str], rounds: int, seconds: float) -> None:
    """The shapes, a round after the other, and the medians of the rounds."""
    with KafkaTools() as tools:
        sides: list[Side] = [Kafkalite(folder, "none"), Kafkalite(folder, "group")]
        sides.append(Kafka(folder, tools))
        try:
            for side in sides:
                with Connection(side.bootstrap_servers) as connection:
                    connection.create_topic(TOPIC, PARTITIONS)
            time.sleep(2)  # until Kafka leads its partitions
            for name in only:
                found: dict[str, list[Measured]] = {side.name: [] for side in sides}
                for number in range(-1, rounds):  # the first warms up
                    for side in sides:
                        with alone(side, sides):
                            before = cpu_s(side.pid)
                            run = f"{name}-{number + 1}"
                            measured = SHAPES[name](side, run, seconds)
                            measured.cpu_us = (cpu_s(side.pid) - before) / measured.count * 1e6
                        print(f"{name} {number}: {measured}", flush=True)
                        if number >= 0:
                            found[side.name].append(measured)
                tell_ratios(name, found)
        finally:
            for side in sides:
                side.stop()


def tell_ratios(name: str, found: dict[str, list[Measured]]) -> None:
    """Medians of the rounds, and how they stand to Kafka's."""
    theirs = found["Kafka"]
    for side, runs in found.items():
        rate = statistics.median(each.rate for each in runs)
        ratio = statistics.median(
            mine.rate / its.rate for mine, its in zip(runs, theirs, strict=True)
        )
        cpu_us = statistics.median(each.cpu_us for each in runs)
        print(f"{name}, {side}: {rate:,.0f}/s, {ratio:.2f} x Kafka's, {cpu_us:.0f} us of CPU")


def load(folder: Path, ids: int) -> None:
    """How long a start takes with so many transactional ids, and with none."""
    for count in (0, ids):
        broker = kafkalite.Broker(folder / f"load-{count}", config={"kafkalite.acks.fsync": "none"})
        with broker:
            with Connection(broker.bootstrap_servers) as connection:
                Transactor(connection, "first")
                for first in range(0, count, 1_000):
                    fill(connection, range(first, min(first + 1_000, count)))
            broker.stop()
            began = time.perf_counter()
            broker.start()
            ready_s = time.perf_counter() - began
            with Connection(broker.bootstrap_servers) as connection:
                for number in range(200):  # ids of all partitions
                    Transactor(connection, f"id-{number}").init()
            loaded_s = time.perf_counter() - began
            print(
                f"load of {count:,} ids: ready after {ready_s:.2f} s, 200 ids of all partitions "
                f"have their producers after {loaded_s:.2f} s, CPU {cpu_s(broker.pid):.2f} s"
            )


def fill(connection: Connection, numbers: range) -> None:
    """InitProducerId for each, all sent before the first answer is read."""
    for number in numbers:
        request = messages.InitProducerIdRequest(
            transactional_id=f"id-{number}", transaction_timeout_ms=60_000
        )
        connection.socket.sendall(frame(INIT, 4, True, request.encode(4)))
    for _ in numbers:
        answer = connection.receive_frame()
        assert answer is not None
        assert answer[9:11] == b"\0\0", answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="serial,many,paced,load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--ids", type=int, default=100_000)
    given = parser.parse_args()
    only = given.only.split(",")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        shapes = [name for name in only if name in SHAPES]
        if shapes:
            compare(Path(folder), shapes, given.rounds, given.seconds)
        if "load" in only:
            load(Path(folder), given.ids)


if __name__ == "__main__":
    main()
