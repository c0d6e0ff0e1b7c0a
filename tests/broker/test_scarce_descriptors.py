"""Clients and changes while descriptors are short (`rust/src/log/segment/open_segments.rs`).

Clients that did not read what they had fetched took every descriptor, each as many as there were
partitions: others' requests failed, and the next change of the metadata ended the broker.
"""

import resource
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

import kafkalite
from api.batches import batch
from api.raw import Connection, request_frame
from broker.serving import SERVE, Serving
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


def slow_reader(bootstrap_servers: str, partitions: int = PARTITIONS) -> socket.socket:
    """Has asked for all records, and takes next to nothing of the answer."""
    host, port = bootstrap_servers.rsplit(":", 1)
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.settimeout(LONG_S)
    reader.connect((host, int(port)))
    reader.sendall(request_frame(FETCH, 12, fetch_of_all(partitions).encode(12)))
    # The answer has begun, so the broker holds the rest of it.
    assert reader.recv(1)
    return reader


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
    arguments = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    arguments += ["--config", f"kafkalite.open.segments.max={SEGMENTS_MAX}"]
    with ExitStack() as held:
        command = ["sh", "-c", f'ulimit -n {MANY_PARTITIONS} && exec "$@"', "sh", *SERVE]
        serving = Serving(arguments, tmp_path, command)
        held.callback(serving.process.kill)
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
