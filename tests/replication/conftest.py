"""One controller of Apache Kafka's and three brokers of kafkalite, for the tests of a file: what
brokers of another file leave, registrations and replicas that are away, would be in their way."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_controller


@pytest.fixture(scope="module")
def kafka_controller(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """A running controller."""
    with new_controller(kafka_tools, tmp_path_factory.mktemp("controller")) as controller:
        yield controller


@pytest.fixture(scope="module")
def nodes_of_module(
    kafka_controller: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Node]]:
    """Brokers 1 to 3."""
    folder = tmp_path_factory.mktemp("nodes")
    nodes = [Node(each, folder / str(each), kafka_controller) for each in (1, 2, 3)]
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node)
        yield nodes


@pytest.fixture
def three_nodes(nodes_of_module: list[Node]) -> list[Node]:
    """Brokers 1 to 3, which run: those that a test has left stopped when it failed as well."""
    for node in nodes_of_module:
        if not node.is_started:
            node.start()
    return nodes_of_module
