"""One connection: frames in pieces, late answers, broken ones, versions."""

import signal
import socket
import struct
import threading
import time
from typing import Any

import pytest

from client.fake import Close, FakeBroker, frame
from kafkalite.client import Connection
from kafkalite.errors import ConnectionFailedError, RequestTimedOutError, UnsupportedVersionError
from kafkalite.protocol import messages

CLUSTER = messages.DescribeClusterRequest()


def cluster_response() -> Any:
    return messages.DescribeClusterResponse(cluster_id="c" * 30, controller_id=1)


def test_an_answer_that_comes_byte_by_byte_is_one_answer() -> None:
    with FakeBroker() as broker:
        sockets = broker._sockets

        def dribble(name: str, request: Any) -> Any:
            if name != "DescribeCluster":
                return ...
            for byte in frame(request, cluster_response()):
                sockets[-1].sendall(bytes([byte]))
            return None

        broker._handler = dribble
        with Connection(broker.host, broker.port) as connection:
            assert connection.request(CLUSTER).cluster_id == "c" * 30


def test_a_missing_answer_is_named_and_ends_the_connection() -> None:
    with (
        FakeBroker(lambda name, *_: None if name == "DescribeCluster" else ...) as broker,
        Connection(broker.host, broker.port) as connection,
    ):
        started = time.monotonic()
        with pytest.raises(RequestTimedOutError, match="DescribeCluster within 200 ms"):
            connection.request(CLUSTER, timeout_ms=200)
        assert 0.19 < time.monotonic() - started < 25
        assert not connection.is_open
        with pytest.raises(ConnectionFailedError, match="closed"):
            connection.request(CLUSTER)


def test_an_interrupted_request_ends_the_connection() -> None:
    """Its answer would be taken for that of the next."""

    def interrupt(name: str, *_: Any) -> Any:
        if name != "DescribeCluster":
            return ...
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return None

    # A shell has what it starts in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            FakeBroker(interrupt) as broker,
            Connection(broker.host, broker.port) as connection,
        ):
            with pytest.raises(KeyboardInterrupt):
                connection.request(CLUSTER)
            assert not connection.is_open
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupted:
    """A socket in the midst of whose first request Ctrl-C comes."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sendall(self, frame: bytes) -> None:
        self._inner.sendall(frame[:7])
        raise KeyboardInterrupt


def test_a_request_that_is_sent_in_part_ends_the_connection() -> None:
    """What consumers and producers sent next on it was taken for the rest."""
    with FakeBroker() as broker, Connection(broker.host, broker.port) as connection:
        connection._socket = Interrupted(connection._socket)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            connection.send(CLUSTER)
        assert not connection.is_open


def test_an_answer_that_cannot_be_read_ends_the_connection() -> None:
    def lie(name: str, request: Any) -> Any:
        if name != "DescribeCluster":
            return ...
        return struct.pack(">iibb", 6, request.correlation_id, 0, 1)

    with FakeBroker(lie) as broker, Connection(broker.host, broker.port) as connection:
        with pytest.raises(ConnectionFailedError, match="does not answer as a broker: malformed"):
            connection.request(CLUSTER)
        assert not connection.is_open


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\1\0abc"])
def test_a_connection_that_ends_within_an_answer_is_an_error(sent: bytes) -> None:
    with (
        FakeBroker(lambda name, *_: Close(sent) if name == "DescribeCluster" else ...) as broker,
        Connection(broker.host, broker.port) as connection,
        pytest.raises(ConnectionFailedError, match=r"before it answered DescribeCluster|broke"),
    ):
        connection.request(CLUSTER)


def test_an_answer_to_another_request_is_not_taken() -> None:
    def lie(name: str, request: Any) -> Any:
        if name != "DescribeCluster":
            return ...
        return frame(request, cluster_response(), correlation_id=request.correlation_id + 1)

    with (
        FakeBroker(lie) as broker,
        Connection(broker.host, broker.port) as connection,
        pytest.raises(ConnectionFailedError, match="was due"),
    ):
        connection.request(CLUSTER)


def test_a_web_server_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()

        def answer() -> None:
            one, _ = listener.accept()
            with one:
                one.recv(100)
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                one.recv(100)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionFailedError, match="does not answer as a Kafka broker"):
            Connection(host, port)
        thread.join(10)


def test_a_port_where_nobody_listens_is_told_at_once() -> None:
    # It has the port meanwhile, so that no other gets it, and does not listen.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        host, port = silent.getsockname()
        with pytest.raises(ConnectionFailedError, match=f"no broker answers at {host}:{port}"):
            Connection(host, port)


def test_requests_sent_one_after_the_other_are_answered_in_order() -> None:
    def number(name: str, request: Any) -> Any:
        if name != "DescribeCluster":
            return ...
        return messages.DescribeClusterResponse(cluster_id=str(request.correlation_id))

    with FakeBroker(number) as broker, Connection(broker.host, broker.port) as connection:
        sent = [connection.send(CLUSTER) for _ in range(50)]
        got = [int(connection.receive(10_000).cluster_id) for _ in range(50)]
        assert got == sent
        assert connection.receive_ready is not None
        assert connection.awaited_count == 0


def test_an_old_broker_answers_the_versions_it_knows() -> None:
    def old(name: str, request: Any) -> Any:
        if name != "ApiVersions":
            return ...
        body = broker.api_versions()
        body.error_code = 35 if request.version > 0 else 0
        return struct.pack(">ii", 4 + len(body.encode(0)), request.correlation_id) + body.encode(0)

    with FakeBroker(old) as broker, Connection(broker.host, broker.port) as connection:
        assert [request.version for request in broker.seen] == [4, 0]
        assert connection.version_for("Metadata") == 13


def test_the_highest_version_of_both_is_spoken() -> None:
    with (
        FakeBroker(versions={"Metadata": (0, 9), "Fetch": (30, 40)}) as broker,
        Connection(broker.host, broker.port) as connection,
    ):
        connection.request(messages.MetadataRequest(topics=None))
        assert broker.seen[-1].version == 9
        assert connection.version_for("Metadata", at_most=7) == 7
        with pytest.raises(UnsupportedVersionError, match="speaks versions 30 to 40 of Fetch"):
            connection.version_for("Fetch")
        with pytest.raises(UnsupportedVersionError, match="does not support AlterConfigs"):
            connection.version_for("AlterConfigs")
        assert not connection.supports("AlterConfigs")


def test_a_broker_that_is_to_be_spared_is_asked_later() -> None:
    """`throttle_time_ms` (KIP-219) was not looked at."""

    def throttle(name: str, _request: Any) -> Any:
        if name != "DescribeCluster":
            return ...
        return messages.DescribeClusterResponse(throttle_time_ms=500)

    with FakeBroker(throttle) as broker, Connection(broker.host, broker.port) as connection:
        started = time.monotonic()
        connection.request(CLUSTER)
        connection.request(CLUSTER)
        assert time.monotonic() - started >= 0.5


def test_a_request_to_a_broker_that_is_to_be_spared_keeps_its_time() -> None:
    """It was sent when its time was over, and then had as much time again. What an earlier answer
    has asked for, a later one with less does not take back."""
    asked_ms = [3_600_000, 1]

    def throttle(name: str, _request: Any) -> Any:
        if name != "DescribeCluster":
            return ...
        return messages.DescribeClusterResponse(throttle_time_ms=asked_ms.pop(0))

    with FakeBroker(throttle) as broker, Connection(broker.host, broker.port) as connection:
        for _ in range(2):
            connection.send(CLUSTER)
        for _ in range(2):
            connection.receive(10_000)
        with pytest.raises(RequestTimedOutError, match="accepts no requests for another 3"):
            connection.request(CLUSTER, timeout_ms=50)
        assert connection.is_open
        assert len([each for each in broker.seen if each.name == "DescribeCluster"]) == 2
