"""DescribeCluster by frames. Codes and sentences are those that Kafka 4.3.1 gave to the same
requests."""

from typing import Any

import pytest

import kafkalite
from api.raw import Connection
from kafkalite.protocol import messages


def describe(connection: Connection, version: int = 2, **fields: Any) -> Any:
    request = messages.DescribeClusterRequest(**fields)
    return connection.ask("DescribeCluster", version, request)


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_broker(
    broker: kafkalite.Broker, connection: Connection, version: int
) -> None:
    answer = describe(connection, version)
    assert (answer.error_code, answer.error_message, answer.controller_id) == (0, None, 1)
    known = connection.ask("Metadata", 9, messages.MetadataRequest(topics=[]))
    assert answer.cluster_id == known.cluster_id
    found = [(each.broker_id, f"{each.host}:{each.port}", each.rack) for each in answer.brokers]
    assert found == [(1, broker.bootstrap_servers, None)]
    assert not answer.brokers[0].is_fenced
    assert answer.cluster_authorized_operations == -(2**31)


def test_operations_are_told_to_who_asks_for_them(connection: Connection) -> None:
    answer = describe(connection, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 8096


def test_controllers_are_not_to_be_had_here(connection: Connection) -> None:
    answer = describe(connection, endpoint_type=2)
    assert (answer.error_code, answer.brokers) == (114, [])
    assert answer.error_message == (
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
        "CONTROLLER"
    )
    answer = describe(connection, endpoint_type=9)
    assert (answer.error_code, answer.error_message) == (115, "Unsupported endpoint type 9")
