"""Metadata by frames."""

from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.raw import Connection
from kafkalite.protocol import messages


def ask(connection: Connection, version: int, *names: str, create: bool = False) -> Any:
    kind = messages.MetadataRequest
    topics = [kind.MetadataRequestTopic(name=name) for name in names]
    request = kind(topics=topics, allow_auto_topic_creation=create)
    return connection.ask("Metadata", version, request)


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_broker_and_partitions(
    connection: Connection, broker: kafkalite.Broker, topic: str, version: int
) -> None:
    response = ask(connection, version, topic)
    host, port = broker.bootstrap_servers.split(":")
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (1, host, int(port))
    ]
    found = response.topics[0]
    assert (found.error_code, found.name, found.is_internal) == (0, topic, False)
    partition = found.partitions[0]
    assert (partition.error_code, partition.partition_index, partition.leader_id) == (0, 0, 1)
    assert partition.replica_nodes == partition.isr_nodes == [1]
    if version >= 7:
        assert partition.leader_epoch == 0
    if version >= 10:
        assert found.topic_id != bytes(16)


def test_no_list_means_all_topics_and_an_empty_one_none(connection: Connection, topic: str) -> None:
    everything = connection.ask("Metadata", 9, messages.MetadataRequest(topics=None))
    assert topic in [each.name for each in everything.topics]
    assert ask(connection, 9).topics == []
    # Version 0 has no null: its empty list means all.
    assert topic in [each.name for each in ask(connection, 0).topics]


@pytest.mark.parametrize("name", [None, "", "another"])
def test_a_topic_is_found_by_its_id(connection: Connection, topic: str, name: str | None) -> None:
    """The Java client's describe by id left the name empty, and was told that there is no such id:
    the id decides, whatever name stands beside it."""
    topic_id = ask(connection, 12, topic).topics[0].topic_id
    kind = messages.MetadataRequest
    asked = [kind.MetadataRequestTopic(topic_id=topic_id, name=name)]
    asked.append(kind.MetadataRequestTopic(topic_id=b"\1" * 16, name=name))
    response = connection.ask("Metadata", 12, kind(topics=asked))
    assert [(each.error_code, each.name) for each in response.topics] == [(0, topic), (100, None)]


def test_missing_and_illegal_names_have_their_errors(connection: Connection) -> None:
    response = ask(connection, 12, "missing", "not a name", "..")
    assert [each.error_code for each in response.topics] == [3, 17, 17]


def test_a_missing_topic_is_made_if_the_client_allows_it(connection: Connection) -> None:
    response = ask(connection, 12, "made-by-name", "no/name", create=True)
    assert [each.error_code for each in response.topics] == [0, 17]
    assert len(response.topics[0].partitions) == 1
    assert connection.create_topic("made-by-name").error_code == 36


def test_missing_topics_that_take_more_than_10_000_records_are_not_made(
    connection: Connection,
) -> None:
    names = [f"too-many-{number}" for number in range(5_001)]
    kind = messages.MetadataRequest
    topics = [kind.MetadataRequestTopic(name=name) for name in names]
    asked = kind(topics=topics, allow_auto_topic_creation=True)
    assert {each.error_code for each in connection.ask("Metadata", 9, asked).topics} == {3}
    every = connection.ask("Metadata", 9, kind(topics=None)).topics
    assert not {each.name for each in every}.intersection(names)


@pytest.mark.parametrize(
    ("name", "partitions", "policy", "segment_bytes"),
    [
        ("__consumer_offsets", 3, "compact", "2000000"),
        ("__transaction_state", 4, "compact", "104857600"),
        ("__share_group_state", 5, "delete", "104857600"),
    ],
)
def test_a_topic_of_kafkas_own_is_made_as_its_coordinator_makes_it(
    tmp_path: Path, name: str, partitions: int, policy: str, segment_bytes: str
) -> None:
    """A reader that named `__consumer_offsets` first left it a topic with `cleanup.policy=delete`,
    whose offsets retention would have taken after a week."""
    config = {
        "offsets.topic.num.partitions": "3",
        "offsets.topic.segment.bytes": "2000000",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "5",
    }
    with (
        kafkalite.Broker(tmp_path / "data", config=config) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        (made,) = ask(connection, 12, name, create=True).topics
        assert (made.error_code, made.is_internal, len(made.partitions)) == (0, True, partitions)
        kind = messages.DescribeConfigsRequest.DescribeConfigsResource
        keys = ["cleanup.policy", "segment.bytes"]
        resource = kind(resource_type=2, resource_name=name, configuration_keys=keys)
        request = messages.DescribeConfigsRequest(resources=[resource])
        (told,) = connection.ask("DescribeConfigs", 4, request).results
        assert {each.name: each.value for each in told.configs} == {
            "cleanup.policy": policy,
            "segment.bytes": segment_bytes,
        }


def test_authorized_operations_are_told_when_asked_for(connection: Connection, topic: str) -> None:
    kind = messages.MetadataRequest
    request = kind(
        topics=[kind.MetadataRequestTopic(name=topic)],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    response = connection.ask("Metadata", 10, request)
    # A bit at each operation's code: everything that a broker without an authorizer allows.
    assert response.topics[0].topic_authorized_operations == sum(
        1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11)
    )
    assert response.cluster_authorized_operations == sum(
        1 << code for code in (5, 7, 8, 9, 10, 11, 12)
    )
    assert ask(connection, 10, topic).cluster_authorized_operations == -(2**31)


def test_operations_are_told_of_names_that_are_not_there(connection: Connection) -> None:
    kind = messages.MetadataRequest
    names = ("missing", "a/b", "__transaction_state")
    request = kind(
        topics=[kind.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    answers = connection.ask("Metadata", 12, request).topics
    assert [each.error_code for each in answers] == [3, 17, 3]
    assert [each.is_internal for each in answers] == [False, False, True]
    assert {each.topic_authorized_operations for each in answers} == {3576}
