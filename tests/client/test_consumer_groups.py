"""What a consumer says: rebalances to its listener, topics that are not there to its caller, and
troubles to the log."""

import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import kafkalite
from client.fake import FakeBroker
from client.filled import fill, members
from client.logs import TOPIC, Logs
from kafkalite.client import Admin, Cluster, Consumer, GroupOptions, Producer
from kafkalite.client.consumer.membership import Membership
from kafkalite.errors import BrokerError
from kafkalite.protocol.codes import REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID

ZERO, ONE = (TOPIC, 0), (TOPIC, 1)
QUICK = {"heartbeat_interval_ms": 10}
WAIT_S = 30
LOGGER = "kafkalite.client"


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """A broker that makes no topic by itself."""
    with kafkalite.Broker(config={"auto.create.topics.enable": "false"}) as broker:
        yield broker.bootstrap_servers


def until(reached: Callable[[], object], consumer: Consumer) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline
        consumer.poll(10)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


# --- rebalances -----------------------------------------------------------------------------------


class Told:
    """A listener that keeps what it was told, and the offset that was committed by then."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.events: list[tuple[str, list[tuple[str, int]], dict[int, int]]] = []

    def listener(self) -> dict[str, Any]:
        def on(name: str) -> Callable[[list[tuple[str, int]]], None]:
            return lambda given: self.events.append((name, given, dict(self.logs.committed)))

        return {f"on_{name}": on(name) for name in ("assigned", "revoked", "lost")}


@pytest.mark.parametrize(
    ("code", "event", "committed"),
    [(REBALANCE_IN_PROGRESS, "revoked", {0: 3, 1: 3}), (UNKNOWN_MEMBER_ID, "lost", {})],
)
def test_a_rebalance_is_told_in_kafkas_order(
    code: int, event: str, committed: dict[int, int]
) -> None:
    logs = Logs({0: 1, 1: 1})
    told = Told(logs)
    with FakeBroker(logs, partitions=2) as broker:
        logs.address = (broker.host, broker.port)
        with Consumer(broker.servers, group=GroupOptions("told", **QUICK)) as consumer:
            consumer.subscribe(TOPIC, **told.listener())
            count = 0
            while count < 6:
                count += len(consumer.poll(100))
            logs.heartbeat_code = code
            until(lambda: len(told.events) == 3, consumer)
            assert told.events == [
                ("assigned", [ZERO, ONE], {}),
                (event, [ZERO, ONE], committed),
                ("assigned", [ZERO, ONE], committed),
            ]
        assert told.events[3][:2] == ("revoked", [ZERO, ONE])
    assert len(told.events) == 4


def test_a_listener_may_commit_what_is_revoked_and_seek_what_is_assigned() -> None:
    logs = Logs({0: 1, 1: 1})
    with FakeBroker(logs, partitions=2) as broker:
        logs.address = (broker.host, broker.port)
        options = GroupOptions("commits", **QUICK)
        with Consumer(broker.servers, group=options, auto_commit_interval_ms=None) as consumer:

            def sought(partitions: list[tuple[str, int]]) -> None:
                with pytest.raises(ValueError, match="a rebalance listener cannot read"):
                    consumer.poll()
                for partition in partitions:
                    consumer.seek(partition, 1)

            consumer.subscribe(
                TOPIC, on_assigned=sought, on_revoked=lambda _: consumer.commit({ZERO: 2})
            )
            found: list[int] = []
            while len(found) < 4:
                found += [record.offset for record in consumer.poll(100)]
            assert sorted(found) == [1, 1, 2, 2]
            logs.heartbeat_code = REBALANCE_IN_PROGRESS
            until(lambda: logs.commits and consumer.assignment, consumer)
        assert logs.commits == [{0: 2}, {0: 2}]


def test_what_a_listener_raises_comes_out_of_poll_and_the_group_is_joined() -> None:
    logs = Logs({0: 1})
    with FakeBroker(logs) as broker:
        logs.address = (broker.host, broker.port)
        with Consumer(broker.servers, group=GroupOptions("raises", **QUICK)) as consumer:

            def raises(_: object) -> None:
                raise LookupError("no state")

            consumer.subscribe(TOPIC, on_assigned=raises)
            with pytest.raises(LookupError, match="no state"):
                until(lambda: False, consumer)
            assert consumer.assignment == [ZERO]
            assert len(consumer.poll(5_000)) == 3


# --- topics that are not there --------------------------------------------------------------------


@pytest.mark.parametrize("how", ["subscribe", "assign", "assign at an offset"])
def test_a_misspelt_topic_is_an_error_that_names_it(
    strict: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`poll` gave [] for ever, and the log had no line."""
    name = f"ordres-{how.replace(' ', '-')}"
    with caplog.at_level(logging.INFO, LOGGER), Consumer(strict, group=name) as consumer:
        if how == "subscribe":
            consumer.subscribe(name)
        elif how == "assign":
            consumer.assign([(name, 0)])
        else:
            consumer.assign({(name, 0): 0})
        for _ in range(2):
            with pytest.raises(BrokerError, match=f"'{name}'.*UNKNOWN_TOPIC_OR_PARTITION"):
                consumer.poll(20_000)
        with pytest.raises(BrokerError, match=name):
            next(iter(consumer))
        asked = [line for line in lines(caplog) if "asked to create" in line]
        assert asked == [f"topic '{name}' does not exist; the broker is asked to create it"]


def test_a_topic_that_is_not_there_is_made_once_and_said(
    kafka_broker: kafkalite.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    servers = kafka_broker.bootstrap_servers
    with caplog.at_level(logging.INFO, LOGGER), Consumer(servers, group="makes") as consumer:
        consumer.subscribe("made")
        until(lambda: consumer.assignment == [("made", 0)], consumer)
        assert len([line for line in lines(caplog) if "asked to create" in line]) == 1


def test_a_topic_that_is_deleted_stays_deleted_and_is_told(kafka_broker: kafkalite.Broker) -> None:
    """The next look at the topics made it again; where it was assigned `poll` gave [] for ever."""
    servers = kafka_broker.bootstrap_servers
    with Admin(servers) as admin, Producer(servers) as producer:
        for name in ("deleted", "stays"):
            admin.create_topic(name, partitions=1)
            producer.send(name, b"v")
        producer.flush()
        with (
            Consumer(servers, group="deleted") as grouped,
            Consumer(servers) as alone,
        ):
            grouped.subscribe(["deleted", "stays"])
            alone.assign({("deleted", 0): 0})
            assert len(alone.poll(10_000)) == 1
            count = 0
            while count < 2:
                count += len(grouped.poll(100))
            admin.delete_topics("deleted")
            with pytest.raises(BrokerError, match=r"deleted.*UNKNOWN_TOPIC_OR_PARTITION"):
                alone.poll(20_000)
            assert grouped._coordinator is not None
            grouped._coordinator._counts_at = 0.0  # the time to look has come
            with pytest.raises(BrokerError, match=r"'deleted'.*UNKNOWN_TOPIC_OR_PARTITION"):
                until(lambda: False, grouped)
            producer.send("stays", b"more")
            producer.flush()
            found = []
            while not found:
                try:
                    found = grouped.poll(5_000)
                except BrokerError as error:
                    assert "'deleted'" in str(error)  # in between
            assert found[0].value == b"more"
            looks = grouped._coordinator._counts_at
            while grouped._coordinator._counts_at == looks:
                with suppress(BrokerError):
                    grouped.poll(100)
            names = {topic.name for topic in admin.list_topics(include_internal=False)}
        assert "deleted" not in names


# --- the log --------------------------------------------------------------------------------------


def test_a_broker_that_is_away_is_said_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.INFO, LOGGER),
        kafkalite.Broker() as broker,
        Consumer(broker.bootstrap_servers) as consumer,
    ):
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("away", b"v")
        consumer.assign({("away", 0): 0})
        assert len(consumer.poll(10_000)) == 1
        broker.stop()
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert consumer.poll(100) == []
        away = lines(caplog)
        assert 1 <= len(away) <= 2, away
        broker.start()
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("away", b"w")
        assert [record.value for record in consumer.poll(20_000)] == [b"w"]
    back = lines(caplog)[len(away) :]
    assert 1 <= len(back) <= 2, back
    assert all("again, after" in line for line in back)


def test_a_member_that_nobody_polls_says_why_it_leaves(caplog: pytest.LogCaptureFixture) -> None:
    logs = Logs({0: 1})
    options = GroupOptions("idle", max_poll_interval_ms=1, **QUICK)
    with FakeBroker(logs) as broker, caplog.at_level(logging.INFO, LOGGER):
        logs.address = (broker.host, broker.port)
        member = Membership(Cluster(broker.servers), options)
        member.join([TOPIC], lambda _topics: {TOPIC: 1})
        deadline = time.monotonic() + WAIT_S
        while not lines(caplog):
            assert time.monotonic() < deadline
            time.sleep(0.005)  # the pause of the poll
        member.close()
    assert "max_poll_interval_ms=1" in lines(caplog)[0]


# --- static members -------------------------------------------------------------------------------

SHORT = {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 50}


@pytest.fixture(scope="module")
def brief() -> Iterator[str]:
    """A broker whose groups may have short sessions."""
    config = {"group.min.session.timeout.ms": 100, "group.initial.rebalance.delay.ms": 0}
    with kafkalite.Broker(config=config) as broker:
        yield broker.bootstrap_servers


def test_a_static_member_that_turns_to_assign_leaves_its_group_and_commits(brief: str) -> None:
    """It went on committing as the member that it was: that kept its session up, and partitions
    with it that nobody read. Once it was put out no commit was taken any more."""
    fill(brief, "turns")
    place, options = ("turns", 0), GroupOptions("turns", "one", **SHORT)
    with Consumer(brief, group=options, auto_commit_interval_ms=10) as consumer:
        consumer.subscribe("turns")
        until(lambda: consumer.assignment, consumer)
        consumer.unsubscribe()
        consumer.assign({place: 0})
        consumer.pause(place)
        offsets = itertools.cycle((4, 5))

        def has_left() -> bool:
            consumer.seek(place, next(offsets))
            return members(brief, "turns") == 0

        until(has_left, consumer)
        consumer.seek(place, 6)
        until(lambda: consumer.committed([place]) == {place: 6}, consumer)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_static_member_that_was_not_polled_loses_its_partitions_with_its_session(
    brief: str, is_over: bool
) -> None:
    """Partitions that another had by then were told as revoked, of which a listener may commit."""
    name = f"silent-{is_over}"
    fill(brief, name)
    times = SHORT if is_over else SHORT | {"session_timeout_ms": 60_000}
    options = GroupOptions(name, "one", max_poll_interval_ms=500, **times)
    told: list[str] = []
    with (
        Consumer(brief, group=options, auto_commit_interval_ms=None) as consumer,
        Consumer(brief, group=GroupOptions(name, **SHORT)) as other,
    ):
        consumer.subscribe(
            name, on_revoked=lambda _: told.append("revoked"), on_lost=lambda _: told.append("lost")
        )
        until(lambda: consumer.assignment, consumer)
        if is_over:
            other.subscribe(name)
            until(lambda: other.assignment, other)
        else:
            assert consumer._coordinator is not None
            group, deadline = consumer._coordinator.group, time.monotonic() + WAIT_S
            while group._is_member:
                assert time.monotonic() < deadline
                time.sleep(0.01)  # the pause of the poll
        until(lambda: told, consumer)
        assert told[0] == ("lost" if is_over else "revoked")


def test_a_pattern_that_matches_nothing_assigns_nothing_once_until_a_topic_comes(
    strict: str,
) -> None:
    """It joined again at once, for ever: a listener was called some thousand times a second, each
    time with a thread of its own for the join."""
    assigned: list[list[tuple[str, int]]] = []
    with Consumer(strict, group="matches-none") as consumer, Admin(strict) as admin:
        consumer.subscribe(re.compile("later-.*"), on_assigned=assigned.append)
        until(lambda: assigned, consumer)
        assert consumer._coordinator is not None
        looked_at = consumer._coordinator._counts_at
        until(lambda: consumer._coordinator._counts_at > looked_at, consumer)
        assert assigned == [[]]
        admin.create_topic("later-one", partitions=1)
        until(lambda: consumer.assignment, consumer)
        assert assigned == [[], [("later-one", 0)]]
        admin.delete_topics("later-one")
        consumer._coordinator._counts_at = 0.0  # the time to look has come
        until(lambda: len(assigned) == 3, consumer)
        consumer.unsubscribe()
        consumer.subscribe(re.compile("later-.*"), on_assigned=assigned.append)
        until(lambda: len(assigned) == 4, consumer)
        assert assigned[2:] == [[], []]
