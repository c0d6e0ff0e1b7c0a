"""FindCoordinator by frames."""

from pathlib import Path

import pytest

import kafkalite
from api.group_requests import find_coordinator
from api.raw import Connection
from kafkalite.protocol import messages


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_this_node(
    broker: kafkalite.Broker, connection: Connection, version: int
) -> None:
    request = messages.FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    answer = connection.ask("FindCoordinator", version, request)
    found = [answer] if version < 4 else answer.coordinators
    for each in found:
        assert (each.error_code, each.node_id) == (0, 1)
        assert f"{each.host}:{each.port}" == broker.bootstrap_servers
    if version >= 4:
        assert [each.key for each in found] == ["g", "h"]


def test_the_first_to_ask_has_the_internal_topic_made(connection: Connection) -> None:
    find_coordinator(connection, "g")
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name="__consumer_offsets")])
    (topic,) = connection.ask("Metadata", 12, request).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 50)


def test_the_log_says_that_the_internal_topic_was_made_as_of_any_other(tmp_path: Path) -> None:
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            find_coordinator(connection, "g")
        assert "created topic __consumer_offsets with 50 partition(s)" in broker.log_tail()


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize(("key_type", "code"), [(2, 42), (9, 42)])
def test_what_is_not_coordinated_here_is_refused_for_good(
    connection: Connection, version: int, key_type: int, code: int
) -> None:
    request = messages.FindCoordinatorRequest(key="t", key_type=key_type, coordinator_keys=["t"])
    answer = connection.ask("FindCoordinator", version, request)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.node_id, found.host, found.port) == (code, -1, "", -1)
    assert found.error_message
