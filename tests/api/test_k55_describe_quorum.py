"""DescribeQuorum by frames."""

from typing import Any

import pytest

import kafkalite
from api.raw import Connection
from kafkalite.protocol import messages

TOPIC = messages.DescribeQuorumRequest.TopicData


def describe(connection: Connection, *asked: tuple[str, int], version: int = 2) -> Any:
    topics = [
        TOPIC(topic_name=name, partitions=[TOPIC.PartitionData(partition_index=index)])
        for name, index in asked
    ]
    request = messages.DescribeQuorumRequest(topics=topics)
    return connection.ask("DescribeQuorum", version, request)


@pytest.mark.parametrize("version", range(3))
def test_this_node_is_the_whole_quorum(
    broker: kafkalite.Broker, connection: Connection, version: int
) -> None:
    answer = describe(connection, ("__cluster_metadata", 0), version=version)
    assert (answer.error_code, answer.error_message or "") == (0, "")
    quorum = answer.topics[0].partitions[0]
    assert (quorum.error_code, quorum.leader_id, quorum.leader_epoch) == (0, 1, 1)
    assert [voter.replica_id for voter in quorum.current_voters] == [1]
    assert quorum.current_voters[0].log_end_offset == quorum.high_watermark > 0
    assert quorum.observers == []
    if version == 2:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        assert [[each.port for each in node.listeners] for node in answer.nodes] == [[port]]


def test_the_high_watermark_moves_with_each_change(connection: Connection) -> None:
    def high_watermark() -> int:
        quorum = describe(connection, ("__cluster_metadata", 0)).topics[0].partitions[0]
        return int(quorum.high_watermark)

    before = high_watermark()
    assert connection.create_topic("moves-the-quorum", partitions=2).error_code == 0
    assert high_watermark() == before + 3


def test_everything_else_is_an_unknown_partition(connection: Connection) -> None:
    sentence = "This server does not host this topic-partition."
    for asked in (
        [("other", 0)],
        [("__cluster_metadata", 1)],
        [("__cluster_metadata", 0), ("other", 0)],
    ):
        answer = describe(connection, *asked)
        partitions = [each for topic in answer.topics for each in topic.partitions]
        assert {(each.error_code, each.error_message) for each in partitions} == {(3, sentence)}
        assert answer.nodes == []
    assert describe(connection).topics == []
