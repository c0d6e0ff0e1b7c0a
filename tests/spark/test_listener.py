"""The columnar engine over the broker's own Arrow listener: the same rows, without a process beside
the executor."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

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


def connections_to(endpoint: str) -> set[str]:
    """The sockets of this machine that are, or were lately, connected to a port, by their ends."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f":{int(endpoint.rpartition(':')[2]):04X}"
    is_listening = "0A"
    return {
        f"{local} {remote}"
        for _, local, remote, state, *_ in rows
        if state != is_listening and (local.endswith(port) or remote.endswith(port))
    }


def test_tasks_read_from_the_listener_and_where_it_is_full_from_the_child(
    spark: SparkSession, listening: Broker
) -> None:
    endpoint = endpoint_of(listening)
    frame = read(spark, "jvm", listening.bootstrap_servers, {"subscribe": "mixed"})
    before = connections_to(endpoint)
    assert frame.count() >= 3000
    assert connections_to(endpoint) - before
    with ExitStack() as stack:
        held = [stack.enter_context(connect(endpoint)) for _ in range(ENDPOINT_CONNECTIONS_MAX)]
        assert frame.count() >= 3000
        for each in held:
            each.shutdown(socket.SHUT_WR)
            assert each.recv(1) == b""
