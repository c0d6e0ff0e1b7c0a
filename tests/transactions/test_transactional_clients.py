"""Transactions of librdkafka's producer: committed, aborted, fenced, timed out, and with the broker
killed in the midst."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kafkalite

PARTITIONS = 3
_numbers = itertools.count()

CONFIG = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    with kafkalite.Broker(config={**CONFIG, "kafkalite.acks.fsync": "group"}) as running:
        yield running


@pytest.fixture
def topic(broker: kafkalite.Broker) -> str:
    return make_topic(broker.bootstrap_servers)


def make_topic(servers: str) -> str:
    name = f"transactions-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        made.result(30)
    return name


def producer(servers: str, name: str, **config: object) -> ck.Producer:
    made = ck.Producer(
        {"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0, **config}
    )
    made.init_transactions(30)
    return made


def send(by: ck.Producer, topic: str, value: str, count: int = PARTITIONS) -> None:
    for at in range(count):
        by.produce(topic, f"{value}-{at}".encode(), partition=at % PARTITIONS)


def values(servers: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """All records up to the end, sorted."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found, ends = [], 0
    while ends < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, "no end of the partition"
        if message.error():
            assert message.error().code() == ck.KafkaError._PARTITION_EOF
            ends += 1
        else:
            found.append(message.value().decode())
    consumer.close()
    return sorted(found)


def settled(servers: str, topic: str, wanted: list[str]) -> list[str]:
    """What is committed, once that is what is wanted: an answer to EndTxn precedes the markers."""
    deadline = time.monotonic() + 30
    while (found := values(servers, topic)) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)  # the poll of what is committed
    return found


def expected(*names: str) -> list[str]:
    return sorted(f"{name}-{at}" for name in names for at in range(PARTITIONS))


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    broker: kafkalite.Broker, topic: str
) -> None:
    servers = broker.bootstrap_servers
    one = producer(servers, topic)
    for name in ("a", "b", "c", "d"):
        one.begin_transaction()
        send(one, topic, name)
        one.flush(30)
        # Whoever reads what is not committed sees it at once.
        assert values(servers, topic, "read_uncommitted")[-PARTITIONS:] == expected(name)
        assert name not in "".join(values(servers, topic)[-PARTITIONS:])
        if name in ("a", "c"):
            one.commit_transaction(30)
        else:
            one.abort_transaction(30)
    assert settled(servers, topic, expected("a", "c")) == expected("a", "c")


def test_offsets_hold_if_their_transaction_is_committed(
    broker: kafkalite.Broker, topic: str
) -> None:
    servers = broker.bootstrap_servers
    one = producer(servers, topic)
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": topic})
    place = ck.TopicPartition(topic, 0)
    for offset, commits in ((10, True), (20, False), (30, True)):
        one.begin_transaction()
        send(one, topic, str(offset))
        one.send_offsets_to_transaction(
            [ck.TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), 30
        )
        if commits:
            one.commit_transaction(30)
        else:
            one.abort_transaction(30)
        (committed,) = consumer.committed([place], 30)
        assert committed.offset == (offset if commits else 10)
    consumer.close()
    assert settled(servers, topic, expected("10", "30")) == expected("10", "30")


def test_a_second_producer_shuts_the_first_one_out(broker: kafkalite.Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    first = producer(servers, topic)
    first.begin_transaction()
    send(first, topic, "first")
    first.flush(30)
    second = producer(servers, topic)
    with pytest.raises(ck.KafkaException) as refused:
        first.commit_transaction(30)
    assert refused.value.args[0].fatal()
    second.begin_transaction()
    send(second, topic, "second")
    second.commit_transaction(30)
    assert settled(servers, topic, expected("second")) == expected("second")


def test_a_transaction_that_takes_too_long_is_aborted(broker: kafkalite.Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    slow = producer(servers, topic, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 900})
    slow.begin_transaction()
    send(slow, topic, "slow")
    slow.flush(30)
    other = producer(servers, f"{topic}-other")
    other.begin_transaction()
    send(other, topic, "other")
    other.commit_transaction(30)
    assert settled(servers, topic, expected("other")) == expected("other")
    with pytest.raises(ck.KafkaException):
        slow.commit_transaction(30)
    assert values(servers, topic) == expected("other")


@pytest.mark.parametrize("commits", [True, False])
def test_a_producer_goes_on_with_its_transaction_after_the_broker_was_killed(
    tmp_path: Path, commits: bool
) -> None:
    data = tmp_path / "data"
    with kafkalite.Broker(data, config=CONFIG) as broker:
        servers = broker.bootstrap_servers
        topic = make_topic(servers)
        one = producer(servers, topic)
        one.begin_transaction()
        send(one, topic, "before")
        one.flush(30)
        broker.kill()
        with kafkalite.Broker(data, listen=servers, config=CONFIG):
            send(one, topic, "after")
            one.flush(30)
            if commits:
                one.commit_transaction(30)
            else:
                one.abort_transaction(30)
            before = expected("before", "after") if commits else []
            assert settled(servers, topic, before) == before
            one.begin_transaction()
            send(one, topic, "next")
            one.commit_transaction(30)
            wanted = sorted([*before, *expected("next")])
            assert settled(servers, topic, wanted) == wanted
