"""Reads of a log directory that do not come back stall its own partitions, and nothing else,
whoever asks for them together with others."""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection
from api.test_k35_describe_log_dirs import ask as describe_log_dirs
from api.test_k35_describe_log_dirs import sizes
from faults.held_reads import HeldReads
from faults.nemesis import need_strace, traced
from kafkalite.protocol import messages
from tasks import told_of_threads

PROMPT_S = 25.0
"""A request that is held has no answer before the release, which comes after."""
BATCH_BYTES = 1_000_000
BATCHES = 4
FETCH, LIST_OFFSETS = KEYS["Fetch"], KEYS["ListOffsets"]


class Two(NamedTuple):
    """A broker with two log directories, and a topic in each, with `BATCHES` batches; the reads of
    one of them can be held."""

    servers: str
    process: psutil.Process
    going: str
    stalled: str
    reads: HeldReads


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    directories = [tmp_path / "one", tmp_path / "other"]
    config = {
        "log.dirs": ",".join(map(str, directories)),
        "num.network.threads": "1",
        "kafkalite.acks.fsync": "none",
    }
    with kafkalite.Broker(config=config) as broker:
        names: dict[Path, str] = {}
        records = batch([bytes(BATCH_BYTES)])
        with Connection(broker.bootstrap_servers) as connection:
            for name in ("a", "b", "c", "d"):
                assert connection.create_topic(name).error_code == 0
                for _ in range(BATCHES):
                    assert connection.produce(name, records).error_code == 0
                found = [each for each in directories if (each / f"{name}-0").is_dir()]
                names.setdefault(found[0], name)
        going, stalled = (names[each] for each in directories)
        assert broker.stop() == 0
        with HeldReads(directories[1] / f"{stalled}-0") as reads:
            broker.start()
            process = psutil.Process(broker.pid)
            yield Two(broker.bootstrap_servers, process, going, stalled, reads)
            reads.release()
            assert broker.stop() == 0


def fetch_request(
    topics: list[str], max_bytes: int = 1 << 20, offset: int = 0, partitions: int = 1
) -> bytes:
    """Of partitions from 0 on, of which only that is there."""
    kind = messages.FetchRequest
    asked = [
        kind.FetchTopic.FetchPartition(
            partition=index,
            fetch_offset=offset,
            last_fetched_epoch=0,
            partition_max_bytes=max_bytes,
        )
        for index in range(partitions)
    ]
    return kind(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=100 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[kind.FetchTopic(topic=each, partitions=asked) for each in topics],
    ).encode(12)


def list_offsets_request(topics: list[str], timestamp: int, partitions: int = 1) -> bytes:
    kind = messages.ListOffsetsRequest
    asked = [
        kind.ListOffsetsTopic.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index in range(partitions)
    ]
    named = [kind.ListOffsetsTopic(name=each, partitions=asked) for each in topics]
    return kind(replica_id=-1, topics=named).encode(7)


def fetched(answer: Any) -> dict[str, int]:
    return {each.topic: len(each.partitions[0].records or b"") for each in answer.responses}


def assert_that_the_other_directory_serves(two: Two) -> None:
    for _ in range(3):
        with Connection(two.servers) as connection:
            connection.socket.settimeout(PROMPT_S)
            assert connection.fetch(two.going, 0).records
            long = connection.fetch(two.going, 0, max_bytes=100 << 20)
            assert len(long.records) > BATCHES * BATCH_BYTES
            assert connection.list_offsets(two.going, 1).offset == 0
            assert connection.produce(two.going, batch([b"x"])).error_code == 0
            # What is in memory is told of every log.
            assert connection.list_offsets(two.stalled, -1).offset == BATCHES
            assert connection.list_offsets(two.stalled, -2).offset == 0


@pytest.mark.parametrize("stalled_first", [False, True])
def test_a_fetch_that_hangs_in_one_directory_closes_no_other(two: Two, stalled_first: bool) -> None:
    """It went through the gate of its first directory, which then was closed for what hung in the
    second."""
    topics = [two.stalled, two.going] if stalled_first else [two.going, two.stalled]
    two.reads.hold()
    with Connection(two.servers) as first, Connection(two.servers) as second:
        sent = [each.send(FETCH, 12, fetch_request(topics)) for each in (first, second)]
        two.reads.wait_for_one(PROMPT_S)
        assert_that_the_other_directory_serves(two)
        two.reads.release()
        for connection, number in zip((first, second), sent, strict=True):
            assert all(fetched(connection.receive(FETCH, 12, number)).values())
    assert_that_the_other_directory_serves(two)


def test_a_fetch_gets_what_is_new_where_nothing_is_to_be_read_in_the_hung_directory(
    two: Two,
) -> None:
    """A consumer at the end of a log in a directory that hangs has nothing to read there."""
    two.reads.hold()
    with Connection(two.servers) as stuck, Connection(two.servers) as reader:
        number = stuck.send(FETCH, 12, fetch_request([two.stalled]))
        two.reads.wait_for_one(PROMPT_S)
        reader.socket.settimeout(PROMPT_S)
        for offset in range(BATCHES, BATCHES + 5):
            with Connection(two.servers) as producer:
                produced = producer.produce(two.going, batch([b"x"]))
                assert produced.base_offset == offset
            asked = fetch_request([two.stalled, two.going], offset=BATCHES)
            answer = reader.receive(FETCH, 12, reader.send(FETCH, 12, asked))
            assert fetched(answer)[two.going] > 0
        two.reads.release()
        assert fetched(stuck.receive(FETCH, 12, number))[two.stalled] > 0


def test_a_long_answer_that_hangs_in_one_directory_closes_no_other(two: Two) -> None:
    with Connection(two.servers) as reader:
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        asked = fetch_request([two.going, two.stalled], 100 << 20)
        reader.send(FETCH, 12, asked)
        size = int.from_bytes(reader.socket.recv(4, socket.MSG_WAITALL), "big")
        assert size > 2 * BATCHES * BATCH_BYTES
        # Most of the first topic's records are to be sent still, and all of the second's.
        two.reads.hold()
        left = size
        while left > size - BATCHES * BATCH_BYTES:
            left -= len(reader.socket.recv(min(1 << 16, left)))
        two.reads.wait_for_one(PROMPT_S)
        assert_that_the_other_directory_serves(two)
        two.reads.release()
        while left > 0:
            data = reader.socket.recv(min(1 << 20, left))
            assert data, "the broker closed the connection"
            left -= len(data)
    assert_that_the_other_directory_serves(two)


def test_a_search_that_hangs_in_one_directory_closes_no_other(two: Two) -> None:
    two.reads.hold()
    with Connection(two.servers) as connection:
        asked = list_offsets_request([two.going, two.stalled], 1)
        number = connection.send(LIST_OFFSETS, 7, asked)
        two.reads.wait_for_one(PROMPT_S)
        assert_that_the_other_directory_serves(two)
        two.reads.release()
        answer = connection.receive(LIST_OFFSETS, 7, number)
        offsets = {each.name: each.partitions[0].offset for each in answer.topics}
        assert offsets == {two.going: 0, two.stalled: 0}


def go(connection: Connection) -> None:
    """As a client that is killed."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.socket.close()


@pytest.mark.parametrize("key", [FETCH, LIST_OFFSETS])
def test_requests_of_clients_that_are_gone_do_not_pile_up_before_a_hung_directory(
    two: Two, key: int
) -> None:
    """Each was kept until the directory answered: a client that came back in a loop filled the
    memory."""
    rounds, partitions, bound_bytes = 600, 3_000, 60 << 20
    if key == FETCH:
        version, asked = 12, fetch_request([two.stalled], partitions=partitions)
    else:
        version, asked = 7, list_offsets_request([two.stalled], 1, partitions)
    two.reads.hold()
    with Connection(two.servers) as stuck, Connection(two.servers) as other:
        # That of a client that goes may be dropped before its read begins.
        stuck.send(key, version, asked)
        two.reads.wait_for_one(PROMPT_S)
        for number in range(rounds):
            with Connection(two.servers) as connection:
                connection.send(key, version, asked)
                # By one network thread, which has that one's request then.
                other.ask("Metadata", 9, messages.MetadataRequest(topics=[]))
                go(connection)
            if number == rounds // 10:
                before_bytes = two.process.memory_info().rss
        assert two.process.memory_info().rss - before_bytes < bound_bytes
    two.reads.release()
    assert_that_the_other_directory_serves(two)


def test_answers_to_clients_that_are_gone_do_not_pile_up_before_a_hung_directory(
    two: Two,
) -> None:
    """Each was kept until the directory answered, and its socket with it: a client that came back
    in a loop took all descriptors."""
    readers = [Connection(two.servers) for _ in range(20)]
    with Connection(two.servers) as other:
        other.ask("Metadata", 9, messages.MetadataRequest(topics=[]))
        connected = two.process.num_fds()
        left = BATCHES * BATCH_BYTES
        for reader in readers:
            reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            reader.send(FETCH, 12, fetch_request([two.going, two.stalled], 100 << 20))
            size = int.from_bytes(reader.socket.recv(4, socket.MSG_WAITALL), "big")
            assert size > 2 * left
        two.reads.hold()
        for reader in readers:
            rest = left
            while rest > 0:
                rest -= len(reader.socket.recv(min(1 << 16, rest)))
        two.reads.wait_for_one(PROMPT_S)
        for reader in readers:
            go(reader)
        until = time.monotonic() + PROMPT_S
        # But for those of calls that are under way.
        while two.process.num_fds() > connected - len(readers) + 5:
            assert time.monotonic() < until
            time.sleep(0.05)  # between polls of the system
        other.ask("Metadata", 9, messages.MetadataRequest(topics=[]))
    two.reads.release()
    assert_that_the_other_directory_serves(two)


def test_a_disk_that_does_not_answer_is_described_without_its_size_and_holds_nobody_up(
    tmp_path: Path,
) -> None:
    """Python's one thread waited for it."""
    need_strace()
    with (
        kafkalite.Broker(tmp_path) as broker,
        Connection(broker.bootstrap_servers) as asker,
        Connection(broker.bootstrap_servers) as other,
    ):
        assert other.create_topic("t").error_code == 0
        # Each look takes longer than a test may.
        with traced(broker.pid, f"statfs:delay_enter={200_000_000}"):
            thread_counts = set()
            for _ in range(2):
                (result,) = describe_log_dirs(asker).results
                assert (result.error_code, sizes(result)) == (0, {("t", 0): 0})
                assert (result.total_bytes, result.usable_bytes) == (-1, -1)
                other.ask("DescribeCluster", 1, messages.DescribeClusterRequest())
                thread_counts.add(len(told_of_threads(broker.pid, "comm")))
        # One looks, however often it is asked for.
        assert len(thread_counts) == 1
