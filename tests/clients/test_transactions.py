"""Transactions, by each client in its own way: what a `read_committed` reader finds, and what a
producer is told that lost its transactional id, its time or its broker."""

import contextlib
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import kafkalite
from clients.conftest import CONFIG, KAFKA_CONFIG, Cluster, is_kafka
from clients.neutral import (
    Client,
    ConsumerOptions,
    ProducerOptions,
    Record,
    Transactional,
    Transformer,
    read,
    settle,
)
from clients.table import behaviour
from faults.proxy import Mode, Proxy
from oracle.broker import KafkaBroker
from ports import free_ports

PARTITIONS = 2
END_TXN = 26
SHUT_OUT = "(?i)fenced|epoch|producer.?id"
"""How clients name what a producer is told that is no longer the one of its transactional id."""
OVER = f"{SHUT_OUT}|txn.?state"
"""And one whose transaction the broker has aborted: INVALID_TXN_STATE where each transaction has an
epoch of its own."""


def in_transactions(
    client: Client, cluster: Cluster, name: str, timeout_ms: int = 60_000
) -> contextlib.closing[Transactional]:
    """A producer, to be closed at the end."""
    options = ProducerOptions(transactional_id=name, transaction_timeout_ms=timeout_ms)
    return contextlib.closing(client.transactional(cluster.servers, options))


def both(topic: str, value: str) -> list[Record]:
    """A record for each partition."""
    return [Record(topic, value.encode(), partition=each) for each in range(PARTITIONS)]


def found(
    client: Client, cluster: Cluster, topic: str, count: int, *, committed_only: bool = True
) -> list[list[str]]:
    """The values of each partition, of which there are `count` and no more."""
    options = ConsumerOptions(
        topics=(topic,), group=f"g-{uuid.uuid4().hex[:8]}", committed_only=committed_only
    )
    with contextlib.closing(client.consumer(cluster.servers, options)) as consumer:
        records = read(consumer, count)
    values: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for each in sorted(records, key=lambda each: each.offset):
        assert each.partition is not None
        values[each.partition].append((each.value or b"").decode())
    return values


@behaviour("transactions")
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    client: Client, cluster: Cluster
) -> None:
    topic = cluster.topic(PARTITIONS)
    with in_transactions(client, cluster, topic) as producer:
        for value, commits in (("a", True), ("b", False), ("c", True), ("d", False), ("e", True)):
            producer.begin()
            producer.send(both(topic, value))
            if commits:
                producer.commit()
            else:
                producer.abort()
        producer.begin()
        producer.send(both(topic, "open"))
        everything = found(client, cluster, topic, 12, committed_only=False)
        assert everything == [["a", "b", "c", "d", "e", "open"]] * PARTITIONS
        # It reads up to the transaction that is open, and on once that is committed.
        options = ConsumerOptions(topics=(topic,), group=f"g-{topic}", committed_only=True)
        with contextlib.closing(client.consumer(cluster.servers, options)) as consumer:
            records = read(consumer, 6)
            assert {each.value for each in records} == {b"a", b"c", b"e"}
            assert consumer.poll(0.2) == []
            producer.commit()
            assert {each.value for each in read(consumer, 2)} == {b"open"}


@behaviour("transaction-offsets")
def test_offsets_are_committed_with_the_records_that_were_made_of_theirs(
    client: Client, cluster: Cluster
) -> None:
    source, target = cluster.topic(PARTITIONS), cluster.topic(PARTITIONS)
    with contextlib.closing(client.producer(cluster.servers, ProducerOptions())) as producer:
        producer.send([*both(source, "1"), *both(source, "2")])
    group = f"g-{source}"
    for commits in (False, True):
        with contextlib.closing(
            client.transformer(
                cluster.servers,
                ProducerOptions(transactional_id=source),
                ConsumerOptions(topics=(source,), group=group, committed_only=True),
            )
        ) as transformer:
            transformer.begin()
            # What was aborted is read again: its offsets are not committed.
            records = read(transformer, 2 * PARTITIONS)
            transformer.send(
                [
                    Record(
                        target, b"%s %d" % (each.value or b"", commits), partition=each.partition
                    )
                    for each in records
                ]
            )
            assert transformer.end(commit=commits) is commits
    cluster.wait_for_commit(group, {(source, each): 2 for each in range(PARTITIONS)})
    assert found(client, cluster, target, 4) == [["1 1", "2 1"]] * PARTITIONS


@behaviour("transaction-fencing")
def test_a_second_producer_shuts_the_first_one_out(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic(PARTITIONS)
    with in_transactions(client, cluster, topic) as first:
        first.begin()
        first.send(both(topic, "first"))
        with in_transactions(client, cluster, topic) as second:
            second.begin()
            # Some clients ask for the transactional id no sooner.
            second.send(both(topic, "second"))
            with pytest.raises(Exception, match=SHUT_OUT):
                first.commit()
            second.commit()
        with contextlib.suppress(Exception):
            first.abort()
    assert found(client, cluster, topic, PARTITIONS) == [["second"]] * PARTITIONS


@behaviour("transaction-timeout")
def test_a_transaction_that_takes_too_long_is_aborted(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic(PARTITIONS)
    with in_transactions(client, cluster, topic, timeout_ms=2000) as slow:
        slow.begin()
        # One record, which has all that time to be acknowledged.
        slow.send(both(topic, "slow")[:1])
        with in_transactions(client, cluster, f"{topic}-other") as other:
            other.begin()
            other.send(both(topic, "other"))
            other.commit()
        # Only the end of the slow one lets a reader have what comes behind it.
        assert found(client, cluster, topic, PARTITIONS) == [["other"]] * PARTITIONS
        with pytest.raises(Exception, match=OVER):
            slow.commit()
    with in_transactions(client, cluster, topic) as next_one:
        next_one.begin()
        next_one.send(both(topic, "next"))
        next_one.commit()
    assert found(client, cluster, topic, 2 * PARTITIONS) == [["other", "next"]] * PARTITIONS


@behaviour("transaction-rebalance")
def test_a_member_whose_group_has_moved_on_does_not_commit(
    client: Client, cluster: Cluster
) -> None:
    source, target = cluster.topic(PARTITIONS), cluster.topic(PARTITIONS)
    with contextlib.closing(client.producer(cluster.servers, ProducerOptions())) as producer:
        producer.send(both(source, "1"))
    partitions = {(source, each) for each in range(PARTITIONS)}
    consuming = ConsumerOptions(topics=(source,), group=f"g-{source}", committed_only=True)

    def member(name: str) -> contextlib.closing[Transformer]:
        options = ProducerOptions(transactional_id=f"{source}-{name}")
        return contextlib.closing(client.transformer(cluster.servers, options, consuming))

    with member("first") as first:
        first.begin()
        for each in read(first, PARTITIONS):
            first.send([Record(target, b"stale", partition=each.partition)])
        with member("second") as second:
            settle([first, second], partitions)
            assert first.end(commit=True) is False
    with member("third") as third:
        third.begin()
        for each in read(third, PARTITIONS):
            third.send([Record(target, b"once", partition=each.partition)])
        assert third.end(commit=True) is True
    cluster.wait_for_commit(f"g-{source}", dict.fromkeys(partitions, 1))
    assert found(client, cluster, target, PARTITIONS) == [["once"]] * PARTITIONS


@pytest.fixture(scope="module")
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Proxy]]:
    """A broker whose answers can be held back."""
    data = tmp_path_factory.mktemp("proxied")
    with Proxy(0) as proxy:
        broker: kafkalite.Broker | KafkaBroker
        config = {**CONFIG, "advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        if is_kafka():
            tools = request.getfixturevalue("kafka_tools")
            broker = KafkaBroker(tools, data, properties={**config, **KAFKA_CONFIG})
        else:
            proxy.target = f"127.0.0.1:{free_ports(1)[0]}"
            config["listeners"] = f"PLAINTEXT://{proxy.target}"
            broker = kafkalite.Broker(data / "data", listen=None, config=config)
        with broker:
            proxy.target = proxy.target or broker.bootstrap_servers
            with contextlib.closing(Cluster(broker, data / "data", proxy.address)) as made:
                yield made, proxy


@behaviour("transaction-restart")
def test_transactions_outlive_a_kill_in_each_of_their_states(
    client: Client, proxied: tuple[Cluster, Proxy]
) -> None:
    cluster, proxy = proxied
    topic = cluster.topic(PARTITIONS)
    with in_transactions(client, cluster, topic) as producer, ThreadPoolExecutor(1) as beside:
        cluster.broker.kill()
        cluster.broker.start()
        producer.begin()
        producer.send(both(topic, "a"))
        cluster.broker.kill()
        cluster.broker.start()
        producer.send(both(topic, "b"))
        producer.commit()
        producer.begin()
        producer.send(both(topic, "c"))
        proxy.mute_from(END_TXN)
        committing = beside.submit(producer.commit)
        # Its markers are there, and nobody has been told.
        while count_markers(cluster, topic) < 2 * PARTITIONS:
            assert not committing.done()
            time.sleep(0.01)  # between two polls of the logs
        cluster.broker.kill()
        proxy.set(Mode.RESET)
        proxy.set(Mode.ON)
        cluster.broker.start()
        committing.result(120)
        producer.begin()
        producer.send(both(topic, "d"))
        producer.abort()
        producer.begin()
        producer.send(both(topic, "e"))
        producer.commit()
    assert found(client, cluster, topic, 8) == [["a", "b", "c", "e"]] * PARTITIONS


def count_markers(cluster: Cluster, topic: str) -> int:
    partitions = range(PARTITIONS)
    return sum(each.is_control for at in partitions for each in cluster.batches(topic, at))
