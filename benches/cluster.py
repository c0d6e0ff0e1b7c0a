"""Replication beside Apache Kafka's: three brokers of each kind under a controller of their own,
RF=3, acks=all, `min.insync.replicas=2`, records of 1 KB, in turns in one run.

    python benches/cluster.py                          # all of it, three rounds
    python benches/cluster.py --only produce-16k,latency --rounds 5 --seconds 8
    python benches/cluster.py --only gap --kills 50
    python benches/cluster.py --kinds kafka,kafkalite,kafkalite-durable --awake

`produce-16k`, `produce-1m`: one producer (librdkafka) of batches of that size to one partition;
MB/s, and CPU seconds (user and system) a GB at the leader and at a follower, the controller apart.
`consume`: one consumer of what is there. `latency`: 200 records a second one by one; from the call
to the answer. `gap`: SIGKILL of the leader under a producer; from the last answer before to the
first one after, with a session of 2 s at the controllers of both.

Like for like is `kafkalite`, with `kafkalite.acks.fsync=none`, since Kafka answers from the page
cache; `kafkalite-durable` answers when all replicas in sync have flushed. While one cluster is
measured the others stand still (SIGSTOP), controllers too. The producer takes one of two cores by
itself: MB/s are of that machine, CPU a GB is what lasts.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent / "vs_kafka"))

from awake import Awake
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from processes import cpu_s

from cluster.brokers import Cluster, Kind, new_cluster
from oracle.tools import KafkaTools

RECORD = os.urandom(1000)
RATE_HZ = 200
GB = 1e9
KAFKA_JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
# Longer than a cluster stands still while the others are measured.
STILL_MS = "3600000"
REPLICAS = [1, 2, 3]
GAP_S = 60.0
FLUSH_S = 180.0
# Long enough for the compilers of a JVM.
WARM_UP_S = 10.0


Shape = Callable[["Side"], dict[str, float]]


class Side:
    """A cluster of one kind."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.number = 0

    def processes(self) -> list[int]:
        brokers = [each.pid for each in self.cluster.members.values() if each.is_running]
        return [self.cluster.controller.pid, *brokers]

    @contextmanager
    def awake(self) -> Iterator[None]:
        """It runs in the block, and stands still otherwise."""
        for each in self.processes():
            os.kill(each, signal.SIGCONT)
        try:
            self.cluster.wait_until_unfenced()
            yield
        finally:
            for each in self.processes():
                os.kill(each, signal.SIGSTOP)

    def new_topic(self) -> str:
        """One partition, which broker 1 leads; returns once it is in sync."""
        self.number += 1
        topic = f"bench-{self.number}"
        with self.cluster.admin() as admin:
            admin.create_topic(topic, assignments=[REPLICAS])
        self.cluster.wait_for_isr(topic)
        return topic

    def drop(self, topic: str) -> None:
        with self.cluster.admin() as admin:
            admin.delete_topics(topic)


def producer(side: Side, **settings: object) -> Producer:
    common = {"bootstrap.servers": side.cluster.servers, "acks": "all", "log_level": 0}
    return Producer({**common, "enable.idempotence": True, **settings})


def load(side: Side, topic: str, batch_bytes: int, seconds: float) -> int:
    """Produces for so long; how many bytes were acknowledged."""
    count = 0

    def delivered(error: object, _: object) -> None:
        nonlocal count
        assert error is None, error
        count += 1

    sender = producer(
        side,
        **{
            "batch.size": batch_bytes,
            "message.max.bytes": 2 << 20,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 8 << 10,
        },
    )
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        for _ in range(500):
            try:
                sender.produce(topic, RECORD, partition=0, on_delivery=delivered)
            except BufferError:
                sender.poll(0.01)
        sender.poll(0)
    assert sender.flush(FLUSH_S) == 0
    return count * len(RECORD)


def produce(side: Side, batch_bytes: int, seconds: float) -> dict[str, float]:
    topic = side.new_topic()
    members = [side.cluster.members[each] for each in REPLICAS]
    before, began = [cpu_s(each.pid) for each in members], time.monotonic()
    gigabytes = load(side, topic, batch_bytes, seconds) / GB
    took_s = time.monotonic() - began
    side.cluster.wait_for_isr(topic)
    leader, *followers = (cpu_s(m.pid) - b for m, b in zip(members, before, strict=True))
    side.drop(topic)
    return {
        "MB/s": gigabytes * 1000 / took_s,
        "leader CPU s/GB": leader / gigabytes,
        "follower CPU s/GB": statistics.mean(followers) / gigabytes,
    }


def consume(side: Side, seconds: float) -> dict[str, float]:
    topic = side.new_topic()
    written = load(side, topic, 1 << 20, seconds / 2)
    reader = Consumer({"bootstrap.servers": side.cluster.servers, "group.id": "bench"})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    leader = side.cluster.members[1]
    before, began, read = cpu_s(leader.pid), time.monotonic(), 0
    while read < written:
        read += sum(len(each.value() or b"") for each in reader.consume(10_000, 1.0))
    took_s = time.monotonic() - began
    reader.close()
    side.drop(topic)
    return {
        "MB/s": read / 1e6 / took_s,
        "leader CPU s/GB": (cpu_s(leader.pid) - before) / read * GB,
    }


def latency(side: Side, seconds: float) -> dict[str, float]:
    topic = side.new_topic()
    found_ms: list[float] = []
    sender = producer(side, **{"linger.ms": 0})

    def noted(sent: float) -> Callable[[object, object], None]:
        def delivered(error: object, _: object) -> None:
            if error is None:
                found_ms.append(1000 * (time.monotonic() - sent))

        return delivered

    sender.produce(topic, RECORD, partition=0)  # connects, and gets a producer id
    assert sender.flush(FLUSH_S) == 0
    began = time.monotonic()
    for number in range(int(RATE_HZ * seconds)):
        at = began + number / RATE_HZ
        while (left := at - time.monotonic()) > 0:
            sender.poll(left)
        sender.produce(topic, RECORD, partition=0, on_delivery=noted(time.monotonic()))
    assert sender.flush(FLUSH_S) == 0
    side.drop(topic)
    return {"p50 ms": quantile(found_ms, 0.5), "p99 ms": quantile(found_ms, 0.99)}


def gap(side: Side, kills: int) -> dict[str, float]:
    """Kills whoever leads, again and again."""
    topic = side.new_topic()
    answered: list[float] = []
    sender = producer(
        side,
        **{"linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100},
    )

    def send() -> None:
        sender.produce(
            topic,
            RECORD,
            partition=0,
            on_delivery=lambda e, _: answered.append(time.monotonic()) if e is None else None,
        )
        sender.poll(0.005)

    gaps_s = []
    for _ in range(kills):
        side.cluster.wait_for_isr(topic)
        count = len(answered)
        while len(answered) < count + 50:
            send()
        leader = side.cluster.leader(topic)
        leader.kill()
        killed = time.monotonic()
        while not answered or answered[-1] <= killed + 0.05:
            assert time.monotonic() < killed + GAP_S, "no answer after a kill"
            send()
        after = next(at for at in answered if at > killed + 0.05)
        gaps_s.append(after - max(at for at in answered if at < after))
        leader.start()
        side.cluster.wait_until_unfenced()
    sender.flush(60)
    side.drop(topic)
    return {
        "gap p50 s": quantile(gaps_s, 0.5),
        "gap p99 s": quantile(gaps_s, 0.99),
        "gap max s": max(gaps_s),
    }


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(int(part * len(values)), len(values) - 1)]


def given(configs: Mapping[str, str], _: int) -> Mapping[str, str]:
    """Gives each broker the same configuration."""
    return configs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="produce-16k,produce-1m,consume,latency,gap")
    parser.add_argument("--kinds", default="kafka,kafkalite,kafkalite-durable")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kills", type=int, default=5, help="a round")
    parser.add_argument("--awake", action="store_true", help="keep idle processors from halting")
    options = parser.parse_args()
    steady: dict[str, Shape] = {
        "produce-16k": lambda side: produce(side, 16 << 10, options.seconds),
        "produce-1m": lambda side: produce(side, 1 << 20, options.seconds),
        "consume": lambda side: consume(side, options.seconds),
        "latency": lambda side: latency(side, options.seconds),
    }
    killed: dict[str, Shape] = {"gap": lambda side: gap(side, options.kills)}
    kinds, names = options.kinds.split(","), options.only.split(",")
    with Awake(options.awake):
        for shapes, is_steady in ((steady, True), (killed, False)):
            chosen = {name: shape for name, shape in shapes.items() if name in names}
            if chosen:
                measure(kinds, chosen, options.rounds, is_steady=is_steady)


def measure(
    kinds: Sequence[str], shapes: Mapping[str, Shape], rounds: int, *, is_steady: bool
) -> None:
    """Each shape on a cluster of each kind, in turns; prints the medians of its rounds."""
    with ExitStack() as stack:
        sides = start(stack, kinds, is_steady=is_steady)
        for name, shape in shapes.items():
            found: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
            for number in range(rounds):
                for side in sides if number % 2 == 0 else reversed(sides):
                    with side.awake() if is_steady else nullcontext():
                        found[side.name].append(shape(side))
            for side in sides:
                rows = found[side.name]
                medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
                told = "  ".join(f"{key} {value:.3g}" for key, value in medians.items())
                print(f"{name:<12} {side.name:<18} {told}", flush=True)


def start(stack: ExitStack, kinds: Sequence[str], *, is_steady: bool) -> list[Side]:
    """A cluster of each kind, warm; if `is_steady` they stand still until they are measured."""
    tools = stack.enter_context(KafkaTools())
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    sides = []
    for name in kinds:
        configs = {"log.segment.bytes": str(1 << 30)}
        if is_steady:
            configs["replica.lag.time.max.ms"] = STILL_MS
        if name != "kafka":
            fsync = "group" if name.endswith("durable") else "none"
            configs["kafkalite.acks.fsync"] = fsync
        made = new_cluster(
            tools,
            folder / name,
            configs=partial(given, configs),
            jvm=KAFKA_JVM,
            is_proxied=False,
            controller_configs={"broker.session.timeout.ms": STILL_MS} if is_steady else {},
        )
        cluster = stack.enter_context(made)
        cluster.start(*[Kind.KAFKA if name == "kafka" else Kind.KAFKALITE] * 3)
        side = Side(name, cluster)
        sides.append(side)
        for size in (16 << 10, 1 << 20):
            load(side, side.new_topic(), size, WARM_UP_S / 2)
        if is_steady:
            for each in side.processes():
                stack.callback(os.kill, each, signal.SIGCONT)  # or it does not end
                os.kill(each, signal.SIGSTOP)
    return sides


if __name__ == "__main__":
    main()
