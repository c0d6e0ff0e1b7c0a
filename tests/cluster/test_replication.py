"""Producers and consumers of a cluster are kept what they are promised, whoever leads and follows:
through faults of brokers, controllers and the network, and while brokers of Apache Kafka's become
kafkalite's and Kafka's again.

A run keeps its history in its temporary directory.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster import nemesis
from cluster.brokers import Cluster, Kind
from cluster.nemesis import Fault, World
from cluster.play import keep_promises
from oracle.tools import KafkaTools

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1200)]

KAFKA, KAFKALITE = Kind.KAFKA, Kind.KAFKALITE
OF_KAFKA, OURS = (KAFKA,) * 3, (KAFKALITE,) * 3
MIXES = ((KAFKA, KAFKA, KAFKALITE), (KAFKA, KAFKALITE, KAFKALITE))
FAULTS_LONG = 30
SEEDS_LONG = range(1, 6)


def exchange(broker_id: int, kind: Kind) -> Fault:
    """A clean stop, and a start as another kind on the same directory with the same properties."""

    def fault(world: World) -> None:
        member = world.cluster.members[broker_id]
        member.stop()
        member.start(kind)

    fault.__name__ = f"broker_{broker_id}_becomes_{kind}"
    return fault


def exchange_all(kind: Kind) -> list[Fault]:
    return [exchange(each, kind) for each in (1, 2, 3)]


def drawn(seed: int, faults: Sequence[Fault], count: int) -> list[Fault]:
    """Each once in a drawn order, then drawn ones."""
    draw = random.Random(seed)
    first = draw.sample(faults, len(faults))
    return [*first, *draw.choices(faults, k=max(0, count - len(first)))]


def test_brokers_are_exchanged_in_place_and_back_under_load(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """Kafka, kafkalite, Kafka, one broker after the other, each with the directories and properties
    that the other had; in between, kafkalite's alone, a leader is lost."""
    cluster.become(*OF_KAFKA)
    faults = [*exchange_all(KAFKALITE), nemesis.lose_leader, *exchange_all(KAFKA)]
    keep_promises(cluster, "exchanged", faults, 0, tmp_path, kafka_tools)


def test_promises_are_kept_by_kafkalite(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    cluster.become(*OURS)
    faults = (nemesis.cut_followers_off, nemesis.bounce_leader)
    keep_promises(cluster, "kafkalite", faults, 0, tmp_path, kafka_tools)


@pytest.mark.long
def test_apache_kafka_keeps_its_promises_through_every_fault(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """The control: what is asked here holds for Kafka."""
    cluster.become(*OF_KAFKA)
    keep_promises(cluster, "kafka", nemesis.EVERYTHING, 0, tmp_path, kafka_tools)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_LONG)
def test_kafkalite_keeps_its_promises_through_every_fault(
    cluster: Cluster, kafka_tools: KafkaTools, seed: int, tmp_path: Path
) -> None:
    cluster.become(*OURS)
    faults = drawn(seed, nemesis.EVERYTHING, FAULTS_LONG)
    keep_promises(cluster, f"kafkalite-{seed}", faults, seed, tmp_path, kafka_tools)


@pytest.mark.long
@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: "-".join(mix))
@pytest.mark.parametrize("seed", SEEDS_LONG)
def test_mixed_brokers_keep_their_promises_through_every_fault(
    cluster: Cluster, kafka_tools: KafkaTools, mix: Sequence[Kind], seed: int, tmp_path: Path
) -> None:
    cluster.become(*mix)
    faults = drawn(seed, nemesis.EVERYTHING, FAULTS_LONG)
    keep_promises(cluster, f"mixed-{seed}", faults, seed, tmp_path, kafka_tools)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_LONG)
def test_brokers_are_exchanged_amid_faults(
    cluster: Cluster, kafka_tools: KafkaTools, seed: int, tmp_path: Path
) -> None:
    cluster.become(*OF_KAFKA)
    exchanges = [exchange(broker, kind) for broker in (1, 2, 3) for kind in Kind]
    faults = drawn(seed, (*nemesis.EVERYTHING, *exchanges), FAULTS_LONG)
    keep_promises(cluster, f"amid-faults-{seed}", faults, seed, tmp_path, kafka_tools)
