"""Replicas move to other brokers while clients go on, at once and throttled, and while a broker is
bounced in the middle of it: what was promised is kept, all replicas become the same, who has none
any more keeps no files, and no throttle stays. After kafkatest's reassign_partitions_test; brokers
that are all Apache Kafka's are the control.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cluster import nemesis
from cluster.brokers import BACK_S, Cluster, Kind, new_cluster
from cluster.nemesis import Fault, World
from cluster.play import keep_promises
from faults.workload import PARTITIONS
from kafkalite.client import TOPIC
from oracle.tools import KafkaTools
from replication.nodes import wait_until

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]

KAFKA, OURS = Kind.KAFKA, Kind.KAFKALITE
MIXES = [(OURS,) * 4, (OURS, KAFKA, OURS, KAFKA), (KAFKA,) * 4]
HELD_BACK = 1_000
"""Bytes a second: a move does not come to its end."""
LET_GO = 50_000_000

Reassign = Callable[..., str]


def tool_at(cluster: Cluster) -> Reassign:
    """`kafkalite reassign` with some words; what it prints."""

    def run(*words: str) -> str:
        server = ("--bootstrap-server", cluster.servers)
        command = [sys.executable, "-m", "kafkalite", "reassign", *words, *server]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    return run


def reassign(folder: Path, *, is_throttled: bool, bounces: bool) -> Fault:
    """Each partition gets the broker that it has not in the place of one that it has."""

    def fault(world: World) -> None:
        cluster, tool = world.cluster, tool_at(world.cluster)
        plan = folder / f"{fault.__name__}.json"
        wanted = exchanged(world)
        rows = [{"topic": world.topic, "partition": p, "replicas": r} for p, r in wanted.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        throttle = ("--throttle", str(HELD_BACK)) if is_throttled else ()
        tool("execute", str(plan), *throttle)
        if bounces:
            nemesis.bounce_leader(world)
        if is_throttled:
            with cluster.admin() as admin:
                assert admin.list_reassignments(), "it is held back"
            tool("execute", str(plan), "--additional", "--throttle", str(LET_GO))
        told: list[str] = []

        def is_over() -> bool:
            told[:] = [tool("verify", str(plan))]
            return "still in progress" not in told[0]

        wait_until(is_over, BACK_S)
        assert told[0].count(" is completed.") == PARTITIONS, told[0]
        assert {e.partition: e.replicas for e in cluster.partitions(world.topic)} == wanted
        check_rest(world, wanted)

    how = ["throttled"] * is_throttled + ["bounced"] * bounces
    fault.__name__ = "_".join(["reassign", *how])
    return fault


def exchanged(world: World) -> dict[int, list[int]]:
    """The replicas that the partitions are to have."""
    wanted = {}
    for row in world.cluster.partitions(world.topic):
        (other,) = set(world.cluster.members) - set(row.replicas)
        leaves = world.draw.choice(row.replicas)
        wanted[row.partition] = [other if each == leaves else each for each in row.replicas]
    return wanted


def check_rest(world: World, wanted: dict[int, list[int]]) -> None:
    """No throttle is left, and no log of a broker that is to have none."""
    with world.cluster.admin() as admin:
        configs = admin.describe_configs(TOPIC, world.topic)
    limits = [
        each.value for each in configs if each.name.endswith("replication.throttled.replicas")
    ]
    assert limits == ["", ""]

    def are_gone() -> bool:
        return not any(
            (log_dir / f"{world.topic}-{partition}").exists()
            for partition, replicas in wanted.items()
            for member in world.cluster.members.values()
            if member.id not in replicas
            for log_dir in member.log_dirs
        )

    wait_until(are_gone, BACK_S)


def play(
    tools: KafkaTools, folder: Path, kinds: Sequence[Kind], hows: Sequence[tuple[bool, bool]]
) -> None:
    """Four brokers, and each of the ways in its turn."""
    faults = [reassign(folder, is_throttled=slow, bounces=bounces) for slow, bounces in hows]
    with new_cluster(tools, folder, count=4) as cluster:
        cluster.start(*kinds)
        keep_promises(cluster, "reassigned", faults, 0, folder, tools)


def test_replicas_move_while_a_broker_is_bounced(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    play(kafka_tools, tmp_path, MIXES[0], [(False, False), (True, True)])


@pytest.mark.long
@pytest.mark.parametrize("kinds", MIXES, ids="-".join)
def test_replicas_move_at_once_and_throttled_while_brokers_are_bounced(
    kafka_tools: KafkaTools, tmp_path: Path, kinds: Sequence[Kind]
) -> None:
    every_way = [(slow, bounces) for slow in (False, True) for bounces in (False, True)]
    play(kafka_tools, tmp_path, kinds, 2 * every_way)
