"""One cluster for all tests here: a controller of Kafka's and three brokers, which begin as Kafka's
and are exchanged in place."""

from collections.abc import Iterator

import pytest

from cluster.brokers import Cluster, Kind, new_cluster
from oracle.tools import KafkaTools


@pytest.fixture(scope="session")
def cluster(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """It runs, with the brokers that the test before has left; `Cluster.become` exchanges them."""
    with new_cluster(kafka_tools, tmp_path_factory.mktemp("cluster")) as found:
        found.start(Kind.KAFKA, Kind.KAFKA, Kind.KAFKA)
        yield found
