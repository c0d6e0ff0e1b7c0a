"""What many, idle and silent clients of the Arrow endpoint cost, and what happens to a read whose
log changes under it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import socket
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow
import pytest

import kafkalite
from api.raw import Connection
from arrow.endpoint import connect, endpoint_of, frame, read, read_request
from kafkalite._native import BatchBuilder
from kafkalite.client.admin import EARLIEST, TOPIC, Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LISTENER = {"kafkalite.arrow.listener": "127.0.0.1:0"}
CONNECTIONS_MAX = 256
IDLE_S = 4.0
WAIT_S = 60.0
MIB = 1 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    # The records are of 2023: retention takes them where a test says so.
    retention = {"log.retention.ms": "-1", "log.retention.check.interval.ms": "100"}
    config = {**LISTENER, **retention}
    with kafkalite.Broker(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def endpoint(broker: kafkalite.Broker) -> str:
    return endpoint_of(broker)


def fill(broker: kafkalite.Broker, topic: str, megabytes: int, **config: str) -> int:
    """A topic with values that do not compress, 100 KB each; returns how many."""
    builder = BatchBuilder()
    for _ in range(10):
        builder.append(1_700_000_000_000, None, os.urandom(100_000))
    records = builder.finish()
    with Connection(broker.bootstrap_servers) as connection:
        assert connection.create_topic(topic, **config).error_code == 0
        for _ in range(megabytes):
            assert connection.produce(topic, records).error_code == 0
    return 10 * megabytes


def until(is_so: Callable[[], bool]) -> None:
    """Polls for what no socket tells."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # the pause of this poll


def is_open(broker: kafkalite.Broker, client: socket.socket) -> bool:
    """Whether the broker still holds its end."""
    port = client.getsockname()[1]
    held = psutil.Process(broker.pid).net_connections("tcp")
    return any(each.raddr and each.raddr.port == port for each in held)


def offsets_of(answer: Any) -> list[int]:
    return list(pyarrow.ipc.open_stream(answer).read_all()["offset"].to_pylist())


def test_one_connection_more_than_there_may_be_is_told_so_and_the_next_is_served(
    broker: kafkalite.Broker, endpoint: str
) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(endpoint)) for _ in range(CONNECTIONS_MAX)]
        with connect(endpoint) as one_more, one_more.makefile("rb") as answer:
            told = answer.read()
        assert told.endswith(b"the Arrow endpoint has 256 connections, and takes no more")
        count = fill(broker, "crowded", 1)
        for client in (held[0], held[-1]):
            client.sendall(read_request("crowded", columns=["offset"]))
            with client.makefile("rb") as answer:
                assert offsets_of(answer) == list(range(count))
        # One goes; its seat is free before the server closes its own end.
        held[17].shutdown(socket.SHUT_WR)
        assert held[17].recv(1) == b""
        assert read(endpoint, topic="crowded", partition=0).num_rows == count


def test_connections_on_which_nothing_moves_are_closed() -> None:
    idle = {"connections.max.idle.ms": str(int(IDLE_S * 1000))}
    with kafkalite.Broker(config={**LISTENER, **idle}) as broker:
        endpoint = endpoint_of(broker)
        count = fill(broker, "idle", 40)
        with (
            connect(endpoint) as busy,
            connect(endpoint) as silent,
            connect(endpoint) as unread,
            connect(endpoint) as half,
            busy.makefile("rb") as answers,
        ):
            started = time.monotonic()
            half.sendall(b"\0\0")
            unread.sendall(read_request("idle"))
            waiting = {silent, half}
            rounds = 0
            # A client that asks again and again stays, for longer than a silent one may.
            while waiting or is_open(broker, unread):
                busy.sendall(read_request("idle", start=rounds % count, stop=rounds % count + 1))
                assert pyarrow.ipc.open_stream(answers).read_all().num_rows == 1
                rounds += 1
                ready, _, _ = select.select(waiting, [], [], IDLE_S / 20)
                for each in ready:
                    assert each.recv(1) == b""
                waiting.difference_update(ready)
                assert time.monotonic() - started < WAIT_S
            assert time.monotonic() - started > IDLE_S * 0.9
            with unread.makefile("rb") as answer, pytest.raises((OSError, pyarrow.ArrowInvalid)):
                pyarrow.ipc.open_stream(answer).read_all()


def test_clients_that_do_not_read_cost_a_batch_each_however_long_the_log_is(
    broker: kafkalite.Broker, endpoint: str
) -> None:
    silent, megabytes = 8, 60
    count = fill(broker, "unread", megabytes)
    process = psutil.Process(broker.pid)
    # The allocator keeps what one whole read took.
    assert read(endpoint, topic="unread", partition=0).num_rows == count
    before = process.memory_info().rss
    with contextlib.ExitStack() as stack:
        for _ in range(silent):
            client = stack.enter_context(connect(endpoint))
            client.sendall(read_request("unread"))
            assert client.recv(1)
        _rest(process)
        held = process.memory_info().rss - before
    # 4 MiB of values are a batch; a read keeps that, a few hundred KiB of the log, and its thread.
    assert held < silent * 8 * MIB, f"{held / MIB:.0f} MiB for {silent} readers"


def test_clients_that_do_not_read_hold_a_part_of_a_compressed_batch(
    broker: kafkalite.Broker, endpoint: str
) -> None:
    """Each held all of what the batch at hand inflates to, 96 MB of 200 KB."""
    silent = 6
    builder = BatchBuilder("zstd")
    for _ in range(96):
        builder.append(1_700_000_000_000, None, os.urandom(2_000) + bytes(MIB))
    with Connection(broker.bootstrap_servers) as connection:
        assert connection.create_topic("inflates").error_code == 0
        assert connection.produce("inflates", builder.finish()).error_code == 0
    asked: dict[str, Any] = {"batch.bytes": 100_000, "columns": ["offset", "value"]}
    process = psutil.Process(broker.pid)
    assert read(endpoint, topic="inflates", partition=0, **asked).num_rows == 96
    before = process.memory_info().rss
    with contextlib.ExitStack() as stack:
        for _ in range(silent):
            client = stack.enter_context(connect(endpoint))
            client.sendall(read_request("inflates", **asked))
            assert client.recv(1)
        _rest(process)
        held = process.memory_info().rss - before
    # A record is a batch of 1 MiB; beside it there are a window, and what zstd needs.
    assert held < silent * 16 * MIB, f"{held / MIB:.0f} MiB for {silent} readers"


def _rest(process: psutil.Process) -> None:
    """Returns when the process does nothing: its readers wait for their clients."""
    spent = [-1.0]

    def is_resting() -> bool:
        times = process.cpu_times()
        spent.append(times.user + times.system)
        last = spent[-15:]
        return len(last) == 15 and last[0] == last[-1]

    until(is_resting)


def test_retention_under_a_read_ends_it_with_a_sentence(
    broker: kafkalite.Broker, endpoint: str
) -> None:
    told = _read_under_retention(broker, endpoint, "expires")
    assert told.endswith(
        b" was deleted while it was being read: the log starts at 400 now "
        b"(failOnDataLoss=false goes on with what there is)"
    )
    assert b"expires-0: offset " in told


def test_a_read_that_takes_losses_goes_on_where_the_log_starts_now(
    broker: kafkalite.Broker, endpoint: str
) -> None:
    """The reader was not told: rows were missing as if there had never been any."""
    told = io.BytesIO(
        _read_under_retention(broker, endpoint, "skips", **{"fail.on.data.loss": False})
    )
    offsets = offsets_of(told)
    # What was on its way has come, from the first record on and without a gap.
    assert offsets == list(range(len(offsets)))
    assert 0 < len(offsets) < 400
    length = int.from_bytes(told.read(4), "big")
    (sentence,) = json.loads(told.read(length))["losses"]
    assert sentence == (
        f"skips-0: offset {len(offsets)} was deleted while it was being read: the log starts at "
        "400 now"
    )
    assert told.read() == b""


def _read_under_retention(
    broker: kafkalite.Broker, endpoint: str, topic: str, **request: Any
) -> bytes:
    """What is sent in all of a read that retention overtakes, and of its losses."""
    assert fill(broker, topic, 40, segment_bytes="1048576") == 400
    with connect(endpoint) as client, Admin(broker.bootstrap_servers) as admin:
        client.sendall(read_request(topic, **{"batch.bytes": 200_000}, **request))
        client.sendall(frame({"op": "losses"}))
        client.shutdown(socket.SHUT_WR)
        first = client.recv(1)
        admin.alter_configs(TOPIC, topic, {"retention.ms": "1000"})
        place = (topic, 0)
        until(lambda: admin.list_offsets({place: EARLIEST})[place].offset == 400)
        with client.makefile("rb") as answer:
            return first + answer.read()


def test_a_read_ends_where_the_log_ended_when_it_began(
    broker: kafkalite.Broker, endpoint: str
) -> None:
    count = fill(broker, "grows", 20)
    builder = BatchBuilder("lz4")
    builder.append(1, None, b"later")
    later = builder.finish()
    with connect(endpoint) as client, Connection(broker.bootstrap_servers) as connection:
        client.sendall(read_request("grows", columns=["offset", "value"]))
        client.shutdown(socket.SHUT_WR)
        first = client.recv(1)
        for _ in range(5):
            assert connection.produce("grows", later).error_code == 0
        with client.makefile("rb") as answer:
            offsets = offsets_of(first + answer.read())
    assert offsets == list(range(count))
    assert read(endpoint, topic="grows", partition=0).num_rows == count + 5


def test_reads_beside_a_producer_have_every_record_below_their_end(
    broker: kafkalite.Broker, endpoint: str
) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        assert connection.create_topic("beside").error_code == 0
    ends: list[int] = [0]
    is_over = threading.Event()

    def produce() -> None:
        builder = BatchBuilder("zstd")
        for number in range(50):
            builder.append(1, None, b"%d" % number * 20)
        records = builder.finish()
        with Connection(broker.bootstrap_servers) as connection:
            while not is_over.is_set():
                assert connection.produce("beside", records).error_code == 0
                ends.append(ends[-1] + 50)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        sizes = []
        deadline = time.monotonic() + WAIT_S
        while len(sizes) < 10 or len(set(sizes)) < 3:
            assert time.monotonic() < deadline
            acknowledged = ends[-1]
            offsets = read(endpoint, topic="beside", partition=0)["offset"].to_pylist()
            assert offsets == list(range(len(offsets)))
            assert acknowledged <= len(offsets)
            sizes.append(len(offsets))
    finally:
        is_over.set()
        producer.join()
    assert all(one <= two for one, two in pairwise(sizes))
