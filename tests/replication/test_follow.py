"""A broker of kafkalite follows brokers of Apache Kafka's."""

import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.replicas import batches, difference
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from ports import free_ports
from replication.nodes import Node, new_kafka, wait_until

ISR_S = 120


class Mixed:
    """Brokers 11 and 12 of Kafka's, and broker 13 of kafkalite."""

    def __init__(self, kafka: Sequence[KafkaBroker], node: Node, metrics_port: int) -> None:
        self.kafka = kafka
        self.metrics = f"http://127.0.0.1:{metrics_port}/metrics"
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

    def figure(self, name: str) -> float:
        """A metric of kafkalite's broker, by the end of its name."""
        (found,) = [value for each, value in self.figures().items() if each.endswith(name)]
        return found

    def figures(self) -> dict[str, float]:
        """All of them."""
        with urllib.request.urlopen(self.metrics, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        rows = [each.rpartition(" ") for each in lines if not each.startswith("#")]
        return {row: float(value) for row, _, value in rows}

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
    (port,) = free_ports(1)
    metrics = {"kafkalite.metrics.listener": f"127.0.0.1:{port}"}
    node = Node(13, folder / "13", kafka_controller, **metrics)
    with ExitStack() as stack:
        for each in kafka:
            stack.enter_context(each)
        stack.enter_context(node)
        yield Mixed(kafka, node, port)


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
    assert mixed.figure('consumerlag{topic="followed",partition="0"}') == 0
    assert mixed.figure('maxlag{clientId="Replica"}') == 0
    sizes = [each.stat().st_size for each in mixed.node.data.glob("followed-*/*.log")]
    assert mixed.figure("replicationbytesin_total") >= sum(sizes) > 0


def test_only_its_replicas_are_counted_and_controllers_tell_the_rest(mixed: Mixed) -> None:
    """It said to be the active controller, and of partitions that other brokers have that they were
    offline."""
    mixed.make("mine", [(13, 11), (11, 12)])
    wait_until(lambda: mixed.in_sync("mine") == [{13, 11}, {11, 12}], ISR_S)
    wait_until(lambda: (mixed.node.data / "mine-0").exists())
    logs = [each for each in mixed.node.data.glob("*-*") if not each.name.startswith("__cluster")]
    folders = {each.name for each in logs if each.is_dir()}
    replicas = "kafka_server_replicamanager"
    # A log counts once it is open, a moment after its folder is there.
    wait_until(lambda: mixed.figures()[f"{replicas}_partitioncount"] == len(folders))
    found = mixed.figures()
    assert found[f"{replicas}_offlinereplicacount"] == 0
    assert not [each for each in found if each.startswith("kafka_controller")]


def test_a_killed_follower_goes_on_where_its_disk_ends(mixed: Mixed) -> None:
    mixed.make("killed", [(11, 12, 13)], **{"min.insync.replicas": "2"})
    wait_until(lambda: mixed.in_sync("killed") == [{11, 12, 13}], ISR_S)
    mixed.produce("killed", 0, [b"%d" % each * 50 for each in range(1000)])
    mixed.node.kill()
    # The controller fences it, and the others go on without.
    mixed.produce("killed", 0, [b"%d" % each * 50 for each in range(1000)])
    mixed.node.start()
    wait_until(lambda: mixed.in_sync("killed") == [{11, 12, 13}], ISR_S)
    mixed.produce("killed", 0, [b"last"])
    assert_equal_replicas(mixed, "killed", 0, 2001)


def test_it_goes_over_to_the_next_leader(mixed: Mixed) -> None:
    mixed.make("handed", [(12, 11, 13)], **{"min.insync.replicas": "2"})
    wait_until(lambda: mixed.in_sync("handed") == [{11, 12, 13}], ISR_S)
    mixed.produce("handed", 0, [b"%d" % each for each in range(500)])
    mixed.kafka[1].stop()
    mixed.produce("handed", 0, [b"%d" % each for each in range(500)])
    assert mixed.in_sync("handed") == [{11, 13}]
    mixed.kafka[1].start()
    wait_until(lambda: mixed.in_sync("handed") == [{11, 12, 13}], ISR_S)
    mixed.produce("handed", 0, [b"last"])
    assert_equal_replicas(mixed, "handed", 0, 1001)
    epochs = {each.leader_epoch for each in batches(mixed.replicas("handed", 0)[13])}
    assert len(epochs) > 1, epochs
