"""A group's leader sees what changes for the other members, and finds the cluster without its
bootstrap servers."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kafkalite
from client.fake import FakeBroker
from client.fake_group import WAIT_S, Group, until
from client.logs import TOPIC, values
from kafkalite.client import Admin, Consumer, GroupOptions, Producer
from kafkalite.protocol.codes import REBALANCE_IN_PROGRESS

QUICK = {"heartbeat_interval_ms": 50}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker that makes no topic by itself."""
    config = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": 0}
    with kafkalite.Broker(config=config) as broker:
        yield broker.bootstrap_servers


def polled(consumers: tuple[Consumer, ...], reached: Callable[[], object]) -> list[bytes | None]:
    """The values that they read in turns until something is so. A topic that is not there is no
    failure here."""
    found = []
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline
        for consumer in consumers:
            try:
                found += [record.value for record in consumer.poll(20)]
            except kafkalite.errors.BrokerError as error:
                assert "UNKNOWN_TOPIC_OR_PARTITION" in str(error)
    return found


def member(servers: str, group: str, instance_id: str | None = None) -> Consumer:
    return Consumer(servers, group=GroupOptions(group, instance_id, **QUICK))


@pytest.mark.parametrize("instance_id", [None, "leads"])
def test_a_topic_that_only_a_follower_reads_is_shared_out_as_it_comes_and_as_it_grows(
    servers: str, instance_id: str | None
) -> None:
    """The leader looked at its own topics only: a follower's new partitions were read by nobody,
    without a word, until something else made the group rebalance. The leader that is static comes
    back first, which shares nothing out."""
    group = f"follower-{instance_id}"
    own, others = f"own-{instance_id}", f"others-{instance_id}"
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topic(own, partitions=1)
        follower = member(servers, group)
        leader = member(servers, group, instance_id)
        leader.subscribe(own)
        polled((leader,), lambda: leader.assignment)
        follower.subscribe(others)
        assert follower._coordinator is not None
        polled((leader, follower), lambda: follower._coordinator.group._joined)
        if instance_id is not None:
            leader.close()
            leader = member(servers, group, instance_id)
            leader.subscribe(own)
            polled((leader, follower), lambda: leader.assignment)
        with leader, follower:
            admin.create_topic(others, partitions=1)
            polled((leader, follower), lambda: follower.assignment == [(others, 0)])
            admin.create_partitions(others, 2)
            assert leader._coordinator is not None
            leader._coordinator._counts_at = 0.0  # the time to look has come
            both = [(others, 0), (others, 1)]
            polled((leader, follower), lambda: follower.assignment == both)
            producer.send(others, b"last", partition=1)
            producer.flush()
            found: list[bytes | None] = []
            while not found:
                found += [record.value for record in follower.poll(1000)]
            assert found == [b"last"]
            polled((leader, follower), lambda: leader.assignment == [(own, 0)])


def test_a_group_goes_on_without_the_bootstrap_server_that_its_leader_began_with() -> None:
    """The leader counted partitions, and looked its coordinator up, where its bootstrap servers
    were: one that was away kept the whole group from its partitions, though brokers that it did
    not need were all that it lacked."""
    group = Group()

    def handle(name: str, request: Any) -> Any:
        answer = stays.metadata() if name == "Metadata" else group(name, request)
        if name == "FindCoordinator":
            found = answer.coordinators[0]
            found.node_id = 1 if found.port == stays.port else 2
        return answer

    stays = FakeBroker(handle, partitions=2)
    with stays:
        with FakeBroker(handle) as leaves:
            group.address = (leaves.host, leaves.port)
            consumer = Consumer(leaves.servers, group=GroupOptions("moves", **QUICK))
            consumer.subscribe(TOPIC)
            assert len(values(consumer, 6)) == 6
            assert leaves.of("JoinGroup")
            assert not stays.of("JoinGroup")
        with consumer:
            group.address = (stays.host, stays.port)
            group.heartbeat_code = REBALANCE_IN_PROGRESS
            until(lambda: stays.of("SyncGroup") and consumer.assignment, consumer)
            assert consumer.assignment == [(TOPIC, 0), (TOPIC, 1)]
