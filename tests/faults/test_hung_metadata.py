"""The directory of the metadata does not answer. Python's one thread waited there for each change
until the thaw, and with it every group, every heartbeat and whatever else Python answers.

The metadata lies in a directory of its own, or in the only one.
"""

import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.config_cases import SET
from api.configs import own
from api.group_requests import commit, find_coordinator, heartbeat, stable_member
from api.raw import KEYS, Connection
from broker.test_scarce_memory import uvarint
from faults.directories import PROMPT_S
from faults.mount import Mount
from faults.nemesis import lose_unflushed
from faults.test_hung_changes import (
    Asked,
    clients,
    create,
    create_request,
    created,
    delete_request,
    deleted,
    grow_request,
    grown,
    named_code,
    partition_count,
    python_answers,
)
from kafkalite.metadata.image import TOPIC
from kafkalite.protocol import codes, messages

MANY = 1_100
"""Elements of a request that is large."""

FEW = 4
"""Of requests of which nine take half of the memory."""


@pytest.fixture
def broker(slow: Mount, tmp_path: Path) -> Iterator[kafkalite.Broker]:
    """It has the topics "t" and "u"."""
    config = {
        "log.dirs": str(tmp_path / "quick"),
        "metadata.log.dir": str(slow.path / "metadata"),
        "num.network.threads": "1",
        "kafkalite.acks.fsync": "none",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            for name in ("t", "u"):
                assert connection.create_topic(name).error_code == 0
        yield broker


def init(connection: Connection) -> Asked:
    asked = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    return Asked(connection, "InitProducerId", 4, asked)


def set_flush_ms(connection: Connection, topic: str, value: str) -> Asked:
    kind = messages.IncrementalAlterConfigsRequest
    resource = kind.AlterConfigsResource
    config = resource.AlterableConfig(name="flush.ms", config_operation=SET, value=value)
    wanted = resource(resource_type=TOPIC, resource_name=topic, configs=[config])
    return Asked(connection, "IncrementalAlterConfigs", 1, kind(resources=[wanted]))


def finalize(connection: Connection, level: int, timeout_ms: int = 60_000) -> Asked:
    kind = messages.UpdateFeaturesRequest
    update = kind.FeatureUpdateKey(
        feature="eligible.leader.replicas.version", max_version_level=level, upgrade_type=2
    )
    request = kind(feature_updates=[update], timeout_ms=timeout_ms)
    return Asked(connection, "UpdateFeatures", 1, request)


def is_answered(connection: Connection) -> bool:
    return bool(select.select([connection.socket], [], [], 0)[0])


def test_who_changes_no_metadata_is_not_held_up_and_changes_are_made_in_their_order(
    broker: kafkalite.Broker, slow: Mount
) -> None:
    with clients(broker, 9) as (other, member, *changers):
        one, two, three, four, five, six, seven = changers
        member_id = stable_member(member, "group")
        first_id = init(other).answer().producer_id
        slow.freeze()
        try:
            creating = create(one, "new")
            python_answers(other)
            again = create(two, "new")
            python_answers(other)
            deleting = Asked(three, "DeleteTopics", 5, delete_request("t"))
            python_answers(other)
            growing = Asked(four, "CreatePartitions", 3, grow_request("t", 3))
            python_answers(other)
            fives = set_flush_ms(five, "u", "5")
            python_answers(other)
            sixes = set_flush_ms(six, "u", "6")
            python_answers(other)
            lowering = finalize(seven, 0)
            python_answers(other)
            assert heartbeat(member, "group", 1, member_id) == 0
            of_member = {"generation_id": 1, "member_id": member_id}
            assert commit(member, "group", "u", (0, 1), **of_member) == [0]
            # There are ids left.
            assert init(other).answer().producer_id == first_id + 1
            # What is not written yet does not hold.
            assert partition_count(other, "new") == 0
            assert other.produce("t", batch([b"x"])).base_offset == 0
            assert own(other, TOPIC, "u") == {}
            assert not any(map(is_answered, changers))
        finally:
            slow.thaw()
        assert created(creating.answer()) == 0
        assert created(again.answer()) == codes.TOPIC_ALREADY_EXISTS
        assert deleted(deleting.answer()) == 0
        assert grown(growing.answer()) == codes.UNKNOWN_TOPIC_OR_PARTITION
        for asked in (fives, sixes):
            assert asked.answer().responses[0].error_code == 0
        assert lowering.answer().error_code == 0
        assert own(other, TOPIC, "u") == {"flush.ms": "6"}
        assert (partition_count(other, "new"), partition_count(other, "t")) == (4, 0)
        assert other.produce("new", batch([b"x"])).base_offset == 0


def large_creation(names: list[str]) -> tuple[str, int, Any]:
    request = create_request("")
    kind = type(request.topics[0])
    request.topics = [kind(name=name, num_partitions=1, replication_factor=1) for name in names]
    return "CreateTopics", 7, request


def large_deletion(names: list[str]) -> tuple[str, int, Any]:
    request = delete_request("t")
    request.topic_names += names
    return "DeleteTopics", 5, request


def large_growth(names: list[str]) -> tuple[str, int, Any]:
    request = grow_request("t", 3)
    kind = type(request.topics[0])
    request.topics += [kind(name=name, count=3, assignments=None) for name in names]
    return "CreatePartitions", 3, request


@pytest.mark.parametrize("large", [large_creation, large_deletion, large_growth])
def test_a_large_change_that_waits_keeps_no_other_large_request_waiting(
    broker: kafkalite.Broker,
    slow: Mount,
    large: Callable[[list[str]], tuple[str, int, Any]],
) -> None:
    """It kept the turn of all of them, for as long as its client said."""
    kind = messages.DescribeGroupsRequest
    describing = kind(groups=[f"group-{number}" for number in range(MANY)])
    with clients(broker, 2) as (other, changer):
        other.socket.settimeout(PROMPT_S)
        assert find_coordinator(other, "group")[0].error_code == 0
        slow.freeze()
        try:
            changing = Asked(changer, *large([f"new-{number}" for number in range(MANY)]))
            python_answers(other)
            described = other.ask("DescribeGroups", 5, describing)
            assert len(described.groups) == MANY
            assert not is_answered(changer)
        finally:
            slow.thaw()
        changing.answer()


def test_a_change_that_has_not_begun_in_time_is_not_made_and_one_that_has_is(
    broker: kafkalite.Broker, slow: Mount
) -> None:
    with clients(broker, 7) as (one, two, three, four, five, six, other):
        slow.freeze()
        try:
            creating = create(one, "begun", timeout_ms=1)
            python_answers(other)
            late = [
                (created, create(two, "late", timeout_ms=1)),
                (deleted, Asked(three, "DeleteTopics", 5, delete_request("t", timeout_ms=1))),
                (grown, Asked(four, "CreatePartitions", 3, grow_request("u", 3, timeout_ms=1))),
            ]
            lowering = finalize(five, 0, timeout_ms=1)
            initializing = init(six)
            assert created(creating.answer()) == codes.REQUEST_TIMED_OUT
            for code_of, asked in late:
                assert code_of(asked.answer()) == codes.REQUEST_TIMED_OUT
            assert lowering.answer().error_code == codes.REQUEST_TIMED_OUT
            assert initializing.answer().error_code == codes.COORDINATOR_LOAD_IN_PROGRESS
            # Who has a topic made by the way is told that it is not there yet.
            assert named_code(other, "by-the-way") == codes.UNKNOWN_TOPIC_OR_PARTITION
            (found,) = find_coordinator(other, "group")
            assert found.error_code == codes.COORDINATOR_NOT_AVAILABLE
        finally:
            slow.thaw()
        # After all that waited.
        assert created(create(other, "after").answer()) == 0
        counts = {name: partition_count(other, name) for name in ("begun", "late", "t", "u")}
        assert counts == {"begun": 4, "late": 0, "t": 1, "u": 1}
        assert init(six).answer().error_code == 0
        stable_member(other, "group")


def test_with_the_only_directory_groups_go_on_while_a_topic_is_made(slow: Mount) -> None:
    config = {"log.dirs": str(slow.path / "logs"), "group.initial.rebalance.delay.ms": "0"}
    with kafkalite.Broker(config=config) as broker, clients(broker, 3) as (one, member, other):
        member_id = stable_member(member, "group")
        slow.freeze()
        try:
            creating = create(one, "new")
            for _ in range(20):
                python_answers(other)
                assert heartbeat(member, "group", 1, member_id) == 0
        finally:
            slow.thaw()
        assert created(creating.answer()) == 0


def test_a_stop_answers_whose_change_is_on_its_way_to_the_disk_and_nothing_of_it_is_lost(
    broker: kafkalite.Broker, slow: Mount
) -> None:
    """Between the thaw and its end the broker may make the logs of the topic, or the next start."""
    with clients(broker, 3) as (one, two, other):
        stop = threading.Thread(target=broker.stop)
        slow.freeze()
        try:
            creating = create(one, "begun")
            python_answers(other)
            waiting = create(two, "waiting")
            python_answers(other)
            stop.start()
            assert created(creating.answer()) == codes.REQUEST_TIMED_OUT
            assert created(waiting.answer()) == codes.REQUEST_TIMED_OUT
        finally:
            slow.thaw()
            if stop.ident is not None:
                stop.join()
    assert "not stopped cleanly" not in broker.log_tail()
    broker.start()
    with clients(broker, 1) as (other,):
        assert partition_count(other, "waiting") == 0
        assert partition_count(other, "begun") == 4
        assert other.produce("begun", batch([b"x"])).base_offset == 0


@pytest.mark.long
def test_a_stop_that_has_given_up_its_clients_waits_for_the_metadata(
    broker: kafkalite.Broker, slow: Mount
) -> None:
    """What is on its way to disk arrives when no thread of Python listens any more."""
    with clients(broker, 2) as (one, other):
        slow.freeze()
        thaw = threading.Timer(12.0, slow.thaw)
        thaw.start()
        create(one, "begun")
        python_answers(other)
        assert broker.stop() == 0
        thaw.join()
    broker.start()
    with clients(broker, 1) as (other,):
        assert partition_count(other, "begun") == 4


def test_a_broker_whose_metadata_directory_fails_instead_of_answering_says_so_and_stops(
    broker: kafkalite.Broker, slow: Mount
) -> None:
    with clients(broker, 3) as (one, two, other):
        slow.freeze()
        try:
            creating = create(one, "begun")
            python_answers(other)
            waiting = create(two, "waiting")
            python_answers(other)
            lose_unflushed(slow)
        finally:
            slow.thaw()
        assert created(creating.answer()) == codes.KAFKA_STORAGE_ERROR
        assert created(waiting.answer()) in (codes.KAFKA_STORAGE_ERROR, codes.REQUEST_TIMED_OUT)
    os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
    assert broker.stop() == 1
    assert "the metadata cannot be written" in broker.log_tail()


def test_requests_that_wait_for_the_metadata_take_half_of_the_memory_and_no_more(
    slow: Mount, tmp_path: Path
) -> None:
    """All were taken, as many as came, and none was left for those that do not wait."""
    config = {
        "log.dirs": str(tmp_path / "quick"),
        "metadata.log.dir": str(slow.path / "metadata"),
        "queued.max.request.bytes": "300000",
    }
    padding = bytes(7_000)
    """Of a request that takes 17 kB while Python has it: half of the memory is nine of them."""
    with kafkalite.Broker(config=config) as broker, clients(broker, 32) as (other, *creators):
        assert other.create_topic("t").error_code == 0
        slow.freeze()
        try:
            first, *others = creators
            begun = create(first, "begun")
            python_answers(other)
            sent = []
            for number, creator in enumerate(others):
                # A tagged field of a later version.
                body = create_request(f"new-{number}").encode(7)[:-1]
                body += b"\x01\x64" + uvarint(len(padding)) + padding
                sent.append(creator.send(KEYS["CreateTopics"], 7, body))
                if number < FEW:
                    # All at once they might be too many from the first one on.
                    python_answers(other)
            python_answers(other)
            # Those that came too late are told so.
            refused = set(select.select([each.socket for each in others], [], [], PROMPT_S)[0])
            assert refused
            assert other.produce("t", batch([bytes(50_000)])).error_code == 0
        finally:
            slow.thaw()
        assert created(begun.answer()) == 0
        found = [
            created(creator.receive(KEYS["CreateTopics"], 7, number))
            for creator, number in zip(others, sent, strict=True)
        ]
        assert set(found) == {0, codes.REQUEST_TIMED_OUT}
        assert found[:FEW] == [0] * FEW
        assert found.count(0) < 15
        assert created(create(other, "after").answer()) == 0
