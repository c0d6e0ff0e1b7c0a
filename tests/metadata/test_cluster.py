"""A cluster of several brokers in the image, as handlers see it from one of them."""

from types import SimpleNamespace
from typing import Any

from kafkalite.metadata.activation import Registration, start_records
from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.fold import Fold
from kafkalite.metadata.image import NO_LEADER, OFFSETS_TOPIC, Image, alive_brokers
from kafkalite.metadata.image_records import snapshot_records
from kafkalite.metadata.publisher import Publisher
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
            rack="r",
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
    there = cluster.coordinator_of(OFFSETS_TOPIC, 1)
    assert there is not None and there.id == THERE
    # One that is fenced is told to nobody.
    assert [each.id for each in cluster.brokers] == [HERE, THERE]
    assert cluster.broker_ids == (HERE, THERE)


def test_a_core_is_told_of_brokers_whenever_one_changes() -> None:
    told: list[Any] = []
    registered: list[Any] = []

    def set_brokers(alive: Any, all_of_them: Any) -> None:
        told.append(alive)
        registered[:] = all_of_them

    core: Any = SimpleNamespace(set_brokers=set_brokers, set_features=lambda *_: None)
    fold = Fold()
    for message in snapshot_records(of_three_brokers()):
        fold.replay(message)
    publisher = Publisher(lambda own: own)
    image = fold.take_delta(1, 0, 0).image
    publisher.serve(
        core,
        image,
        node_id=HERE,
        kraft_version=0,
        listener_names=["INSIDE", "EXTERNAL"],
        inter_broker_listener="EXTERNAL",
    )
    here, there, gone = [
        (node, "r", [None, (f"host-{node}", 9092)]) for node in (HERE, THERE, GONE)
    ]
    assert told.pop() == [here, there]
    # Leaders judge followers by those as well that are fenced.
    assert sorted((each.id, each.is_fenced) for each in registered) == [
        (HERE, False),
        (THERE, False),
        (GONE, True),
    ]
    assert {each.address for each in registered} == {
        (f"host-{node}", 9092) for node in (HERE, THERE, GONE)
    }
    changes = [
        (
            messages.BrokerRegistrationChangeRecord(broker_id=THERE, broker_epoch=2, fenced=1),
            [here],
        ),
        (messages.UnfenceBrokerRecord(id=GONE, epoch=3), [here, gone]),
        (messages.UnregisterBrokerRecord(broker_id=GONE, broker_epoch=3), [here]),
        # The one that tells serves, whoever has fenced it.
        (messages.FenceBrokerRecord(id=HERE, epoch=1), [here]),
        (messages.UnregisterBrokerRecord(broker_id=HERE, broker_epoch=1), []),
    ]
    for offset, (message, expected) in enumerate(changes, 1):
        fold.replay(message)
        publisher.publish(fold.take_delta(1, offset, 0))
        assert told.pop() == expected
    fold.replay(messages.ConfigRecord(resource_type=16, resource_name="a", name="b", value="c"))
    publisher.publish(fold.take_delta(1, 9, 0))
    assert not told


def test_a_node_that_starts_by_itself_fences_the_brokers_of_before() -> None:
    image = of_three_brokers()
    fold = Fold()
    for message in snapshot_records(image):
        fold.replay(message)
    claimed: Any = SimpleNamespace(directories=[("/data", DIRECTORIES[HERE])])
    for message in start_records(image, [], 10, Registration(HERE, (), None, "1"), claimed):
        fold.replay(message)
    assert [each.id for each in alive_brokers(fold.take_delta(1, 20, 0).image)] == [HERE]
