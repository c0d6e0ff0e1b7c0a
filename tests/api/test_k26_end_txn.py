"""EndTxn by frames."""

import pytest

from api.raw import Connection
from api.transactions import transactor


def test_an_end_that_comes_twice_is_told_the_same(connection: Connection, topic: str) -> None:
    client = transactor(connection)
    assert client.end(True) == 48
    assert client.add((topic, 0)) == {(topic, 0): 0}
    for _ in range(2):
        assert client.end(True) == 0
    assert client.end(False) == 48
    assert client.end(True, epoch=client.epoch + 1) == 90
    assert client.end(True, version=1, epoch=client.epoch + 1) == 47


@pytest.mark.parametrize("version", range(5))
def test_every_version_ends(connection: Connection, topic: str, version: int) -> None:
    client = transactor(connection)
    for commit in (True, False):
        assert client.add((topic, 0)) == {(topic, 0): 0}
        assert client.end(commit, version=version) == 0
