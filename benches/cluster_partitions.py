"""A cluster of ten thousand partitions beside Apache Kafka's: three brokers of a kind, RF=3, led in
equal parts, under a controller of Apache Kafka's.

    python benches/cluster_partitions.py              # 10,000 partitions, a round of each kind
    python benches/cluster_partitions.py --partitions 3000 --rounds 2 --kinds kafkalite,kafka

`catch-up`: a broker that was away follows one cold partition again; MB/s of its file's growth.
`made`: from the first CreateTopics to the moment when each partition has all replicas in sync.
`idle`: CPU (user and system) of a broker that leads a third and follows two, without clients, in
parts of a core. `memory`: its resident set. `death`: from the SIGKILL of a broker to the moment
when all it led is led by others that tell the ends of their logs; of this the controllers need a
session (`--session-ms`). `ready`: the killed one again, from its start to its word that it serves.
`in sync`: from then on until it is in sync in all partitions.

The kinds take turns, and each cluster is gone before the next one is made.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psutil
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from processes import cpu_s

from cluster.brokers import Cluster, Kind, new_cluster
from oracle.tools import KafkaTools

TOPIC_PARTITIONS_MAX = 1_000
KAFKA_JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
WAIT_S = 600.0
IDLE_S = 20.0
SETTLED_S = 5.0
"""Seconds in which a broker does what is left behind a change, before it counts as idle."""
POLL_S = 0.05
COLD_BYTES = 500_000_000
RECORD = os.urandom(10_000)


def wait_until(is_so: Callable[[], bool], what: str) -> float:
    """Seconds until it was so."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() < began + WAIT_S, f"never: {what}"
        time.sleep(POLL_S)  # between two polls
    return time.monotonic() - began


def catch_up(cluster: Cluster) -> float:
    """Has broker 3 miss so much of a partition, and come back; MB/s of what it fetches."""
    topic = "cold"
    with cluster.admin() as admin:
        admin.create_topic(topic, assignments=[[1, 2, 3]])
    cluster.wait_for_isr(topic)
    away = cluster.members[3]
    away.stop()
    sender = Producer(
        {
            "bootstrap.servers": cluster.servers,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "message.max.bytes": 2 << 20,
            "queue.buffering.max.kbytes": 32 << 10,
        }
    )
    for _ in range(COLD_BYTES // len(RECORD)):
        while True:
            try:
                sender.produce(topic, RECORD, partition=0)
                break
            except BufferError:
                sender.poll(0.01)
    assert sender.flush(WAIT_S) == 0
    folder = away.log_dirs[0] / f"{topic}-0"
    rate: list[float] = []

    def size() -> int:
        return sum(each.stat().st_size for each in folder.glob("*.log"))

    def watch() -> None:
        first, sizes = size(), [(time.monotonic(), 0)]
        while sizes[-1][1] < COLD_BYTES:
            now, grown = time.monotonic(), size() - first
            sizes = [(now, 0)] if grown == 0 else [*sizes, (now, grown)]
            time.sleep(0.002)  # between two looks
        (began, _), (ended, grown) = sizes[0], sizes[-1]
        rate.append(grown / 1e6 / (ended - began))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    away.start()
    cluster.wait_for_isr(topic)
    watching.join(WAIT_S)
    with cluster.admin() as admin:
        admin.delete_topics(topic)
    return rate[0]


class Many:
    """Topics of a cluster, which have so many partitions together."""

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        """Returns when all replicas are in sync."""
        self.cluster = cluster
        self.partitions: list[TopicPartition] = []
        began = time.monotonic()
        with cluster.admin() as admin:
            while (left := partitions - len(self.partitions)) > 0:
                count = min(TOPIC_PARTITIONS_MAX, left)
                name = f"many-{len(self.partitions)}"
                # In turns: each broker leads a third.
                replicas = [[1 + (each + at) % 3 for at in range(3)] for each in range(count)]
                admin.create_topic(name, assignments=replicas)
                self.partitions += [TopicPartition(name, each) for each in range(count)]
        wait_until(self.is_in_sync, "all replicas are in sync")
        self.made_s = time.monotonic() - began

    def _admin(self) -> AdminClient:
        up = [each.address for each in self.cluster.members.values() if each.is_running]
        return AdminClient({"bootstrap.servers": up[0], "log_level": 0})

    def leaders(self) -> dict[int, int]:
        """By the ids of brokers: how many partitions they lead, as one of those that run says."""
        found: dict[int, int] = {}
        try:
            topics = self._admin().list_topics(timeout=60).topics
        except KafkaException:
            return found
        for name in {each.topic for each in self.partitions} & set(topics):
            for each in topics[name].partitions.values():
                found[each.leader] = found.get(each.leader, 0) + 1
        return found

    def is_in_sync(self) -> bool:
        try:
            topics = self._admin().list_topics(timeout=60).topics
        except KafkaException:
            return False
        rows = [
            row
            for name in {each.topic for each in self.partitions} & set(topics)
            for row in topics[name].partitions.values()
        ]
        return len(rows) == len(self.partitions) and all(len(each.isrs) == 3 for each in rows)

    def tell_their_ends(self) -> bool:
        """All leaders answer."""
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = dict.fromkeys(self.partitions, latest)
        # A client that is not kept ends before its answers come.
        admin = self._admin()
        found = admin.list_offsets(wanted, request_timeout=60)
        try:
            return all(each.result().offset >= 0 for each in found.values())
        except KafkaException:
            return False


def idle(cluster: Cluster) -> tuple[float, float]:
    """Percent of a core, and MiB, of a broker: the mean of all."""
    members = list(cluster.members.values())
    time.sleep(SETTLED_S)
    before, began = [cpu_s(each.pid) for each in members], time.monotonic()
    time.sleep(IDLE_S)  # the time that is measured
    took_s = time.monotonic() - began
    used_s = sum(cpu_s(each.pid) for each in members) - sum(before)
    resident = sum(psutil.Process(each.pid).memory_info().rss for each in members)
    return 100 * used_s / took_s / len(members), resident / len(members) / (1 << 20)


def death(many: Many, session_ms: int) -> tuple[float, float]:
    """Seconds from a SIGKILL until all is led, and until all leaders answer."""
    dead = many.cluster.members[3]
    dead.kill()
    began = time.monotonic()
    # Nobody is asked before: that would cost what is measured its processor.
    time.sleep(session_ms / 1000)
    wait_until(lambda: set(many.leaders()) == {1, 2}, "all is led by the others")
    led_s = time.monotonic() - began
    wait_until(many.tell_their_ends, "all leaders answer")
    return led_s, time.monotonic() - began


def measure(cluster: Cluster, partitions: int, session_ms: int) -> Iterator[tuple[str, float]]:
    yield "catch-up MB/s", catch_up(cluster)
    many = Many(cluster, partitions)
    yield "made s", many.made_s
    used, resident = idle(cluster)
    yield "idle % of a core", used
    yield "memory MiB", resident
    led_s, answered_s = death(many, session_ms)
    yield "death: led s", led_s
    yield "death: answered s", answered_s
    began = time.monotonic()
    cluster.members[3].start()
    yield "ready s", time.monotonic() - began
    yield "in sync s", wait_until(many.is_in_sync, "all replicas are in sync again")


@contextmanager
def started(tools: KafkaTools, folder: Path, kind: str, session_ms: int) -> Iterator[Cluster]:
    configs: Mapping[str, str] = {
        "log.segment.bytes": str(1 << 30),
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": "2000",
        "replica.lag.time.max.ms": "30000",
    }
    if kind != "kafka":
        fsync = "group" if kind.endswith("durable") else "none"
        configs = {**configs, "kafkalite.acks.fsync": fsync}
    made = new_cluster(
        tools,
        folder,
        configs=lambda _: configs,
        jvm=KAFKA_JVM,
        is_proxied=False,
        controller_configs={
            "broker.session.timeout.ms": str(session_ms),
            "metadata.log.max.record.bytes.between.snapshots": str(20 << 20),
        },
    )
    with made as cluster:
        cluster.start(*[Kind.KAFKA if kind == "kafka" else Kind.KAFKALITE] * 3)
        yield cluster


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="kafkalite,kafka")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--session-ms", type=int, default=9_000)
    options = parser.parse_args(words)
    kinds = options.kinds.split(",")
    with KafkaTools() as tools:
        for number in range(options.rounds):
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                with (
                    tempfile.TemporaryDirectory(dir=".") as folder,
                    started(tools, Path(folder).absolute(), kind, options.session_ms) as cluster,
                ):
                    for name, value in measure(cluster, options.partitions, options.session_ms):
                        print(f"{kind:<18} {name:<18} {value:.4g}", flush=True)


if __name__ == "__main__":
    main()
