"""One broker for the tests of the keys; each test makes topics of its own."""

import itertools
from collections.abc import Iterator

import pytest

import kafkalite
from api.raw import Connection

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker() -> Iterator[kafkalite.Broker]:
    config = {
        "kafkalite.acks.fsync": "group",
        "group.initial.rebalance.delay.ms": "0",
        # Some records are old: retention is not looked at.
        "log.initial.task.delay.ms": "86400000",
        "log.retention.check.interval.ms": "86400000",
    }
    with kafkalite.Broker(config=config) as running:
        yield running


@pytest.fixture
def topic(connection: Connection) -> str:
    """A new topic with one partition."""
    name = f"topic-{next(_numbers)}"
    assert connection.create_topic(name).error_code == 0
    return name
