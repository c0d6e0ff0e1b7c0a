"""Fixtures of every suite. The heavy ones are one per session and made when first asked for."""

import os
from collections.abc import Iterator

import pytest

from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools


def pytest_configure() -> None:
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
