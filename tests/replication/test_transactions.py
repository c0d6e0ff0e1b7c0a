"""Transactions over several brokers: whichever of them coordinates one, leads its partitions or
coordinates the group whose offsets are in it."""

import contextlib
import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafkalite.metadata import reading
from kafkalite.protocol.java_hash import java_hash
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_controller, new_kafka, wait_until
from replication.test_join import TOPICS, Tool, alive, leaders, make, tool

__all__ = ["tool"]

STATE_PARTITIONS = 5
IDS = [f"copier-{number}" for number in range(12)]
"""Their coordinators are all brokers."""


def new_producer(servers: str, transactional_id: str) -> Producer:
    settings = {
        "bootstrap.servers": servers,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": 60_000,
        "message.timeout.ms": 50_000,
    }
    producer = Producer(settings)
    producer.init_transactions(60)
    return producer


def addresses(nodes: Sequence[Node]) -> str:
    return ",".join(each.address for each in nodes)


def committed_values(servers: str, topic: str, count: int, seconds: float = 60) -> list[str]:
    """What a reader of committed records finds in all partitions; at least so many."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "none",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    try:
        known = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in known])
        values: list[str] = []
        ended: set[int] = set()
        due = time.monotonic() + seconds
        while len(values) < count or len(ended) < len(known):
            assert time.monotonic() < due, f"{len(values)} of {count} records"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                ended.add(message.partition())
            else:
                values.append(message.value().decode())
        return values
    finally:
        consumer.close()


def coordinator_of(node: Node, transactional_id: str) -> int:
    return leaders(node, "__transaction_state")[java_hash(transactional_id) % STATE_PARTITIONS]


def test_transactions_span_brokers(tool: Tool, three_nodes: list[Node]) -> None:
    make(tool, three_nodes, "spanned")
    servers = addresses(three_nodes)
    expected = []
    for name in IDS:
        producer = new_producer(servers, name)
        for word, ends in (
            ("kept", producer.commit_transaction),
            ("not", producer.abort_transaction),
        ):
            producer.begin_transaction()
            for index in range(6):
                producer.produce("spanned", f"{name} {word} {index}", partition=index)
            ends(60)
        expected += [f"{name} kept {index}" for index in range(6)]
    assert {coordinator_of(three_nodes[0], name) for name in IDS} == {1, 2, 3}
    assert sorted(committed_values(servers, "spanned", len(expected))) == sorted(expected)


def test_offsets_of_any_group_are_in_the_transaction(tool: Tool, three_nodes: list[Node]) -> None:
    make(tool, three_nodes, "copied", 3)
    servers = addresses(three_nodes)
    producer = new_producer(servers, "copier-of-offsets")
    for number in range(6):
        settings = {"bootstrap.servers": servers, "group.id": f"copiers-{number}"}
        consumer = Consumer(settings)
        try:
            for offset, ends in ((7, producer.commit_transaction), (9, producer.abort_transaction)):
                producer.begin_transaction()
                producer.produce("copied", str(offset), partition=offset % 3)
                producer.send_offsets_to_transaction(
                    [TopicPartition("copied", 0, offset)], consumer.consumer_group_metadata(), 60
                )
                ends(60)
            (found,) = consumer.committed([TopicPartition("copied", 0)], timeout=60)
            assert found.offset == 7
        finally:
            consumer.close()


def test_javas_producer_has_an_epoch_for_each_transaction(
    tool: Tool, kafka_tools: KafkaTools, three_nodes: list[Node]
) -> None:
    make(tool, three_nodes, "perf")
    words = ["--topic", "perf", "--num-records", "3000", "--record-size", "10"]
    words += ["--throughput", "-1", "--transactional-id", "perf", "--transaction-duration-ms", "50"]
    words += ["--command-property", f"bootstrap.servers={addresses(three_nodes)}"]
    done = kafka_tools.run_tool("org.apache.kafka.tools.ProducerPerformance", words)
    assert done.exit == 0, done
    assert "3000 records sent" in done.stdout
    assert len(committed_values(addresses(three_nodes), "perf", 3_000)) == 3_000


def test_a_transaction_outlives_its_coordinator(tool: Tool, three_nodes: list[Node]) -> None:
    make(tool, three_nodes, "outlived")
    servers = addresses(three_nodes)
    producer = new_producer(servers, "outliving")
    for number in range(4):
        coordinator = three_nodes[coordinator_of(three_nodes[0], "outliving") - 1]
        producer.begin_transaction()
        others = [index for index in range(6) if leaders(three_nodes[0], "outlived")[index] > 0]
        for index in others:
            producer.produce("outlived", f"{number}-{index}", partition=index)
        assert producer.flush(60) == 0
        coordinator.kill()
        coordinator.start()
        producer.commit_transaction(60)
    found = committed_values(servers, "outlived", 24)
    assert sorted(found) == sorted(f"{number}-{index}" for number in range(4) for index in range(6))


def test_a_decision_reaches_a_leader_that_was_away(tool: Tool, three_nodes: list[Node]) -> None:
    make(tool, three_nodes, "away")
    servers = addresses(three_nodes)
    name = next(each for each in IDS if coordinator_of(three_nodes[0], each) == 1)
    producer = new_producer(servers, name)
    producer.begin_transaction()
    for index in range(6):
        producer.produce("away", str(index), partition=index)
    assert producer.flush(60) == 0
    gone = three_nodes[1]
    gone.kill()
    # The decision is the coordinator's, and answered; the marker waits for who leads.
    producer.commit_transaction(60)
    gone.start()
    assert sorted(committed_values(servers, "away", 6)) == [str(index) for index in range(6)]


@pytest.fixture(scope="module")
def mixed(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaBroker, Node, KafkaBroker]]:
    """A controller, broker 1 of kafkalite and broker 5 of Apache Kafka's."""
    folder = tmp_path_factory.mktemp("mixed")
    with contextlib.ExitStack() as stack:
        controller = stack.enter_context(new_controller(kafka_tools, folder / "controller"))
        kafka = new_kafka(kafka_tools, folder / "kafka", controller, 5)
        ours = Node(1, folder / "ours", controller)
        yield controller, stack.enter_context(ours), stack.enter_context(kafka)


def test_brokers_of_both_kinds_end_each_others_transactions(
    tool: Tool, mixed: tuple[KafkaBroker, Node, KafkaBroker]
) -> None:
    controller, ours, _ = mixed
    wait_until(lambda: alive(ours) == {1, 5}, 60)
    # An odd partition is Kafka's.
    assignment = ",".join("15"[index % 2] for index in range(STATE_PARTITIONS))
    for topic in ("__transaction_state", "__consumer_offsets"):
        words = ("--replica-assignment", assignment, "--config", "cleanup.policy=compact")
        tool(TOPICS, ours, "--create", "--topic", topic, *words)
    tool(TOPICS, ours, "--create", "--topic", "mixed", "--replica-assignment", "1,5")
    wait_until(lambda: {*reading.read(controller.log_dirs[0]).image.topics} >= {"mixed"})
    for name in IDS[:6]:
        producer = new_producer(ours.address, name)
        consumer = Consumer({"bootstrap.servers": ours.address, "group.id": name})
        for word, ends in (
            ("kept", producer.commit_transaction),
            ("not", producer.abort_transaction),
        ):
            producer.begin_transaction()
            for index in range(2):
                producer.produce("mixed", f"{name} {word} {index}", partition=index)
            offset = 3 if word == "kept" else 4
            producer.send_offsets_to_transaction(
                [TopicPartition("mixed", 0, offset)], consumer.consumer_group_metadata(), 60
            )
            ends(60)
        (found,) = consumer.committed([TopicPartition("mixed", 0)], timeout=60)
        assert found.offset == 3
        consumer.close()
    expected = sorted(f"{name} kept {index}" for name in IDS[:6] for index in range(2))
    assert sorted(committed_values(ours.address, "mixed", len(expected))) == expected
    assert {java_hash(name) % STATE_PARTITIONS % 2 for name in IDS[:6]} == {0, 1}


def test_a_fenced_producer_writes_nothing_anywhere(tool: Tool, three_nodes: list[Node]) -> None:
    make(tool, three_nodes, "fenced", 3)
    servers = addresses(three_nodes)
    for name in IDS[:4]:
        old = new_producer(servers, name)
        old.begin_transaction()
        for index in range(3):
            old.produce("fenced", "old", partition=index)
        assert old.flush(60) == 0
        new = new_producer(servers, name)
        with pytest.raises(KafkaException):
            old.commit_transaction(60)
        new.begin_transaction()
        for index in range(3):
            new.produce("fenced", "new", partition=index)
        new.commit_transaction(60)
    assert committed_values(servers, "fenced", 12) == ["new"] * 12
