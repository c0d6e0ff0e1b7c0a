"""The columnar engine over the broker's own Arrow listener: the same rows, without a process beside
the executor."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from arrow.endpoint import connect, endpoint_of
from kafkalite import Broker
from oracle.tools import KafkaTools
from spark.reading import CONNECTOR, differences, read
from spark.records import fill
from spark.test_equality import CASES, ask

pytestmark = pytest.mark.oracle

ENDPOINT_CONNECTIONS_MAX = 256


@pytest.fixture(scope="module")
def listening(kafka_tools: KafkaTools) -> Iterator[Broker]:
    """A broker with an Arrow listener, and the topics of `records.py`."""
    config = {"kafkalite.arrow.listener": "127.0.0.1:0", "log.cleaner.backoff.ms": "200"}
    with Broker(config=config) as broker:
        fill(broker.bootstrap_servers, kafka_tools, transactions=False)
        yield broker


HERE = [name for name, case in CASES.items() if "kafkalite" in case.sides]


@pytest.mark.parametrize("name", HERE)
def test_rows_from_the_listener_are_the_connectors(
    spark: SparkSession, listening: Broker, name: str
) -> None:
    servers, case = listening.bootstrap_servers, CASES[name]
    expected, expected_tasks = ask(spark, CONNECTOR, servers, case)
    assert len(expected) >= case.rows_min
    found, found_tasks = ask(spark, "jvm", servers, case)
    assert not differences(found, expected)
    if case.task_rows_max is None:
        assert found_tasks == expected_tasks


def test_tasks_read_from_the_listener_and_from_nowhere_else(
    spark: SparkSession, listening: Broker
) -> None:
    endpoint = endpoint_of(listening)
    frame = read(spark, "jvm", listening.bootstrap_servers, {"subscribe": "mixed"})
    with ExitStack() as stack:
        held = [stack.enter_context(connect(endpoint)) for _ in range(ENDPOINT_CONNECTIONS_MAX)]
        with pytest.raises(Exception, match="has 256 connections, and takes no more"):
            frame.count()
        for each in held:
            each.shutdown(socket.SHUT_WR)
            assert each.recv(1) == b""
    assert frame.count() >= 3000
