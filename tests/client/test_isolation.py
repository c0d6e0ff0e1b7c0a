"""Readers of what is committed: the consumer, `read_arrow` and `kafkalite consume` leave out what
was aborted, and end before what is open."""

from collections.abc import Iterator

import pytest

import kafkalite
from client.transactional import committed, values
from kafkalite import cli
from kafkalite.client import Admin, Consumer, Producer
from kafkalite.client.admin import LATEST

TOPIC = "orders"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A topic with a committed transaction, an aborted one, another committed one, an aborted one
    at its end; the second partition has one that is open, behind a committed one."""
    with kafkalite.Broker() as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topic(TOPIC, partitions=2)
        with (
            Producer(servers, transactional_id="one") as one,
            Producer(servers, transactional_id="two") as two,
        ):
            for name, commits in ((b"a", True), (b"x", False), (b"b", True), (b"y", False)):
                one.begin_transaction()
                one.send(TOPIC, name, partition=0)
                one.flush()
                if commits:
                    one.commit_transaction()
                else:
                    one.abort_transaction()
            with two.transaction():
                two.send(TOPIC, b"c", partition=1)
            assert committed(servers, TOPIC, [b"a", b"b", b"c"]) == [b"a", b"b", b"c"]
            two.begin_transaction()
            two.send(TOPIC, b"z", partition=1)
            two.flush()
            yield servers


def test_a_consumer_leaves_out_what_is_aborted_and_what_is_open(servers: str) -> None:
    assert values(servers, TOPIC) == [b"a", b"b", b"c"]
    assert values(servers, TOPIC, "read_uncommitted") == [b"a", b"b", b"c", b"x", b"y", b"z"]


def test_the_end_for_readers_of_what_is_committed_is_before_what_is_open(servers: str) -> None:
    places = [(TOPIC, 0), (TOPIC, 1)]
    ends = {}
    for isolation in ("read_committed", "read_uncommitted"):
        with Consumer(servers, isolation=isolation) as consumer:
            ends[isolation] = consumer.end_offsets(places)
            consumer.assign(places)
            consumer.seek_to_end()
            assert {place: consumer.position(place) for place in places} == ends[isolation]
            # Assigned at the high watermark it left out what was committed a moment later.
            consumer.assign(dict.fromkeys(places, LATEST))
            assert {place: consumer.position(place) for place in places} == ends[isolation]
    assert ends["read_committed"][TOPIC, 1] == ends["read_uncommitted"][TOPIC, 1] - 1
    assert ends["read_committed"][TOPIC, 0] == ends["read_uncommitted"][TOPIC, 0]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_read_arrow_and_the_command_read_the_same(
    servers: str, level: str, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = values(servers, TOPIC, level)
    table = kafkalite.read_arrow(TOPIC, servers, isolation=level).to_pyarrow()
    assert sorted(table["value"].to_pylist()) == expected
    command = ["consume", TOPIC, "--from-beginning", "--isolation-level", level]
    assert cli.run([*command, "--bootstrap-server", servers]) == 0
    assert sorted(capfd.readouterr().out.split()) == [each.decode() for each in expected]


def test_the_command_ends_for_a_limit_that_aborted_records_do_not_count_for(
    servers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["consume", TOPIC, "--partition", "0", "--offset", "earliest"]
    command += ["--isolation-level", "read-committed", "--max-messages", "2"]
    assert cli.run([*command, "--bootstrap-server", servers]) == 0
    assert capfd.readouterr().out == "a\nb\n"
