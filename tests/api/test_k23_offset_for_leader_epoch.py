"""OffsetForLeaderEpoch: the rule by hand, and the key by frames."""

from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from kafkalite.api.k23_offset_for_leader_epoch import end_of_epoch
from kafkalite.protocol import messages

EPOCHS = [(2, 10), (3, 20), (7, 50)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (-2, (-2, 10)),
        (0, (0, 10)),
        (2, (2, 20)),
        (3, (3, 50)),
        (5, (3, 50)),
        (7, (7, 99)),
        (8, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    assert end_of_epoch(EPOCHS, 99, asked) == answer
    assert end_of_epoch([], 99, asked) == (-1, -1)


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
