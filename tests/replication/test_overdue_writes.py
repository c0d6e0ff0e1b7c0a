"""A partition that has too few replicas to commit what coordinators write there: who waits for that
is told so in time, and all goes on once there are enough again."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from api.group_requests import find_coordinator
from api.raw import Connection
from cluster.brokers import Kind
from faults.directories import commit
from kafkalite.metadata.image import OFFSETS_TOPIC
from kafkalite.protocol import codes, messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_kafka, wait_until
from replication.topics import make

TIMEOUT_MS = 3_000
BACK_S = 120
GROUP = "group"
TOPIC = "topic"


def fetched(connection: Connection, *, stable: bool = False) -> tuple[int, int]:
    """The code and the offset of OffsetFetch."""
    kind = messages.OffsetFetchRequest
    named = kind.OffsetFetchRequestGroup.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    asked = kind.OffsetFetchRequestGroup(group_id=GROUP, topics=[named])
    request = kind(groups=[asked], require_stable=stable)
    (answer,) = connection.ask("OffsetFetch", 8, request).groups
    if answer.error_code:
        return answer.error_code, -1
    return 0, answer.topics[0].partitions[0].committed_offset


@pytest.mark.oracle
def test_a_commit_that_its_follower_does_not_take_is_refused_in_time_and_kept(
    kafka_controller: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A follower that died before it had a commit left the client without an answer until it was
    back, and everybody else of the partition with it."""
    folder = tmp_path_factory.mktemp("overdue")
    configs = {
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 2,
        "offsets.commit.timeout.ms": TIMEOUT_MS,
    }
    one, two = (Node(each, folder / str(each), kafka_controller, **configs) for each in (1, 2))
    with one, two:
        with Connection(one.address) as asked:
            wait_until(lambda: find_coordinator(asked, GROUP)[0].error_code == 0, BACK_S)
            assert asked.create_topic(TOPIC).error_code == 0
            leads = find_coordinator(asked, GROUP)[0].node_id
        # The controller has a default of the cluster's own, which a broker's file does not change.
        two_replicas = ConfigEntry(
            "min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, OFFSETS_TOPIC, incremental_configs=[two_replicas]
        )
        admin = AdminClient({"bootstrap.servers": one.address})
        admin.incremental_alter_configs([resource])[resource].result(BACK_S)
        leader, follower = (one, two) if leads == one.id else (two, one)
        with Connection(leader.address) as client:
            client.socket.settimeout(BACK_S)
            wait_until(lambda: commit(client, GROUP, TOPIC, 1) == 0, BACK_S)
            follower.pause()
            try:
                began = time.monotonic()
                assert commit(client, GROUP, TOPIC, 2) == codes.COORDINATOR_NOT_AVAILABLE
                assert time.monotonic() - began >= TIMEOUT_MS / 1000
                # Nobody waits behind it, and what is not committed is not seen.
                assert commit(client, GROUP, TOPIC, 3) == codes.COORDINATOR_NOT_AVAILABLE
                assert fetched(client, stable=True) == (codes.NOT_COORDINATOR, -1)
                assert fetched(client) == (0, 1)
            finally:
                follower.resume()
            wait_until(lambda: fetched(client) == (0, 2), BACK_S)
            wait_until(lambda: commit(client, GROUP, TOPIC, 4) == 0, BACK_S)
        # The other one takes over, and has all that was acknowledged.
        leader.stop()
        with Connection(follower.address) as client:
            wait_until(lambda: fetched(client) == (0, 4), BACK_S)


def mark(connection: Connection, topic: str) -> int:
    """The code of a marker."""
    kind = messages.WriteTxnMarkersRequest
    row = kind.WritableTxnMarker
    topics = [row.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
    marker = row(
        producer_id=7, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0
    )
    answer = connection.ask("WriteTxnMarkers", 1, kind(markers=[marker]))
    code: int = answer.markers[0].topics[0].partitions[0].error_code
    return code


@pytest.mark.oracle
@pytest.mark.parametrize("kind", [Kind.KAFKALITE, pytest.param(Kind.KAFKA, marks=pytest.mark.long)])
def test_a_marker_that_its_follower_does_not_take_is_answered_in_time(
    kind: Kind,
    kafka_tools: KafkaTools,
    kafka_controller: KafkaBroker,
    tmp_path: Path,
) -> None:
    """The request of another broker's coordinator was not answered until the follower was back."""
    limit = {"request.timeout.ms": str(TIMEOUT_MS)}
    leader_id, follower_id = {Kind.KAFKALITE: (11, 12), Kind.KAFKA: (13, 14)}[kind]
    follower = Node(follower_id, tmp_path / "follower", kafka_controller)
    topic = f"marked-{kind}"
    with ExitStack() as stack:
        stack.enter_context(follower)
        if kind is Kind.KAFKALITE:
            node = stack.enter_context(
                Node(leader_id, tmp_path / "leader", kafka_controller, **limit)
            )
            address = node.address
        else:
            kafka = new_kafka(
                kafka_tools, tmp_path / "leader", kafka_controller, leader_id, **limit
            )
            address = stack.enter_context(kafka).bootstrap_servers
        connection = stack.enter_context(Connection(address))
        make(connection, topic, replicas=[leader_id, follower_id], min_insync_replicas="2")
        wait_until(lambda: mark(connection, topic) == codes.NONE, BACK_S)
        follower.pause()
        try:
            began = time.monotonic()
            assert mark(connection, topic) == codes.REQUEST_TIMED_OUT
            assert time.monotonic() - began >= TIMEOUT_MS / 1000
            wait_until(lambda: mark(connection, topic) == codes.NOT_ENOUGH_REPLICAS, BACK_S)
        finally:
            follower.resume()
        wait_until(lambda: mark(connection, topic) == codes.NONE, BACK_S)
