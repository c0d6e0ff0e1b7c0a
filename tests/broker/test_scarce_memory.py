"""Requests that arrive while the memory for them is short (`rust/src/net/memory/budget.rs`)."""

import contextlib
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection, request_frame
from faults.mount import Mount
from kafkalite.protocol import messages

ASK = messages.MetadataRequest(topics=[])
VERSIONS = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
LONG_MS = 600_000

BUDGET_BYTES = 300_000
LARGE_BYTES = 200_000
BEGINNING_BYTES = 120_000
"""Two beginnings fit into the budget, three do not."""


@pytest.fixture
def scarce() -> Iterator[kafkalite.Broker]:
    """Memory for little more than one large request; its topic "t" is empty."""
    config = {"queued.max.request.bytes": str(BUDGET_BYTES), "num.network.threads": "1"}
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("t").error_code == 0
        yield broker


MANY = 1_000
"""Partitions of a Fetch that takes half of the budget while it waits."""


def fetch_of_many(
    connection: Connection, session: tuple[int, int] = (0, -1), count: int = MANY
) -> Any:
    """Of one partition that there is and many that there are not, for as long as it takes."""
    request = connection.fetch_request("t", 0, max_wait_ms=LONG_MS, session=session)
    (partition,) = request.topics[0].partitions
    kind = type(partition)
    request.topics[0].partitions = [
        kind(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(count)
    ]
    return request


def framed(name: str, version: int, message: Any) -> bytes:
    return request_frame(KEYS[name], version, message.encode(version))


@pytest.mark.parametrize("stay", [False, True])
def test_beginnings_of_frames_that_fill_the_memory_do_not_wait_for_each_other(
    scarce: kafkalite.Broker, stay: bool
) -> None:
    """Each had its beginning in memory and waited for room for the rest, which nobody could make
    but by being closed after half a minute. A beginning comes in unasked behind a request that a
    Fetch holds back. Where clients stay, the next may exceed the memory when the frame before is
    whole."""
    clients = [Connection(scarce.bootstrap_servers) for _ in range(4)]
    record = batch([bytes(LARGE_BYTES)])
    fetch = clients[0].fetch_request("t", 0, max_wait_ms=500, min_bytes=1 << 20)
    before = framed("Fetch", 12, fetch) + framed("Metadata", 9, ASK)
    frames = [before + framed("Produce", 9, each.produce_request("t", record)) for each in clients]
    cut = len(before) + BEGINNING_BYTES
    # So that it finds them all at once.
    os.kill(scarce.pid, signal.SIGSTOP)
    for client, frame in zip(clients, frames, strict=True):
        client.socket.sendall(frame[:cut])
    os.kill(scarce.pid, signal.SIGCONT)
    with Connection(scarce.bootstrap_servers) as other:
        assert other.ask("Metadata", 9, ASK).brokers
    for client, frame in zip(clients, frames, strict=True):
        threading.Thread(target=client.socket.sendall, args=[frame[cut:]]).start()
    for client in clients:
        client.receive(KEYS["Fetch"], 12, 7)
        client.receive(KEYS["Metadata"], 9, 7)
        answer = client.receive(0, 9, 7).responses[0].partition_responses[0]
        assert answer.error_code == 0
        if not stay:
            client.socket.close()
    for client in clients:
        client.socket.close()


def test_large_fetches_that_wait_are_answered_when_memory_is_short(
    scarce: kafkalite.Broker,
) -> None:
    """What they were decoded to was not counted: a thousand such connections held gigabytes for as
    long as they liked."""
    clients = [Connection(scarce.bootstrap_servers) for _ in range(6)]
    sent = []
    first = clients[0]
    sent.append(first.send(KEYS["Fetch"], 12, fetch_of_many(first).encode(12)))
    # There is room for one.
    assert not select.select([first.socket], [], [], 2.5)[0]
    for client in clients[1:]:
        sent.append(client.send(KEYS["Fetch"], 12, fetch_of_many(client).encode(12)))
    for client, number in zip(clients, sent, strict=True):
        answer = client.receive(KEYS["Fetch"], 12, number)
        assert len(answer.responses[0].partitions) == MANY
        client.socket.close()


def test_fetches_of_a_large_session_that_wait_are_answered_when_memory_is_short(
    scarce: kafkalite.Broker,
) -> None:
    """Each holds all partitions of the session, though it names none."""
    with Connection(scarce.bootstrap_servers) as connection:
        request = fetch_of_many(connection, (0, 0))
        request.max_wait_ms = 0
        session_id = connection.ask("Fetch", 12, request).session_id
        assert session_id > 0
        clients = [Connection(scarce.bootstrap_servers) for _ in range(6)]
        sent = []
        for epoch, client in enumerate(clients, 1):
            asked = client.fetch_request("t", 0, max_wait_ms=LONG_MS, session=(session_id, epoch))
            asked.topics = []
            sent.append(client.send(KEYS["Fetch"], 12, asked.encode(12)))
            # So that the broker has it before the next one.
            assert connection.ask("Metadata", 9, ASK).brokers
        for client, number in zip(clients, sent, strict=True):
            client.receive(KEYS["Fetch"], 12, number)
            client.socket.close()


def test_large_fetches_that_fill_the_memory_before_they_are_begun_do_not_wait_for_each_other(
    scarce: kafkalite.Broker,
) -> None:
    """Their frames had their room reserved, and each waited for memory before it was decoded."""
    clients = [Connection(scarce.bootstrap_servers) for _ in range(4)]
    in_turn = 3
    frame = framed("Fetch", 12, fetch_of_many(clients[0], count=10 * MANY))
    assert len(clients) * in_turn * len(frame) > 5 * BUDGET_BYTES
    senders = [
        threading.Thread(target=client.socket.sendall, args=[frame * in_turn]) for client in clients
    ]
    for sender in senders:
        sender.start()
    for client in clients:
        for _ in range(in_turn):
            answer = client.receive(KEYS["Fetch"], 12, 7)
            assert sum(len(each.partitions) for each in answer.responses) == 10 * MANY
    for sender, client in zip(senders, clients, strict=True):
        sender.join()
        client.socket.close()


def test_a_frame_that_is_kept_beside_what_python_has_of_it_counts_as_well(tmp_path: Path) -> None:
    """A Metadata request whose topics Python makes is answered by Rust afterwards, and so is in
    memory twice: what was kept was not counted. Python gets the names alone of a large one."""
    padding = bytes(BUDGET_BYTES - 10_000)
    asked = messages.MetadataRequest(
        topics=[messages.MetadataRequest.MetadataRequestTopic(name="new")],
        allow_auto_topic_creation=True,
    )
    # A tagged field of a later version.
    body = asked.encode(9)[:-1] + b"\x01\x64" + uvarint(len(padding)) + padding
    slow = Mount(tmp_path)
    config = {
        "log.dirs": str(slow.path / "logs"),
        "queued.max.request.bytes": str(BUDGET_BYTES),
        "num.network.threads": "1",
    }
    with contextlib.ExitStack() as stack:
        stack.callback(slow.unmount)
        broker = stack.enter_context(kafkalite.Broker(config=config))
        maker, fetcher, other = (
            stack.enter_context(Connection(broker.bootstrap_servers)) for _ in range(3)
        )
        assert other.create_topic("t").error_code == 0
        slow.freeze()
        try:
            made = maker.send(KEYS["Metadata"], 9, body)
            # So that the broker has it before the next one.
            other.ask("ApiVersions", 3, VERSIONS)
            sent = fetcher.send(KEYS["Fetch"], 12, fetch_of_many(fetcher).encode(12))
            fetcher.receive(KEYS["Fetch"], 12, sent)
        finally:
            slow.thaw()
        assert maker.receive(KEYS["Metadata"], 9, made).topics[0].error_code in (0, 5)


def uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def ports(broker: kafkalite.Broker) -> set[int]:
    """Those of the clients that the broker has connections to."""
    connections = psutil.Process(broker.pid).net_connections("tcp")
    return {each.raddr.port for each in connections if each.raddr}


@pytest.mark.long
def test_who_reads_no_answers_is_closed_though_it_asks_for_more(
    scarce: kafkalite.Broker,
) -> None:
    """It had left almost 1 MB unread, and waited for records for as long as it liked: so did as
    many as came, far beyond the memory that there was for them."""
    with (
        Connection(scarce.bootstrap_servers) as reader,
        Connection(scarce.bootstrap_servers) as one,
    ):
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        one.socket.sendall(framed("ApiVersions", 3, VERSIONS))
        answer_bytes = 4 + len(one.receive_frame() or b"")
        fetch = reader.fetch_request("t", 0, max_wait_ms=LONG_MS, min_bytes=1 << 20)
        count = (900 << 10) // answer_bytes
        asked = framed("ApiVersions", 3, VERSIONS) * count + framed("Fetch", 12, fetch)
        reader.socket.sendall(asked)
        port = reader.socket.getsockname()[1]
        began = time.monotonic()
        while port in ports(scarce):
            assert time.monotonic() - began < 30
            time.sleep(0.2)  # between polls of the system
        assert one.ask("Metadata", 9, ASK).brokers


@pytest.mark.long
def test_who_does_not_send_the_rest_of_a_frame_is_closed_though_it_waits_for_an_answer(
    scarce: kafkalite.Broker,
) -> None:
    """The frame had its memory for as long as a Fetch before it waited."""
    with Connection(scarce.bootstrap_servers) as hoarder:
        fetch = hoarder.fetch_request("t", 0, max_wait_ms=LONG_MS, min_bytes=1 << 20)
        record = batch([bytes(2 * BUDGET_BYTES)])
        frame = framed("Produce", 9, hoarder.produce_request("t", record))
        # Its buffer is larger than the memory.
        hoarder.socket.sendall(framed("Fetch", 12, fetch) + frame[:BUDGET_BYTES])
        assert hoarder.is_closed()


@pytest.mark.long
def test_who_sends_a_byte_now_and_then_is_closed_and_who_has_a_slow_link_is_not(
    scarce: kafkalite.Broker,
) -> None:
    """A byte every nine seconds kept the room of a whole frame for ever."""
    record = batch([bytes(320_000)])
    # More than a receive buffer: each gets twice that, which is more than the memory.
    begun_bytes, step_bytes = 140_000, 2_000
    with (
        Connection(scarce.bootstrap_servers) as hoarder,
        Connection(scarce.bootstrap_servers) as honest,
    ):
        frame = framed("Produce", 9, honest.produce_request("t", record))
        for client in (honest, hoarder):
            client.socket.sendall(frame[:begun_bytes])
        closed_after_s = None
        for second, at in enumerate(range(begun_bytes, len(frame) - step_bytes, step_bytes)):
            honest.socket.sendall(frame[at : at + step_bytes])
            if closed_after_s is None:
                if second % 5 == 4:
                    with contextlib.suppress(OSError):
                        hoarder.socket.sendall(
                            frame[begun_bytes + second : begun_bytes + second + 1]
                        )
                if select.select([hoarder.socket], [], [], 0)[0]:
                    closed_after_s = second
            # A link of so much a second, over which nothing comes back meanwhile.
            assert not select.select([honest.socket], [], [], 1)[0]
        honest.socket.sendall(frame[at + step_bytes :])
        answer = honest.receive(0, 9, 7).responses[0].partition_responses[0]
        assert answer.error_code == 0
        assert closed_after_s is not None and closed_after_s > 30
        assert hoarder.is_closed()


def claim(size_bytes: int) -> bytes:
    """The beginning of a Produce request that says that it is so large."""
    content = struct.pack(">hhih", KEYS["Produce"], 9, 1, 4) + b"evil" + b"\0"
    return struct.pack(">i", size_bytes) + content + bytes(9_000)


def test_what_frames_claim_to_be_keeps_nobody_out() -> None:
    """Each reserved what it claimed, so that three of them took all memory, and used none: who
    produced a megabyte waited for half a minute and was closed."""
    budget_bytes = 8 << 20
    config = {"queued.max.request.bytes": str(budget_bytes), "num.network.threads": "1"}
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(kafkalite.Broker(config=config))
        producer = stack.enter_context(Connection(broker.bootstrap_servers))
        assert producer.create_topic("t").error_code == 0
        for _ in range(24):
            each = stack.enter_context(Connection(broker.bootstrap_servers))
            each.socket.sendall(claim(100_000_000))
        started = time.monotonic()
        asked = producer.produce_request("t", batch([bytes(900_000)]))
        answer = producer.ask("Produce", 9, asked).responses[0].partition_responses[0]
        assert answer.error_code == 0
        assert time.monotonic() - started < 10


def test_who_comes_when_memory_is_used_up_takes_a_few_kilobytes_until_there_is_some(
    scarce: kafkalite.Broker,
) -> None:
    """Of each new frame a receive buffer was filled, and more, before anybody looked."""
    count, kept_bytes = 200, 8 * 1024
    with contextlib.ExitStack() as stack:
        process = psutil.Process(scarce.pid)
        other = stack.enter_context(Connection(scarce.bootstrap_servers))
        for _ in range(2):
            each = stack.enter_context(Connection(scarce.bootstrap_servers))
            each.socket.sendall(claim(100_000_000) + bytes(LARGE_BYTES))
            assert other.ask("Metadata", 9, ASK).brokers
        clients = [stack.enter_context(Connection(scarce.bootstrap_servers)) for _ in range(count)]
        assert other.ask("Metadata", 9, ASK).brokers
        before_bytes = process.memory_info().rss
        for client in clients:
            client.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.socket.sendall(claim(100_000_000) + bytes(LARGE_BYTES))
        for _ in range(10):
            assert other.ask("Metadata", 9, ASK).brokers
        taken_bytes = process.memory_info().rss - before_bytes
        assert taken_bytes < 4 * count * kept_bytes


@pytest.mark.long
def test_who_trickles_goes_before_those_who_wait(scarce: kafkalite.Broker) -> None:
    """A kilobyte a second kept all others from exceeding the memory, for as long as it took; closed
    were those who had done nothing but wait, after half a minute."""
    record = batch([bytes(LARGE_BYTES)])
    begun_bytes = 9_000
    with contextlib.ExitStack() as stack:
        other, trickler, *clients = (
            stack.enter_context(Connection(scarce.bootstrap_servers)) for _ in range(5)
        )
        frames = [framed("Produce", 9, each.produce_request("t", record)) for each in clients]

        def send(client: Connection, sent: bytes) -> None:
            """And waits for the broker to have looked at it."""
            client.socket.sendall(sent)
            assert other.ask("Metadata", 9, ASK).brokers

        send(trickler, claim(100_000_000))
        # Each has a receive buffer, and three are more than the memory; the fourth waits for some.
        for client, frame in zip(clients, frames, strict=True):
            send(client, frame[:begun_bytes])
        # Its buffer is full: it gets a larger one, and nobody else does.
        send(trickler, bytes(130_000))
        senders = [
            threading.Thread(target=client.socket.sendall, args=[frame[begun_bytes:]])
            for client, frame in zip(clients, frames, strict=True)
        ]
        for sender in senders:
            sender.start()
        deadline_s = time.monotonic() + 60
        while not select.select([trickler.socket], [], [], 1)[0]:
            assert time.monotonic() < deadline_s
            with contextlib.suppress(OSError):
                trickler.socket.sendall(bytes(1_500))
        assert trickler.is_closed()
        for client in clients:
            answer = client.receive(0, 9, 7).responses[0].partition_responses[0]
            assert answer.error_code == 0
        for sender in senders:
            sender.join()


def test_who_is_idle_holds_no_memory_by_a_long_name(scarce: kafkalite.Broker) -> None:
    """A name that memory was counted for was kept until the next request, and so were those who
    were idle closed for it after ten seconds; until then nobody else had any."""
    name = "n" * 30_000
    idle = [Connection(scarce.bootstrap_servers) for _ in range(BUDGET_BYTES // len(name) + 1)]
    for each in idle:
        body = VERSIONS.encode(3)
        each.socket.sendall(request_frame(KEYS["ApiVersions"], 3, body, client_id=name))
        assert each.receive(KEYS["ApiVersions"], 3, 7).error_code == 0
    with (
        Connection(scarce.bootstrap_servers) as slow,
        Connection(scarce.bootstrap_servers) as other,
    ):
        record = batch([bytes(LARGE_BYTES)])
        # Whatever the memory, one frame may come in.
        slow.socket.sendall(
            framed("Produce", 9, slow.produce_request("t", record))[:BEGINNING_BYTES]
        )
        assert other.ask("Metadata", 9, ASK).brokers
        started = time.monotonic()
        answer = other.ask("Produce", 9, other.produce_request("t", record))
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert time.monotonic() - started < 5
    for each in idle:
        assert each.ask("Metadata", 9, ASK).brokers
        each.socket.close()
