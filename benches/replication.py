"""Measures what following a leader costs, beside Apache Kafka: CPU a GB and MB a second.

    python benches/replication.py                     # three rounds of 512 MiB
    python benches/replication.py --rounds 5 --mib 1024
    python benches/replication.py --idle 1000         # and what idle partitions take

A broker of Kafka's leads, under a controller of Kafka's. Three brokers follow: Kafka's,
kafkalite's, and one of kafkalite's that does not wait for its disk (`kafkalite.acks.fsync=none`),
which is what Kafka's does. Of each round a side gets a topic of its own. `cold`: the follower
stands still (SIGSTOP) while the leader is written to, and then gets all of it; whoever is not
measured stands still meanwhile. `live`: it follows while records come at the rate of one
producer. What a follower takes is the user and system time of its process, and the time until its
segments are as long as the leader's. The first round is not counted: it warms up the JVMs.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from processes import cpu_s

from oracle.tools import KafkaTools
from replication.nodes import Node, new_controller, new_kafka, wait_until

LEADER = 1
VALUE_BYTES = 1024
BATCH_BYTES = 256 * 1024
SERVER = ("-Xms512m", "-Xmx512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
POLL_S = 0.005
SETTLE_S = 3.0
IDLE_S = 20.0


class Side(NamedTuple):
    """A broker that follows."""

    name: str
    id: int
    pid: int
    data: Path

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log_bytes(self, topic: str) -> int:
        return sum(each.stat().st_size for each in self.data.glob(f"{topic}-*/*.log"))


class Figures(NamedTuple):
    """The figures of one run of one side."""

    cpu_s_per_gb: float
    mb_per_s: float


class Bench:
    """A leader, and those that follow it."""

    def __init__(self, servers: str, leader: Side, sides: list[Side], mib: int) -> None:
        self.servers, self.leader, self.sides = servers, leader, sides
        self.count = mib * 1024 * 1024 // VALUE_BYTES
        self.admin = AdminClient({"bootstrap.servers": servers})

    def make(self, topic: str, side: Side, partitions: int = 1) -> None:
        assignment = [[LEADER, side.id]] * partitions
        made = NewTopic(topic, num_partitions=partitions, replica_assignment=assignment)
        for future in self.admin.create_topics([made]).values():
            future.result(120)
        wait_until(
            lambda: (
                len(list(side.data.glob(f"{topic}-*/leader-epoch-checkpoint"))) >= partitions
                or len(list(side.data.glob(f"{topic}-*"))) >= partitions
            ),
            120,
        )

    def delete(self, topic: str) -> None:
        for future in self.admin.delete_topics([topic]).values():
            future.result(120)

    def write(self, topic: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "acks": 1,
                "linger.ms": 50,
                "batch.size": BATCH_BYTES,
                "queue.buffering.max.messages": 1_000_000,
                "message.timeout.ms": 300_000,
            }
        )
        value = os.urandom(VALUE_BYTES)
        for number in range(self.count):
            while True:
                try:
                    producer.produce(topic, value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(300) == 0

    def until_equal(self, topic: str, side: Side) -> int:
        """Returns how many bytes the follower has then."""
        due = time.monotonic() + 600
        while side.log_bytes(topic) < self.leader.log_bytes(topic):
            assert time.monotonic() < due, "the follower does not come after"
            time.sleep(POLL_S)  # between two looks
        return side.log_bytes(topic)

    def cold(self, topic: str, side: Side) -> Figures:
        side.pause()
        self.write(topic)
        before, began = cpu_s(side.pid), time.monotonic()
        side.resume()
        wait_until(lambda: side.log_bytes(topic) > 0, 120)
        first = time.monotonic()
        size = self.until_equal(topic, side)
        return figures(size, cpu_s(side.pid) - before, time.monotonic() - max(first, began))

    def live(self, topic: str, side: Side) -> Figures:
        before, began = cpu_s(side.pid), time.monotonic()
        self.write(topic)
        size = self.until_equal(topic, side)
        return figures(size, cpu_s(side.pid) - before, time.monotonic() - began)

    @contextmanager
    def alone(self, side: Side) -> Iterator[None]:
        """The other followers stand still."""
        others = [each for each in self.sides if each is not side]
        for each in others:
            each.pause()
        try:
            yield
        finally:
            for each in others:
                each.resume()

    def run(self, shape: str, number: int) -> dict[str, Figures]:
        measure: Callable[[str, Side], Figures] = getattr(self, shape)
        found = {}
        turn = number % len(self.sides)
        for side in [*self.sides[turn:], *self.sides[:turn]]:
            topic = f"{shape}-{number}-{side.id}"
            self.make(topic, side)
            time.sleep(SETTLE_S)  # its fetcher waits for records by now
            with self.alone(side):
                found[side.name] = measure(topic, side)
            self.delete(topic)
            time.sleep(SETTLE_S)  # those that stood still are unfenced again
        return found

    def idle(self, partitions: int) -> dict[str, float]:
        """Processors that so many idle partitions take, beyond none."""
        found = {}
        for side in self.sides:
            with self.alone(side):
                before = busy(side)
            self.make(f"idle-{side.id}", side, partitions)
            time.sleep(SETTLE_S * 5)  # all of them are followed
            with self.alone(side):
                found[side.name] = busy(side) - before
        return found


def busy(side: Side) -> float:
    before = cpu_s(side.pid)
    time.sleep(IDLE_S)  # what is measured
    return (cpu_s(side.pid) - before) / IDLE_S


def figures(size: int, cpu: float, seconds: float) -> Figures:
    return Figures(cpu / (size / 1e9), size / 1e6 / max(seconds, 1e-9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--only", choices=["cold", "live"])
    options = parser.parse_args()
    with KafkaTools() as tools, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replication-")))
        controller = stack.enter_context(new_controller(tools, folder / "controller"))
        kafkas = [
            stack.enter_context(new_kafka(tools, folder / str(each), controller, each, jvm=SERVER))
            for each in (LEADER, 2)
        ]
        nodes = [
            stack.enter_context(Node(3, folder / "3", controller)),
            stack.enter_context(
                Node(4, folder / "4", controller, **{"kafkalite.acks.fsync": "none"})
            ),
        ]
        leader, kafka = [
            Side("kafka", at, each.pid, each.log_dirs[0]) for at, each in enumerate(kafkas, 1)
        ]
        names = ("kafkalite", "kafkalite, fsync=none")
        ours = [
            Side(name, node.id, node.pid, node.data)
            for name, node in zip(names, nodes, strict=True)
        ]
        bench = Bench(kafkas[0].bootstrap_servers, leader, [kafka, *ours], options.mib)
        shapes = [options.only] if options.only else ["cold", "live"]
        print(f"{options.mib} MiB of records of {VALUE_BYTES} bytes; median of {options.rounds}")
        for shape in shapes:
            rounds = [bench.run(shape, number) for number in range(options.rounds + 1)][1:]
            for side in bench.sides:
                cpu = statistics.median(each[side.name].cpu_s_per_gb for each in rounds)
                rate = statistics.median(each[side.name].mb_per_s for each in rounds)
                print(f"{shape:5} {side.name:24} {cpu:7.3f} CPU s/GB {rate:8.1f} MB/s")
        if options.idle:
            for name, share in bench.idle(options.idle).items():
                print(f"idle  {name:24} {100 * share:6.2f} % of a core, {options.idle} partitions")


if __name__ == "__main__":
    main()
