"""The thin thread: librdkafka produces, the broker is killed, nothing acknowledged is lost.

Green in every commit. It goes once through everything: a client, the network thread, validation,
the log, the flush, recovery, and back to a group of consumers, to Kafka's tool, to `read_arrow` and
to `read_log`. What the group commits outlives a second kill.
"""

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

import kafkalite
from oracle.tools import KafkaTools, Record

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 2
RECORDS = 3_000
GROUP = "thread"
KILL_AFTER = 1_000
"""Acknowledged records, over all codecs, after which the broker is killed."""

Key = tuple[str, int, int]


class Delivered:
    """What the broker has acknowledged: (topic, partition, offset) -> value."""

    def __init__(self) -> None:
        self.values: dict[Key, bytes] = {}
        self.failed: list[KafkaError] = []
        self.enough = threading.Event()

    def report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        self.values[message.topic(), message.partition(), message.offset()] = message.value()
        if len(self.values) >= KILL_AFTER:
            self.enough.set()


def producer(broker: kafkalite.Broker, codec: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "compression.type": codec,
            "linger.ms": 2,
            "batch.num.messages": 50,
            "reconnect.backoff.max.ms": 500,
            "message.timeout.ms": 100_000,
        }
    )


def read_all(broker: kafkalite.Broker, topics: list[str]) -> dict[Key, bytes]:
    """Every record of the topics, by a group, which commits what it has read."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.subscribe(topics)
    found: dict[Key, bytes] = {}
    ended: set[tuple[str, int]] = set()
    while len(ended) < PARTITIONS * len(topics):
        message = consumer.poll(60)
        assert message is not None, "the consumer got nothing for 60 seconds"
        if message.error() is None:
            found[message.topic(), message.partition(), message.offset()] = message.value()
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended.add((message.topic(), message.partition()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def committed(broker: kafkalite.Broker, topics: list[str]) -> dict[tuple[str, int], int]:
    """The offsets of the group, asked by one that does not join it."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP})
    wanted = [TopicPartition(topic, index) for topic in topics for index in range(PARTITIONS)]
    told = consumer.committed(wanted, timeout=60)
    consumer.close()
    return {(each.topic, each.partition): each.offset for each in told}


def produce_all(broker: kafkalite.Broker, delivered: Delivered) -> None:
    """Starts a producer a codec, kills and restarts the broker under them, waits for the rest."""

    def run(codec: str) -> None:
        client = producer(broker, codec)
        for number in range(RECORDS // len(CODECS)):
            value = f"{codec}-{number:06}-".encode() + b"v" * (number % 200)
            client.produce(
                f"thread-{codec}",
                value,
                partition=number % PARTITIONS,
                on_delivery=delivered.report,
            )
            client.poll(0.001)
        assert client.flush(120) == 0

    threads = [threading.Thread(target=run, args=(codec,)) for codec in CODECS]
    for thread in threads:
        thread.start()
    assert delivered.enough.wait(90)
    broker.kill()
    broker.start()
    for thread in threads:
        thread.join()


@pytest.mark.oracle
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, kafka_tools: KafkaTools) -> None:
    data = tmp_path / "data"
    delivered = Delivered()
    config = {"num.partitions": str(PARTITIONS)}
    with kafkalite.Broker(data, config=config) as broker:
        produce_all(broker, delivered)
        assert delivered.failed == []
        assert len(delivered.values) == RECORDS
        topics = [f"thread-{codec}" for codec in CODECS]
        found = read_all(broker, topics)
        lost = {key: value for key, value in delivered.values.items() if found.get(key) != value}
        assert lost == {}
        ends = {(topic, index): 0 for topic in topics for index in range(PARTITIONS)}
        for topic, index, offset in found:
            ends[topic, index] = max(ends[topic, index], offset + 1)
        broker.kill()
        broker.start()
        assert committed(broker, topics) == ends
        records = kafkalite.read_arrow(topics, broker.bootstrap_servers, columns=["value"])
        assert sum(batch.num_rows for batch in pyarrow.table(records).to_batches()) == len(found)
        assert broker.stop() == 0
    assert (data / ".kafka_cleanshutdown").exists()
    verify = [sys.executable, "-m", "kafkalite", "log", "verify", str(data)]
    told = subprocess.run(verify, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout
    for codec in CODECS:
        for index in range(PARTITIONS):
            directory = data / f"thread-{codec}-{index}"
            dump = kafka_tools.dump_log(sorted(directory.glob("*.log")))
            offsets = [key[2] for key in found if key[:2] == (f"thread-{codec}", index)]
            assert [int(record["offset"]) for record in dump.records] == sorted(offsets)
            table = pyarrow.table(kafkalite.read_log(directory, columns=["offset", "value"]))
            assert table.column("offset").to_pylist() == sorted(offsets)
            # A batch that a codec makes no smaller travels as it is.
            codecs = {batch["compresscodec"].lower() for batch in dump.batches}
            assert codecs <= {codec, "none"}
            assert codec in codecs


@pytest.mark.oracle
@pytest.mark.parametrize("codec", CODECS)
def test_the_java_client_reads_what_it_produced(kafka_tools: KafkaTools, codec: str) -> None:
    # A record is old: retention must not take it.
    with kafkalite.Broker(config={"log.retention.ms": "-1"}) as broker:
        kafka_tools.create_topic(broker.bootstrap_servers, "java")
        sent = [
            Record("java", b"v" * 500, key=b"key", timestamp=1_700_000_000_000),
            Record("java", None, key=b"tombstone", headers=(("a", b"1"), ("b", None))),
            "flush",
            Record("java", "Käfer".encode(), key=b""),
        ]
        config = {"compression.type": codec, "acks": "all"}
        assert kafka_tools.produce(broker.bootstrap_servers, sent, config=config) == [0, 1, 2]
        found = kafka_tools.consume(broker.bootstrap_servers, "java")
        records = [record for record in sent if isinstance(record, Record)]
        assert [(r.key, r.value, r.headers) for r in found] == [
            (r.key, r.value, r.headers) for r in records
        ]
        assert found[0].timestamp == 1_700_000_000_000
        assert kafka_tools.end_offset(broker.bootstrap_servers, "java") == 3
