"""Coordinators follow the leaders of their partitions: what a group has committed is there after
each change of hands, and what a transaction has decided comes to pass, once.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cluster import nemesis
from cluster.brokers import BACK_S, Cluster, Kind, Member
from cluster.nemesis import Fault, World
from cluster.play import REPLICAS, keep_promises, meet
from faults.copier import GROUP, SOURCE, TARGET
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


def coordinator(cluster: Cluster, topic: str, key: str) -> Member:
    """The broker that leads the key's partition of a coordinator's topic."""
    return cluster.leader(topic, java_hash(key) % len(cluster.partitions(topic)))


def of_transactions(cluster: Cluster) -> Member:
    return coordinator(cluster, "__transaction_state", "copier-0")


def of_the_group(cluster: Cluster) -> Member:
    return coordinator(cluster, "__consumer_offsets", GROUP)


def of_a_copy(cluster: Cluster) -> Member:
    return cluster.leader(TARGET)


def lose(which: Callable[[Cluster], Member]) -> Fault:
    """SIGKILL of that broker, which is back once others have taken over what it led."""

    def fault(world: World) -> None:
        lost = which(world.cluster)
        lost.kill()
        world.stay(nemesis.FENCED_S, nemesis.FENCED_S + nemesis.BRIEF_S)
        lost.start()

    fault.__name__ = f"lose_{which.__name__}"
    return fault


def hand_over(which: Callable[[Cluster], Member]) -> Fault:
    """A clean stop of that broker, and a start."""

    def fault(world: World) -> None:
        stopped = which(world.cluster)
        stopped.stop()
        stopped.start()

    fault.__name__ = f"hand_over_{which.__name__}"
    return fault


def pause(which: Callable[[Cluster], Member]) -> Fault:
    """SIGSTOP of that broker for so long that it wakes up as one that leads nothing."""

    def fault(world: World) -> None:
        with which(world.cluster).paused():
            world.stay(nemesis.FENCED_S, nemesis.FENCED_S + nemesis.BRIEF_S)

    fault.__name__ = f"pause_{which.__name__}"
    return fault


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.timeout(900)
def test_offsets_that_are_committed_outlive_their_coordinator(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path, kinds: tuple[Kind, ...]
) -> None:
    cluster.become(*kinds)
    of_any = [
        lambda cluster, each=each: cluster.leader("__consumer_offsets", each) for each in (0, 1)
    ]
    faults = [lose(of_any[0]), hand_over(of_any[1]), pause(of_any[0]), lose(of_any[1])]
    keep_promises(cluster, "committed", faults, 0, tmp_path, kafka_tools)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.timeout(900)
def test_transactions_outlive_coordinators_and_leaders(
    cluster: Cluster, tmp_path: Path, kinds: tuple[Kind, ...]
) -> None:
    cluster.become(*kinds)
    everyone = (of_transactions, of_a_copy, of_the_group)
    faults = [each(which) for each in (lose, hand_over, pause) for which in everyone]
    copy_through(cluster, faults, 0, tmp_path)


def copy_through(cluster: Cluster, faults: Sequence[Fault], seed: int, folder: Path) -> None:
    """Has workers copy through all faults: every record is copied once."""
    recorder = Recorder()
    world = World(cluster, TARGET, seed)
    try:
        copying = Copying(
            cluster.servers, recorder, seed, folder, replicas=REPLICAS, patience_s=PATIENCE_S
        )
        with copying:
            for number, fault in enumerate(faults):
                when = f"before {fault.__name__}"
                copying.wait_for_copies(COPIES_BETWEEN_FAULTS, 2 * BACK_S, when)
                if number % 3 == 0:
                    copying.kill_worker(number % WORKERS)
                meet(fault, world, recorder)
            copying.drain(2 * BACK_S)
    finally:
        recorder.save(folder / "history.jsonl")
    found = check_copies(recorder.operations, SOURCE, TARGET)
    assert found == []
    outcomes = {each.outcome for each in recorder.operations if each.name == "copy"}
    assert outcomes == {Outcome.OK, Outcome.FAIL}
    with cluster.admin() as admin:
        admin.delete_topics([SOURCE, TARGET])
