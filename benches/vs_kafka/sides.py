"""The two brokers: each as its own process, on one node, replication factor 1, on the same disk."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from loads import LOAD
from shapes import BARE, SINK_SHAPE

import kafkalite
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from oracle.topics import wait_until_led

# As Kafka's own start scripts have it, so that its compilers and collectors are its best.
KAFKA_JVM = [
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
# Both sides look for segments to throw away as often and from as early on, and take large records.
PROPERTIES = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "message.max.bytes": "20000000",
    "num.partitions": "1",
}


class Side(Protocol):
    """A broker that runs."""

    name: str
    pid: int
    bootstrap_servers: str

    def stop(self) -> None:
        """Ends it; its directory is the caller's."""


class Kafkalite:
    """`kafkalite serve` in a process of its own, with `kafkalite.acks.fsync` as named."""

    def __init__(
        self, folder: Path, fsync: str, properties: Mapping[str, str] = PROPERTIES
    ) -> None:
        self.name = "kafkalite" if fsync == "none" else "kafkalite, durable"
        self.properties = properties
        config = {**properties, "kafkalite.acks.fsync": fsync}
        self._broker = kafkalite.Broker(folder / f"kafkalite-{fsync}", config=config)
        self._broker.start()
        self.pid = self._broker.pid
        self.bootstrap_servers = self._broker.bootstrap_servers

    def stop(self) -> None:
        """A clean stop."""
        self._broker.stop()


class Before:
    """Another program of kafkalite, by `kafkalite serve`: `packages` is the folder that its
    `kafkalite` is in (an unpacked wheel, or `python/` of a checkout with its native module)."""

    def __init__(
        self,
        folder: Path,
        packages: Path,
        fsync: str,
        properties: Mapping[str, str] = PROPERTIES,
    ) -> None:
        self.name = "before"
        config = {**properties, "kafkalite.acks.fsync": fsync}
        words = [f"--config={key}={value}" for key, value in config.items()]
        self._process = _serve(
            folder / f"before-{fsync}", *words, environment={"PYTHONPATH": str(packages.resolve())}
        )
        self.pid = self._process.pid
        self.bootstrap_servers = re.findall(r"servers=(\S+)", _ready_line(self._process))[0]

    def stop(self) -> None:
        """A clean stop."""
        with self._process:
            self._process.terminate()


class Kafka:
    """Apache Kafka in KRaft combined mode, as its quick start configures it."""

    def __init__(
        self, folder: Path, tools: KafkaTools, properties: Mapping[str, str] = PROPERTIES
    ) -> None:
        self.name = "Kafka"
        self.properties = properties
        self._broker = KafkaBroker(tools, folder / "kafka", properties=properties, jvm=KAFKA_JVM)
        started = time.monotonic()
        self._broker.start()
        self.ready_s = time.monotonic() - started
        self.pid = self._broker.pid
        self.bootstrap_servers = self._broker.bootstrap_servers

    def stop(self) -> None:
        """A clean stop."""
        self._broker.stop()


class Sink:
    """No broker: for each request the system calls that any broker makes, one after the other
    (`load sink`). On one processor, which it has in common with its client, or where the scheduler
    puts both."""

    def __init__(self, folder: Path, *, is_synced: bool, on_one_processor: bool) -> None:
        self.name = "sink, one processor" if on_one_processor else "sink"
        self._processor = min(os.sched_getaffinity(0)) if on_one_processor else None
        words = [f"directory={folder}", f"bytes={BARE[SINK_SHAPE]}", f"sync={is_synced:d}"]
        self._process = subprocess.Popen(
            [*self.bound, LOAD, "sink", *words], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.bootstrap_servers = f"127.0.0.1:{self._process.stdout.readline().strip()}"

    @property
    def bound(self) -> list[str]:
        """What a command begins with that is to run where this does."""
        return [] if self._processor is None else ["taskset", "--cpu-list", str(self._processor)]

    def stop(self) -> None:
        """Ends it."""
        with self._process:
            self._process.kill()


def create_topic(side: Side, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Returns when the topic can be written to."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap_servers, "log_level": 4})
    (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=dict(configs))]).values()
    made.result()
    wait_until_led(admin, name, partitions)


class Start:
    """How long a start of `kafkalite serve` takes, from `exec` to its line on stdout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fresh_s(self, number: int) -> float:
        """On a directory that is not there yet."""
        return self.again_s(self._folder / f"fresh-{number}")

    def again_s(self, data: Path) -> float:
        """On `data`, whatever is in it."""
        started = time.perf_counter()
        with _serve(data) as process:
            _ready_line(process)
            seconds = time.perf_counter() - started
            process.terminate()
        return seconds


def _serve(
    data: Path, *words: str, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    """`kafkalite serve` on `data` and a free port."""
    command = [sys.executable, "-m", "kafkalite", "serve", "--data", str(data)]
    return subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--log-level", "error", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def _ready_line(process: subprocess.Popen[str]) -> str:
    """The line that says that the broker can serve. Raises RuntimeError if it ends before."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"it did not start: {process.args!r}")
    return line


def bare_python_s() -> float:
    """What the interpreter alone takes."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - started


def resident_mb(pid: int) -> float:
    """Resident memory of a process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid} is gone")
