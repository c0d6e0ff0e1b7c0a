"""What clients ask of groups whose log directory does not answer: it waits in Python, takes memory
there, and that is counted (`queued.max.request.bytes`) until nobody holds it any more.

A commit of many partitions takes thirty times of what it is on the wire.
"""

import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.group_requests import describe, heartbeat, stable_member
from api.raw import KEYS, Connection, request_frame
from faults.directories import (
    OFFSETS_PARTITIONS,
    PROMPT_S,
    code_of,
    commit,
    groups_in,
    partitions_by_directory,
    two_directories,
)
from faults.mount import Mount
from kafkalite.protocol import codes, messages

BUDGET_BYTES = 2_000_000
ROWS = 300
"""Of a commit, which takes more than 200 kB while it waits: half of the memory is four of them."""
MANY = 40
"""Commits far beyond the memory, on the wire far below it."""
LARGE_BYTES = 400_000
ASK = messages.MetadataRequest(topics=[])


@pytest.fixture
def scarce(slow: Mount, tmp_path: Path) -> Iterator[kafkalite.Broker]:
    """Two log directories, and little memory for requests."""
    config = {
        **two_directories(slow, tmp_path / "quick"),
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
        "queued.max.request.bytes": str(BUDGET_BYTES),
    }
    with kafkalite.Broker(config=config) as broker:
        yield broker


def large_commit(group: str, topic: str) -> bytes:
    """Of one partition again and again."""
    kind = messages.OffsetCommitRequest
    inner = kind.OffsetCommitRequestTopic
    rows = [
        inner.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1
        )
        for offset in range(ROWS)
    ]
    named = inner(name=topic, partitions=rows)
    encoded: bytes = kind(group_id=group, generation_id_or_member_epoch=-1, topics=[named]).encode(
        8
    )
    return encoded


class Waiting:
    """Commits that are sent and not waited for."""

    def __init__(self, servers: str, body: bytes) -> None:
        self.servers = servers
        self.body = body
        self.clients: list[tuple[Connection, int]] = []

    def send(self, other: Connection) -> Connection:
        """One more, which Python has looked at when this returns: those of one turn are taken or
        refused together."""
        connection = Connection(self.servers)
        self.clients.append((connection, connection.send(KEYS["OffsetCommit"], 8, self.body)))
        # One network thread takes all that has come before it answers, and gives Python this later.
        assert other.ask("Metadata", 9, ASK).brokers
        other.ask("DescribeCluster", 1, messages.DescribeClusterRequest())
        return connection

    def codes(self) -> list[int]:
        """Those of the answers, in the order of the commits."""
        found = []
        for connection, number in self.clients:
            connection.socket.settimeout(PROMPT_S)
            found.append(code_of(connection.receive(KEYS["OffsetCommit"], 8, number)))
            connection.socket.close()
        self.clients.clear()
        return found


def test_commits_that_wait_for_a_frozen_directory_take_half_of_the_memory_and_no_more(
    scarce: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """All were taken, as many as came, and took gigabytes where megabytes were allowed."""
    _, topic = partitions_by_directory(scarce, slow, tmp_path / "quick")
    with Connection(scarce.bootstrap_servers) as other:
        other.socket.settimeout(PROMPT_S)
        stalled = groups_in(slow.path / "logs", other)
        going = groups_in(tmp_path / "quick", other)[0]
        member = stable_member(other, stalled[1])
        waiting = Waiting(scarce.bootstrap_servers, large_commit(stalled[0], topic))
        # A second time: what was taken before is given back.
        for _ in range(2):
            slow.freeze()
            try:
                for _ in range(MANY):
                    waiting.send(other)
                # The others go on, and so do members of the groups that are held up.
                assert heartbeat(other, stalled[1], 1, member) == 0
                assert describe(other, stalled[0])[0].group_state == "Empty"
                assert commit(other, going, topic, 1) == 0
                assert other.produce(topic, batch([bytes(LARGE_BYTES)])).error_code == 0
            finally:
                slow.thaw()
            found = waiting.codes()
            assert set(found) == {0, codes.COORDINATOR_NOT_AVAILABLE}
            assert 2 <= found.count(0) <= 10
            assert commit(other, stalled[0], topic, 2) == 0


def test_commits_of_clients_that_are_gone_count_as_long_as_they_are_in_memory(
    scarce: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """They counted as long as their connections were there: a client that gave up and came back
    again and again filled the memory."""
    _, topic = partitions_by_directory(scarce, slow, tmp_path / "quick")
    with Connection(scarce.bootstrap_servers) as other:
        other.socket.settimeout(PROMPT_S)
        stalled = groups_in(slow.path / "logs", other)[0]
        assert commit(other, stalled, topic, 1) == 0
        waiting = Waiting(scarce.bootstrap_servers, large_commit(stalled, topic))
        slow.freeze()
        try:
            for _ in range(MANY):
                gone = waiting.send(other).socket
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                gone.close()
            waiting.clients.clear()
            answers = select.poll()
            for _ in range(8):
                answers.register(waiting.send(other).socket, select.POLLIN)
            assert answers.poll(1000 * PROMPT_S), "all of them were taken"
        finally:
            slow.thaw()
        assert codes.COORDINATOR_NOT_AVAILABLE in waiting.codes()
        while (code := commit(other, stalled, topic, 3)) != 0:
            assert code == codes.COORDINATOR_NOT_AVAILABLE


def framed(name: str, version: int, body: bytes) -> bytes:
    return request_frame(KEYS[name], version, body)


def test_who_exceeds_the_memory_and_waits_for_a_frozen_directory_keeps_nobody_from_that(
    scarce: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """One frame at a time may come in beyond the memory. Where that one waited behind a record for
    a frozen directory, no other did until the thaw."""
    stalled, going = partitions_by_directory(scarce, slow, tmp_path / "quick")
    servers = scarce.bootstrap_servers
    with (
        Connection(servers) as hoarder,
        Connection(servers) as waiting,
        Connection(servers) as honest,
        Connection(servers) as other,
    ):
        record = batch([bytes(BUDGET_BYTES)])
        frame = framed("Produce", 9, hoarder.produce_request(going, record).encode(9))
        # The buffer for it is all of the memory.
        begun = BUDGET_BYTES - 50_000
        hoarder.socket.sendall(frame[:begun])
        assert other.ask("Metadata", 9, ASK).brokers
        slow.freeze()
        is_over = threading.Event()

        def send_on() -> None:
            """So that it is no hoarder."""
            at = begun
            while not is_over.wait(3):
                hoarder.socket.sendall(frame[at : at + 1])
                at += 1

        sender = threading.Thread(target=send_on)
        sender.start()
        try:
            request = waiting.produce_request(stalled, batch([b"x"]), acks=1)
            request.timeout_ms = 600_000
            before = framed("Produce", 9, request.encode(9))
            # It is never looked at.
            behind = framed("OffsetCommit", 8, bytes(LARGE_BYTES))
            waiting.socket.sendall(before + behind)
            assert other.ask("Metadata", 9, ASK).brokers
            honest.socket.settimeout(PROMPT_S)
            began = time.monotonic()
            answer = honest.produce(going, batch([bytes(LARGE_BYTES)]))
            assert answer.error_code == 0
            assert time.monotonic() - began < PROMPT_S
            assert waiting.is_closed()
        finally:
            slow.thaw()
            is_over.set()
            sender.join()
