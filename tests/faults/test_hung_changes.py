"""Topics and partitions that are made or deleted in a log directory that does not answer, and of
which nobody knows that yet: Python's one thread waited there until the thaw, and with it every
group, every heartbeat and whatever else Python answers.

Two log directories; the metadata lies in the one that goes on.
"""

import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch, values_of
from api.group_requests import find_coordinator, heartbeat, stable_member
from api.log_dirs import alter, wait_for
from api.raw import KEYS, Connection
from broker.test_scarce_memory import uvarint
from faults.directories import (
    OFFSETS_PARTITIONS,
    PROMPT_S,
    groups_in,
    partitions_by_directory,
    two_directories,
)
from faults.mount import Mount
from faults.nemesis import lose_unflushed
from kafkalite.protocol import codes, messages

LONG_MS = 120_000
"""More than a test takes: what is answered before the thaw is not answered for its time."""


@pytest.fixture
def broker(slow: Mount, tmp_path: Path) -> Iterator[kafkalite.Broker]:
    config = {
        **two_directories(slow, tmp_path / "quick"),
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
    }
    with kafkalite.Broker(config=config) as broker:
        yield broker


@contextmanager
def clients(broker: kafkalite.Broker, count: int) -> Iterator[list[Connection]]:
    """They do not wait until the test's end."""
    opened = [Connection(broker.bootstrap_servers) for _ in range(count)]
    for each in opened:
        each.socket.settimeout(PROMPT_S)
    try:
        yield opened
    finally:
        for each in opened:
            each.socket.close()


def create_request(name: str, timeout_ms: int = LONG_MS, partitions: int = 4) -> Any:
    """So many partitions that some go into each directory."""
    kind = messages.CreateTopicsRequest
    topic = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return kind(topics=[topic], timeout_ms=timeout_ms)


def grow_request(name: str, count: int, timeout_ms: int = LONG_MS) -> Any:
    kind = messages.CreatePartitionsRequest
    topic = kind.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return kind(topics=[topic], timeout_ms=timeout_ms)


def delete_request(name: str, timeout_ms: int = LONG_MS) -> Any:
    return messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms)


class Asked:
    """A request whose answer comes later."""

    def __init__(self, connection: Connection, name: str, version: int, request: Any) -> None:
        self._connection = connection
        self._key, self._version = KEYS[name], version
        self._number = connection.send(self._key, version, request.encode(version))

    def answer(self) -> Any:
        return self._connection.receive(self._key, self._version, self._number)


def create(connection: Connection, name: str, timeout_ms: int = LONG_MS) -> Asked:
    return Asked(connection, "CreateTopics", 7, create_request(name, timeout_ms))


def created(answer: Any) -> int:
    """The error code."""
    code: int = answer.topics[0].error_code
    return code


def deleted(answer: Any) -> int:
    code: int = answer.responses[0].error_code
    return code


def grown(answer: Any) -> int:
    code: int = answer.results[0].error_code
    return code


def python_answers(connection: Connection) -> None:
    for _ in range(20):
        connection.ask("DescribeCluster", 1, messages.DescribeClusterRequest())


def partition_count(connection: Connection, name: str) -> int:
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = connection.ask("Metadata", 12, request).topics
    return len(topic.partitions)


def named_code(connection: Connection, name: str) -> int:
    """What Metadata says of a topic that it has made if need be."""
    kind = messages.MetadataRequest
    wanted = kind(topics=[kind.MetadataRequestTopic(name=name)])
    (topic,) = connection.ask("Metadata", 12, wanted).topics
    code: int = topic.error_code
    return code


def test_a_topic_that_goes_into_a_frozen_directory_holds_nobody_up(
    broker: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    with clients(broker, 4) as (creator, deleter, other, member):
        stalled, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        group = groups_in(tmp_path / "quick", other)[0]
        member_id = stable_member(member, group)
        slow.freeze()
        try:
            creating = create(creator, "new")
            python_answers(other)
            assert heartbeat(member, group, 1, member_id) == 0
            # The name is taken, and there is no log to be asked yet.
            assert created(create(other, "new").answer()) == codes.TOPIC_ALREADY_EXISTS
            assert partition_count(other, "new") == 0
            # Whoever deletes it waits for it. Another one is gone, whatever its files do.
            deleting = Asked(deleter, "DeleteTopics", 5, delete_request("new"))
            gone = Asked(other, "DeleteTopics", 5, delete_request(stalled))
            assert deleted(gone.answer()) == 0
            assert partition_count(other, stalled) == 0
            assert heartbeat(member, group, 1, member_id) == 0
            # By now the directory is known to hang: the topic is made anew in the other one.
            assert created(create(other, stalled).answer()) == 0
            assert len(list((tmp_path / "quick").glob(f"{stalled}-?"))) == 4
            assert other.produce(stalled, batch([b"x"])).base_offset == 0
            assert other.produce(going, batch([b"x"])).error_code == 0
        finally:
            slow.thaw()
        assert created(creating.answer()) == 0
        assert deleted(deleting.answer()) == 0
        assert partition_count(other, "new") == 0
        # In the order in which it was asked.
        assert created(create(other, "new").answer()) == 0
        assert other.produce("new", batch([b"x"])).base_offset == 0
        assert not list((slow.path / "logs").glob(f"{stalled}-?"))
        assert broker.stop() == 0
        broker.start()
    assert "stray" not in broker.log_tail()
    with clients(broker, 1) as (other,):
        assert values_of(other.fetch(stalled, 0).records) == [(0, b"x")]


def test_a_change_that_is_not_through_in_time_is_said_to_be_late_and_is_made_afterwards(
    broker: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    with clients(broker, 2) as (creator, grower):
        _, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        slow.freeze()
        try:
            creating = create(creator, "new", timeout_ms=1)
            growing = Asked(grower, "CreatePartitions", 3, grow_request(going, 4, timeout_ms=1))
            assert created(creating.answer()) == codes.REQUEST_TIMED_OUT
            assert grown(growing.answer()) == codes.REQUEST_TIMED_OUT
            late = Asked(creator, "DeleteTopics", 5, delete_request("new", timeout_ms=1))
            assert deleted(late.answer()) == codes.REQUEST_TIMED_OUT
        finally:
            slow.thaw()
        # Whoever asks for a change of them waits until they are there.
        growing = Asked(creator, "CreatePartitions", 3, grow_request("new", 5))
        assert grown(growing.answer()) == 0
        gone = Asked(grower, "DeleteTopics", 5, delete_request(going))
        assert deleted(gone.answer()) == 0
        assert partition_count(grower, "new") == 5
        assert partition_count(grower, going) == 0
        assert not list(tmp_path.glob(f"*/{going}-?")) + list(slow.path.glob(f"logs/{going}-?"))


def test_partitions_that_are_added_in_a_frozen_directory_hold_nobody_up(
    broker: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    with clients(broker, 3) as (grower, late_grower, other):
        _, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        slow.freeze()
        try:
            growing = Asked(grower, "CreatePartitions", 3, grow_request(going, 5))
            python_answers(other)
            again = Asked(late_grower, "CreatePartitions", 3, grow_request(going, 5))
            python_answers(other)
            assert partition_count(other, going) == 1
            assert other.produce(going, batch([b"x"])).error_code == 0
        finally:
            slow.thaw()
        assert grown(growing.answer()) == 0
        assert grown(again.answer()) == codes.INVALID_PARTITIONS
        assert partition_count(other, going) == 5


def test_a_stop_answers_whose_topics_wait_for_a_directory_and_the_next_start_makes_them(
    broker: kafkalite.Broker, slow: Mount
) -> None:
    with clients(broker, 3) as (creator, deleter, other):
        find_coordinator(other, "group")
        stop = threading.Thread(target=broker.stop)
        slow.freeze()
        try:
            creating = create(creator, "new")
            python_answers(other)
            deleting = Asked(deleter, "DeleteTopics", 5, delete_request("new"))
            python_answers(other)
            stop.start()
            assert created(creating.answer()) == codes.REQUEST_TIMED_OUT
            assert deleted(deleting.answer()) == codes.REQUEST_TIMED_OUT
        finally:
            slow.thaw()
            if stop.ident is not None:
                stop.join()
    broker.start()
    with clients(broker, 1) as (other,):
        assert partition_count(other, "new") == 4
        assert other.produce("new", batch([b"x"])).base_offset == 0


def test_a_topic_is_not_there_if_the_directory_fails_instead_of_answering(
    broker: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    quick = tmp_path / "quick"
    with clients(broker, 3) as (creator, grower, other):
        _, going = partitions_by_directory(broker, slow, quick)
        slow.freeze()
        try:
            creating = create(creator, "new")
            python_answers(other)
            growing = Asked(grower, "CreatePartitions", 3, grow_request(going, 5))
            python_answers(other)
            lose_unflushed(slow)
        finally:
            slow.thaw()
        assert created(creating.answer()) == codes.KAFKA_STORAGE_ERROR
        assert grown(growing.answer()) == codes.KAFKA_STORAGE_ERROR
        assert partition_count(other, "new") == 0
        assert partition_count(other, going) == 1
        # Nor are the logs that could be made.
        assert not list(quick.glob("new-*"))
        assert [path.name for path in quick.glob(f"{going}-*")] == [f"{going}-0"]
        assert other.produce(going, batch([b"x"])).error_code == 0


def is_mover_stuck(broker: kafkalite.Broker) -> bool:
    """The thread that moves replicas is in a call that does not return."""
    for _ in range(20):
        if "D" not in states_of(broker.pid, "replica-alter"):
            return False
        time.sleep(0.05)  # a poll
    return True


def states_of(pid: int, name: str) -> set[str]:
    """The states of the process's threads whose names begin so."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            head, _, rest = (task / "stat").read_text().rpartition(")")
            if head.partition("(")[2].startswith(name):
                found.add(rest.split()[0])
    return found


def test_a_topic_whose_name_a_move_out_of_a_frozen_directory_has_is_refused_in_time(
    broker: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """The new topic waited for the thaw in the directory that goes on, and every change there
    behind it."""
    quick = tmp_path / "quick"
    with clients(broker, 3) as (creator, deleter, other):
        topic, _ = partitions_by_directory(broker, slow, quick)
        slow.freeze()
        try:
            assert alter(other, quick, (topic, 0)) == [0]
            wait_for(lambda: is_mover_stuck(broker))
            assert deleted(Asked(deleter, "DeleteTopics", 5, delete_request(topic)).answer()) == 0
            for name in (topic, "beside"):
                unknown = alter(other, quick, (name, 0))
                assert unknown == [codes.UNKNOWN_TOPIC_OR_PARTITION]
            creating = Asked(creator, "CreateTopics", 7, create_request(topic, partitions=1))
            beside = create_request("beside", partitions=1)
            assert created(other.ask("CreateTopics", 7, beside)) == 0
            (refused,) = creating.answer().topics
            assert refused.error_code == codes.KAFKA_STORAGE_ERROR
            assert f"{topic}-0 is moving into {quick}" in refused.error_message
            assert partition_count(other, topic) == 0
            assert other.produce("beside", batch([b"x"])).error_code == 0
        finally:
            slow.thaw()
        wait_for(lambda: created(create(other, topic).answer()) == 0)
        assert other.produce(topic, batch([b"x"])).base_offset == 0


def test_whoever_has_a_topic_made_by_the_way_is_not_kept_waiting_for_a_frozen_directory(
    broker: kafkalite.Broker, slow: Mount
) -> None:
    """FindCoordinator for the first time, and Metadata of a topic that is not there."""
    with clients(broker, 2) as (finder, other):
        slow.freeze()
        try:
            key = messages.FindCoordinatorRequest(coordinator_keys=["group"])
            finding = Asked(finder, "FindCoordinator", 6, key)
            python_answers(other)
            (found,) = finding.answer().coordinators
            assert found.error_code == codes.COORDINATOR_NOT_AVAILABLE
            # The directory is known to hang, or will be soon: then topics are made elsewhere.
            names = (f"by-the-way-{number}" for number in range(5))
            assert any(named_code(other, name) == 0 for name in names)
        finally:
            slow.thaw()
        deadline = time.monotonic() + PROMPT_S
        while find_coordinator(finder, "group")[0].error_code:
            assert time.monotonic() < deadline, "the coordinator is not there after the thaw"
        stable_member(finder, "group")


def test_changes_that_wait_for_a_directory_take_half_of_the_memory_and_no_more(
    slow: Mount, tmp_path: Path
) -> None:
    """Of the only log directory: each new topic goes there, however long it has not answered."""
    config = {
        "log.dirs": str(slow.path / "logs"),
        "metadata.log.dir": str(tmp_path / "metadata"),
        "queued.max.request.bytes": "300000",
    }
    padding = bytes(7_000)
    """Of a request that takes 17 kB while Python has it: half of the memory is nine of them."""
    with kafkalite.Broker(config=config) as broker, clients(broker, 31) as (other, *creators):
        slow.freeze()
        try:
            sent = []
            for number, creator in enumerate(creators):
                # A tagged field of a later version.
                body = create_request(f"new-{number}").encode(7)[:-1]
                body += b"\x01\x64" + uvarint(len(padding)) + padding
                sent.append(creator.send(KEYS["CreateTopics"], 7, body))
            python_answers(other)
            # Those that came too late are told so.
            refused = set(select.select([each.socket for each in creators], [], [], PROMPT_S)[0])
            assert refused
        finally:
            slow.thaw()
        found = [
            created(creator.receive(KEYS["CreateTopics"], 7, number))
            for creator, number in zip(creators, sent, strict=True)
        ]
        assert set(found) == {0, codes.REQUEST_TIMED_OUT}
        assert found.count(0) < 15
        assert created(create(other, "after").answer()) == 0
