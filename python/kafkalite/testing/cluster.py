"""A cluster on this machine, for tests and for trying out: brokers of kafkalite, and a controller,
which is Apache Kafka's, for kafkalite has none of its own. It needs Java 17 and Kafka's jars:

    python -m kafkalite.testing.cluster --kafka ~/kafka_2.13-4.3.1     # until Ctrl-C

    with LocalCluster("kafka_2.13-4.3.1") as cluster:
        cluster.bootstrap_servers              # 127.0.0.1:41234,127.0.0.1:41236,…
        cluster.brokers[2].kill()              # fenced after two seconds; start() brings it back
"""

import argparse
import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkalite.child import Broker, BrokerFailedError
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.replication.admission import RANGES

HOST = "127.0.0.1"
CONTROLLER_ID = 3000
START_S = 120.0
STOP_S = 30.0
HEARTBEAT_MS, SESSION_MS = 500, 2_000
"""Shorter than Kafka's 2 and 9 s: a test does not want to wait for a broker to be fenced."""
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOWERED = ("group.version", "share.version", "streams.version", "transaction.version")
"""Features that a new cluster of Kafka's has at levels which brokers here may not serve."""


class ControllerFailedError(KafkaliteError):
    """The controller did not start, or has ended; the message has the last lines of its output."""


class LocalCluster:
    """Brokers 1, 2, … and a controller, ready once entered; all end with the block, and so does
    their temporary directory."""

    def __init__(
        self,
        kafka: str | os.PathLike[str],
        *,
        brokers: int = 3,
        data: str | os.PathLike[str] | None = None,
        port: int = 0,
        config: Mapping[str, str | int | float] | None = None,
    ) -> None:
        """`kafka` is the folder of Kafka's distribution, or a class path with its jars. `data` has
        a folder for each node, and goes on with what is there; without it a temporary one. The
        brokers' ports are `port` and those after it, or free ones. `config` are keys of all
        brokers. Nothing runs before `start`."""
        if brokers < 1:
            raise InvalidArgumentError(f"brokers={brokers} is less than 1")
        self._class_path = _class_path(os.fspath(kafka))
        self._data = None if data is None else Path(data)
        self._temporary: str | None = None
        self._ports = [port + each for each in range(brokers)] if port else [0] * brokers
        self._config = dict(config or {})
        self._controller: subprocess.Popen[bytes] | None = None
        self._controller_port = 0
        self._log = Path()
        self.brokers: dict[int, Broker] = {}
        """By id, each to be stopped, killed and started as any `kafkalite.Broker`."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for the clients' setting of that name."""
        return ",".join(each.bootstrap_servers for each in self.brokers.values())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> Self:
        """Starts the controller and then all brokers at once; returns when these are ready. Raises
        `ControllerFailedError` and `BrokerFailedError`."""
        if self._data is None:
            self._temporary = tempfile.mkdtemp(prefix="kafkalite-cluster-")
        with ExitStack() as undo:
            undo.callback(self.close)
            folder = Path(self._temporary or self._data or "")
            cluster_id = self._start_controller(folder / "controller")
            for number, port in enumerate(self._ports, start=1):
                data = folder / f"broker-{number}"
                _format(data, cluster_id, number)
                self.brokers[number] = self._broker(number, port, data)
            try:
                with ThreadPoolExecutor(len(self.brokers)) as pool:
                    list(pool.map(Broker.start, self.brokers.values()))
            except BrokerFailedError:
                self.check_controller()  # its end is why
                raise
            undo.pop_all()
        return self

    def close(self) -> None:
        """Stops the brokers cleanly, then the controller, and removes a temporary directory."""
        # At once: each has its leadership taken away, and waits for nobody.
        if self.brokers:
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                list(pool.map(Broker.close, self.brokers.values()))
        self.brokers.clear()
        self.stop_controller()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    # --- the controller ---------------------------------------------------------------------------

    def stop_controller(self) -> None:
        """Ends it; the brokers go on, and nothing of the cluster can be changed."""
        process, self._controller = self._controller, None
        if process is None:
            return
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()
        process.wait()

    def check_controller(self) -> None:
        """Raises `ControllerFailedError` if it has ended."""
        if self._controller is not None and self._controller.poll() is not None:
            raise ControllerFailedError(f"the controller has ended:\n{self._told()}")

    def _start_controller(self, folder: Path) -> str:
        """Formats its directory if it is new, and starts it; the id of the cluster."""
        folder.mkdir(parents=True, exist_ok=True)
        self._controller_port = self._controller_port or _free_port()
        at = f"{HOST}:{self._controller_port}"
        properties = {
            "process.roles": "controller",
            "node.id": CONTROLLER_ID,
            "listeners": f"CONTROLLER://{at}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{at}",
            "broker.session.timeout.ms": SESSION_MS,
            "broker.heartbeat.interval.ms": HEARTBEAT_MS,
            "log.dirs": folder / "data",
        }
        file = folder / "controller.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        meta = folder / "data" / "meta.properties"
        self._log = folder / "controller.log"
        if not meta.exists():
            words = [f"--cluster-id={_new_id()}", "-c", str(file)]
            words += [f"--feature={name}={RANGES.get(name, (0, 0))[1]}" for name in LOWERED]
            done = subprocess.run(  # noqa: S603 - Kafka's own tool
                self._java("kafka.tools.StorageTool", "format", *words),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                told = f"{done.stdout}{done.stderr}".strip()
                raise ControllerFailedError(f"the controller cannot be formatted: {told}")
        with self._log.open("ab") as log:
            # A process group of its own: Ctrl-C is for this process, which ends the brokers first.
            self._controller = subprocess.Popen(  # noqa: S603
                self._java("kafka.Kafka", str(file)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        weakref.finalize(self, _kill, self._controller)
        lines = (line.partition("=") for line in meta.read_text().splitlines())
        return {key: value for key, _, value in lines}["cluster.id"]

    def _java(self, main: str, *words: str) -> list[str]:
        java = shutil.which("java")
        if java is None:
            raise ControllerFailedError("java is missing: the controller needs Java 17 or later")
        return [java, *JVM, "-cp", self._class_path, main, *words]

    def _told(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    # --- brokers ----------------------------------------------------------------------------------

    def _broker(self, number: int, port: int, data: Path) -> Broker:
        config: dict[str, str | int | float] = {
            "process.roles": "broker",
            "node.id": number,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{HOST}:{self._controller_port}",
            "broker.heartbeat.interval.ms": HEARTBEAT_MS,
            "group.initial.rebalance.delay.ms": 0,
            **({"kafkalite.acks.fsync": "none"} if self._temporary is not None else {}),
            **self._config,
        }
        return Broker(data, listen=f"{HOST}:{port}", config=config, start_timeout_s=START_S)


def _class_path(kafka: str) -> str:
    """Raises `InvalidArgumentError` for a folder that has no jars of Kafka's."""
    if os.pathsep in kafka or kafka.endswith((".jar", "*")):
        return kafka
    libraries = Path(kafka).expanduser() / "libs"
    if not any(libraries.glob("kafka-server-*.jar")):
        raise InvalidArgumentError(
            f"{kafka} is no folder of Apache Kafka's: it has no libs/kafka-server-….jar"
        )
    return str(libraries / "*")


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _format(data: Path, cluster_id: str, node_id: int) -> None:
    """As `kafkalite format`."""
    data.mkdir(parents=True, exist_ok=True)
    meta = data / "meta.properties"
    if not meta.exists():
        lines = [f"cluster.id={cluster_id}", f"node.id={node_id}", f"directory.id={_new_id()}"]
        meta.write_text("\n".join(["version=1", *lines, ""]))


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a cluster until SIGINT or SIGTERM; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m kafkalite.testing.cluster",
        description="Run brokers of kafkalite under a controller of Apache Kafka's.",
    )
    parser.add_argument(
        "--kafka",
        required=True,
        help="the folder of Kafka's distribution, or a class path of its jars",
    )
    parser.add_argument("--brokers", type=int, default=3, help="how many (3)")
    parser.add_argument("--data", help="a folder that stays; else a temporary one")
    parser.add_argument("--port", type=int, default=9092, help="of broker 1 (9092), 0: free ones")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        with LocalCluster(
            options.kafka, brokers=options.brokers, data=options.data, port=options.port
        ) as cluster:
            servers = cluster.bootstrap_servers
            print(f"kafkalite cluster ready bootstrap.servers={servers}", flush=True)
            while True:
                cluster.check_controller()
                time.sleep(1)
    except KeyboardInterrupt:
        return 0
    except KafkaliteError as error:
        sys.stderr.write(f"kafkalite: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
