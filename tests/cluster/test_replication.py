"""Producers and consumers of a cluster are kept what they are promised, whoever leads."""

from pathlib import Path

import pytest

from cluster import nemesis
from cluster.brokers import Cluster, Kind
from cluster.play import keep_promises

pytestmark = pytest.mark.oracle

KAFKAS = (Kind.KAFKA,) * 3


@pytest.mark.timeout(900)
def test_apache_kafka_keeps_its_promises_through_every_fault(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The control: what is asked here holds for Kafka."""
    cluster.become(*KAFKAS)
    keep_promises(cluster, "of-kafka", nemesis.EVERYTHING, 0, tmp_path)
