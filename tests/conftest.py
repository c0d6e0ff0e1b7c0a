"""Fixtures of every suite. The heavy ones are one per session and made when first asked for."""

import os
import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

if TYPE_CHECKING:
    from api.raw import Connection
    from kafkalite import Broker

START_S = 120.0
DESCRIPTORS = 20_000


def pytest_configure() -> None:
    """Settings of hypothesis, of brokers, of Spark and of this process."""
    settle_examples()
    settle_brokers()
    # Spark does not start where the name of the machine has no address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Some tests have a thousand connections, for which the usual 1,024 descriptors do not do.
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= now < DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, DESCRIPTORS), most))


def settle_brokers() -> None:
    """A start flushes some twenty files, and a disk that a dozen other processes write to may take
    more than a second for each: brokers of tests have more time than the usual half a minute."""
    try:
        from kafkalite import Broker
    except ImportError:
        return  # the tidy tests also run where it is not built
    Broker.__init__.__kwdefaults__["start_timeout_s"] = START_S


def settle_examples() -> None:
    """`make test` lets hypothesis draw the same examples each time, `make test-long` many new ones,
    and pytest by itself some new ones."""
    try:
        from hypothesis import HealthCheck, settings
    except ModuleNotFoundError:
        return  # the tidy tests also run where it is not installed
    # How long an example takes says nothing of what it shows, and nothing at all on a busy machine.
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("patient", patient)
    settings.register_profile("long", patient, max_examples=2000)
    settings.load_profile("long" if "KAFKALITE_TEST_LONG" in os.environ else "patient")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker of kafkalite's for the tests of one file."""
    from kafkalite import Broker

    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def connection(broker: "Broker") -> Iterator["Connection"]:
    """One to the broker that a file, or a folder, has for its tests."""
    from api.raw import Connection

    with Connection(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    """Apache Kafka's tools and Java client in one resident JVM."""
    with KafkaTools() as tools:
        yield tools


@pytest.fixture(scope="session")
def kafka(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """A running Apache Kafka that all tests share; a test that stops one starts its own."""
    with KafkaBroker(kafka_tools, tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
