"""The end of a consumer where it is not meant to come: while a record is dealt with, within another
call, in a rebalance listener."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

import kafkalite
from client.filled import members
from kafkalite.client import Admin, Consumer, Producer

WAIT_MS = 20_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kafkalite.Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    """Ten records in one partition of a topic of its own."""
    name = f"t{abs(hash(request.node.name))}"
    with Admin(servers) as admin:
        admin.create_topic(name, partitions=1)
    with Producer(servers) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, partition=0)
    return name


def committed(servers: str, group: str, topic: str) -> int | None:
    with Consumer(servers, group=group) as consumer:
        return consumer.committed([(topic, 0)]).get((topic, 0))


class HandlerError(Exception):
    """A record cannot be dealt with."""


def close_at_last(consumer: Consumer, read: Callable[[], None]) -> None:
    try:
        read()
    finally:
        consumer.close()


def close_by_contextlib(consumer: Consumer, read: Callable[[], None]) -> None:
    with contextlib.closing(consumer):
        read()


def unsubscribe_at_last(consumer: Consumer, read: Callable[[], None]) -> None:
    try:
        read()
    except HandlerError:
        consumer.unsubscribe()
        raise
    finally:
        consumer.close()


@pytest.mark.parametrize("ending", [close_at_last, close_by_contextlib, unsubscribe_at_last])
@pytest.mark.parametrize(("way", "expected"), [("iterator", 3), ("poll", 0)])
def test_what_a_handler_has_failed_with_is_not_committed_however_the_consumer_is_closed(
    servers: str,
    topic: str,
    ending: Callable[[Consumer, Callable[[], None]], None],
    way: str,
    expected: int,
) -> None:
    """Only a `with` block knew of the failure; `finally: consumer.close()` lost the record."""
    consumer = Consumer(servers, group=topic)
    consumer.subscribe(topic)

    def read() -> None:
        records = iter(consumer) if way == "iterator" else consumer.poll(WAIT_MS)
        for record in records:
            if record.offset == 3:
                raise HandlerError

    with pytest.raises(HandlerError):
        ending(consumer, read)
    assert (committed(servers, topic, topic) or 0) == expected
    assert members(servers, topic) == 0


def test_a_wakeup_ends_an_iterator_that_has_a_backlog(servers: str, topic: str) -> None:
    """It went on as long as there were records: a service manager had to kill the program."""
    with Consumer(servers, max_poll_records=2) as consumer:
        consumer.assign({(topic, 0): 0})
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 4:
                consumer.wakeup()
        assert seen[:5] == [0, 1, 2, 3, 4]
        assert len(seen) <= 6  # to the end of the list that it was in, or less where it took long
        assert next(iter(consumer)).offset == len(seen)


@pytest.mark.parametrize("listener", ["on_revoked", "on_assigned"])
def test_a_consumer_that_is_closed_by_a_listener_leaves_its_group(
    servers: str, topic: str, listener: str
) -> None:
    """It joined again behind the close, held its partitions for a session, and `poll` raised
    ValueError: file descriptor cannot be a negative integer."""
    with Consumer(servers, group=topic) as other:
        consumer = Consumer(servers, group=topic)
        told: list[object] = []
        consumer.subscribe(topic, **{listener: lambda _: (told.append(1), consumer.close())})
        for _ in range(100):
            try:
                consumer.poll(200)
            except ValueError as error:
                assert "has been closed" in str(error)
                break
            if not told:
                other.subscribe(topic)
                other.poll(200)
        assert told == [1]
        other.subscribe(topic)
        for _ in range(100):
            if other.poll(200) or other.assignment:
                break
        assert other.assignment == [(topic, 0)]
        assert members(servers, topic) == 1


def test_a_consumer_that_unsubscribes_in_a_listener_does_not_join_again(
    servers: str, topic: str
) -> None:
    """`on_assigned` came after it, and the member kept its partitions."""
    with Consumer(servers, group=topic) as consumer, Consumer(servers, group=topic) as other:
        told: list[str] = []

        def revoked(_: object) -> None:
            told.append("revoked")
            consumer.unsubscribe()

        consumer.subscribe(topic, on_revoked=revoked, on_assigned=lambda _: told.append("assigned"))
        assert consumer.poll(WAIT_MS)
        other.subscribe(topic)
        for _ in range(100):
            consumer.poll(100)
            other.poll(100)
            if "revoked" in told and other.assignment:
                break
        assert other.assignment == [(topic, 0)]
        assert told == ["assigned", "revoked"]
        assert consumer.assignment == []
        assert members(servers, topic) == 1


@pytest.mark.parametrize("ending", ["close", "unsubscribe"])
@pytest.mark.parametrize("turning_to", ["assign", "unsubscribe"])
def test_a_listener_that_ends_the_subscription_is_told_of_that_end_once(
    servers: str, topic: str, ending: str, turning_to: str
) -> None:
    """It was told again, within itself, until a RecursionError came out of `close`."""
    told: list[object] = []
    with Consumer(servers, group=topic) as consumer:

        def revoked(partitions: object) -> None:
            told.append(partitions)
            if turning_to == "assign":
                consumer.assign([(topic, 0)])
            else:
                consumer.unsubscribe()

        consumer.subscribe(topic, on_revoked=revoked)
        assert consumer.poll(WAIT_MS)
        if ending == "close":
            consumer.close()
        else:
            consumer.unsubscribe()
    assert told == [[(topic, 0)]]
    assert members(servers, topic) == 0


def test_a_listener_assigns_what_is_read_after_a_rebalance(servers: str, topic: str) -> None:
    """The end of the rebalance took from it what it had assigned."""
    with Consumer(servers, group=topic) as consumer, Consumer(servers, group=topic) as other:
        consumer.subscribe(topic, on_revoked=lambda _: consumer.assign({(topic, 0): 7}))
        assert len(consumer.poll(WAIT_MS)) == 10
        other.subscribe(topic)
        seen: list[int] = []
        for _ in range(200):
            seen += [record.offset for record in consumer.poll(100)]
            other.poll(100)
            if seen and other.assignment:
                break
        assert seen == [7, 8, 9]
        assert other.assignment == [(topic, 0)]


def test_a_listener_is_not_told_of_partitions_that_the_group_never_gave(
    servers: str, topic: str
) -> None:
    """Those that the caller had assigned before were told as lost."""
    told: list[tuple[str, object]] = []
    with Consumer(servers, group=topic) as consumer:
        consumer.assign([(topic, 0)])
        assert len(consumer.poll(WAIT_MS)) == 10
        consumer.subscribe(
            topic,
            on_assigned=lambda given: told.append(("assigned", given)),
            on_revoked=lambda given: told.append(("revoked", given)),
            on_lost=lambda given: told.append(("lost", given)),
        )
        assert consumer.assignment == []
        for _ in range(200):
            assert consumer.poll(100) == []  # the group has what was read before
            if told:
                break
        assert told == [("assigned", [(topic, 0)])]


# --- what is not there any more ---------------------------------------------------------------


def test_a_topic_that_is_made_anew_is_read_from_its_beginning_and_that_is_said(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fetched by its name the new one was read from the old offset: its first records were left
    out without a word."""
    with Consumer(servers) as consumer, Admin(servers) as admin:
        consumer.assign({(topic, 0): 0})
        assert len(consumer.poll(WAIT_MS)) == 10
        admin.delete_topics([topic])
        admin.create_topic(topic, partitions=1)
        with Producer(servers) as producer:
            for number in range(15):
                producer.send(topic, b"new %d" % number, partition=0)
        seen: list[bytes | None] = []
        while len(seen) < 15:
            seen += [record.value for record in consumer.poll(WAIT_MS)]
    assert seen == [b"new %d" % number for number in range(15)]
    (line,) = [line for line in caplog.messages if "deleted and created again" in line]
    assert line.endswith(f": {topic}-0 is read from its beginning, not from offset 10")


def test_what_was_read_of_a_topic_that_is_made_anew_is_committed(servers: str, topic: str) -> None:
    """The broker forgets a topic's offsets with the topic. A consumer that came in the new one as
    far as it had in the old one took that for committed, and all was read again."""
    place = (topic, 0)
    rarely = {"auto_commit_interval_ms": 3_600_000}
    with Consumer(servers, group=topic, **rarely) as consumer, Admin(servers) as admin:
        consumer.assign([place])
        assert len(consumer.poll(WAIT_MS)) == 10
        consumer.commit()
        admin.delete_topics([topic])
        admin.create_topic(topic, partitions=1)
        with Producer(servers) as producer:
            for _ in range(10):
                producer.send(topic, b"new", partition=0)
        seen: list[bytes | None] = []
        while len(seen) < 10:
            seen += [record.value for record in consumer.poll(WAIT_MS)]
        assert seen == [b"new"] * 10
        assert consumer.committed([place]) == {}
    assert committed(servers, topic, topic) == 10


def test_a_position_that_is_not_in_its_log_is_said(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Forty records were left out, and nobody was told."""
    with Admin(servers) as admin:
        admin.delete_records({(topic, 0): 7})
    with Consumer(servers) as consumer:
        consumer.assign({(topic, 0): 2})
        assert [record.offset for record in consumer.poll(WAIT_MS)] == [7, 8, 9]
    assert f"{topic}-0 goes on at offset 7: offset 2 is not in its log" in caplog.messages


@pytest.mark.parametrize("has_failed", [False, True])
@pytest.mark.parametrize("giving_up", ["unsubscribe", "assign", "subscribe", "subscribe to none"])
def test_what_was_read_of_assigned_partitions_is_committed_before_they_are_given_up(
    servers: str, topic: str, giving_up: str, has_failed: bool
) -> None:
    """The positions were dropped, and what was read since the last commit was read again."""
    other = f"{topic}-other"
    with Admin(servers) as admin:
        admin.create_topic(other, partitions=1)

    def give_up() -> None:
        if giving_up == "unsubscribe":
            consumer.unsubscribe()
        elif giving_up == "assign":
            consumer.assign([(other, 0)])
        else:
            consumer.subscribe(other if giving_up == "subscribe" else [])

    with Consumer(servers, group=topic, auto_commit_interval_ms=3_600_000) as consumer:
        consumer.assign([(topic, 0)])
        for record in consumer:
            if record.offset == 3:
                break
        if has_failed:
            try:
                raise HandlerError
            except HandlerError:
                give_up()
        else:
            give_up()
        assert (committed(servers, topic, topic) or 0) == (3 if has_failed else 4)
