"""A broker of kafkalite follows brokers of Apache Kafka's."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.replicas import batches, difference
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_kafka, wait_until

ISR_S = 120


class Mixed:
    """Brokers 11 and 12 of Kafka's, and broker 13 of kafkalite."""

    def __init__(self, kafka: Sequence[KafkaBroker], node: Node) -> None:
        self.kafka = kafka
        self.node = node
        self.servers = kafka[0].bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers})

    def make(self, topic: str, replicas: Sequence[Sequence[int]], **config: str) -> None:
        """Makes a topic whose partitions have these replicas, the leader first."""
        made = NewTopic(
            topic,
            num_partitions=len(replicas),
            replica_assignment=[list(each) for each in replicas],
            config=dict(config),
        )
        for future in self.admin.create_topics([made]).values():
            future.result(60)

    def in_sync(self, topic: str) -> list[set[int]]:
        found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return [set(found[each].isrs) for each in sorted(found)]

    def produce(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """With acks=all: when it returns, each replica that is in sync has them."""
        settings = {"bootstrap.servers": self.servers, "acks": "all", "linger.ms": 5}
        producer = Producer({**settings, "message.timeout.ms": 60_000})
        failed = []
        for value in values:
            producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(90) == 0
        assert not failed, failed

    def replicas(self, topic: str, partition: int) -> dict[int, Path]:
        """The directories of a partition by brokers, Kafka's first."""
        log_dirs = [*(each.log_dirs[0] for each in self.kafka), self.node.data]
        name = f"{topic}-{partition}"
        return {number: log_dir / name for number, log_dir in enumerate(log_dirs, 11)}


@pytest.fixture(scope="module")
def mixed(
    kafka_controller: KafkaBroker,
    kafka_tools: KafkaTools,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mixed]:
    folder = tmp_path_factory.mktemp("mixed")
    kafka = [
        new_kafka(kafka_tools, folder / str(each), kafka_controller, each) for each in (11, 12)
    ]
    node = Node(13, folder / "13", kafka_controller)
    with ExitStack() as stack:
        for each in kafka:
            stack.enter_context(each)
        stack.enter_context(node)
        yield Mixed(kafka, node)


def assert_equal_replicas(mixed: Mixed, topic: str, partition: int, end: int) -> None:
    """All replicas become the same up to this offset, byte for byte."""
    replicas = mixed.replicas(topic, partition)
    wait_until(lambda: difference(replicas, end) is None, 60)
    counts = [sum(1 for _ in batches(each)) for each in replicas.values()]
    assert len(set(counts)) == 1, counts


def test_it_enters_every_isr_and_its_files_are_those_of_the_leaders(mixed: Mixed) -> None:
    mixed.make("followed", [(11, 12, 13), (12, 13, 11)], **{"min.insync.replicas": "3"})
    wait_until(lambda: mixed.in_sync("followed") == [{11, 12, 13}] * 2, ISR_S)
    for partition in (0, 1):
        # With three replicas that have to be in sync, acks=all is the follower's word.
        mixed.produce("followed", partition, [b"%d" % each * 50 for each in range(2000)])
        assert_equal_replicas(mixed, "followed", partition, 2000)
    assert mixed.in_sync("followed") == [{11, 12, 13}] * 2
