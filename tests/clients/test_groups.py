"""Where a consumer starts, what its group has committed, and who of a group reads what."""

import contextlib
from collections.abc import Iterator

import pytest

from clients.conftest import Cluster
from clients.neutral import (
    Client,
    Consumer,
    ConsumerOptions,
    Partition,
    Producer,
    ProducerOptions,
    Record,
    read,
    settle,
)
from clients.table import behaviour


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Closes the consumers and producers of a test, in the reverse order."""
    with contextlib.ExitStack() as closing:
        yield closing


def values(records: list[Record]) -> list[int]:
    """The numbers that `fill` has sent, in the order of partition and offset."""
    records = sorted(records, key=lambda record: (record.partition, record.offset))
    return [int(record.value or b"") for record in records]


def fill(producer: Producer, topic: str, numbers: range, partitions: int = 1) -> None:
    """Sends numbers, to the partitions in turn."""
    producer.send([Record(topic, f"{n}".encode(), partition=n % partitions) for n in numbers])


def open_producer(stack: contextlib.ExitStack, client: Client, cluster: Cluster) -> Producer:
    producer = client.producer(cluster.servers, ProducerOptions())
    return stack.enter_context(contextlib.closing(producer))


def open_consumer(
    stack: contextlib.ExitStack, client: Client, cluster: Cluster, options: ConsumerOptions
) -> Consumer:
    return stack.enter_context(contextlib.closing(client.consumer(cluster.servers, options)))


@behaviour("assign")
def test_an_assigned_consumer_starts_at_the_offset(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    topic = cluster.topic(2)
    fill(open_producer(stack, client, cluster), topic, range(20), 2)
    options = ConsumerOptions(assign=((topic, 0, 7), (topic, 1, 9)))
    found = read(open_consumer(stack, client, cluster, options), 4)
    assert values(found) == [14, 16, 18, 19]


@behaviour("seek")
def test_a_consumer_seeks_back_and_replays(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    topic = cluster.topic()
    fill(open_producer(stack, client, cluster), topic, range(30))
    consumer = open_consumer(
        stack, client, cluster, ConsumerOptions(topics=(topic,), group=f"g-{topic}")
    )
    assert values(read(consumer, 30)) == [*range(30)]
    consumer.seek(topic, 0, 10)
    assert values(read(consumer, 20)) == [*range(10, 30)]
    consumer.seek(topic, 0, 0)
    assert values(read(consumer, 30)) == [*range(30)]


@behaviour("regex")
def test_a_pattern_subscribes_to_the_topics_that_match(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    prefix = cluster.topic()  # which the pattern does not match itself
    topics = [cluster.topic(prefix=f"{prefix}.{n}") for n in range(2)]
    producer = open_producer(stack, client, cluster)
    for topic in [prefix, *topics]:
        fill(producer, topic, range(5))
    options = ConsumerOptions(pattern=rf"^{prefix}\..*", group=f"g-{prefix}")
    found = read(open_consumer(stack, client, cluster, options), 10)
    assert {record.topic for record in found} == set(topics)


def hold_commit(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack, *, wait: bool
) -> None:
    """The next member of the group goes on where the first one committed."""
    topic = cluster.topic(2)
    fill(open_producer(stack, client, cluster), topic, range(20), 2)
    options = ConsumerOptions(topics=(topic,), group=f"g-{topic}")
    first = open_consumer(stack, client, cluster, options)
    read(first, 20)
    committed = {(topic, 0): 4, (topic, 1): 8}
    first.commit(committed, wait=wait)
    cluster.wait_for_commit(f"g-{topic}", committed)
    stack.close()
    second = open_consumer(stack, client, cluster, options)
    assert values(read(second, 8)) == [8, 10, 12, 14, 16, 18, 17, 19]


@behaviour("commit-sync")
def test_a_group_goes_on_where_it_committed(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    hold_commit(client, cluster, stack, wait=True)


@behaviour("commit-async")
def test_a_group_goes_on_where_it_committed_without_waiting(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    hold_commit(client, cluster, stack, wait=False)


@behaviour("auto-commit")
def test_what_was_read_is_committed_by_itself(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    topic = cluster.topic()
    producer = open_producer(stack, client, cluster)
    fill(producer, topic, range(10))
    options = ConsumerOptions(topics=(topic,), group=f"g-{topic}", auto_commit=True)
    with contextlib.closing(client.consumer(cluster.servers, options)) as first:
        read(first, 10)
    cluster.wait_for_commit(f"g-{topic}", {(topic, 0): 10})
    fill(producer, topic, range(10, 15))
    second = open_consumer(stack, client, cluster, options)
    assert values(read(second, 5)) == [*range(10, 15)]


@behaviour("two-groups")
def test_two_groups_read_everything(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    topic = cluster.topic(2)
    groups = [
        open_consumer(
            stack, client, cluster, ConsumerOptions(topics=(topic,), group=f"g-{topic}-{n}")
        )
        for n in range(2)
    ]
    fill(open_producer(stack, client, cluster), topic, range(40), 2)
    for consumer in groups:
        assert sorted(values(read(consumer, 40))) == [*range(40)]


@behaviour("three-members")
def test_three_members_share_a_group(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    topic = cluster.topic(6)
    options = ConsumerOptions(topics=(topic,), group=f"g-{topic}")
    members = [open_consumer(stack, client, cluster, options) for _ in range(3)]
    settle(members, partitions_of(topic, 6))
    fill(open_producer(stack, client, cluster), topic, range(60), 6)
    found = [read(member, 20) for member in members]
    for member, records in zip(members, found, strict=True):
        assert {(record.topic, record.partition) for record in records} == member.assignment()
    assert sorted(number for records in found for number in values(records)) == [*range(60)]


@behaviour("rebalance")
def test_a_member_leaves_and_another_joins(
    client: Client, cluster: Cluster, stack: contextlib.ExitStack
) -> None:
    topic = cluster.topic(4)
    everything = partitions_of(topic, 4)
    options = ConsumerOptions(topics=(topic,), group=f"g-{topic}", auto_commit=True)
    producer = open_producer(stack, client, cluster)
    stays = open_consumer(stack, client, cluster, options)
    leaves = client.consumer(cluster.servers, options)
    seen: set[int] = set()
    for found in settle([stays, leaves], everything):
        seen |= set(values(found))
    fill(producer, topic, range(40), 4)
    for member in (stays, leaves):
        seen |= set(values(read(member, 20)))
    leaves.close()
    seen |= set(values(settle([stays], everything)[0]))
    fill(producer, topic, range(40, 80), 4)
    seen |= set(values(read(stays, 40, exactly=False)))
    joins = open_consumer(stack, client, cluster, options)
    for found in settle([stays, joins], everything):
        seen |= set(values(found))
    fill(producer, topic, range(80, 120), 4)
    for member in (stays, joins):
        seen |= set(values(read(member, 20, exactly=False)))
    assert seen == set(range(120))


def partitions_of(topic: str, count: int) -> set[Partition]:
    return {(topic, index) for index in range(count)}
