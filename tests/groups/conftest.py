"""A broker whose groups rebalance fast, and topics in it."""

import itertools
from collections.abc import Callable, Iterator

import pytest

import kafkalite
from api.raw import Connection

CONFIG = {
    "kafkalite.acks.fsync": "group",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
}

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker() -> Iterator[kafkalite.Broker]:
    with kafkalite.Broker(config=CONFIG) as running:
        yield running


@pytest.fixture
def make_topic() -> Callable[[kafkalite.Broker, int, int], str]:
    """Makes a topic with so many partitions and so many records in each."""

    def make(broker: kafkalite.Broker, partitions: int, records: int) -> str:
        from confluent_kafka import Producer

        name = f"groups-{next(_numbers)}"
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic(name, partitions).error_code == 0
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for index in range(records):
            for partition in range(partitions):
                producer.produce(name, f"{index}", partition=partition)
        assert producer.flush(30) == 0
        return name

    return make
