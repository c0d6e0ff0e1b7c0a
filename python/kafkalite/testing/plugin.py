"""The fixtures, which pytest finds by the wheel's entry point `pytest11`:

    def test_orders_arrive(kafka_broker, kafka_topic):
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
        producer.produce(kafka_topic, b"order")

pytest imports this file at each of its starts, wanted or not: it imports pytest and nothing else,
and the broker's code only once a fixture is used. With pytest-xdist each worker has a broker of its
own, on a port of its own, so that workers share nothing. The report of a test that failed has the
end of the log of each broker among its fixtures, those of the suite's own too.
"""

from __future__ import annotations

import sys
import typing

import pytest

if typing.TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from kafkalite.child import Broker

TOPIC_NAME_ROOM = 200
"""Characters of a test's name that go into its topic's; the rest makes it unique."""


@pytest.fixture(scope="session")
def kafka_broker_config() -> Mapping[str, str]:
    """Keys of the broker's configuration, as in server.properties; to be overridden."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(kafka_broker_config: Mapping[str, str]) -> Iterator[Broker]:
    """A running `kafkalite.Broker` on a free port with a temporary directory, one a session (with
    xdist, one a worker). Topics are made when they are first named."""
    from kafkalite.child import Broker

    with Broker(config=kafka_broker_config) as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition that no other test has. A broker that an earlier
    test has stopped or killed is started again, at its address and with its records; one that has
    ended by itself is not."""
    import os

    from kafkalite.client.admin import Admin

    if not kafka_broker.is_started:
        kafka_broker.start()
    words = "".join(
        each if each.isascii() and each.isalnum() else "-" for each in request.node.name
    )
    name = f"{words[:TOPIC_NAME_ROOM].strip('-')}-{os.urandom(4).hex()}"
    with Admin(kafka_broker.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=1)
    return name


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, typing.Any, None]:
    """Puts what a broker has to say of a failure where the failure does, also in the log of a CI
    run, whose directories are gone."""
    outcome = yield
    report = outcome.get_result()
    child = sys.modules.get("kafkalite.child")  # which who uses no broker has not imported
    if not report.failed or child is None:
        return
    for name, value in getattr(item, "funcargs", {}).items():
        for of_whom, broker in _brokers(name, value, child.Broker):
            if told := broker.log_tail():
                report.sections.append((f"End of the log of {of_whom}", told))


def _brokers(name: str, value: object, kind: type[Broker]) -> list[tuple[str, Broker]]:
    """The brokers in a fixture, which may be a cluster."""
    if isinstance(value, kind):
        return [(name, value)]
    cluster = sys.modules.get("kafkalite.testing.cluster")
    if cluster is None or not isinstance(value, cluster.LocalCluster):
        return []
    return [(f"broker {number} of {name}", each) for number, each in value.brokers.items()]
