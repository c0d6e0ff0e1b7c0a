"""A log directory fails while a replica is on its way there, or away from there: what a broker
answers then is what Apache Kafka's answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from api.batches import batch
from api.log_dirs import alter, home_of, places, set_rate, wait_for
from api.raw import Connection
from cluster.brokers import Kind
from faults.mount import Mount
from faults.nemesis import lose_unflushed
from kafkalite.protocol import codes, messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_kafka
from replication.records import produce
from replication.topics import make

pytestmark = pytest.mark.oracle

KINDS = [Kind.KAFKALITE, pytest.param(Kind.KAFKA, marks=pytest.mark.long)]
IDS = {Kind.KAFKALITE: 61, Kind.KAFKA: 62}
SLOW = "1000"


class Broker(NamedTuple):
    """It has two log directories, of which the second can fail."""

    id: int
    address: str
    first: Path
    second: Path
    mount: Mount
    process: KafkaBroker | Node

    def make(self, connection: Connection, topic: str, home: Path) -> None:
        """A topic of one partition, which lies there, with a megabyte of records."""
        alter(connection, home, (topic, 0))
        make(connection, topic, replicas=[self.id])
        wait_for(lambda: bool(places(connection, topic)))
        assert home_of(connection, topic) == home
        produce(self.address, topic, (b"%04d" % each * 250 for each in range(1_000)))

    def begin_move(self, connection: Connection, topic: str, to: Path) -> None:
        """It does not come to its end."""
        set_rate(connection, SLOW, self.id)
        assert alter(connection, to, (topic, 0)) == [codes.NONE]
        assert [each[:2] for each in places(connection, topic)].count((str(to), True)) == 1


@contextmanager
def running(
    kind: Kind, tools: KafkaTools, controller: KafkaBroker, folder: Path
) -> Iterator[Broker]:
    mount = Mount(folder, "second")
    try:
        (mount.path / "lost+found").rmdir()
        node_id = IDS[kind]
        kafka = new_kafka(tools, folder / "broker", controller, node_id)
        kafka.log_dirs = [folder / "first", mount.path]
        kafka.prepare()
        process = kafka if kind is Kind.KAFKA else Node.over(kafka, node_id)
        with process:
            yield Broker(node_id, kafka.bootstrap_servers, *kafka.log_dirs, mount, process)
            kafka.kill()
    finally:
        mount.unmount()


def has_failed(connection: Connection, path: Path) -> bool:
    answer = connection.ask("DescribeLogDirs", 4, messages.DescribeLogDirsRequest(topics=[]))
    (found,) = [each.error_code for each in answer.results if each.log_dir == str(path)]
    assert found in (codes.NONE, codes.KAFKA_STORAGE_ERROR)
    return found == codes.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_stays_where_it_is_if_the_other_directory_fails(
    kind: Kind, kafka_tools: KafkaTools, kafka_controller: KafkaBroker, tmp_path: Path
) -> None:
    with (
        running(kind, kafka_tools, kafka_controller, tmp_path) as broker,
        Connection(broker.address) as connection,
    ):
        topic = f"stays-{kind}"
        broker.make(connection, topic, broker.first)
        broker.begin_move(connection, topic, broker.second)
        lose_unflushed(broker.mount)
        set_rate(connection, None, broker.id)
        wait_for(lambda: has_failed(connection, broker.second))
        wait_for(lambda: places(connection, topic) == [(str(broker.first), False, 0)])
        storage_error = [codes.KAFKA_STORAGE_ERROR]
        assert alter(connection, broker.second, (topic, 0)) == storage_error
        assert alter(connection, broker.first, (topic, 0)) == [codes.NONE]
        produce(broker.address, topic, [b"more"])
        assert connection.list_offsets(topic, -1).offset == 1_001


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_is_offline_if_its_own_directory_fails(
    kind: Kind, kafka_tools: KafkaTools, kafka_controller: KafkaBroker, tmp_path: Path
) -> None:
    with (
        running(kind, kafka_tools, kafka_controller, tmp_path) as broker,
        Connection(broker.address) as connection,
    ):
        topic = f"offline-{kind}"
        broker.make(connection, topic, broker.second)
        broker.begin_move(connection, topic, broker.first)
        lose_unflushed(broker.mount)
        assert connection.produce(topic, batch([b"refused"])).error_code != codes.NONE
        wait_for(lambda: has_failed(connection, broker.second))
        # The copy is there, and nobody takes it for the log.
        wait_for(lambda: places(connection, topic) == [(str(broker.first), True, -1)])
        refused = alter(connection, broker.first, (topic, 0))
        assert refused == [codes.KAFKA_STORAGE_ERROR]
        assert connection.produce(topic, batch([b"refused"])).error_code != codes.NONE
