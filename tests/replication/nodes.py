"""A controller of Apache Kafka's, and brokers of kafkalite that join it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from ports import free_ports

CONTROLLER_ID = 3000
SESSION_MS = 2_000
SERVED_FEATURES = {f"{name}.version": 0 for name in ("share", "streams", "group")}
"""What a cluster is formatted with that brokers of kafkalite can join."""
READY_S = 60
STOP_S = 60


def new_controller(
    tools: KafkaTools,
    folder: Path,
    features: Mapping[str, int] = SERVED_FEATURES,
    configs: Mapping[str, str] = {},
) -> KafkaBroker:
    """One that is the whole quorum, with short timings. It is not started."""
    return KafkaBroker(
        tools,
        folder,
        properties={
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "listeners": "CONTROLLER://127.0.0.1:{port}",
            "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{{port}}",
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": "500",
            "controller.quorum.append.linger.ms": "0",
            "metadata.log.max.record.bytes.between.snapshots": "2000",
            **configs,
        },
        features=features,
    )


def new_kafka(
    tools: KafkaTools,
    folder: Path,
    controller: KafkaBroker,
    node_id: int,
    jvm: Sequence[str] | None = None,
    **configs: str,
) -> KafkaBroker:
    """A broker of Apache Kafka's under a controller, with the options of a short test unless `jvm`
    has others. It is not started."""
    return KafkaBroker(
        tools,
        folder,
        properties={
            "process.roles": "broker",
            "node.id": str(node_id),
            "listeners": "PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{controller.bootstrap_servers}",
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": "500",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            **configs,
        },
        jvm=jvm,
        cluster_id=cluster_id_of(controller),
    )


def cluster_id_of(controller: KafkaBroker) -> str:
    """The id that a controller was formatted with."""
    text = (controller.log_dirs[0] / "meta.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)["cluster.id"]


class Node:
    """A broker of kafkalite as a process of its own."""

    def __init__(
        self, node_id: int, folder: Path, controller: KafkaBroker, **configs: str | int
    ) -> None:
        """Formats its directory. Nothing runs until `start`."""
        (port,) = free_ports(1)
        self.id = node_id
        self.address = f"127.0.0.1:{port}"
        self.output = folder / "kafkalite.log"
        self.data = folder / "data"
        self._file = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        properties: Mapping[str, str | int] = {
            "process.roles": "broker",
            "node.id": node_id,
            "listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller.bootstrap_servers,
            "log.dirs": str(self.data),
            "broker.heartbeat.interval.ms": 500,
            "offsets.topic.num.partitions": 5,
            "transaction.state.log.num.partitions": 5,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **configs,
        }
        self._file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._cluster_id = cluster_id_of(controller)
        self.format()

    def format(self, *options: str) -> None:
        """Formats its log directories (`kafkalite format`)."""
        words = (f"--cluster-id={self._cluster_id}", "--config", str(self._file))
        done = self._run("format", *words, *options)
        assert done.returncode == 0, done.stdout + done.stderr

    @classmethod
    def over(cls, kafka: KafkaBroker, node_id: int) -> "Node":
        """One on the directories and the properties of a broker of Apache Kafka's."""
        node = cls.__new__(cls)
        node.id, node.address = node_id, kafka.bootstrap_servers
        node.output = kafka.folder / "kafkalite.log"
        node.data = kafka.log_dirs[0]
        node._file = kafka.folder / "server.properties"
        node._process = None
        return node

    @staticmethod
    def _run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kafkalite", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def launch(self) -> Self:
        """Starts the process, and does not wait."""
        assert self._process is None
        with self.output.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", "serve", str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ},
            )
        return self

    def start(self) -> Self:
        """Starts it; returns when clients are served."""
        before = self.told().count("kafkalite ready")
        process = self.launch()._process
        assert process is not None
        wait_until(
            lambda: self.told().count("kafkalite ready") > before or process.poll() is not None,
            READY_S,
        )
        assert process.poll() is None, self.told()
        return self

    @property
    def pid(self) -> int:
        """Of the running broker."""
        assert self._process is not None
        return self._process.pid

    def told(self) -> str:
        """Its output so far."""
        with contextlib.suppress(FileNotFoundError):
            return self.output.read_text()
        return ""

    @property
    def is_started(self) -> bool:
        """Neither stopped nor killed since its start."""
        return self._process is not None

    def stop(self) -> int:
        """A clean stop (SIGTERM); returns the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL. Nothing happens if it does not run."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP. Returns when none of its threads runs any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")
        wait_until(lambda: all(_state(each) == "T" for each in tasks.iterdir()))

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def exit_code(self) -> int:
        """Waits until it ends by itself."""
        assert self._process is not None
        process, self._process = self._process, None
        return process.wait(STOP_S)

    def _end(self, by: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(by)
        return self.exit_code()


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    """Returns once it is so; fails after so long."""
    due = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < due, "it has not come to pass"
        time.sleep(0.05)  # between two polls
