"""Kafka Connect, distributed: two workers, a connector that reads a file and one that writes one.

A worker keeps connectors, offsets and states in three compacted topics of its own, and is a member
of a group whose protocol type is `connect`, not `consumer`, in which it rebalances step by step.
"""

import contextlib
import json
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest

from clients.conftest import Cluster
from clients.programs import Program, running
from oracle.tools import KafkaTools
from ports import free_ports

pytestmark = pytest.mark.oracle

STEP = 5
MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
TEXT = "org.apache.kafka.connect.storage.StringConverter"


def worker(
    cluster: Cluster, group: str, port: int, exactly_once: str = "disabled"
) -> dict[str, object]:
    """What a worker is told. A worker that was killed is known to be gone after six seconds, and
    its work is given to others at once."""
    return {
        "exactly.once.source.support": exactly_once,
        "consumer.isolation.level": "read_committed",
        "bootstrap.servers": cluster.servers,
        "group.id": group,
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "key.converter": TEXT,
        "value.converter": TEXT,
        "config.storage.topic": f"{group}-configs",
        "config.storage.replication.factor": 1,
        "offset.storage.topic": f"{group}-offsets",
        "offset.storage.replication.factor": 1,
        "offset.storage.partitions": 2,
        "offset.flush.interval.ms": 200,
        "status.storage.topic": f"{group}-status",
        "status.storage.replication.factor": 1,
        "status.storage.partitions": 2,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 0,
    }


def ask(port: int, path: str, body: Any = None) -> Any:
    """What a worker answers; None as long as it does not."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="GET" if body is None else "PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError):
        return None


def workers_of(port: int, connectors: list[str]) -> list[str]:
    """Where connectors and their tasks run; empty unless all of them do."""
    places = []
    for name in connectors:
        status = ask(port, f"/connectors/{name}/status")
        each = [status["connector"], *status["tasks"]] if status else []
        if len(each) != 2 or any(one["state"] != "RUNNING" for one in each):
            return []
        places += [one["worker_id"] for one in each]
    return places


def start_connectors(program: Program, port: int, connectors: dict[str, dict[str, object]]) -> None:
    for name, config in connectors.items():
        program.wait_until(
            lambda name=name, config=config: (  # type: ignore[misc]
                ask(port, f"/connectors/{name}/config", config) is not None
            )
        )


@pytest.mark.parametrize(
    "exactly_once", ["enabled", pytest.param("disabled", marks=pytest.mark.long)]
)
def test_connect_moves_records_and_goes_on_when_a_worker_is_killed(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path, exactly_once: str
) -> None:
    topic = cluster.topic()
    group = f"connect-{uuid.uuid4().hex[:8]}"
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("")
    connectors: dict[str, dict[str, object]] = {
        f"{group}-source": {
            "connector.class": "FileStreamSource",
            "tasks.max": 1,
            "file": source,
            "topic": topic,
        },
        f"{group}-sink": {
            "connector.class": "FileStreamSink",
            "tasks.max": 1,
            "file": sink,
            "topics": topic,
        },
    }
    told = {
        name: {key: str(value) for key, value in config.items()}
        for name, config in connectors.items()
    }

    expected: list[str] = []

    def append() -> None:
        """Some lines, which the connector finds at one of its looks: a transaction."""
        lines = [f"line {number}" for number in range(len(expected), len(expected) + STEP)]
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        expected.extend(lines)

    def arrived() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    def append_and_count(lines: int) -> bool:
        append()
        return len(set(arrived())) >= lines

    ports = free_ports(2)
    with contextlib.ExitStack() as workers:

        def start(number: int) -> Program:
            properties = worker(cluster, group, ports[number], exactly_once)
            return workers.enter_context(running(MAIN, properties, tmp_path / str(number)))

        first = start(0)
        start_connectors(first, ports[0], told)
        first.wait_until(lambda: append_and_count(10 * STEP))
        second = start(1)
        # Each has a part of the four, two connectors with a task each.
        second.wait_until(lambda: len(set(workers_of(ports[1], list(told)))) == 2)
        status = ask(ports[1], f"/connectors/{group}-source/status")
        killed = [f"127.0.0.1:{port}" for port in ports].index(status["tasks"][0]["worker_id"])
        dies, stays = (first, second) if killed == 0 else (second, first)
        port = ports[1 - killed]
        before = len(expected)
        dies.wait_until(lambda: append_and_count(before + 10 * STEP))
        dies.kill()
        append()
        stays.wait_until(lambda: len(set(workers_of(port, list(told)))) == 1)
        append()
        # A sink is at least once: what was not committed before the kill comes again.
        stays.wait_until(lambda: set(arrived()) == set(expected))
        listed = kafka_tools.run_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            [
                "--bootstrap-server",
                cluster.servers,
                "--describe",
                "--group",
                f"connect-{group}-sink",
            ],
        )
        assert f"connect-{group}-sink {topic}" in " ".join(listed.stdout.split())
        stays.stop()
    lines = kafka_tools.consume(
        cluster.servers, topic, config={"isolation.level": "read_committed"}
    )
    values = [(each.value or b"").decode() for each in lines]
    if exactly_once == "enabled":
        assert values == expected
    else:
        assert set(values) == set(expected)
