"""Kafka Connect, distributed: two workers, a connector that reads a file and one that writes one.

A worker keeps connectors, offsets and states in three compacted topics of its own, and is a member
of a group whose protocol type is `connect`, not `consumer`, in which it rebalances step by step.
"""

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

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
TEXT = "org.apache.kafka.connect.storage.StringConverter"


def worker(cluster: Cluster, group: str, port: int) -> dict[str, object]:
    """What a worker is told. A worker that was killed is known to be gone after six seconds, and
    its work is given to others at once."""
    return {
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


def test_connect_moves_records_and_goes_on_when_a_worker_is_killed(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    topic = cluster.topic()
    group = f"connect-{uuid.uuid4().hex[:8]}"
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("")
    connectors: dict[str, dict[str, object]] = {
        "source": {
            "connector.class": "FileStreamSource",
            "tasks.max": 1,
            "file": source,
            "topic": topic,
        },
        "sink": {
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

    def append(numbers: range) -> list[str]:
        with source.open("a") as file:
            file.writelines(f"line {number}\n" for number in numbers)
        return [f"line {number}" for number in range(numbers.stop)]

    def arrived() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    ports = free_ports(2)
    with running(MAIN, worker(cluster, group, ports[0]), tmp_path / "first") as first:
        start_connectors(first, ports[0], told)
        expected = append(range(100))
        first.wait_until(lambda: arrived() == expected)
        with running(MAIN, worker(cluster, group, ports[1]), tmp_path / "second") as second:
            # Each has a part of the four, two connectors with a task each.
            second.wait_until(lambda: len(set(workers_of(ports[1], list(told)))) == 2)
            first.kill()
            second.wait_until(lambda: len(set(workers_of(ports[1], list(told)))) == 1)
            expected = append(range(100, 200))
            # At least once: what was not committed before the kill comes again.
            second.wait_until(lambda: set(arrived()) == set(expected))
            listed = kafka_tools.run_tool(
                "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
                ["--bootstrap-server", cluster.servers, "--describe", "--group", "connect-sink"],
            )
            assert f"connect-sink {topic}" in " ".join(listed.stdout.split())
            second.stop()
    lines = kafka_tools.consume(cluster.servers, topic)
    assert {each.value for each in lines} == {line.encode() for line in expected}
