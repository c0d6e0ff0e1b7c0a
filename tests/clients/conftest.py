"""The broker under test, and the clients, one of each per session."""

import contextlib
import gc
import os
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kafkalite
from clients import provision
from clients.drivers import Java, OldJava
from clients.kcat import Kcat
from clients.neutral import Client, Partition
from clients.pure_python import KafkaPython
from clients.table import CLIENTS
from kafkalite._native import RecordBatch, read_batches
from oracle.broker import KafkaBroker

CONFIG = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",  # some records are old
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
# After a SIGKILL, Kafka's controller waits for the old registration to expire. With less, it fences
# a broker that lives on a busy machine, and its partitions have no leader then.
KAFKA_CONFIG = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500"}


def is_kafka() -> bool:
    """Whether the broker under test is Apache Kafka."""
    return os.environ.get("KAFKALITE_TEST_AGAINST") == "kafka"


class Cluster:
    """The broker under test, with what a test needs besides the client that it is about."""

    def __init__(
        self, broker: kafkalite.Broker | KafkaBroker, data: Path, servers: str | None = None
    ) -> None:
        """`servers` is where the broker is known, if not where it listens."""
        self.broker = broker
        self.data = data
        self.servers = servers or broker.bootstrap_servers
        quiet = {"bootstrap.servers": self.servers, "log_level": 0, "reconnect.backoff.max.ms": 500}
        self._admin = AdminClient(quiet)
        self._observer = LibrdkafkaConsumer({**quiet, "group.id": "observer"})

    def close(self) -> None:
        self._observer.close()

    def topic(self, partitions: int = 1, *, prefix: str = "t", **config: str) -> str:
        """Makes a topic with a new name. `config` has `_` for `.`.

        Returns when every partition answers: Kafka says of a new one for a while that another
        broker leads it, on which kafkajs sends once more what was acknowledged elsewhere.
        """
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        told = {key.replace("_", "."): value for key, value in config.items()}
        made = self._admin.create_topics([NewTopic(name, partitions, 1, config=told)])
        made[name].result(120)
        deadline = time.monotonic() + 60
        for index in range(partitions):
            while (refusal := self._refusal(TopicPartition(name, index))) is not None:
                assert time.monotonic() < deadline, f"{name}-{index} is not served: {refusal}"
                time.sleep(0.02)  # between two polls of the leader
        return name

    def _refusal(self, partition: TopicPartition) -> KafkaException | None:
        """Why the partition is not served yet."""
        try:
            # librdkafka keeps what it was told of a topic that was just made, and asks no more.
            self._observer.list_topics(partition.topic, timeout=10)
            self._observer.get_watermark_offsets(partition, timeout=10)
        except KafkaException as error:
            return error
        return None

    def wait_for_commit(self, group: str, expected: dict[Partition, int]) -> None:
        """Returns when the group has committed these offsets; asked by one that is no member."""
        wanted = [TopicPartition(*where) for where in expected]
        observer = LibrdkafkaConsumer({"bootstrap.servers": self.servers, "group.id": group})
        deadline = time.monotonic() + 60
        try:
            while True:
                told = observer.committed(wanted, timeout=20)
                found = {(each.topic, each.partition): each.offset for each in told}
                if found == expected:
                    return
                assert time.monotonic() < deadline, f"committed is {found}, not {expected}"
        finally:
            observer.close()

    def batches(self, topic: str, partition: int = 0) -> list[RecordBatch]:
        """The batches that lie in the log."""
        files = sorted((self.data / f"{topic}-{partition}").glob("*.log"))
        return [batch for file in files for batch in read_batches(file.read_bytes())]

    def codecs(self, topic: str, partition: int = 0) -> set[str]:
        """The codecs of the batches that lie in the log."""
        return {batch.codec for batch in self.batches(topic, partition)}


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A durable kafkalite, or Apache Kafka if `KAFKALITE_TEST_AGAINST=kafka`."""
    data = tmp_path_factory.mktemp("clients")
    if is_kafka():
        tools = request.getfixturevalue("kafka_tools")
        with (
            KafkaBroker(tools, data, properties={**CONFIG, **KAFKA_CONFIG}) as kafka,
            contextlib.closing(Cluster(kafka, kafka.log_dirs[0])) as made,
        ):
            yield made
    else:
        with (
            kafkalite.Broker(data / "data", config=CONFIG) as broker,
            contextlib.closing(Cluster(broker, data / "data")) as made,
        ):
            yield made


@pytest.fixture(scope="session")
def clients(request: pytest.FixtureRequest) -> Iterator[dict[str, Client]]:
    """By name. Programs start when they are first used."""
    made: dict[str, Client] = {}
    for each in CLIENTS:
        if issubclass(each, Java):
            made[each.name] = each(lambda: request.getfixturevalue("kafka_tools"))
        else:
            made[each.name] = each()
    yield made
    for client in made.values():
        client.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Iterator[Client]:
    """The client that `behaviour` names."""
    if request.param == Kcat.name:
        try:
            provision.debian("kcat")
        except provision.ForbiddenError as reason:
            pytest.skip(str(reason))
    if request.param in (Java.name, OldJava.name):
        request.getfixturevalue("kafka_tools")  # before the client, to end after it
    yield clients[request.param]
    if request.param == KafkaPython.name:
        # It leaves sockets to the garbage collector, which would complain amid another test.
        with warnings.catch_warnings(action="ignore"):
            gc.collect()
