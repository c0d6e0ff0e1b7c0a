"""Stories of the client's transactional producer, for kafkalite and for Apache Kafka alike."""

import time
from collections.abc import Callable

import pytest

from kafkalite.client import TOPIC, Admin, Consumer, Producer
from kafkalite.errors import BrokerError, InvalidArgumentError

PARTITIONS = 2


def committed(servers: str, topic: str, wanted: list[bytes]) -> list[bytes]:
    """What `read_committed` readers see, sorted, once that is what is wanted: an answer to EndTxn
    precedes the markers."""
    deadline = time.monotonic() + 30
    while (found := values(servers, topic)) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)  # the poll of what is committed
    return found


def values(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values up to the end, sorted."""
    with Consumer(servers, isolation=isolation) as consumer:
        places = [(topic, index) for index in range(PARTITIONS)]
        ends = consumer.end_offsets(places)
        consumer.assign(dict.fromkeys(places, 0))
        found = []
        while any(consumer.position(place) < ends[place] for place in places):
            found += [record.value or b"" for record in consumer.poll(1000)]
    return sorted(found)


def make(servers: str, *topics: str) -> None:
    with Admin(servers) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=PARTITIONS)


def send(producer: Producer, topic: str, name: bytes) -> None:
    for partition in range(PARTITIONS):
        producer.send(topic, name + b"-%d" % partition, partition=partition)


def sent(*names: bytes) -> list[bytes]:
    return sorted(name + b"-%d" % at for name in names for at in range(PARTITIONS))


def commits_and_aborts(servers: str, topic: str) -> None:
    make(servers, topic)
    with Producer(servers, transactional_id=topic) as producer:
        for name in (b"a", b"b", b"c", b"d"):
            producer.begin_transaction()
            send(producer, topic, name)
            producer.flush()
            assert values(servers, topic, "read_uncommitted")[-PARTITIONS:] == sent(name)
            if name in (b"a", b"c"):
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        with pytest.raises(ZeroDivisionError), producer.transaction():
            send(producer, topic, b"e")
            raise ZeroDivisionError
        with producer.transaction():
            send(producer, topic, b"f")
        with producer.transaction():
            pass
        assert committed(servers, topic, sent(b"a", b"c", b"f")) == sent(b"a", b"c", b"f")
        producer.begin_transaction()
        send(producer, topic, b"open")
        producer.flush()
    assert committed(servers, topic, sent(b"a", b"c", b"f")) == sent(b"a", b"c", b"f")


def fences(servers: str, topic: str) -> None:
    make(servers, topic)
    with Producer(servers, transactional_id=topic) as first:
        first.begin_transaction()
        send(first, topic, b"first")
        first.flush()
        with Producer(servers, transactional_id=topic) as second:
            calls: list[Callable[[], object]] = [
                first.commit_transaction,
                first.abort_transaction,
                first.begin_transaction,
                lambda: first.send(topic, b"first"),
            ]
            for call in calls:
                with pytest.raises(BrokerError, match="another producer uses the id") as told:
                    call()
                assert told.value.name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
            with second.transaction():
                send(second, topic, b"second")
    assert committed(servers, topic, sent(b"second")) == sent(b"second")


def transforms(servers: str, topic: str) -> None:
    """The offsets of the group and the records come to be together, or not at all."""
    source, target = f"{topic}-in", f"{topic}-out"
    make(servers, source, target)
    with Producer(servers) as producer:
        for name in (b"1", b"2", b"3"):
            send(producer, source, name)
    for attempt in range(6):
        with (
            Consumer(
                servers, group=topic, auto_commit_interval_ms=None, max_poll_records=2
            ) as consumer,
            Producer(servers, transactional_id=topic) as producer,
        ):
            consumer.subscribe(source)
            while not (records := consumer.poll(1000)):
                if consumer.assignment and all(
                    consumer.lag(place) == 0 for place in consumer.assignment
                ):
                    break
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(target, record.value, partition=record.partition)
                    producer.send_offsets(consumer)
                    if attempt % 2:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass
            at = consumer.committed([(source, index) for index in range(PARTITIONS)])
            assert sum(at.values()) == 2 * (attempt // 2 + 1)
    assert committed(servers, target, sent(b"1", b"2", b"3")) == sent(b"1", b"2", b"3")


def recovers(servers: str, topic: str) -> None:
    """A record that cannot be written fails the transaction, which is aborted; the next one is
    none the worse for it."""
    make(servers, topic)
    with Admin(servers) as admin:
        admin.alter_configs(TOPIC, topic, {"max.message.bytes": 2000})
    with Producer(servers, transactional_id=topic, linger_ms=0) as producer:
        for number in range(3):
            with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"), producer.transaction():
                send(producer, topic, b"failed")
                producer.send(topic, bytes(5000), partition=0)
            producer.begin_transaction()
            producer.send(topic, bytes(5000), partition=1)
            with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
                producer.commit_transaction()
            with pytest.raises(BrokerError, match=r"can only be aborted: .*MESSAGE_TOO_LARGE"):
                producer.send(topic, b"failed")
            producer.abort_transaction()
            with producer.transaction():
                send(producer, topic, b"%d" % number)
        with pytest.raises(InvalidArgumentError, match=r"use `with producer\.transaction\(\):`"):
            producer.send(topic, b"outside")
    assert committed(servers, topic, sent(b"0", b"1", b"2")) == sent(b"0", b"1", b"2")


def goes_on_after_a_kill(start: Callable[[], str], kill: Callable[[], None], topic: str) -> None:
    """Killed with a transaction open, and with its commit on the way."""
    servers = start()
    make(servers, topic)
    with Producer(servers, transactional_id=topic) as producer:
        for name, commits in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            send(producer, topic, name + b"before")
            producer.flush()
            kill()
            assert start() == servers
            send(producer, topic, name + b"after")
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        wanted = sent(b"abefore", b"aafter", b"cbefore", b"cafter")
        assert committed(servers, topic, wanted) == wanted


STORIES = (commits_and_aborts, fences, transforms, recovers)
