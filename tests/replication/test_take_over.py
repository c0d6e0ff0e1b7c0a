"""Three brokers of kafkalite replicate to each other; one takes over when another dies."""

from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.replicas import difference
from replication.nodes import Node, wait_until

IDS = (1, 2, 3)
TAKE_OVER_S = 60
COUNT = 3_000


class Ours:
    """A topic of one partition, on all three."""

    def __init__(self, nodes: Sequence[Node], topic: str) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.topic = topic
        self.servers = ",".join(node.address for node in nodes)
        self.admin = AdminClient({"bootstrap.servers": self.servers})

    def make(self, replicas: Sequence[int]) -> None:
        """The first one leads."""
        new = NewTopic(
            self.topic,
            1,
            replica_assignment=[list(replicas)],
            config={"min.insync.replicas": "2"},
        )
        for made in self.admin.create_topics([new]).values():
            made.result(60)
        self.wait_for_isr(set(replicas))

    def seen(self, away: Node | None = None) -> tuple[int, set[int]]:
        """Leader and in-sync replicas, by word of a broker that is not away."""
        servers = ",".join(each.address for each in self.nodes.values() if each is not away)
        admin = AdminClient({"bootstrap.servers": servers})
        found = admin.list_topics(self.topic, timeout=30).topics[self.topic].partitions
        return (found[0].leader, set(found[0].isrs)) if found else (-1, set())

    def wait_for_isr(self, expected: set[int]) -> None:
        wait_until(lambda: self.seen()[1] == expected, TAKE_OVER_S)

    def new_producer(self) -> Producer:
        settings = {"bootstrap.servers": self.servers, "acks": "all", "enable.idempotence": True}
        return Producer({**settings, "linger.ms": 2, "message.timeout.ms": 120_000})

    def read(self, count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "readers"})
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        values: list[bytes] = []
        while len(values) < count:
            message = consumer.poll(60)
            assert message is not None, f"{len(values)} of {count} records"
            assert message.error() is None, message.error()
            values.append(message.value())
        consumer.close()
        return values

    def check_equal(self, count: int) -> None:
        """All replicas are byte for byte the same, once all have come so far."""
        folders = {each: node.data / f"{self.topic}-0" for each, node in self.nodes.items()}
        wait_until(lambda: difference(folders, count) is None, TAKE_OVER_S)

    def delete(self) -> None:
        for deleted in self.admin.delete_topics([self.topic]).values():
            deleted.result(60)


@pytest.mark.oracle
@pytest.mark.parametrize("end", ["killed", "stopped", "paused"])
def test_what_was_acknowledged_is_there_once_another_broker_leads(
    three_nodes: list[Node], end: str
) -> None:
    ours = Ours(three_nodes, f"taken-{end}")
    ours.make(IDS)
    leader = ours.nodes[IDS[0]]
    producer = ours.new_producer()
    acknowledged: list[bytes] = []
    failed: list[str] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            failed.append(error.name())
        else:
            acknowledged.append(message.value())  # type: ignore[attr-defined]

    values = [str(number).encode() for number in range(COUNT)]
    for number, value in enumerate(values):
        if number == COUNT // 3:
            producer.poll(0.5)
            {"killed": leader.kill, "stopped": leader.stop, "paused": leader.pause}[end]()
        producer.produce(ours.topic, value, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed
    assert sorted(acknowledged) == sorted(values)
    assert ours.seen(away=leader)[0] in IDS[1:]
    assert ours.read(COUNT) == values
    if end == "paused":
        leader.resume()
    else:
        leader.start()
    ours.wait_for_isr(set(IDS))
    ours.check_equal(COUNT)
    ours.delete()
