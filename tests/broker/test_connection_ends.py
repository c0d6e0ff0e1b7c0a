"""What becomes of the requests of a connection that ends: by its client, or by a refusal."""

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator

import psutil
import pytest

import kafkalite
from api.batches import batch
from api.group_requests import find_coordinator, join_request
from api.raw import KEYS, Connection, request_frame
from kafkalite.protocol import messages

PROMPT_S = 20.0
"""Long on a busy machine, and short against the waits that these tests ask for."""
LONG_MS = 600_000
FETCH, METADATA, PRODUCE = KEYS["Fetch"], KEYS["Metadata"], KEYS["Produce"]
JOIN = KEYS["JoinGroup"]


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    """Its topic "t" is empty."""
    with kafkalite.Broker(config={"num.network.threads": "1"}) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("t").error_code == 0
        yield broker


@pytest.fixture
def client(broker: kafkalite.Broker) -> Iterator[Connection]:
    with Connection(broker.bootstrap_servers) as client:
        client.socket.settimeout(PROMPT_S)
        yield client


def send_fetch(client: Connection, max_wait_ms: int) -> int:
    request = client.fetch_request("t", 0, max_wait_ms=max_wait_ms)
    return client.send(FETCH, 12, request.encode(12))


def test_a_refusal_with_acks_0_ends_the_connection_though_requests_wait_behind_it(
    client: Connection,
) -> None:
    """A request that waited behind another one when the log refused the records was neither
    answered nor given up: the connection hung until it had been idle for ten minutes."""
    spoilt = bytearray(batch([b"spoilt"]))
    spoilt[-2] ^= 1
    refused = client.produce_request("t", bytes(spoilt), acks=0)
    metadata = messages.MetadataRequest(topics=[])
    # In one piece, so that all of it is there when the log is asked.
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    client.send(PRODUCE, 9, refused.encode(9))
    fetch = send_fetch(client, 100)
    client.send(METADATA, 9, metadata.encode(9))
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    client.receive(FETCH, 12, fetch)
    assert client.is_closed()


def test_who_sends_what_is_not_spoken_does_not_wait_for_records(client: Connection) -> None:
    """It was refused no sooner than a good request would have begun: when the time of the Fetch
    before it was over, or, where memory was short, when there was some."""
    fetch = send_fetch(client, LONG_MS)
    client.send(PRODUCE, 2, b"")
    answer = client.receive(FETCH, 12, fetch)
    assert not answer.responses[0].partitions[0].records
    assert client.is_closed()


def test_who_sends_no_more_does_not_wait_for_records(client: Connection) -> None:
    """A consumer that had gone kept its connection until the time of its Fetch was over."""
    fetch = send_fetch(client, LONG_MS)
    client.socket.shutdown(socket.SHUT_WR)
    answer = client.receive(FETCH, 12, fetch)
    assert not answer.responses[0].partitions[0].records
    assert client.is_closed()


def test_a_fetch_that_is_begun_after_its_client_has_gone_does_not_wait_either(
    client: Connection,
) -> None:
    fetches = [send_fetch(client, LONG_MS) for _ in range(3)]
    client.socket.shutdown(socket.SHUT_WR)
    for fetch in fetches:
        client.receive(FETCH, 12, fetch)
    assert client.is_closed()


@pytest.mark.long
def test_clients_that_went_while_they_waited_for_their_group_hold_no_connections() -> None:
    """Each kept its connection until the rebalance was over: those of clients that came again and
    again filled `max.connections`."""
    config = {
        "group.initial.rebalance.delay.ms": "120000",
        "max.connections": "3",
        "num.network.threads": "1",
    }
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            find_coordinator(connection, "g")
        for _ in range(3):
            with Connection(broker.bootstrap_servers) as gone:
                request = join_request("g", rebalance_ms=120_000)
                gone.send(JOIN, 3, request.encode(3))
                # It sends no more, and nobody will read the answer.
                gone.socket.shutdown(socket.SHUT_WR)
        with Connection(broker.bootstrap_servers) as client:
            client.socket.settimeout(2 * PROMPT_S)
            assert client.ask("Metadata", 9, messages.MetadataRequest(topics=[])).brokers


def test_a_request_that_cannot_be_read_leaves_the_answers_before_it(
    broker: kafkalite.Broker,
) -> None:
    """Where Python refused it, what the client had not read yet of earlier answers was dropped with
    the connection. Kafka reads a request when the answer before it has been sent."""
    versions = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    asked = request_frame(KEYS["ApiVersions"], 3, versions.encode(3))
    with (
        Connection(broker.bootstrap_servers) as reader,
        Connection(broker.bootstrap_servers) as other,
    ):
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        other.socket.sendall(asked)
        answer_bytes = 4 + len(other.receive_frame() or b"")
        # Less than a connection may leave unread before its next request is looked at.
        count = (900 << 10) // answer_bytes
        reader.socket.sendall(asked * count)
        reader.send(KEYS["DescribeConfigs"], 4, b"\xff\xff\xff")
        # Until the broker has come to the last one, among the other's requests.
        for _ in range(100):
            find_coordinator(other, "g")
        for _ in range(count):
            assert reader.receive_frame() is not None
        assert reader.is_closed()


def test_who_sends_no_more_gets_the_answers_to_all_it_asked(client: Connection) -> None:
    ask = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]).encode(4)
    sent = [client.send(KEYS["FindCoordinator"], 4, ask) for _ in range(50)]
    client.socket.shutdown(socket.SHUT_WR)
    for number in sent:
        assert client.receive(KEYS["FindCoordinator"], 4, number).coordinators
    assert client.is_closed()


def test_time_outs_that_get_shorter_and_shorter_cost_no_more_than_others(
    broker: kafkalite.Broker, client: Connection
) -> None:
    """Each had a timer that was kept for as long as it said, and all of them were looked through
    for dead ones at each further one: minutes of CPU for requests of a second."""
    process = psutil.Process(broker.pid)
    assert client.create_topic("u").error_code == 0
    request = client.produce_request("u", batch([b"x"]), acks=1)
    mark = 0x1020304
    request.timeout_ms = mark
    frame = request_frame(PRODUCE, 9, request.encode(9))
    before, after = frame.split(struct.pack(">i", mark))
    at_once = 200

    def cpu_s(time_outs_ms: range) -> float:
        began = process.cpu_times()
        answers = 0
        for at in range(0, len(time_outs_ms), at_once):
            part = time_outs_ms[at : at + at_once]
            client.socket.sendall(b"".join(before + struct.pack(">i", ms) + after for ms in part))
            for _ in part:
                assert client.receive_frame()
                answers += 1
        assert answers == len(time_outs_ms)
        ended = process.cpu_times()
        return ended.user + ended.system - began.user - began.system

    step_ms, count = 30_000, 60_000
    # First: behind a shorter one no longer one has a timer.
    shrinking_s = cpu_s(range(step_ms * count, 0, -step_ms))
    growing_s = cpu_s(range(step_ms, step_ms * (count + 1), step_ms))
    assert shrinking_s < 5 * growing_s + 2, f"{shrinking_s} s instead of {growing_s} s"


def test_a_connection_is_idle_from_its_last_answer_on() -> None:
    """It was so from its last request on: one that had just been answered, late, was closed."""
    config = {"connections.max.idle.ms": "4000", "num.network.threads": "1"}
    with (
        kafkalite.Broker(config=config) as broker,
        Connection(broker.bootstrap_servers) as client,
    ):
        assert client.create_topic("t").error_code == 0
        client.socket.settimeout(PROMPT_S)
        began = time.monotonic()
        client.receive(FETCH, 12, send_fetch(client, 3000))
        assert client.is_closed()
        assert time.monotonic() - began > 3.0 + 3.9


def test_who_asks_while_the_broker_is_stopped_is_not_idle() -> None:
    """Idle connections went before what had come was looked at: after a SIGSTOP, or on a machine
    that stood still, all whose time was over meanwhile, with their requests unanswered."""
    idle_ms = 1000
    config = {"connections.max.idle.ms": str(idle_ms), "num.network.threads": "1"}
    with (
        kafkalite.Broker(config=config) as broker,
        Connection(broker.bootstrap_servers) as client,
    ):
        client.socket.settimeout(PROMPT_S)
        request = messages.MetadataRequest(topics=[])
        client.ask("Metadata", 1, request)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            correlation_id = client.send(METADATA, 1, request.encode(1))
            time.sleep(2 * idle_ms / 1000)  # the fault lasts longer than may be idle
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert client.receive(METADATA, 1, correlation_id).brokers
        assert client.is_closed(), "it is idle now"
