"""OffsetForLeaderEpoch, by frames; the rule by hand is in `tests/rust/epochs.rs`."""

from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from kafkalite.protocol import messages


def ask(
    connection: Connection, name: str, *partitions: tuple[int, int, int], version: int = 4
) -> list[tuple[int, int, int]]:
    """(partition, current leader epoch, epoch) -> (error code, epoch, end offset) of each."""
    kind = messages.OffsetForLeaderEpochRequest
    topic = kind.OffsetForLeaderTopic(
        topic=name,
        partitions=[
            kind.OffsetForLeaderTopic.OffsetForLeaderPartition(
                partition=index, current_leader_epoch=current, leader_epoch=epoch
            )
            for index, current, epoch in partitions
        ],
    )
    answer = connection.ask("OffsetForLeaderEpoch", version, kind(topics=[topic]))
    return [
        (each.error_code, each.leader_epoch, each.end_offset)
        for each in answer.topics[0].partitions
    ]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_version_finds_the_end(connection: Connection, topic: str, version: int) -> None:
    assert connection.produce(topic, batch([b"x", b"y"])).error_code == 0
    assert ask(connection, topic, (0, -1, 0), (0, 0, 0), version=version) == [(0, 0, 2)] * 2


def test_who_knows_another_epoch_of_the_leader_is_told(connection: Connection, topic: str) -> None:
    assert ask(connection, topic, (0, 5, 0), (0, -1, 5), (9, -1, 0)) == [
        (75, -1, -1),
        (0, -1, -1),
        (3, -1, -1),
    ]
    assert ask(connection, "no-topic", (0, -1, 0)) == [(3, -1, -1)]


def test_a_restart_begins_an_epoch(tmp_path: Path) -> None:
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("orders")
            connection.produce("orders", batch([b"x", b"y"]))
        broker.stop()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            metadata = connection.ask("Metadata", 9, messages.MetadataRequest(topics=None))
            epoch = metadata.topics[0].partitions[0].leader_epoch
            assert epoch > 0
            assert ask(connection, "orders", (0, epoch, 0), (0, epoch, epoch)) == [
                (0, 0, 2),
                (0, epoch, 2),
            ]
            connection.produce("orders", batch([b"z"]))
            assert ask(connection, "orders", (0, epoch, 0), (0, epoch, epoch)) == [
                (0, 0, 2),
                (0, epoch, 3),
            ]
            assert ask(connection, "orders", (0, 0, 0)) == [(74, -1, -1)]
