"""Records that `send` makes part of a transaction, as Apache Kafka and its consumers see them."""

import confluent_kafka
import pytest

from kafkalite.client import Admin, Cluster
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.client.producer.transactions import Transaction
from oracle.broker import KafkaBroker

pytestmark = pytest.mark.oracle


def committed_values(servers: str, topic: str) -> list[bytes]:
    """What a `read_committed` consumer of librdkafka sees, up to the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(30)) is not None:
        if message.error() is not None:
            break
        values.append(message.value())
    consumer.close()
    return values


def test_records_of_an_aborted_transaction_are_not_seen(kafka: KafkaBroker) -> None:
    """`send` made plain batches: a `read_committed` consumer saw what had been aborted."""
    topic = "transactional-send"
    with Admin(kafka.bootstrap_servers) as admin:
        admin.create_topic(topic)
    for value, commits in ((b"aborted", False), (b"committed", True)):
        with Cluster(kafka.bootstrap_servers) as cluster:
            transaction = Transaction(cluster, "sender", 60_000)
            transaction.begin()
            with DrivenProducer(cluster, idempotent=True, transaction=transaction) as producer:
                producer.send(topic, value)
                producer.flush()
            transaction.end(commit=commits)
    assert committed_values(kafka.bootstrap_servers, topic) == [b"committed"]
