"""Transactions whose coordinator's log directory does not answer, or one of their partitions'."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.raw import KEYS, Connection
from api.transactions import Transactor
from faults.directories import PROMPT_S, partitions_by_directory, two_directories
from faults.mount import Mount
from kafkalite.protocol import codes, messages
from kafkalite.protocol.java_hash import java_hash

STATE_PARTITIONS = 4
PRODUCE_TIMEOUT_MS = 1_500
LARGE_COUNT = 20_000
"""Partitions of a request that is large."""


@pytest.fixture
def two(slow: Mount, tmp_path: Path) -> Iterator[kafkalite.Broker]:
    config = {
        **two_directories(slow, tmp_path / "quick"),
        "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    }
    with kafkalite.Broker(config=config) as broker:
        yield broker


def transactor_in(folder: Path, connection: Connection) -> Transactor:
    """One whose state lies there."""
    for number in range(1_000):
        index = java_hash(f"txn-{number}") % STATE_PARTITIONS
        if (folder / f"__transaction_state-{index}").is_dir():
            client = Transactor(connection, f"txn-{number}")
            assert client.init() == 0
            return client
    raise AssertionError("no partition of the coordinator lies there")


def produced(client: Transactor, topic: str) -> int:
    """The code of the first record of a transaction."""
    request = client.connection.produce_request(topic, client.batch(0))
    request.transactional_id = client.name
    request.timeout_ms = PRODUCE_TIMEOUT_MS
    response = client.connection.ask("Produce", 12, request)
    return int(response.responses[0].partition_responses[0].error_code)


def test_a_produce_waits_for_its_coordinator_no_longer_than_it_says(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """It had no answer before the thaw, nor had anything behind it on its connection."""
    _, topic = partitions_by_directory(two, slow, tmp_path / "quick")
    with Connection(two.bootstrap_servers) as connection:
        connection.socket.settimeout(PROMPT_S)
        Transactor(connection)  # has the topic made
        client = transactor_in(slow.path / "logs", connection)
        slow.freeze()
        try:
            assert produced(client, topic) == codes.NOT_ENOUGH_REPLICAS
        finally:
            slow.thaw()
        while (code := produced(client, topic)) == codes.NOT_ENOUGH_REPLICAS:
            pass
        assert code == codes.NONE
        assert client.end(True, version=5) == 0
        while client.stable_end(topic) != 2:
            pass


def large_markers(*places: tuple[str, int]) -> Any:
    kind = messages.WriteTxnMarkersRequest.WritableTxnMarker
    topics = [
        kind.WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in places
    ]
    missing = kind.WritableTxnMarkerTopic(name="missing", partition_indexes=[*range(LARGE_COUNT)])
    marker = kind(
        producer_id=1 << 40,
        producer_epoch=0,
        transaction_result=True,
        topics=[*topics, missing],
        coordinator_epoch=0,
    )
    return messages.WriteTxnMarkersRequest(markers=[marker])


def test_a_large_request_that_waits_for_a_directory_keeps_no_other_waiting(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """One at a time was answered, and that one held its turn while the disk did not answer."""
    stalled, going = partitions_by_directory(two, slow, tmp_path / "quick")
    servers = two.bootstrap_servers
    with Connection(servers) as waiting, Connection(servers) as other:
        other.socket.settimeout(PROMPT_S)
        key = KEYS["WriteTxnMarkers"]
        slow.freeze()
        try:
            number = waiting.send(key, 1, large_markers((stalled, 0)).encode(1))
            answer = other.ask("WriteTxnMarkers", 1, large_markers((going, 0)))
            assert answer.markers[0].topics[0].partitions[0].error_code == 0
        finally:
            slow.thaw()
        late = waiting.receive(key, 1, number)
        assert late.markers[0].topics[0].partitions[0].error_code == 0
