"""A network thread is stuck in a storage call, and the system gives no other thread."""

import os
import time
from pathlib import Path

import pytest

import kafkalite
from api.batches import batch, values_of
from api.raw import Connection
from faults.directories import PROMPT_S, partitions_by_directory, two_directories
from faults.mount import Mount

CONTROL_GROUPS = Path("/sys/fs/cgroup")


class Threads:
    """How many threads a process may have (the control group `pids`)."""

    def __init__(self, process: int) -> None:
        version_1 = CONTROL_GROUPS / "pids"
        root = version_1 if version_1.is_dir() else CONTROL_GROUPS
        self.group = root / f"kafkalite-test-{os.getpid()}"
        try:
            if root is CONTROL_GROUPS:
                (root / "cgroup.subtree_control").write_text("+pids")
            self.group.mkdir()
            (self.group / "cgroup.procs").write_text(str(process))
        except OSError as error:
            pytest.skip(f"a control group cannot be had: {error}")

    def allow_no_more(self) -> None:
        count = (self.group / "pids.current").read_text()
        (self.group / "pids.max").write_text(count)

    def allow_all(self) -> None:
        (self.group / "pids.max").write_text("max")

    def close(self) -> None:
        self.group.rmdir()


def wait_until_told(broker: kafkalite.Broker, times: int = 1) -> None:
    """Until the broker has said so often that a network thread waits for a thread."""
    began = time.monotonic()
    while broker.log_tail().count("waits for a thread") < times:
        assert time.monotonic() - began < PROMPT_S
        time.sleep(0.01)  # between polls of the log


def test_connections_wait_for_a_thread_where_none_can_be_started(
    slow: Mount, tmp_path: Path
) -> None:
    """The network thread's connections were all dropped, and its listeners with them."""
    config = two_directories(slow, tmp_path / "quick")
    with kafkalite.Broker(config=config) as broker:
        stalled, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        servers = broker.bootstrap_servers
        threads = Threads(broker.pid)
        try:
            with Connection(servers) as stuck, Connection(servers) as other:
                assert other.produce(going, batch([b"0"])).base_offset == 0
                slow.freeze()
                try:
                    threads.allow_no_more()
                    request = stuck.produce_request(stalled, batch([b"x"]), acks=1)
                    request.timeout_ms = 60_000
                    sent = stuck.send(0, 9, request.encode(9))
                    wait_until_told(broker)
                    threads.allow_all()
                    other.socket.settimeout(PROMPT_S)
                    assert other.produce(going, batch([b"1"])).base_offset == 1
                    with Connection(servers) as new:
                        new.socket.settimeout(PROMPT_S)
                        assert len(values_of(new.fetch(going, 0).records)) == 2
                finally:
                    slow.thaw()
                answer = stuck.receive(0, 9, sent).responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, 0)
        finally:
            assert broker.stop() == 0
            threads.close()


def test_a_thread_that_comes_back_takes_the_connections_that_wait(
    slow: Mount, tmp_path: Path
) -> None:
    config = two_directories(slow, tmp_path / "quick")
    with kafkalite.Broker(config=config) as broker:
        stalled, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        threads = Threads(broker.pid)
        try:
            with Connection(broker.bootstrap_servers) as connection:
                connection.socket.settimeout(PROMPT_S)
                for offset in range(3):
                    slow.freeze()
                    try:
                        threads.allow_no_more()
                        request = connection.produce_request(stalled, batch([b"x"]), acks=1)
                        sent = connection.send(0, 9, request.encode(9))
                        wait_until_told(broker, offset + 1)
                    finally:
                        slow.thaw()
                    answer = connection.receive(0, 9, sent).responses[0].partition_responses[0]
                    assert (answer.error_code, answer.base_offset) == (0, offset)
                    assert connection.produce(going, batch([b"y"])).base_offset == offset
        finally:
            threads.allow_all()
            assert broker.stop() == 0
            threads.close()


def test_calls_of_a_frozen_directory_wait_where_no_thread_can_be_started_for_them(
    slow: Mount, tmp_path: Path
) -> None:
    """They were made by the next network thread, which then was stuck as well, and so were all when
    the spare ones were used up."""
    config = two_directories(slow, tmp_path / "quick")
    with kafkalite.Broker(config=config) as broker:
        stalled, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        servers = broker.bootstrap_servers
        threads = Threads(broker.pid)
        try:
            with (
                Connection(servers) as first,
                Connection(servers) as second,
                Connection(servers) as other,
            ):
                other.socket.settimeout(PROMPT_S)

                def send(connection: Connection) -> int:
                    request = connection.produce_request(stalled, batch([b"x"]), acks=1)
                    request.timeout_ms = 60_000
                    return connection.send(0, 9, request.encode(9))

                def received(connection: Connection, number: int) -> int:
                    answer = connection.receive(0, 9, number).responses[0].partition_responses[0]
                    assert answer.error_code == 0
                    offset: int = answer.base_offset
                    return offset

                # From now on there is one network thread more, and nobody for the directory itself.
                slow.freeze()
                try:
                    sent = send(first)
                    assert other.produce(going, batch([b"y"])).error_code == 0
                    alone = other.produce(going, batch([b"y"]))
                    assert alone.error_code == 0
                finally:
                    slow.thaw()
                assert received(first, sent) == 0
                slow.freeze()
                try:
                    threads.allow_no_more()
                    numbers = [send(first)]
                    assert other.produce(going, batch([b"y"])).error_code == 0
                    numbers.append(send(second))
                    for _ in range(20):
                        assert other.produce(going, batch([b"y"])).error_code == 0
                finally:
                    slow.thaw()
                assert received(first, numbers[0]) == 1
                threads.allow_all()
                second.socket.settimeout(PROMPT_S)
                assert received(second, numbers[1]) == 2
        finally:
            threads.allow_all()
            assert broker.stop() == 0
            threads.close()
