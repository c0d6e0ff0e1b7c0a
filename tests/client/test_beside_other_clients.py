"""Everyday programs, each written once and run with the producers of kafkalite, confluent-kafka and
kafka-python: what the others keep is the least that ours has to keep."""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

import confluent_kafka
import kafka
import pytest

from client.test_producer_process import values_of
from kafkalite import Broker
from kafkalite.client import Producer

DELIVERY_TIMEOUT_MS = 3_000
IDLE_S = 3.2
"""Longer than a record may wait for its delivery."""
WAIT_S = 60.0


class AnyProducer(Protocol):
    """The three calls that every client has under some name."""

    def send(self, topic: str, value: bytes) -> object:
        """Adds a record."""

    def flush(self) -> object:
        """Returns when all records are delivered."""

    def close(self) -> object:
        """Ends the producer."""


class Confluent:
    """confluent-kafka's producer under those names."""

    def __init__(self, servers: str) -> None:
        settings = {"bootstrap.servers": servers, "delivery.timeout.ms": DELIVERY_TIMEOUT_MS}
        self._producer = confluent_kafka.Producer(
            {**settings, "linger.ms": 5, "enable.idempotence": True}
        )

    def send(self, topic: str, value: bytes) -> None:
        """Adds a record."""
        self._producer.produce(topic, value)

    def flush(self) -> None:
        """Returns when all records are delivered."""
        assert self._producer.flush(WAIT_S) == 0

    def close(self) -> None:
        """Ends the producer."""
        self._producer.close()


def ours(servers: str) -> AnyProducer:
    return Producer(servers, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)


def kafka_python(servers: str) -> AnyProducer:
    producer: AnyProducer = kafka.KafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        request_timeout_ms=DELIVERY_TIMEOUT_MS - 500,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
    )
    return producer


every_client = pytest.mark.parametrize(
    "client", [ours, Confluent, kafka_python], ids=["kafkalite", "confluent-kafka", "kafka-python"]
)
Client = Callable[[str], AnyProducer]


@every_client
def test_a_program_that_pauses_for_longer_than_a_delivery_may_take_loses_nothing(
    kafka_broker: Broker, kafka_topic: str, client: Client
) -> None:
    """`send; sleep; send; flush` lost both records of two."""
    producer = client(kafka_broker.bootstrap_servers)
    producer.send(kafka_topic, b"before")
    threading.Event().wait(IDLE_S)
    producer.send(kafka_topic, b"after")
    producer.flush()
    producer.close()
    assert values_of(kafka_broker, kafka_topic) == [b"before", b"after"]


@every_client
def test_records_of_threads_are_there_once_and_in_the_order_of_each(
    kafka_broker: Broker, kafka_topic: str, client: Client
) -> None:
    """`send` raised IndexError and KeyError, and records were there twice."""
    threads_count, each_count = 4, 500
    producer = client(kafka_broker.bootstrap_servers)

    def send(name: int) -> None:
        for number in range(each_count):
            producer.send(kafka_topic, b"%d %d" % (name, number))

    threads = [threading.Thread(target=send, args=(name,)) for name in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    producer.flush()
    producer.close()
    by_thread = defaultdict(list)
    for value in values_of(kafka_broker, kafka_topic):
        name, number = value.split()
        by_thread[int(name)].append(int(number))
    assert by_thread == {name: list(range(each_count)) for name in range(threads_count)}


@every_client
def test_close_delivers_what_nobody_has_flushed(
    kafka_broker: Broker, kafka_topic: str, client: Client
) -> None:
    """`close` dropped what was open."""
    producer = client(kafka_broker.bootstrap_servers)
    for number in range(100):
        producer.send(kafka_topic, b"%d" % number)
    producer.close()
    assert values_of(kafka_broker, kafka_topic) == [b"%d" % number for number in range(100)]
