"""A replica that lacks records is elected all the same, by an operator's word: it is marked as
recovering until others have its log, whichever kind of broker it is on."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalite.client.cluster_admin import UNCLEAN, ClusterAdmin
from kafkalite.client.descriptions import PartitionDescription
from kafkalite.errors import BrokerError
from kafkalite.metadata.reading import read
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_kafka, wait_until
from replication.records import produce

pytestmark = pytest.mark.oracle

KAFKA, OURS = 41, 42
CHANGED_S = 120
RECOVERED, RECOVERING = 0, 1


def partition(servers: str, topic: str) -> PartitionDescription | None:
    """The partition as a broker tells it."""
    try:
        with ClusterAdmin(servers) as admin:
            (found,) = admin.describe_topics(topic)
    except BrokerError:
        return None  # the broker has not heard of it yet
    return found.partitions[0]


def recovery_state(controller: KafkaBroker, topic: str) -> int:
    """That of the partition in the controller's log."""
    image = read(controller.log_dirs[0]).image
    return image.topics[topic].partitions[0].recovery_state


def consume(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(60)
        assert message is not None and message.error() is None, message
        values.append(message.value())
    consumer.close()
    return values


@pytest.mark.parametrize("elected_id", [OURS, KAFKA])
def test_an_uncleanly_elected_leader_is_recovering_until_another_follows_it(
    kafka_controller: KafkaBroker, kafka_tools: KafkaTools, tmp_path: Path, elected_id: int
) -> None:
    kafka = new_kafka(kafka_tools, tmp_path / "kafka", kafka_controller, KAFKA)
    node = Node(OURS, tmp_path / "ours", kafka_controller)
    elected, other = (node, kafka) if elected_id == OURS else (kafka, node)
    other_id, topic = KAFKA + OURS - elected_id, f"elected-{elected_id}"

    def is_so(address: str, check: Callable[[PartitionDescription], bool]) -> Callable[[], bool]:
        def look() -> bool:
            found = partition(address, topic)
            return found is not None and check(found)

        return look

    with ExitStack() as stack:
        for each in (kafka, node):
            each.start()
            stack.callback(each.kill)
        addresses = {KAFKA: kafka.bootstrap_servers, OURS: node.address}
        servers, away = addresses[elected_id], addresses[other_id]
        with ClusterAdmin(servers) as admin:
            admin.create_topic(topic, assignments=[[other_id, elected_id]])
        both = {KAFKA, OURS}
        wait_until(is_so(servers, lambda found: set(found.isr) == both), CHANGED_S)
        produce(servers, topic, [b"kept"])
        elected.kill()
        wait_until(is_so(away, lambda found: found.isr == [other_id]), CHANGED_S)
        produce(away, topic, [b"lost"])
        other.kill()
        elected.start()
        wait_until(is_so(servers, lambda found: found.leader == -1), CHANGED_S)
        with ClusterAdmin(servers) as admin:
            assert admin.elect_leaders(UNCLEAN, [(topic, 0)]) == {(topic, 0): None}
        wait_until(is_so(servers, lambda found: found.leader == elected_id), CHANGED_S)
        assert recovery_state(kafka_controller, topic) == RECOVERING
        if elected_id == OURS:
            wait_until(lambda: f"by an unclean election: {topic}-0 (epoch " in node.told())
        produce(servers, topic, [b"anew"])
        other.start()
        wait_until(is_so(servers, lambda found: set(found.isr) == both), CHANGED_S)
        assert recovery_state(kafka_controller, topic) == RECOVERED
        assert consume(servers, topic, 2) == [b"kept", b"anew"]
