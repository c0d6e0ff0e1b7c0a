"""Coordinators follow the leaders of their partitions: what a group has committed is there after
each change of hands, and what a transaction has decided comes to pass, once.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from cluster import nemesis
from cluster.brokers import BACK_S, Cluster, Kind, Member
from cluster.nemesis import Fault, World
from cluster.play import REPLICAS, keep_promises
from faults.copier import Names
from faults.copying import WORKERS, Copying
from faults.verify import Outcome, check_copies
from faults.workload import Recorder
from kafkalite.protocol.java_hash import java_hash
from oracle.tools import KafkaTools

pytestmark = pytest.mark.oracle

OURS = pytest.param((Kind.KAFKALITE,) * 3, id="kafkalite")
OF_KAFKA = pytest.param((Kind.KAFKA,) * 3, id="kafka", marks=pytest.mark.long)
MIXED = pytest.param(
    (Kind.KAFKALITE, Kind.KAFKA, Kind.KAFKALITE), id="mixed", marks=pytest.mark.long
)
KINDS = [OF_KAFKA, OURS, MIXED]
COPIES_BETWEEN_FAULTS = 60
PATIENCE_S = 20.0


def run_of(kinds: Sequence[Kind]) -> str:
    """Kinds have topics and groups of their own."""
    return "-".join(kinds)


def coordinator(cluster: Cluster, topic: str, key: str) -> Member:
    """The broker that leads the key's partition of a coordinator's topic."""
    return cluster.leader(topic, java_hash(key) % len(cluster.partitions(topic)))


T = TypeVar("T")
Which = Callable[[World], Member]
"""A broker, at the time of a fault."""


def of_transactions(run: str) -> Which:
    def which(world: World) -> Member:
        return coordinator(world.cluster, "__transaction_state", f"copier-{run}-0")

    return named(which, "coordinator_of_transactions")


def of_the_group(run: str) -> Which:
    def which(world: World) -> Member:
        return coordinator(world.cluster, "__consumer_offsets", Names.of(run).group)

    return named(which, "coordinator_of_the_group")


def of_offsets(partition: int) -> Which:
    def which(world: World) -> Member:
        return world.cluster.leader("__consumer_offsets", partition)

    return named(which, f"leader_of_offsets_{partition}")


def named(function: Callable[[World], T], name: str) -> Callable[[World], T]:
    """With the name that a history has for it."""
    function.__name__ = name
    return function


def lose(which: Which) -> Fault:
    """SIGKILL of that broker, which is back once others have taken over what it led."""

    def fault(world: World) -> None:
        lost = which(world)
        lost.kill()
        world.stay(nemesis.FENCED_S, nemesis.FENCED_S + nemesis.BRIEF_S)
        lost.start()

    return named(fault, f"lose_{which.__name__}")


def hand_over(which: Which) -> Fault:
    """A clean stop of that broker, and a start."""

    def fault(world: World) -> None:
        stopped = which(world)
        stopped.stop()
        stopped.start()

    return named(fault, f"hand_over_{which.__name__}")


def pause(which: Which) -> Fault:
    """SIGSTOP of that broker for so long that it wakes up as one that leads nothing."""

    def fault(world: World) -> None:
        with which(world).paused():
            world.stay(nemesis.FENCED_S, nemesis.FENCED_S + nemesis.BRIEF_S)

    return named(fault, f"pause_{which.__name__}")


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.timeout(900)
def test_offsets_that_are_committed_outlive_their_coordinator(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path, kinds: tuple[Kind, ...]
) -> None:
    cluster.become(*kinds)
    first, second = of_offsets(0), of_offsets(1)
    faults = [lose(first), hand_over(second), pause(first), lose(second)]
    keep_promises(cluster, f"committed-{run_of(kinds)}", faults, 0, tmp_path, kafka_tools)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.timeout(900)
def test_transactions_outlive_coordinators_and_leaders(
    cluster: Cluster, tmp_path: Path, kinds: tuple[Kind, ...]
) -> None:
    cluster.become(*kinds)
    run = run_of(kinds)
    everyone = (of_transactions(run), World.leader, of_the_group(run))
    faults = [each(which) for each in (lose, hand_over, pause) for which in everyone]
    copy_through(cluster, faults, 0, tmp_path, run)


def copy_through(
    cluster: Cluster, faults: Sequence[Fault], seed: int, folder: Path, run: str
) -> None:
    """Has workers copy through all faults: every record is copied once."""
    names = Names.of(run)
    recorder = Recorder()
    world = World(cluster, names.target, seed)
    try:
        copying = Copying(
            cluster.servers,
            recorder,
            seed,
            folder,
            run,
            replicas=REPLICAS,
            patience_s=PATIENCE_S,
        )
        with copying:
            for number, fault in enumerate(faults):
                when = f"before {fault.__name__}"
                copying.wait_for_copies(COPIES_BETWEEN_FAULTS, 2 * BACK_S, when)
                if number % 3 == 0:
                    copying.kill_worker(number % WORKERS)
                recorder.meet(fault, world)
            copying.drain(2 * BACK_S)
    finally:
        recorder.save(folder / "history.jsonl")
    found = check_copies(recorder.operations, names.source, names.target)
    assert found == []
    outcomes = {each.outcome for each in recorder.operations if each.name == "copy"}
    assert outcomes == {Outcome.OK, Outcome.FAIL}
    with cluster.admin() as admin:
        admin.delete_topics([names.source, names.target])
