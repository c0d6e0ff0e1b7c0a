"""What connections may take: their number, their memory, their share of a network thread."""

import contextlib
import os
import resource
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import kafkalite
from api.batches import batch
from api.config_cases import BROKER, DELETE, SET
from api.configs import change
from api.raw import KEYS, Connection, request_frame
from kafkalite._native import BatchBuilder
from kafkalite.protocol import messages

PRODUCE, METADATA = KEYS["Produce"], KEYS["Metadata"]
NO_TOPICS = messages.MetadataRequest(topics=[])
ALL_TOPICS: bytes = messages.MetadataRequest(topics=None).encode(1)


def is_served(connection: Connection) -> bool:
    connection.ask("Metadata", 1, NO_TOPICS)
    return True


def large_batch(size: int) -> bytes:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, bytes(size))
    return builder.finish()


def is_silent(connection: Connection, seconds: float) -> bool:
    readable, _, _ = select.select([connection.socket], [], [], seconds)
    return not readable


def test_an_address_with_too_many_connections_is_turned_away() -> None:
    config = {"max.connections.per.ip": "100", "max.connections.per.ip.overrides": "127.0.0.1:2"}
    with kafkalite.Broker(config=config) as broker:
        first, second = (Connection(broker.bootstrap_servers) for _ in range(2))
        assert is_served(first)
        assert is_served(second)
        with Connection(broker.bootstrap_servers) as third:
            assert third.is_closed()
        first.socket.close()
        deadline = time.monotonic() + 60
        while True:
            with Connection(broker.bootstrap_servers) as next_one:
                next_one.send(18, 0, b"")
                if not next_one.is_closed():
                    break
            assert time.monotonic() < deadline
        second.socket.close()


@pytest.mark.parametrize("key", ["max.connections", "listener.name.plaintext.max.connections"])
def test_beyond_the_brokers_limit_a_connection_waits_for_another_to_close(key: str) -> None:
    with kafkalite.Broker(config={key: "2"}) as broker:
        first, second = (Connection(broker.bootstrap_servers) for _ in range(2))
        assert is_served(first)
        assert is_served(second)
        third = Connection(broker.bootstrap_servers)
        correlation_id = third.send(18, 0, b"")
        assert is_silent(third, 0.3)
        first.socket.close()
        third.receive(18, 0, correlation_id)
        for connection in (second, third):
            connection.socket.close()


@pytest.mark.parametrize("key", ["max.connections", "listener.name.plaintext.max.connections"])
def test_a_connection_that_waits_comes_in_when_the_limit_is_raised(key: str) -> None:
    with (
        kafkalite.Broker(config={key: "1"}) as broker,
        Connection(broker.bootstrap_servers) as admin,
    ):
        assert is_served(admin)
        with Connection(broker.bootstrap_servers) as waiting:
            correlation_id = waiting.send(18, 0, b"")
            assert is_silent(waiting, 0.3)
            assert change(admin, (BROKER, "1", [(key, SET, "2")])) == [(0, None)]
            waiting.receive(18, 0, correlation_id)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_when_the_limit_is_lowered_those_go_that_have_been_used_least_recently(
    threads: str,
) -> None:
    """Not one too many, whichever threads have them, and the administrator stays."""
    config = {"num.network.threads": threads, "connections.max.idle.ms": "-1"}
    with (
        kafkalite.Broker(config=config) as broker,
        Connection(broker.bootstrap_servers) as admin,
        contextlib.ExitStack() as stack,
    ):
        others = [stack.enter_context(Connection(broker.bootstrap_servers)) for _ in range(8)]
        for limit in (4, 1):
            assert all(map(is_served, others))
            # Whose flushes take longer than the millisecond by which times of use are told apart.
            assert admin.create_topic(f"before-{limit}").error_code == 0
            lower = (BROKER, "", [("max.connections", SET, str(limit))])
            assert change(admin, lower) == [(0, None)]
            closed = closed_of(others, len(others) + 1 - limit)
            others = [each for each in others if each not in closed]
            assert len(others) == limit - 1
            assert is_served(admin)
            assert all(map(is_served, others))
        assert change(admin, (BROKER, "", [("max.connections", DELETE, None)])) == [(0, None)]
        with Connection(broker.bootstrap_servers) as another:
            assert is_served(another)


def closed_of(connections: list[Connection], count: int) -> list[Connection]:
    """Waits until so many are closed."""
    poll = select.poll()
    by_descriptor = {each.socket.fileno(): each for each in connections}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    closed: list[Connection] = []
    while len(closed) < count:
        ended = poll.poll(60_000)
        assert ended, f"{len(closed)} of {count} are closed"
        for descriptor, _ in ended:
            poll.unregister(descriptor)
            assert by_descriptor[descriptor].is_closed()
            closed.append(by_descriptor[descriptor])
    return closed


def test_limits_of_addresses_may_change_while_the_broker_runs() -> None:
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as admin:
        assert is_served(admin)
        for limits, is_let_in in [
            ({"max.connections.per.ip": "1"}, False),
            ({"max.connections.per.ip.overrides": "127.0.0.1:2"}, True),
            ({"max.connections.per.ip": "100"}, True),
            ({"max.connections.per.ip.overrides": "localhost:1"}, False),
            ({"max.connections.per.ip.overrides": "10.0.0.1:1"}, True),
            ({"max.connections.per.ip.overrides": "::ffff:127.0.0.1:1"}, False),
        ]:
            operations = [(key, SET, text) for key, text in limits.items()]
            assert change(admin, (BROKER, "1", list(operations))) == [(0, None)]
            assert is_served_at_last(broker) == is_let_in, limits


def is_served_at_last(broker: kafkalite.Broker) -> bool:
    """Whether one more connection is let in; one that has gone may still count for a moment."""
    with Connection(broker.bootstrap_servers) as another:
        another.send(18, 0, b"")
        return not another.is_closed()


def test_limits_that_are_set_while_the_broker_runs_hold_after_a_restart(tmp_path: Path) -> None:
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as admin:
            limit = (BROKER, "1", [("max.connections.per.ip.overrides", SET, "127.0.0.1:1")])
            assert change(admin, limit) == [(0, None)]
        broker.kill()
        broker.start()
        with (
            Connection(broker.bootstrap_servers) as only,
            Connection(broker.bootstrap_servers) as second,
        ):
            assert is_served(only)
            assert second.is_closed()


@pytest.mark.parametrize(
    "key", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_connections_beyond_the_rate_wait_for_their_time(key: str) -> None:
    """Ten seconds' worth may come at once; what comes then comes by the rate."""
    with kafkalite.Broker(config={key: "2"}) as broker:
        served = burst(broker, 23, time.monotonic())
        assert len(served) == 23
        for number, seconds in enumerate(served[20:], start=1):
            assert seconds > number / 2 - 0.01


def test_the_rate_of_connections_may_change_while_the_broker_runs() -> None:
    key = "max.connection.creation.rate"
    begun = time.monotonic()
    with (
        kafkalite.Broker(config={key: "1000"}) as broker,
        Connection(broker.bootstrap_servers) as admin,
    ):
        assert change(admin, (BROKER, "", [(key, SET, "1")])) == [(0, None)]
        # Those that came before count too.
        assert burst(broker, 12, begun)[-1] > 2.99
        assert change(admin, (BROKER, "", [(key, DELETE, None)])) == [(0, None)]
        assert len(burst(broker, 200, begun)) == 200


def burst(broker: kafkalite.Broker, count: int, begun: float) -> list[float]:
    """Opens connections, all at once, and returns when each was served, seconds since `begun`."""
    with contextlib.ExitStack() as stack:
        each_one = [stack.enter_context(Connection(broker.bootstrap_servers)) for _ in range(count)]
        asked = [(each, each.send(18, 0, b"")) for each in each_one]
        served = []
        for connection, correlation_id in asked:
            connection.receive(18, 0, correlation_id)
            served.append(time.monotonic() - begun)
    return served


def test_a_storm_of_connections_does_not_hold_up_those_that_there_are() -> None:
    """All that had come were taken in before anybody's request was looked at."""
    attempts = 5
    # More than the system lets wait would not come in at once, and not all could be opened here.
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting_max = int(Path("/proc/sys/net/core/somaxconn").read_text())
    count = min(1_000, waiting_max, descriptors // 2)
    config = {"num.network.threads": "1", "socket.listen.backlog.size": str(count)}
    with kafkalite.Broker(config=config) as broker, Connection(broker.bootstrap_servers) as one:
        assert is_served(one)
        process = psutil.Process(broker.pid)
        taken = []
        # Whoever looks is late where the machine is busy: by then some more have been taken in.
        while not taken or (min(taken) > count // 2 and len(taken) < attempts):
            before = process.num_fds()
            # So that it finds them all at once.
            os.kill(broker.pid, signal.SIGSTOP)
            storm = [Connection(broker.bootstrap_servers) for _ in range(count)]
            correlation_id = one.send(METADATA, 1, NO_TOPICS.encode(1))
            os.kill(broker.pid, signal.SIGCONT)
            one.receive(METADATA, 1, correlation_id)
            os.kill(broker.pid, signal.SIGSTOP)
            taken.append(process.num_fds() - before)
            os.kill(broker.pid, signal.SIGCONT)
            for each in storm:
                each.socket.close()
            while process.num_fds() > before:
                assert is_served(one)
        assert min(taken) <= count // 2


def test_an_idle_connection_is_closed_when_its_time_is_over_and_a_busy_one_is_not() -> None:
    with kafkalite.Broker(config={"connections.max.idle.ms": "3000"}) as broker:
        with Connection(broker.bootstrap_servers) as maker:
            assert maker.create_topic("t").error_code == 0
        begun = time.monotonic()
        idle, busy, waiting = (Connection(broker.bootstrap_servers) for _ in range(3))
        fetch = waiting.fetch_request("t", 0, max_wait_ms=6_000)
        correlation_id = waiting.send(1, 12, fetch.encode(12))
        while is_silent(idle, 0.1):
            assert is_served(busy)
            assert time.monotonic() - begun < 60
        assert idle.is_closed()
        assert time.monotonic() - begun > 2.9
        # A Fetch that waits is work of ours.
        waiting.receive(1, 12, correlation_id)
        for connection in (idle, busy, waiting):
            connection.socket.close()


@pytest.fixture(scope="module")
def small() -> Iterator[kafkalite.Broker]:
    """A broker with one network thread and memory for little more than one large request."""
    config = {"queued.max.request.bytes": str(4 << 20), "num.network.threads": "1"}
    with kafkalite.Broker(config=config) as broker:
        yield broker


def test_large_frames_wait_for_memory_and_small_ones_do_not(small: kafkalite.Broker) -> None:
    """As Kafka's memory pool: while anything is left a frame gets what it needs, then all wait."""
    with Connection(small.bootstrap_servers) as creator:
        creator.create_topic("large", max_message_bytes=str(8 << 20))
        record = large_batch(3 << 20)
        openers = [Connection(small.bootstrap_servers) for _ in range(8)]
        frames = []
        for opener in openers:
            request = opener.produce_request("large", record)
            frames.append(request_frame(PRODUCE, 9, request.encode(9)))
        # Half of each frame: two of them fill the memory.
        for opener, frame in zip(openers, frames, strict=True):
            opener.socket.setblocking(False)
            opener.socket.send(frame[: 64 << 10])
        assert is_served(creator)
        before = psutil.Process(small.pid).memory_info().rss

        def finish(opener: Connection, frame: bytes) -> None:
            opener.socket.settimeout(90)
            opener.socket.sendall(frame[64 << 10 :])

        threads = [
            threading.Thread(target=finish, args=pair) for pair in zip(openers, frames, strict=True)
        ]
        for thread in threads:
            thread.start()
        for opener, thread in zip(openers, threads, strict=True):
            thread.join()
            opener.receive(0, 9, 7)
            opener.socket.close()
        assert psutil.Process(small.pid).memory_info().rss - before < 40 << 20


def test_a_reader_that_never_reads_holds_bounded_memory(small: kafkalite.Broker) -> None:
    with Connection(small.bootstrap_servers) as connection:
        for number in range(60):
            connection.create_topic(f"with-a-long-name-{number:-<80}")
        before = psutil.Process(small.pid).memory_info().rss
        readers = [Connection(small.bootstrap_servers) for _ in range(3)]
        # More than the kernel's buffers take on both sides.
        frames = request_frame(METADATA, 1, ALL_TOPICS) * 600_000
        try:
            for reader in readers:
                reader.socket.setblocking(False)
                sent = 0
                while sent < len(frames):
                    _, writable, _ = select.select([], [reader.socket], [], 0.5)
                    if not writable:
                        break
                    sent += reader.socket.send(frames[sent : sent + (1 << 20)])
                assert sent < len(frames), "it is read no further"
            assert is_served(connection)
            # At most a mebibyte of answers each, and what a receive buffer holds.
            assert psutil.Process(small.pid).memory_info().rss - before < 12 << 20
        finally:
            for reader in readers:
                reader.socket.close()


def test_an_endless_pipeline_does_not_starve_other_connections(small: kafkalite.Broker) -> None:
    greedy = Connection(small.bootstrap_servers)
    frames = request_frame(METADATA, 1, ALL_TOPICS) * 1_000
    ends = threading.Event()

    def send() -> None:
        try:
            while not ends.is_set():
                greedy.socket.sendall(frames)
        except OSError:
            pass

    def drain() -> None:
        try:
            while greedy.socket.recv(1 << 20):
                pass
        except OSError:
            pass

    threads = [threading.Thread(target=send), threading.Thread(target=drain)]
    for thread in threads:
        thread.start()
    try:
        slowest = 0.0
        with Connection(small.bootstrap_servers) as other:
            for _ in range(50):
                begun = time.monotonic()
                assert is_served(other)
                slowest = max(slowest, time.monotonic() - begun)
        assert slowest < 30.0
    finally:
        ends.set()
        greedy.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        greedy.socket.close()


def test_a_request_behind_a_bad_one_is_not_read_and_one_before_it_is_answered(
    small: kafkalite.Broker,
) -> None:
    """Regression: nonsense behind a Produce request closed the connection before the answer."""
    with Connection(small.bootstrap_servers) as connection:
        connection.create_topic("before-nonsense")
        request = connection.produce_request("before-nonsense", batch([b"x"]), acks=-1)
        frame = request_frame(PRODUCE, 9, request.encode(9), correlation_id=70)
        connection.socket.sendall(frame + struct.pack(">ihh", 4, 999, 0))
        assert (
            connection.receive(PRODUCE, 9, 70).responses[0].partition_responses[0].error_code == 0
        )
        assert connection.is_closed()


@pytest.mark.long
def test_hostile_clients_fit_into_half_a_gibibyte() -> None:
    """A thousand connections claim 100 MiB each, send a little and stop; then a good client.

    Regression: only the one whose turn it was to go on was to blame, so that they went one by one,
    each after ten seconds.
    """
    config = {"queued.max.request.bytes": str(64 << 20)}
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("t", max_message_bytes=str(100 << 20))
        opened = []
        for number in range(1_000):
            connection = Connection(broker.bootstrap_servers)
            connection.socket.setblocking(False)
            size = (100 << 20) - number
            start = struct.pack(">ihhih", size, 0, 9, 1, -1) + b"\0"
            connection.socket.send(start + bytes(200_000))
            opened.append(connection)
        with Connection(broker.bootstrap_servers) as good:
            for _ in range(100):
                assert good.produce("t", batch([b"x" * 50_000])).error_code == 0
        assert psutil.Process(broker.pid).memory_info().rss < 512 << 20
        # Those that hold memory and send nothing give way to one that needs it.
        # As clients do, it comes back if it waited so long that it was taken for one of them.
        deadline = time.monotonic() + 150
        produced = None
        while produced is None:
            with Connection(broker.bootstrap_servers) as large, contextlib.suppress(OSError):
                large.socket.settimeout(90)
                produced = large.produce("t", large_batch(30 << 20))
            assert produced is not None or time.monotonic() < deadline
        assert produced.error_code == 0
        for connection in opened:
            connection.socket.close()


def test_who_names_a_thing_so_often_that_the_answer_fills_the_memory_is_closed() -> None:
    """A broker's configuration, named a million times in five megabytes, took hundreds of
    gigabytes: the answer was written down before anybody looked how long it was."""
    kind = messages.DescribeConfigsRequest
    broker_itself = kind.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=None
    )
    request = kind(resources=[broker_itself], include_synonyms=True, include_documentation=True)
    with (
        kafkalite.Broker() as broker,
        Connection(broker.bootstrap_servers) as other,
        Connection(broker.bootstrap_servers) as hungry,
    ):
        once = len(other.ask("DescribeConfigs", 4, request).encode(4))
        # So many that the answer would fit into a frame, if hardly into the memory.
        request.resources *= 2**31 // once - 1
        hungry.send(32, 4, request.encode(4))
        assert hungry.is_closed()
        assert is_served(other)
        deadline = time.monotonic() + 60
        while "its answer takes more than" not in broker.log_tail():
            assert time.monotonic() < deadline
            time.sleep(0.01)  # between polls of the log
        with open(f"/proc/{broker.pid}/status", encoding="ascii") as status:  # noqa: PTH123
            peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        assert peak_kib < 1 << 20
