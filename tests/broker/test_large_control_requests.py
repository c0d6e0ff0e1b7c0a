"""Large requests of the keys that Python answers: others have turns between their elements."""

import mmap
import select
import signal
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from api import large_messages
from api.raw import Connection
from broker.serving import Serving
from kafkalite import _native
from kafkalite.protocol import codes, messages

ELEMENTS = 50_000
SLOW = {"AlterConfigs", "DescribeConfigs, known"}
"""A fifth of the elements is enough."""
CHEAP = {
    "CreateAcls",
    "CreateTopics, assignments",
    "CreateTopics, configs",
    "CreateTopics, made",
    "DeleteAcls",
    "DeleteTopics, ids",
    "DescribeProducers, known",
    "IncrementalAlterConfigs, keys",
    "JoinGroup",
    "ListConfigResources",
    "ListGroups",
    "ListPartitionReassignments",
    "OffsetCommit",
    "SyncGroup",
    "TxnOffsetCommit",
    "UpdateFeatures",
}
"""Take hardly longer than a few slices, or too long for a test."""
TURNS_MIN = 3
"""Without slices there is one, or two for what is answered in two parts."""
TURNS_OF_OTHERS_MIN = 30
JOIN_MS = 10_000
"""The time that a JoinGroup waits for other members."""
MEASURED = """
import mmap, struct, sys, time
from kafkalite import tasks
from kafkalite.__main__ import main

file = open(sys.argv.pop(1), "r+b")
shared = mmap.mmap(file.fileno(), 16)
step, tasks.SLICE_NS = tasks.Task._step, 50_000

def measured(task, error=None):
    if task._tasks.current is not None:
        return step(task, error)  # within a turn that is measured
    begun_ns = time.thread_time_ns()
    step(task, error)
    turn_ns = time.thread_time_ns() - begun_ns
    total_ns, longest_ns = struct.unpack("qq", shared)
    shared[:] = struct.pack("qq", total_ns + turn_ns, max(longest_ns, turn_ns))

tasks.Task._step = measured
sys.exit(main())
"""
"""A broker that notes the processor time of its tasks' turns. Slices are short: a fast machine
needs few of five milliseconds."""


class Measured:
    """The broker of that program."""

    def __init__(self, folder: Path) -> None:
        file = folder / "turns"
        file.write_bytes(bytes(16))
        command = [sys.executable, "-c", MEASURED, str(file), "serve"]
        words = ["--listen", "127.0.0.1:0", "--data", str(folder / "data")]
        words += ["--config", "kafkalite.acks.fsync=none"]
        self.broker = Serving(words, folder, command)
        with file.open("r+b") as shared:
            self._shared = mmap.mmap(shared.fileno(), 16)
        large_messages.prepare(self.broker.bootstrap_servers)

    def turns_of(self, key: int, version: int, body: bytes) -> tuple[int, int]:
        """The processor time of all turns until this request is answered, and that of the longest,
        nanoseconds."""
        self._shared[:] = bytes(16)
        with Connection(self.broker.bootstrap_servers) as connection:
            connection.send(key, version, body)
            assert connection.receive_frame() is not None
        total_ns, longest_ns = struct.unpack("qq", self._shared)
        return total_ns, longest_ns


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    found = Measured(tmp_path_factory.mktemp("measured"))
    yield found
    found.broker.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    with kafkalite.Broker(config={"group.initial.rebalance.delay.ms": JOIN_MS}) as broker:
        large_messages.prepare(broker.bootstrap_servers)
        yield broker


def answers_of_others(broker: kafkalite.Broker, key: int, version: int, body: bytes) -> int:
    """How many requests of another connection are answered until this one is."""
    is_answered = threading.Event()
    with (
        Connection(broker.bootstrap_servers) as ours,
        Connection(broker.bootstrap_servers) as other,
    ):
        frame = messages.ListGroupsRequest().encode(0)

        def receive() -> None:
            assert ours.receive_frame() is not None
            is_answered.set()

        receiver = threading.Thread(target=receive)
        ours.send(key, version, body)
        receiver.start()
        count = 0
        while not is_answered.is_set():
            other.send(16, 0, frame)
            assert other.receive_frame() is not None
            count += 1
        receiver.join()
    return count


@pytest.mark.parametrize("name", sorted(large_messages.CASES.keys() - CHEAP))
def test_a_task_works_for_a_part_of_the_elements_at_a_time(measured: Measured, name: str) -> None:
    """Whatever one client asked for kept all groups waiting: 100,000 topics to be made 2.9 s.

    How many answers others got meanwhile told little: some came while the request was decoded, and
    on a busy machine others got none."""
    elements = ELEMENTS // 5 if name in SLOW else ELEMENTS
    total_ns, longest_ns = measured.turns_of(*large_messages.body(name, 100_000, elements))
    assert longest_ns * TURNS_MIN <= total_ns


def test_others_are_answered_between_the_elements(broker: kafkalite.Broker) -> None:
    request = large_messages.body("DescribeConfigs, known", 100_000, ELEMENTS)
    assert answers_of_others(broker, *request) >= TURNS_OF_OTHERS_MIN


def test_a_large_request_that_waits_for_other_clients_keeps_no_large_one_waiting(
    broker: kafkalite.Broker,
) -> None:
    """Of large requests one is answered at a time, and a rebalance ends when the others join."""
    join = messages.JoinGroupRequest(
        group_id="large",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=2 * JOIN_MS,
        protocol_type="consumer",
        protocols=[("range", bytes(100_000))],
    )
    described = large_messages.body("DescribeGroups", 100_000, ELEMENTS)
    with Connection(broker.bootstrap_servers) as one, Connection(broker.bootstrap_servers) as two:
        one.send(11, 3, join.encode(3))
        two.send(*described)
        answer = messages.JoinGroupResponse
        assert two.receive_frame() is not None
        assert not select.select([one.socket], [], [], 0)[0]
        frame = one.receive_frame()
        assert frame is not None
        assert answer.decode(frame[4:], 3).error_code == codes.NONE


def test_others_are_answered_between_tagged_fields(broker: kafkalite.Broker) -> None:
    """Those of a request of 95 MB, which nobody knows, kept all groups waiting for 0.4 s."""
    count = 8_000_000  # two bytes each, and five in front
    request = b"\0\2\6group" + b"\x80\xa4\xe8\x03" + b"\7\0" * count
    assert answers_of_others(broker, 10, 4, request) >= TURNS_OF_OTHERS_MIN


def status_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise LookupError(field)


@pytest.mark.parametrize("name", ["CreateTopics", "DescribeGroups"])
def test_an_answer_with_a_sentence_for_each_element_has_a_bound(name: str) -> None:
    """What was encoded was kept: 401 MiB for a DescribeGroups of 95 MB, of which 336 were to do."""
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        large_messages.prepare(broker.bootstrap_servers)
        request = large_messages.body(name, 95_000_000)
        before_bytes = status_bytes(broker.pid, "VmRSS")
        Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
        connection.send(*request)
        answer = connection.receive_frame()
        assert answer is not None
        assert len(answer) > 190_000_000
        peak_bytes = status_bytes(broker.pid, "VmHWM") - before_bytes
        assert peak_bytes <= 3 * len(request[2]) + (64 << 20)


def test_what_somebody_else_has_of_a_message_is_not_taken_apart() -> None:
    kind = messages.CreateTopicsRequest

    def made(names: list[str]) -> messages.CreateTopicsRequest:
        return kind(topics=[(name, 1, 1, [(0, [1])], []) for name in names])

    decoded = kind.decode(made(["a", "b", "c"]).encode(7), 7)
    held = [decoded]
    _native.release(held)
    assert held == []
    assert decoded.encode(7) == made(["a", "b", "c"]).encode(7)

    topics, second = decoded.topics, decoded.topics[1]
    held.append(decoded)
    del decoded
    _native.release(held)
    assert [each.name for each in topics] == ["a", "b", "c"]

    held.append(kind(topics=topics))
    del topics
    _native.release(held)
    assert second.assignments[0].broker_ids == [1]
