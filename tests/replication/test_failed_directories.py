"""A log directory of a broker in a cluster fails, is full or is replaced: the broker serves what
lies in the others, as Apache Kafka's does."""

import shutil
from pathlib import Path

import pytest

from api.batches import batch
from api.log_dirs import alter, places, wait_for
from api.raw import Connection
from cluster.brokers import Kind
from faults.nemesis import lose_unflushed
from kafkalite.metadata import reading
from kafkalite.protocol import codes
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node
from replication.records import produce
from replication.test_failed_moves import KINDS, has_failed, running
from replication.test_join import directory_id
from replication.test_join import produce as produce_to
from replication.topics import delete, elect_unclean, make

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("found_by", ["a write", "the deletion"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_of_a_failed_directory_is_deleted_and_the_broker_serves_on(
    kind: Kind,
    found_by: str,
    kafka_tools: KafkaTools,
    kafka_controller: KafkaBroker,
    tmp_path: Path,
) -> None:
    """The deletion of its logs failed, and with it the broker."""
    with (
        running(kind, kafka_tools, kafka_controller, tmp_path) as broker,
        Connection(broker.address) as connection,
    ):
        victim, later = (f"{each}-{kind}-{found_by[:1]}" for each in ("victim", "later"))
        broker.make(connection, victim, broker.second)
        lose_unflushed(broker.mount)
        if found_by == "a write":
            assert connection.produce(victim, batch([b"refused"])).error_code != codes.NONE
            wait_for(lambda: has_failed(connection, broker.second))
        delete(connection, victim)
        wait_for(lambda: has_failed(connection, broker.second))
        make(connection, later, replicas=[broker.id])
        wait_for(lambda: places(connection, later) == [(str(broker.first), False, 0)])
        produce(broker.address, later, [b"kept"])
        assert connection.list_offsets(later, -1).offset == 1


def test_a_log_that_has_no_room_is_made_once_there_is(
    kafka_tools: KafkaTools, kafka_controller: KafkaBroker, tmp_path: Path
) -> None:
    """The broker stopped when it could not make it, and so did its next start. Kafka's broker takes
    the directory offline, and stops if it has no other."""
    with running(Kind.KAFKALITE, kafka_tools, kafka_controller, tmp_path) as broker:
        node = broker.process
        assert isinstance(node, Node)
        with Connection(broker.address) as connection:
            alter(connection, broker.second, ("roomless", 0))
            broker.mount.fill()
            make(connection, "roomless", replicas=[broker.id])
            wait_for(lambda: "whose logs cannot be created yet" in node.told())
            refused = connection.produce("roomless", batch([b"refused"])).error_code
            assert refused == codes.KAFKA_STORAGE_ERROR
            # Where the topics of the tests before lie anew does not say where this one goes.
            alter(connection, broker.first, ("roomy", 0))
            make(connection, "roomy", replicas=[broker.id])
            produce(broker.address, "roomy", [b"one"])
        node.kill()
        node.start()
        produce(broker.address, "roomy", [b"two"])
        (broker.mount.path / "filler").unlink()
        with Connection(broker.address) as connection:
            wait_for(lambda: places(connection, "roomless") == [(str(broker.second), False, 0)])
            produce(broker.address, "roomless", [b"kept"])
            assert connection.list_offsets("roomless", -1).offset == 1
            assert connection.list_offsets("roomy", -1).offset == 2


def directories_told(controller: KafkaBroker, topic: str) -> set[bytes]:
    """Where the metadata has its replicas, as the controller has it on its disk."""
    partitions = reading.read(controller.log_dirs[0]).image.topics[topic].partitions
    return {each for partition in partitions for each in partition.directories}


def test_replicas_of_a_disk_that_was_replaced_are_made_anew_and_told(
    kafka_controller: KafkaBroker, tmp_path: Path
) -> None:
    """They were offline for ever, and nothing said why."""
    paths = [tmp_path / "one", tmp_path / "two"]
    configs = {"log.dirs": ",".join(map(str, paths))}
    with Node(63, tmp_path / "node", kafka_controller, **configs) as node:
        kept, replaced = paths
        with Connection(node.address) as connection:
            make(connection, "spread", replicas=[node.id], partitions=2)
        produce(node.address, "spread", [b"before"] * 2, partitions=2)
        (lost,) = (int(each.name[-1]) for each in replaced.glob("spread-*"))
        wait_for(lambda: len(directories_told(kafka_controller, "spread")) == 2)
        old = directories_told(kafka_controller, "spread")
        node.kill()
        # While it may come back, nothing is made in its place.
        (replaced / "no-partition-at-all").mkdir()
        node.start()
        assert f"spread-{lost}; they stay offline until {replaced} is back" in node.told()
        node.kill()
        shutil.rmtree(replaced)
        node.format("--ignore-formatted")
        node.start()
        assert f"not here: spread-{lost}; they are created again, empty" in node.told()
        wait_for(lambda: directories_told(kafka_controller, "spread") != old)
        assert directory_id(kept) in directories_told(kafka_controller, "spread")
        assert produce_to(node, "spread", 1 - lost, ["after"]) == [1]
        # It was the only replica: the controller elects nobody by itself.
        with Connection(node.address) as connection:
            elect_unclean(connection, "spread", lost)
        assert produce_to(node, "spread", lost, ["after"]) == [0]
        known = reading.read(kafka_controller.log_dirs[0]).image.topics["spread"].partitions[lost]
        # It has not vouched for what is gone.
        assert known.recovery_state == 1
