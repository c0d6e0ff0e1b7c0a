"""Records that a broker does not enforce, and replicas whose log directory is gone."""

from pathlib import Path

import pytest

from kafkalite.metadata.image import UNASSIGNED_DIRECTORY, Image, PartitionImage, TopicImage
from kafkalite.replication.admission import homeless_logs, homeless_sentence
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_kafka, wait_until

CONFIGS = "kafka.admin.ConfigCommand"
ID, OWN, OTHER = b"t" * 16, b"1" * 16, b"x" * 16


def image_of(*directories: bytes) -> Image:
    partitions = tuple(
        PartitionImage(index, 7, 0, 0, (7,), (7,), directories=(directory,))
        for index, directory in enumerate(directories)
    )
    return Image(topics={"t": TopicImage("t", ID, partitions)})


def test_replicas_whose_directory_is_not_here_are_named() -> None:
    """Nothing said why they were offline."""
    image = image_of(OWN, OTHER, UNASSIGNED_DIRECTORY, OTHER)
    homeless = homeless_logs(image, 7, [OWN], [(ID, 3, OWN)])
    assert homeless == [("t", 1)]
    assert homeless_logs(image, 8, [OWN], []) == []
    assert "created again, empty" in homeless_sentence(homeless, [])
    assert "t-1; they stay offline until /two is back" in homeless_sentence(homeless, ["/two"])


@pytest.mark.oracle
def test_a_quota_that_comes_while_the_broker_runs_is_told(
    kafka_tools: KafkaTools, kafka_controller: KafkaBroker, tmp_path: Path
) -> None:
    """Only a start looked at them."""
    kafka = new_kafka(kafka_tools, tmp_path / "kafka", kafka_controller, 8)
    with kafka, Node(9, tmp_path / "node", kafka_controller) as node:
        at = ["--bootstrap-server", kafka.bootstrap_servers]
        entity = ["--entity-type", "clients", "--entity-name", "c", "--alter"]
        quota = ["--add-config", "consumer_byte_rate=1000"]
        # The tool asks whichever broker Kafka's calls the controller, and ours takes no quotas.
        wait_until(lambda: kafka_tools.run_tool(CONFIGS, [*at, *entity, *quota]).exit == 0)
        wait_until(lambda: "the cluster has client quotas, which this broker" in node.told())
