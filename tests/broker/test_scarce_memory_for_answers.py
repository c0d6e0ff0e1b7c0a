"""Answers that are not read, or not written yet, while memory is short: how many there are."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import kafkalite
from api.raw import KEYS, Connection, request_frame
from broker.test_large_requests import status_bytes
from kafkalite.protocol import messages

LIST = messages.ListGroupsRequest()
ANSWER_BYTES_MIN = 10 << 20
"""More than sockets take."""
ASKED_BY_ONE = 3
PAUSE_S = 0.002
PARTITIONS = 1_000
"""Of a topic, of which Metadata tells more than a connection has free."""


@pytest.fixture
def scarce() -> Iterator[kafkalite.Broker]:
    """Its memory is less than one answer; it has the topics "small" and "large"."""
    config = {"queued.max.request.bytes": str(1 << 20), "num.network.threads": "1"}
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("small").error_code == 0
            assert connection.create_topic("large", PARTITIONS).error_code == 0
        yield broker


def describing(count: int = 300) -> Any:
    """The configurations of the broker, again and again: a small request for a large answer."""
    kind = messages.DescribeConfigsRequest
    broker = kind.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=None
    )
    return kind(resources=[broker] * count, include_synonyms=True, include_documentation=True)


def metadata_of(*names: str) -> Any:
    kind = messages.MetadataRequest
    return kind(topics=[kind.MetadataRequestTopic(name=name) for name in names])


def reader_of_nothing(broker: kafkalite.Broker, stack: ExitStack) -> Connection:
    """One that has asked for much; an answer has come to its end of the connection."""
    reader = stack.enter_context(Connection(broker.bootstrap_servers))
    reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
    reader.send(KEYS["DescribeConfigs"], 4, describing().encode(4))
    assert select.select([reader.socket], [], [], 60)[0]
    size = reader.socket.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)
    assert int.from_bytes(size, "big") > ANSWER_BYTES_MIN
    return reader


def size_of_answer_read_slowly(client: Connection) -> int:
    """Of one that is read with pauses, so that it leaves the broker bit by bit."""
    size = int.from_bytes(client.socket.recv(4, socket.MSG_WAITALL), "big")
    left = size
    while left and (bit := client.socket.recv(min(left, 1 << 16))):
        left -= len(bit)
        time.sleep(PAUSE_S)  # the fault: a slow client
    return size - left


def test_a_large_answer_that_is_not_read_holds_back_those_that_would_follow(
    scarce: kafkalite.Broker,
) -> None:
    """As many were made as were asked for, of 39 MiB each, whatever the budget. Small ones are
    given all the while."""
    with ExitStack() as stack:
        reader = reader_of_nothing(scarce, stack)
        describer, lister, asker, other = (
            stack.enter_context(Connection(scarce.bootstrap_servers)) for _ in range(4)
        )
        asked_s = time.monotonic()
        lister.send(KEYS["ListGroups"], 4, LIST.encode(4))
        asker.send(KEYS["Metadata"], 9, metadata_of("small", "large").encode(9))
        # They wait for a second, and then one at a time may exceed the memory.
        for client in (lister, asker):
            client.socket.settimeout(300)
            assert client.receive_frame()
            assert time.monotonic() - asked_s > 0.5
        describer.send(KEYS["DescribeConfigs"], 4, describing().encode(4))
        assert other.ask("Metadata", 9, metadata_of("small")).topics[0].error_code == 0
        request = messages.FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
        assert other.ask("FindCoordinator", 4, request).coordinators
        describer.socket.settimeout(300)
        assert describer.receive_frame()
        # Until then the first answer stood in the way. Its reader read nothing, and was closed.
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        assert reader.receive_frame() is None


def test_who_asks_again_before_a_large_answer_has_left_keeps_nobody_waiting(
    scarce: kafkalite.Broker,
) -> None:
    """The first answer was on its way until nothing was being worked on. The next one, which was to
    be written once no other was on its way, never came, nor did all large ones of others."""
    frame = request_frame(KEYS["DescribeConfigs"], 4, describing().encode(4))
    with ExitStack() as stack:
        reader, other = (stack.enter_context(Connection(scarce.bootstrap_servers)) for _ in "12")
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        for client in (reader, other):
            client.socket.settimeout(120)
        sizes: list[int] = []
        read = threading.Thread(target=lambda: sizes.append(size_of_answer_read_slowly(other)))
        read.start()
        reader.socket.sendall(frame * ASKED_BY_ONE)
        other.socket.sendall(frame)
        sizes.extend(size_of_answer_read_slowly(reader) for _ in range(ASKED_BY_ONE))
        read.join()
        (answer_bytes,) = set(sizes)
        assert len(sizes) == ASKED_BY_ONE + 1
        assert answer_bytes > ANSWER_BYTES_MIN


def test_answers_that_are_read_are_given_to_all_who_ask_at_once_with_little_memory(
    scarce: kafkalite.Broker,
) -> None:
    """They are written one after the other, and each counts as soon as it is begun."""
    frame = request_frame(KEYS["DescribeConfigs"], 4, describing().encode(4))
    with ExitStack() as stack:
        clients = [stack.enter_context(Connection(scarce.bootstrap_servers)) for _ in range(8)]
        before_bytes = status_bytes(scarce.pid, "VmRSS:")
        sizes: list[int] = []

        def read(client: Connection) -> None:
            client.socket.settimeout(300)
            sizes.append(len(client.receive_frame() or b""))

        threads = [threading.Thread(target=read, args=[client]) for client in clients]
        for thread in threads:
            thread.start()
        for client in clients:
            client.socket.sendall(frame)
        for thread in threads:
            thread.join()
        (answer_bytes,) = set(sizes)
        assert answer_bytes > ANSWER_BYTES_MIN
        peak_bytes = status_bytes(scarce.pid, "VmHWM:") - before_bytes
        assert peak_bytes < 5 * answer_bytes
