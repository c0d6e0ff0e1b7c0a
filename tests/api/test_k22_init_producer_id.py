"""InitProducerId by frames."""

from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.raw import Connection
from kafkalite.protocol import codes, messages


def init(connection: Connection, version: int = 4, **fields: Any) -> tuple[int, int, int]:
    given = {"transactional_id": None, "transaction_timeout_ms": 60_000, **fields}
    request = messages.InitProducerIdRequest(**given)
    answer = connection.ask("InitProducerId", version, request)
    while (
        answer.error_code == codes.COORDINATOR_LOAD_IN_PROGRESS
    ):  # the block takes a slow disk long
        answer = connection.ask("InitProducerId", version, request)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_an_id_of_epoch_0(connection: Connection, version: int) -> None:
    error_code, producer_id, epoch = init(connection, version)
    assert (error_code, epoch) == (0, 0)
    assert producer_id >= 0


def test_no_id_is_given_twice_over_restart_and_kill(tmp_path: Path) -> None:
    broker = kafkalite.Broker(tmp_path / "data")
    given: list[int] = []
    with broker:
        for end in (broker.kill, broker.stop, broker.kill):
            with Connection(broker.bootstrap_servers) as connection:
                given += [init(connection)[1] for _ in range(3)]
            end()
            broker.start()
    assert len(given) == len(set(given)) == 9
    # A block is lost with the process that it was given to, as in Kafka.
    assert given == [0, 1, 2, 1000, 1001, 1002, 2000, 2001, 2002]


def test_more_ids_than_a_block_has(tmp_path: Path) -> None:
    with (
        kafkalite.Broker(tmp_path / "data") as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        given = [init(connection)[1] for _ in range(1002)]
    assert given == list(range(1002))


def test_an_empty_transactional_id_is_refused(connection: Connection) -> None:
    assert init(connection, transactional_id="") == (42, -1, -1)


def test_an_earlier_id_goes_with_its_epoch(connection: Connection) -> None:
    assert init(connection, producer_id=7)[0] == 42
    assert init(connection, producer_epoch=3)[0] == 42
    error_code, producer_id, epoch = init(connection, producer_id=5, producer_epoch=3)
    assert (error_code, epoch) == (0, 0)
    assert producer_id >= 0


def test_a_time_is_judged_before_the_coordinator_is_looked_for(tmp_path: Path) -> None:
    with (
        kafkalite.Broker(tmp_path / "data") as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        given = {"transactional_id": "one", "transaction_timeout_ms": 0}
        assert init(connection, **given)[0] == codes.INVALID_TRANSACTION_TIMEOUT
        assert init(connection, transactional_id="one")[0] == codes.NOT_COORDINATOR
