"""A real Apache Kafka broker: KRaft combined mode, free ports, its own log directories."""

import base64
import contextlib
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from oracle.tools import KafkaTools, java
from ports import free_ports

# Kafka's own words, once the broker is registered and unfenced.
READY = "Kafka Server started"
READY_S = 300
STOP_S = 90

# What a single node needs, and what keeps a test short.
DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "auto.create.topics.enable": "false",
}


def new_cluster_id() -> str:
    """A random one."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class KafkaBroker:
    """One broker over fixed log directories; it may be stopped, killed and started again."""

    def __init__(
        self,
        tools: KafkaTools,
        folder: Path,
        *,
        log_dirs: Sequence[Path] | None = None,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] | None = None,
        features: Mapping[str, int] | None = None,
        cluster_id: str | None = None,
        port: int | None = None,
    ) -> None:
        """Nothing runs until `start`. `folder` takes the properties and the broker's output, and
        the log directory `folder/data` unless `log_dirs` names others. `jvm` are options in place
        of those that keep a test short, and `features` levels other than those of a new
        directory, of a new cluster unless `cluster_id` names one. `port` is a free
        one unless it is given."""
        self.folder = folder
        self.log_dirs = list(log_dirs or [folder / "data"])
        self.bootstrap_servers = ""
        self.output = folder / "kafka.log"
        self._tools = tools
        self._ports = None if port is None else [port, *free_ports(1)]
        self._properties = dict(properties or {})
        self._jvm = jvm
        self._features = dict(features or {})
        self._cluster_id = cluster_id or new_cluster_id()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Of the running broker."""
        if self._process is None:
            raise RuntimeError("the broker does not run")
        return self._process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> Self:
        """Formats the directories if they are new, starts, returns when clients are served. The
        ports stay over a restart, so that clients outlive it.

        Raises `RuntimeError` with the end of the broker's output if it does not come up.
        """
        if self._process is not None:
            raise RuntimeError("the broker runs already")
        self._launch(self.prepare())
        return self

    def prepare(self) -> Path:
        """Writes its properties and formats the directories if they are new; the file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for directory in self.log_dirs:
            directory.mkdir(parents=True, exist_ok=True)
        self._ports = self._ports or free_ports(2)
        port, controller_port = self._ports
        node_id = self._properties.get("node.id", DEFAULTS["node.id"])
        properties = {
            **DEFAULTS,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            **{key: text.replace("{port}", str(port)) for key, text in self._properties.items()},
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        if not all((directory / "meta.properties").exists() for directory in self.log_dirs):
            self._format(file)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        return file

    def stop(self) -> None:
        """A clean stop (SIGTERM): checkpoints written, `.kafka_cleanshutdown` left behind."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL. Nothing happens if the broker does not run."""
        self._end(signal.SIGKILL)

    def partition(self, topic: str, partition: int = 0) -> Path:
        """The directory of a partition, in whichever log directory it is."""
        for directory in self.log_dirs:
            found = directory / f"{topic}-{partition}"
            if found.is_dir():
                return found
        raise FileNotFoundError(f"no {topic}-{partition} in {self.log_dirs}")

    def _format(self, file: Path) -> None:
        # With "=", since an id may begin with a dash.
        arguments = [
            "format",
            f"--cluster-id={self._cluster_id}",
            "-c",
            str(file),
            "--ignore-formatted",
        ]
        arguments += [f"--feature={name}={level}" for name, level in self._features.items()]
        result = self._tools.run_tool("kafka.tools.StorageTool", arguments)
        if result.exit != 0:
            raise RuntimeError(f"kafka.tools.StorageTool: {result.stdout}{result.stderr}")

    def _launch(self, file: Path) -> None:
        process = subprocess.Popen(
            [*java(self._jvm), "-cp", self._tools.classpath, "kafka.Kafka", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        # Set when the broker says that it is ready, and when its output ends.
        told = threading.Event()
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process, told), daemon=True)
        self._reader.start()
        if told.wait(READY_S) and process.poll() is None:
            with contextlib.suppress(OSError):
                host, port = self.bootstrap_servers.split(":")
                socket.create_connection((host, int(port)), timeout=10).close()
                return
        self.kill()
        tail = "\n".join(self.output.read_text().splitlines()[-40:])
        raise RuntimeError(f"Apache Kafka did not start:\n{tail}")

    def _read(self, process: subprocess.Popen[str], told: threading.Event) -> None:
        assert process.stdout is not None
        with self.output.open("a") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if READY in line:
                    told.set()
        told.set()

    def _end(self, by: signal.Signals) -> None:
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        self._process = self._reader = None
        process.send_signal(by)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S)
            raise
        finally:
            reader.join(STOP_S)
            if process.stdout is not None:
                process.stdout.close()
