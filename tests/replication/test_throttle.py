"""Replication is held back to a rate, by a leader and by a follower of kafkalite's, each beside a
broker of Apache Kafka's (KIP-73)."""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalite.client import BROKER, TOPIC
from kafkalite.client.cluster_admin import ClusterAdmin
from kafkalite.errors import BrokerError
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from ports import free_ports
from replication.nodes import Node, new_kafka, wait_until
from replication.records import produce

pytestmark = pytest.mark.oracle

KAFKA, OURS = 21, 22
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RATE = 1_000_000
SIZE = 8_000_000
BURST_S = 2.5
"""A rate is looked at before an answer of a megabyte, and over a second at first."""
MOVED_S = 240
LIMIT_S = 120
LIMITS = ("leader.replication.throttled", "follower.replication.throttled")
SET_HERE = "DYNAMIC_BROKER_CONFIG"


class Pair(NamedTuple):
    """A broker of each kind."""

    kafka: KafkaBroker
    node: Node
    metrics: str
    admin: ClusterAdmin

    def fill(self, topic: str, leader: int) -> None:
        """Makes a topic of one replica, with records of `SIZE` bytes."""
        self.admin.create_topic(topic, assignments=[[leader]])
        wait_until(lambda: self.leaders(topic) == [leader], LIMIT_S)
        values = (number.to_bytes(4, "big") * 2_500 for number in range(SIZE // 10_000))
        produce(self.node.address, topic, values)

    def leaders(self, topic: str) -> list[int]:
        try:
            (found,) = self.admin.describe_topics(topic)
        except BrokerError:
            return []  # the broker that was asked has not heard of it yet
        return [each.leader for each in found.partitions]

    def is_done(self) -> bool:
        return not self.admin.list_reassignments()

    def figure(self, name: str) -> float:
        """A metric of kafkalite's broker."""
        with urllib.request.urlopen(self.metrics, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        (row,) = [each for each in lines if each.startswith(f"{name} ")]
        return float(row.split()[1])

    def set_rates(self) -> list[str]:
        """The keys by which replication is throttled, of the brokers."""
        found = [self.admin.describe_configs(BROKER, str(each)) for each in (KAFKA, OURS)]
        return [
            e.name
            for each in found
            for e in each
            if e.name.startswith(LIMITS) and e.source == SET_HERE
        ]


@pytest.fixture(scope="module")
def pair(
    kafka_controller: KafkaBroker,
    kafka_tools: KafkaTools,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    kafka = new_kafka(kafka_tools, folder / "kafka", kafka_controller, KAFKA)
    (port,) = free_ports(1)
    listener = {"kafkalite.metrics.listener": f"127.0.0.1:{port}"}
    node = Node(OURS, folder / "ours", kafka_controller, **listener)
    with ExitStack() as stack:
        stack.enter_context(kafka)
        stack.enter_context(node)
        admin = stack.enter_context(ClusterAdmin(node.address))
        yield Pair(kafka, node, f"http://127.0.0.1:{port}/metrics", admin)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_new_replica_is_filled_at_the_rate_of_the_one_side_that_has_one(
    pair: Pair, role: str
) -> None:
    topic = f"filled-{role}"
    leader, follower = (OURS, KAFKA) if role == "leader" else (KAFKA, OURS)
    pair.fill(topic, leader)
    limit = f"{role}.replication.throttled"
    pair.admin.alter_configs(TOPIC, topic, {f"{limit}.replicas": f"0:{OURS}"})
    pair.admin.alter_configs(BROKER, str(OURS), {f"{limit}.rate": RATE})
    began = time.monotonic()
    pair.admin.alter_reassignments({(topic, 0): [leader, follower]})
    wait_until(lambda: pair.figure(f"kafka_server_{role}replication_byte_rate") > 0, LIMIT_S)
    wait_until(pair.is_done, MOVED_S)
    took = time.monotonic() - began
    # At most that: this machine may have been slow, too, of which a faster rate is the proof.
    assert took > SIZE / RATE - BURST_S, took
    assert took < 3 * SIZE / RATE + 10, took
    pair.admin.alter_configs(BROKER, str(OURS), {f"{limit}.rate": None})
    pair.fill(f"{topic}-2", leader)
    pair.admin.alter_configs(TOPIC, f"{topic}-2", {f"{limit}.replicas": "*"})
    began = time.monotonic()
    pair.admin.alter_reassignments({(f"{topic}-2", 0): [leader, follower]})
    wait_until(pair.is_done, MOVED_S)
    assert time.monotonic() - began < took


@pytest.mark.parametrize("leader", [OURS, KAFKA])
def test_kafkas_tool_throttles_a_move_and_takes_the_throttle_away_again(
    pair: Pair, kafka_tools: KafkaTools, tmp_path: Path, leader: int
) -> None:
    topic = f"moved-{leader}"
    pair.fill(topic, leader)
    other = KAFKA + OURS - leader
    plan = tmp_path / "plan.json"
    row = {"topic": topic, "partition": 0, "replicas": [other]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))

    def run(*words: str) -> str:
        server = ["--bootstrap-server", pair.node.address]
        file = ["--reassignment-json-file", str(plan)]
        done = kafka_tools.run_tool(REASSIGN, [*server, *file, *words])
        assert done.exit == 0, done
        return done.stdout

    began = time.monotonic()

    def throttled_replicas() -> list[str | None]:
        configs = pair.admin.describe_configs(TOPIC, topic)
        return [each.value for each in configs if each.name.startswith(LIMITS)]

    # What the controller has written, each broker tells some time later.
    run("--execute", "--throttle", str(RATE))
    wait_until(lambda: bool(pair.set_rates()), LIMIT_S)
    wait_until(pair.is_done, MOVED_S)
    assert time.monotonic() - began > SIZE / RATE - BURST_S
    wait_until(lambda: "is completed" in run("--verify"), LIMIT_S)
    wait_until(lambda: pair.leaders(topic) == [other], LIMIT_S)
    wait_until(lambda: not pair.set_rates(), LIMIT_S)
    wait_until(lambda: throttled_replicas() == ["", ""], LIMIT_S)
