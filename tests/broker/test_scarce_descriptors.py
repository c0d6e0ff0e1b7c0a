"""Clients and changes while descriptors are short (`rust/src/log/segment/open_segments.rs`).

Clients that did not read what they had fetched took every descriptor, each as many as there were
partitions: others' requests failed, and the next change of the metadata ended the broker.
"""

import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection, request_frame
from broker.serving import SERVE, Serving
from broker.test_large_requests import status_bytes
from kafkalite.protocol import messages

PARTITIONS = 40
MANY_PARTITIONS = 400
"""As many as there are descriptors."""
SEGMENTS_MAX = 16
READERS = 12
RECORD_BYTES = 100_000
MANY_BYTES = 40_000
"""Of a record in each of the many: the sockets hold a part of an answer."""
FETCH = 1
LONG_S = 120
LARGE_BYTES = 12 << 20
"""Of the records of one partition, which are one answer: more than sockets take."""
MEMORY_BYTES = 24 << 20
"""Enough for the reader of the many partitions, and one such answer."""
LARGE_RECORD_BYTES = 512 << 10
LARGE_READERS = 25


def produce_to_all(connection: Connection, value: bytes, partitions: int = PARTITIONS) -> set[int]:
    """The error codes of a record for each partition."""
    kind = messages.ProduceRequest
    of_partition = kind.TopicProduceData.PartitionProduceData
    parts = [of_partition(index=index, records=batch([value])) for index in range(partitions)]
    topic = kind.TopicProduceData(name="t", partition_data=parts)
    request = kind(acks=-1, timeout_ms=60_000, topic_data=[topic])
    [answer] = connection.ask("Produce", 9, request).responses
    return {each.error_code for each in answer.partition_responses}


def fetch_of_all(partitions: int = PARTITIONS) -> Any:
    kind = messages.FetchRequest
    parts = [
        kind.FetchTopic.FetchPartition(
            partition=index, fetch_offset=0, partition_max_bytes=RECORD_BYTES * 2
        )
        for index in range(partitions)
    ]
    topic = kind.FetchTopic(topic="t", partitions=parts)
    return kind(max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, session_epoch=-1, topics=[topic])


def asking(bootstrap_servers: str, request: Any) -> socket.socket:
    """Has sent a Fetch, and does not read the answer."""
    host, port = bootstrap_servers.rsplit(":", 1)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(LONG_S)
    client.connect((host, int(port)))
    client.sendall(request_frame(FETCH, 12, request.encode(12)))
    return client


def slow_reader(bootstrap_servers: str, partitions: int = PARTITIONS) -> socket.socket:
    """Has asked for all records, and takes next to nothing of the answer."""
    reader = asking(bootstrap_servers, fetch_of_all(partitions))
    # The answer has begun, so the broker holds the rest of it.
    assert reader.recv(1)
    return reader


def limited(data: Path, held: ExitStack, *config: str) -> Serving:
    """A broker that has few descriptors, until `held` ends."""
    arguments = ["--data", str(data / "data"), "--listen", "127.0.0.1:0"]
    for each in (f"kafkalite.open.segments.max={SEGMENTS_MAX}", *config):
        arguments += ["--config", each]
    command = ["sh", "-c", f'ulimit -n {MANY_PARTITIONS} && exec "$@"', "sh", *SERVE]
    serving = Serving(arguments, data, command)
    held.enter_context(serving.process)
    held.callback(serving.process.kill)
    return serving


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[tuple[Serving, Connection]]:
    """A broker whose unread answers hold as many files as they may, with little memory; and a
    client. The topic "large" has one partition."""
    with ExitStack() as held:
        memory = f"queued.max.request.bytes={MEMORY_BYTES}"
        serving = limited(tmp_path, held, memory, "num.network.threads=1")
        client = held.enter_context(Connection(serving.bootstrap_servers))
        client.socket.settimeout(LONG_S)
        for name, partitions in (("t", MANY_PARTITIONS), ("large", 1)):
            assert client.create_topic(name, partitions=partitions).error_code == 0
        assert produce_to_all(client, bytes(MANY_BYTES), MANY_PARTITIONS) == {0}
        for _ in range(LARGE_BYTES // LARGE_RECORD_BYTES):
            produce_to_large(client, LARGE_RECORD_BYTES)
        held.enter_context(slow_reader(serving.bootstrap_servers, MANY_PARTITIONS))
        yield serving, client


def produce_to_large(client: Connection, record_bytes: int) -> None:
    kind = messages.ProduceRequest
    part = kind.TopicProduceData.PartitionProduceData(index=0, records=batch([bytes(record_bytes)]))
    topic = kind.TopicProduceData(name="large", partition_data=[part])
    request = kind(acks=-1, timeout_ms=60_000, topic_data=[topic])
    [answer] = client.ask("Produce", 9, request).responses
    assert answer.partition_responses[0].error_code == 0


def fetch_of_large(min_bytes: int = 1, max_wait_ms: int = 0) -> Any:
    kind = messages.FetchRequest
    part = kind.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    topic = kind.FetchTopic(topic="large", partitions=[part])
    return kind(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 30,
        session_epoch=-1,
        topics=[topic],
    )


def test_a_segment_takes_one_descriptor_however_many_clients_do_not_read() -> None:
    config = {"kafkalite.open.segments.max": str(SEGMENTS_MAX)}
    with ExitStack() as held, kafkalite.Broker(config=config) as broker:
        other = held.enter_context(Connection(broker.bootstrap_servers))
        assert other.create_topic("t", partitions=PARTITIONS).error_code == 0
        assert produce_to_all(other, bytes(RECORD_BYTES)) == {0}
        process = psutil.Process(broker.pid)
        before = process.num_fds()
        # Two for each reader's connection and what may be open for a moment, and all segments.
        most = before + PARTITIONS + 2 * READERS
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (most, most))
        for _ in range(READERS):
            held.enter_context(slow_reader(broker.bootstrap_servers))
        assert process.num_fds() <= most
        assert produce_to_all(other, b"x") == {0}
        [answer] = other.ask("Fetch", 12, fetch_of_all()).responses
        assert {each.error_code for each in answer.partitions} == {0}
        assert other.create_topic("new").error_code == 0


def test_clients_that_do_not_read_leave_descriptors_for_others_where_there_are_few(
    tmp_path: Path,
) -> None:
    """An answer that would hold a file of each partition holds bytes where that are too many."""
    with ExitStack() as held:
        serving = limited(tmp_path, held)
        other = held.enter_context(Connection(serving.bootstrap_servers))
        other.socket.settimeout(LONG_S)
        assert other.create_topic("t", partitions=MANY_PARTITIONS).error_code == 0
        assert produce_to_all(other, bytes(MANY_BYTES), MANY_PARTITIONS) == {0}
        for _ in range(3):
            held.enter_context(slow_reader(serving.bootstrap_servers, MANY_PARTITIONS))
        [answer] = other.ask("Fetch", 12, fetch_of_all(MANY_PARTITIONS)).responses
        assert {each.error_code for each in answer.partitions} == {0}
        assert {len(each.records) > MANY_BYTES for each in answer.partitions} == {True}
        assert produce_to_all(other, b"x", MANY_PARTITIONS) == {0}
        assert other.create_topic("new").error_code == 0
        late = held.enter_context(Connection(serving.bootstrap_servers))
        assert late.ask("Metadata", 1, messages.MetadataRequest(topics=[])).brokers
        code, log = serving.end()
        assert code == 0
        assert "Too many open files" not in log


def test_answers_that_hold_bytes_for_lack_of_descriptors_are_bounded_by_the_memory(
    crowded: tuple[Serving, Connection],
) -> None:
    """Each copied all of its records, whatever the budget."""
    serving, client = crowded
    pid = serving.process.pid
    before_bytes = status_bytes(pid, "VmRSS:")
    with ExitStack() as held:
        waiting = [
            held.enter_context(asking(serving.bootstrap_servers, fetch_of_large()))
            for _ in range(LARGE_READERS)
        ]
        deadline = time.monotonic() + 4
        # Some are answered with nothing, others later; were it with the records, then now.
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select(waiting, [], [], left_s)
            waiting = [each for each in waiting if each not in ready]
        # One while there is memory left, one that may exceed it, and one that is being made.
        most_bytes = MEMORY_BYTES + 3 * LARGE_BYTES
        assert status_bytes(pid, "VmHWM:") - before_bytes < most_bytes
        assert produce_to_all(client, b"x") == {0}
    deadline = time.monotonic() + LONG_S
    records = b""
    while len(records) < LARGE_BYTES:
        assert time.monotonic() < deadline
        [answer] = client.ask("Fetch", 12, fetch_of_large()).responses
        [part] = answer.partitions
        assert part.error_code == 0
        records = part.records or b""


def test_a_fetch_that_waits_while_descriptors_are_short_is_copied_once_it_is_answered(
    crowded: tuple[Serving, Connection],
) -> None:
    """All that it had found was copied at each record that came, and thrown away."""
    serving, client = crowded
    records_max = 20
    request = fetch_of_large(LARGE_BYTES + LARGE_RECORD_BYTES, max_wait_ms=600_000)
    with Connection(serving.bootstrap_servers) as waiter:
        waiter.socket.settimeout(LONG_S)
        waiter.send(FETCH, 12, request.encode(12))
        process = psutil.Process(serving.process.pid)
        before_bytes = process.io_counters().read_chars
        for _ in range(records_max):
            produce_to_large(client, 100)
        assert process.io_counters().read_chars - before_bytes < 2 * LARGE_BYTES
        assert not select.select([waiter.socket], [], [], 0)[0]
        produce_to_large(client, LARGE_RECORD_BYTES)
        assert len(waiter.receive_frame() or b"") > LARGE_BYTES


def test_a_change_of_the_metadata_waits_for_a_descriptor_and_does_not_end_the_broker(
    tmp_path: Path,
) -> None:
    log_file = tmp_path / "broker.log"
    config = {"kafkalite.open.segments.max": str(SEGMENTS_MAX)}
    with ExitStack() as held, kafkalite.Broker(config=config, log_file=str(log_file)) as broker:
        one = held.enter_context(Connection(broker.bootstrap_servers))
        assert one.create_topic("t", partitions=PARTITIONS).error_code == 0
        # Of the files that may be open, the one of the metadata is not among the latest.
        assert produce_to_all(one, b"x") == {0}
        _, most = limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (3, most))
        codes: list[int] = []
        one.socket.settimeout(LONG_S)
        change = threading.Thread(target=lambda: codes.append(one.create_topic("u").error_code))
        change.start()
        deadline = time.monotonic() + LONG_S
        while "the metadata waits to be written" not in log_file.read_text():
            assert time.monotonic() < deadline, log_file.read_text()
            assert not codes, log_file.read_text()
            time.sleep(0.05)  # polls the log
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
        change.join(LONG_S)
        assert codes == [0], log_file.read_text()
