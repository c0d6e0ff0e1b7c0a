"""The power is cut under several brokers at one moment, or under all: each has a file system of its
own, which forgets what was not flushed. What was acknowledged is there afterwards, at its offset,
and no election was an unclean one. Kafka's controller keeps its power.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.brokers import Cluster, Kind, Member, new_cluster
from cluster.nemesis import Fault, World
from cluster.play import keep_promises
from faults.mount import Mount
from faults.nemesis import lose_unflushed, stop_between_calls
from kafkalite import _native
from kafkalite.metadata import records
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]

BROKERS = (1, 2, 3)
CUTS_LONG = 20
RECOVERING = 1


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[dict[int, Mount]]:
    """The log directory of each broker, as `new_cluster` will look for it."""
    made: dict[int, Mount] = {}
    try:
        for each in BROKERS:
            (tmp_path / str(each)).mkdir()
            made[each] = Mount(tmp_path / str(each), "data")
            # No partition has such a name.
            (made[each].path / "lost+found").rmdir()
        yield made
    finally:
        for mount in made.values():
            mount.unmount()


@contextmanager
def started(
    tools: KafkaTools, folder: Path, mounts: Mapping[int, Mount], **configs: str
) -> Iterator[Cluster]:
    """Three brokers of kafkalite on file systems of their own, which run."""
    assert set(mounts) == set(BROKERS)
    with new_cluster(tools, folder, len(BROKERS), lambda _: configs) as cluster:
        cluster.start(*(Kind.KAFKALITE,) * len(BROKERS))
        yield cluster


def cut(mounts: Mapping[int, Mount], count: int) -> Fault:
    """A power cut of so many brokers, which are drawn."""

    def fault(world: World) -> None:
        members = world.draw.sample(list(world.cluster.members.values()), count)
        for each in members:
            stop_between_calls(each.pid)
        for each in members:
            lose_unflushed(mounts[each.id])
        for each in members:
            each.kill()
            mounts[each.id].unmount()
            mounts[each.id].mount()
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(Member.start, members))
        world.cluster.wait_until_unfenced()

    fault.__name__ = f"power_cut_of_{count}"
    return fault


def unclean_elections(controller: KafkaBroker) -> list[Any]:
    """The records of the controller by which somebody leads who may lack what was committed."""
    found = []
    for segment in sorted((controller.log_dirs[0] / "__cluster_metadata-0").glob("*.log")):
        batches = _native.read_batches(segment.read_bytes(), stop_at_corrupt=True)
        values = [
            value for each in batches if not each.is_control for _, _, _, value, _ in each.records
        ]
        assert values
        messages = [records.decode(value) for value in values if value and value != records.NO_OP]
        named = (
            each for each in messages if each._name in ("PartitionRecord", "PartitionChangeRecord")
        )
        found += [each for each in named if each.leader_recovery_state == RECOVERING]
    return found


def survive(
    mounts: Mapping[int, Mount], counts: Sequence[int], seed: int, folder: Path, tools: KafkaTools
) -> None:
    """Clients go on through power cuts of so many brokers each, and are kept what they are
    promised."""
    faults = [cut(mounts, each) for each in counts]
    with started(tools, folder, mounts) as cluster:
        keep_promises(cluster, f"power-{seed}", faults, seed, folder, tools)
        assert unclean_elections(cluster.controller) == []


def test_what_is_acknowledged_survives_a_power_cut_of_all_brokers(
    mounts: Mapping[int, Mount], kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    survive(mounts, (3, 2), 0, tmp_path, kafka_tools)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_what_is_acknowledged_survives_any_power_cuts(
    mounts: Mapping[int, Mount], kafka_tools: KafkaTools, seed: int, tmp_path: Path
) -> None:
    counts = random.Random(seed).choices((1, 2, 3), (1, 2, 3), k=CUTS_LONG)
    survive(mounts, counts, seed, tmp_path, kafka_tools)


@pytest.mark.long
def test_an_unclean_election_would_be_seen(
    mounts: Mapping[int, Mount], kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """The control: brokers that answer before anything is on disk need one, since the controllers
    take them for such that have lost it (KAFKA-18106, KAFKA-18635)."""
    configs = {"kafkalite.acks.fsync": "none"}
    with started(kafka_tools, tmp_path, mounts, **configs) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("unflushed", partitions=1, replication_factor=3)
        cluster.wait_for_isr("unflushed")
        assert unclean_elections(cluster.controller) == []
        cut(mounts, 3)(World(cluster, "unflushed", 0))
        cluster.wait_for_isr("unflushed")
        assert unclean_elections(cluster.controller) != []
