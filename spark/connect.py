"""A Kafka Connect worker of a pipeline's own, with Debezium's connector for PostgreSQL: both as
they are published, fetched once by `jgo`, a Maven client.

The worker is Connect's distributed one: what it is told, how far its connector is and how it fares
lie in three topics of the broker.
"""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pipeline

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
# Beside the first two: what Maven would settle otherwise than Connect's web server wants it.
ARTIFACTS = (
    "org.apache.kafka:connect-runtime:4.3.1",
    "io.debezium:debezium-connector-postgres:3.6.1.Final",
    "org.apache.kafka:connect-json:4.3.1",
    "org.apache.kafka:connect-transforms:4.3.1",
    "org.apache.kafka:kafka-clients:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    "org.apache.logging.log4j:log4j-core:2.25.4",
    "jakarta.servlet:jakarta.servlet-api:6.0.0",
    "jakarta.ws.rs:jakarta.ws.rs-api:3.1.0",
    "jakarta.inject:jakarta.inject-api:2.0.1",
    "jakarta.annotation:jakarta.annotation-api:2.1.1",
)
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_S = 180
TAIL_LINES = 20


def jars() -> list[Path]:
    """The class path, out of Maven's repository or the user's cache of it."""
    pipeline.need("jgo")
    import jgo

    try:
        return [Path(each) for each in jgo.build("+".join(ARTIFACTS)).all_jars]
    except OSError as error:  # what a Maven client of Python raises is one
        raise pipeline.StopError(f"Kafka Connect cannot be fetched: {error}") from error


@contextmanager
def worker(servers: str, folder: Path, classpath: Sequence[Path]) -> Iterator["Worker"]:
    """One that runs as long as the block does; its files and what it prints are in `folder`."""
    java = shutil.which("java")
    if java is None:
        raise pipeline.StopError("Kafka Connect needs Java 17 or newer")
    folder.mkdir(parents=True)
    port = free_port()
    told = folder / "worker.properties"
    told.write_text("".join(f"{key}={value}\n" for key, value in properties(servers, port).items()))
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.console.ref = console\n"
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %p %c{1}: %m%n\n"
    )
    log = folder / "worker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                java,
                *JVM,
                "-Dlog4j2.configurationFile=log4j2.properties",
                "-cp",
                ":".join(map(str, classpath)),
                MAIN,
                told.name,
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Worker(process, port, log)
    finally:
        process.terminate()
        process.wait()


def properties(servers: str, port: int) -> dict[str, object]:
    """The properties that the worker is told: one of its kind, and JSON without schemas."""
    found: dict[str, object] = {
        "bootstrap.servers": servers,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": 1000,
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
    }
    for side in ("key", "value"):
        found[f"{side}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
        found[f"{side}.converter.schemas.enable"] = "false"
    for what in ("config", "offset", "status"):
        found[f"{what}.storage.topic"] = f"connect-{what}"
        found[f"{what}.storage.replication.factor"] = 1
    return found


class Worker:
    """A worker, asked by HTTP."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self._process = process
        self._port = port
        self._log = log

    def run(self, name: str, config: Mapping[str, str]) -> None:
        """Has a connector run with one task. Raises `StopError` if it fails, with its reason."""
        self._until(lambda: self._ask(f"/connectors/{name}/config", config) is not None)
        self._until(lambda: self._is_running(name))

    def _is_running(self, name: str) -> bool:
        status = self._ask(f"/connectors/{name}/status") or {"connector": {}, "tasks": []}
        parts = [status["connector"], *status["tasks"]]
        for part in parts:
            if part.get("state") == "FAILED":
                raise pipeline.StopError(f"the connector {name} failed: {part['trace']}")
        return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not holds():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self._log.read_text().splitlines()[-TAIL_LINES:])
                raise pipeline.StopError(f"Kafka Connect did not get there:\n{tail}")
            time.sleep(0.1)  # between two polls

    def _ask(self, path: str, body: Any = None) -> Any:
        """The answer; None as long as the worker is not ready to give one."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - http
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 400:  # the configuration is wrong
                told = json.load(error)["message"]
                raise pipeline.StopError(f"Kafka Connect refuses the connector: {told}") from error
            return None
        except OSError:
            return None


def free_port() -> int:
    """One of loopback that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
