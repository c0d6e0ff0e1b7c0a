"""A cluster of several brokers in the image, as handlers see it from one of them."""

from types import SimpleNamespace
from typing import Any

from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.fold import Fold
from kafkalite.metadata.image import NO_LEADER, OFFSETS_TOPIC, Image
from kafkalite.metadata.image_records import snapshot_records
from kafkalite.protocol import messages

HERE, THERE, GONE = 1, 2, 3
TOPIC_ID = bytes([1]) * 16
DIRECTORIES = {node: bytes([8 + node]) * 16 for node in (HERE, THERE, GONE)}


def of_three_brokers() -> Image:
    """The offsets' topic: its first partition is led here, the second there, the third by none."""
    kind = messages.RegisterBrokerRecord
    written: list[Any] = [
        kind(
            broker_id=node,
            broker_epoch=node,
            end_points=[kind.BrokerEndpoint(name="EXTERNAL", host=f"host-{node}", port=9092)],
            log_dirs=[DIRECTORIES[node]],
            fenced=node == GONE,
        )
        for node in DIRECTORIES
    ]
    written.append(messages.TopicRecord(name=OFFSETS_TOPIC, topic_id=TOPIC_ID))
    for index, leader in enumerate((HERE, THERE, NO_LEADER)):
        replicas = [THERE, HERE] if leader == THERE else [HERE, GONE]
        written.append(
            messages.PartitionRecord(
                partition_id=index,
                topic_id=TOPIC_ID,
                replicas=replicas,
                isr=replicas[:1],
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=[DIRECTORIES[node] for node in replicas],
            )
        )
    # The leader there takes the other one into the ISR: it leads on, in the same epoch.
    change = messages.PartitionChangeRecord
    written.append(change(partition_id=1, topic_id=TOPIC_ID, isr=[THERE, HERE]))
    fold = Fold()
    for message in written:
        fold.replay(message)
    return fold.take_delta(1, len(written) - 1, 0).image


def test_the_image_has_the_partitions_of_all_brokers() -> None:
    image = of_three_brokers()
    first, second, _ = image.topics[OFFSETS_TOPIC].partitions
    assert (second.leader, second.leader_epoch, second.partition_epoch) == (THERE, 0, 1)
    assert (second.replicas, second.isr) == ((THERE, HERE), (THERE, HERE))
    assert [second.directory_of(each) for each in (HERE, THERE)] == [
        DIRECTORIES[HERE],
        DIRECTORIES[THERE],
    ]
    assert first.directory_of(GONE) == DIRECTORIES[GONE]
    fold = Fold()
    for message in snapshot_records(image):
        fold.replay(message)
    again = fold.take_delta(1, image.last_offset, 0).image
    assert (again.topics, again.brokers) == (image.topics, image.brokers)


def test_a_handler_learns_who_leads_and_coordinates() -> None:
    source: Any = SimpleNamespace(image=of_three_brokers(), quorum=None)
    cluster = Cluster(HERE, source)
    assert [cluster.leader_of(OFFSETS_TOPIC, index) for index in range(3)] == [
        HERE,
        THERE,
        NO_LEADER,
    ]
    assert cluster.leader_of(OFFSETS_TOPIC, 3) == cluster.leader_of("unknown", 0) == NO_LEADER
    coordinator = cluster.coordinator_of(OFFSETS_TOPIC, 0)
    assert coordinator is cluster.broker
    endpoint = cluster.broker.endpoint("EXTERNAL")
    assert endpoint is not None and endpoint.host == "host-1"
    assert cluster.broker.endpoint("INTERNAL") is None
    assert cluster.coordinator_of(OFFSETS_TOPIC, 2) is None
    # A node by itself knows of no other that is alive.
    assert cluster.coordinator_of(OFFSETS_TOPIC, 1) is None
    assert [each.id for each in cluster.brokers] == [HERE]
