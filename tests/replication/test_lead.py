"""A broker of kafkalite leads partitions that brokers of Apache Kafka's and of kafkalite follow."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from api.raw import Connection
from kafkalite.protocol import codes, messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_kafka, wait_until

LEADER, FOLLOWERS, OURS = 21, (22, 23), 24
LAG_MS = 1_000
"""Shorter than the session: who stands still leaves the ISR before the controller fences it."""


class Cluster(NamedTuple):
    """A leader of kafkalite's, its followers of Kafka's, and one of kafkalite's. Each has a rack of
    its own, which is its id."""

    leader: Node
    followers: list[KafkaBroker]
    ours: Node

    def make(self, topic: str, replicas: Sequence[int], min_isr: int) -> None:
        config = {"min.insync.replicas": str(min_isr)}
        topics = [NewTopic(topic, 1, replica_assignment=[list(replicas)], config=config)]
        admin = self._admin()
        for made in admin.create_topics(topics).values():
            made.result(30)
        wait_until(lambda: self.isr(topic) == set(replicas))

    def delete(self, topic: str) -> None:
        admin = self._admin()
        for deleted in admin.delete_topics([topic]).values():
            deleted.result(30)

    def isr(self, topic: str) -> set[int]:
        """The in-sync replicas, as the leader's metadata has them."""
        found = self._admin().list_topics(topic, timeout=10).topics[topic]
        return set(found.partitions[0].isrs) if found.error is None and found.partitions else set()

    def produce(self, topic: str, values: Sequence[str], acks: str = "all") -> list[int | str]:
        """The offset of each record, or the error's name."""
        settings = {"bootstrap.servers": self.leader.address, "acks": acks, "retries": 0}
        producer = Producer(settings)
        told: list[int | str] = []

        def delivered(error: KafkaError | None, message: object) -> None:
            told.append(error.name() if error else message.offset())  # type: ignore[attr-defined]

        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0
        return told

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.leader.address})


@pytest.fixture(scope="module")
def cluster(
    kafka_tools: KafkaTools,
    kafka_controller: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("lead")
    configs = {
        "replica.lag.time.max.ms": LAG_MS,
        "broker.rack": LEADER,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    leader = Node(LEADER, folder / "leader", kafka_controller, **configs)
    ours = Node(OURS, folder / "ours", kafka_controller, **{"broker.rack": OURS})
    followers = [
        new_kafka(
            kafka_tools,
            folder / str(each),
            kafka_controller,
            each,
            **{"broker.rack": str(each)},
        )
        for each in FOLLOWERS
    ]
    with ExitStack() as stack:
        for broker in (leader, ours, *followers):
            stack.enter_context(broker)
        yield Cluster(leader, followers, ours)


@pytest.mark.oracle
def test_kafkas_brokers_follow_and_hold_acks_all_back(cluster: Cluster) -> None:
    cluster.make("followed", (LEADER, *FOLLOWERS), 2)
    values = [f"value-{number}" for number in range(200)]
    assert cluster.produce("followed", values) == list(range(200))
    # All of it is in the logs of the followers, as it is in the leader's.
    logs = [each.log_dirs[0] for each in cluster.followers]
    segments = [each / "followed-0" / f"{0:020}.log" for each in (cluster.leader.data, *logs)]
    wait_until(lambda: len({each.read_bytes() for each in segments}) == 1)
    epochs = [each.parent / "leader-epoch-checkpoint" for each in segments]
    assert len({each.read_text() for each in epochs}) == 1
    cluster.delete("followed")


@pytest.mark.oracle
def test_a_follower_that_stands_still_leaves_and_comes_back(cluster: Cluster) -> None:
    cluster.make("still", (LEADER, *FOLLOWERS), 2)
    stopped = cluster.followers[1]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        # Until it has left, it holds all back that it has not.
        assert cluster.produce("still", ["a", "b"]) == [0, 1]
        # The controller's answer may be here before its metadata.
        wait_until(lambda: cluster.isr("still") == {LEADER, FOLLOWERS[0]})
        assert cluster.produce("still", ["c"]) == [2]
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    wait_until(lambda: cluster.isr("still") == {LEADER, *FOLLOWERS})
    cluster.delete("still")


@pytest.mark.oracle
def test_with_too_few_in_sync_acks_all_is_refused_and_acks_one_is_not(cluster: Cluster) -> None:
    cluster.make("few", (LEADER, *FOLLOWERS), 3)
    stopped = cluster.followers[0]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        assert cluster.produce("few", ["a"], acks="1") == [0]
        wait_until(lambda: cluster.isr("few") == {LEADER, FOLLOWERS[1]})
        assert cluster.produce("few", ["b"]) == ["NOT_ENOUGH_REPLICAS"]
        assert cluster.produce("few", ["c"], acks="1") == [1]
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    wait_until(lambda: cluster.isr("few") == {LEADER, *FOLLOWERS})
    assert cluster.produce("few", ["d"]) == [2]
    cluster.delete("few")


@pytest.mark.oracle
@pytest.mark.parametrize("rack", [FOLLOWERS[0], OURS, LEADER])
def test_a_consumer_reads_from_the_replica_in_its_rack(cluster: Cluster, rack: int) -> None:
    topic = f"near-{rack}"
    cluster.make(topic, (LEADER, FOLLOWERS[0], OURS), 2)
    assert cluster.produce(topic, ["before"]) == [0]
    brokers: list[int] = []

    def on_statistics(text: str) -> None:
        partitions = json.loads(text)["topics"].get(topic, {}).get("partitions", {})
        brokers.extend(each["broker"] for name, each in partitions.items() if name == "0")

    settings = {
        "bootstrap.servers": cluster.leader.address,
        "group.id": "near",
        "client.rack": str(rack),
        "statistics.interval.ms": 100,
        "stats_cb": on_statistics,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[bytes] = []

    def has_read(count: int) -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append(message.value())
        return len(seen) == count and brokers[-1:] == [rack]

    wait_until(lambda: has_read(1), 60)
    # What comes later is read there, too.
    assert cluster.produce(topic, ["after"]) == [1]
    wait_until(lambda: has_read(2), 60)
    assert seen == [b"before", b"after"]
    consumer.close()
    cluster.delete(topic)


@pytest.mark.oracle
def test_records_are_deleted_once_all_replicas_have_heard_of_it(cluster: Cluster) -> None:
    cluster.make("deleted", (LEADER, FOLLOWERS[0], OURS), 2)
    assert cluster.produce("deleted", [str(number) for number in range(10)]) == list(range(10))
    admin = AdminClient({"bootstrap.servers": cluster.leader.address})
    for deleted in admin.delete_records([TopicPartition("deleted", 0, 6)]).values():
        assert deleted.result(30).low_watermark == 6
    stopped = cluster.followers[0]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        (waiting,) = admin.delete_records([TopicPartition("deleted", 0, 8)]).values()
        # It is waited for until the controller has fenced it.
        assert waiting.result(60).low_watermark == 8
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    wait_until(lambda: cluster.isr("deleted") == {LEADER, FOLLOWERS[0], OURS})
    cluster.delete("deleted")


@pytest.mark.oracle
def test_a_follower_is_not_asked_what_only_a_leader_knows(cluster: Cluster) -> None:
    cluster.make("asked", (LEADER, OURS), 1)
    kind = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = kind.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = messages.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[kind(topic="asked", partitions=[asked])]
    )

    def code_at(node: Node) -> int:
        with Connection(node.address) as connection:
            answer = connection.ask("OffsetForLeaderEpoch", 4, request)
            code: int = answer.topics[0].partitions[0].error_code
            return code

    wait_until(lambda: code_at(cluster.ours) == codes.NOT_LEADER_OR_FOLLOWER)
    assert code_at(cluster.leader) == codes.NONE
    cluster.delete("asked")
