"""MirrorMaker 2 between Apache Kafka and the broker under test, both ways in one process.

It copies records, configurations of topics, and where groups are, and asks for whatever it may find
on either side: ACLs, which nobody has, the topics of the other side, its own of each.
"""

import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from clients.conftest import Cluster
from clients.programs import Program, running
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record

pytestmark = pytest.mark.oracle

MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
PARTITIONS, PER_PARTITION = 2, 10
CONFIG, VALUE = "max.message.bytes", "2345678"


def mirror(kafka: str, lite: str, topics: str) -> dict[str, object]:
    """What MirrorMaker is told. Its internal topics have one replica, and it looks every second for
    what is new, in place of every ten minutes."""
    factors = ("", "offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.")
    storages = ("offset.storage.", "status.storage.", "config.storage.")
    looks = ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.group.offsets")
    emits = ("emit.checkpoints", "emit.heartbeats")
    return {
        "clusters": "kafka,lite",
        "kafka.bootstrap.servers": kafka,
        "lite.bootstrap.servers": lite,
        **{f"{way}.enabled": "true" for way in ("kafka->lite", "lite->kafka")},
        "topics": topics,
        "plugin.discovery": "service_load",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": 0,
        **{f"{name}replication.factor": 1 for name in factors + storages},
        **{f"{name}.interval.seconds": 1 for name in looks + emits},
    }


class Side:
    """One of the two clusters."""

    def __init__(self, tools: KafkaTools, servers: str) -> None:
        self.servers = servers
        self._tools = tools
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def fill(self, topic: str, group: str) -> list[Record]:
        """Makes a topic; a group has read it."""
        self._tools.create_topic(self.servers, topic, partitions=PARTITIONS, config={CONFIG: VALUE})
        now_ms = time.time_ns() // 1_000_000  # older ones are not kept
        records = [
            Record(
                topic,
                b"value %d" % number,
                key=None if number % 3 == 0 else b"key %d" % number,
                partition=number % PARTITIONS,
                timestamp=now_ms + number,
                headers=(("source", topic.encode()),),
            )
            for number in range(PARTITIONS * PER_PARTITION)
        ]
        self._tools.produce(self.servers, records)
        told = {"bootstrap.servers": self.servers, "group.id": group, "log_level": 0}
        reader = Consumer(told)
        places = [TopicPartition(topic, each, PER_PARTITION) for each in range(PARTITIONS)]
        reader.commit(offsets=places, asynchronous=False)
        reader.close()
        return records

    def records(self, topic: str) -> list[Record]:
        known = self._admin.list_topics(timeout=60).topics.get(topic)
        return [
            each
            for partition in (known.partitions if known else ())
            for each in self._tools.consume(self.servers, topic, partition=partition)
        ]

    def committed(self, topic: str, group: str) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(group)
        told = self._admin.list_consumer_group_offsets([asked])[group].result(60)
        found = [each for each in told.topic_partitions or () if each.topic == topic]
        return {each.partition: each.offset for each in found}

    def config(self, topic: str) -> str | None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = self._admin.describe_configs([resource])[resource].result(60)
        value: str | None = found[CONFIG].value
        return value


def contents(records: list[Record]) -> list[tuple[object, ...]]:
    """What is the same on both sides."""
    return sorted(
        (each.partition, each.timestamp, each.key or b"", each.value, each.headers)
        for each in records
    )


def wait_for_copy(program: Program, sent: list[Record], there: Side, copy: str, group: str) -> None:
    """Until all of a topic is on the other side: records, configuration, where its group is."""
    ends = dict.fromkeys(range(PARTITIONS), PER_PARTITION)
    program.wait_until(lambda: contents(there.records(copy)) == contents(sent))
    program.wait_until(lambda: there.config(copy) == VALUE)
    program.wait_until(lambda: there.committed(copy, group) == ends)
    program.wait_until(lambda: there.records("heartbeats") != [])


def test_mirror_maker_copies_both_ways(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    run = uuid.uuid4().hex[:8]
    theirs, ours = f"theirs-{run}", f"ours-{run}"
    with KafkaBroker(kafka_tools, tmp_path / "kafka") as broker:
        kafka = Side(kafka_tools, broker.bootstrap_servers)
        lite = Side(kafka_tools, cluster.servers)
        of_kafka, of_lite = kafka.fill(theirs, theirs), lite.fill(ours, ours)
        told = mirror(kafka.servers, lite.servers, f".*-{run}")
        with running(MAIN, told, tmp_path / "mirror") as program:
            wait_for_copy(program, of_kafka, lite, f"kafka.{theirs}", theirs)
            wait_for_copy(program, of_lite, kafka, f"lite.{ours}", ours)
            program.stop()
