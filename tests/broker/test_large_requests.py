"""Large requests full of small elements (`rust/src/net/reactor/large_requests.rs`,
`rust/src/api/large/`): how they are answered, how long others wait
meanwhile, and what they take in memory."""

import math
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection, request_frame
from kafkalite.protocol import messages

UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, INVALID_REQUEST = 3, 17, 42
METADATA, API_VERSIONS = KEYS["Metadata"], KEYS["ApiVersions"]
MIB = 1 << 20
WAIT_MAX_S = 0.25
"""Of others. The goal is 0.05 s, which benches/large_requests.py measures; tests have company."""
ATTEMPTS = 4
"""The best counts: what holds others up holds them up each time."""


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    with kafkalite.Broker(config={"num.network.threads": "1"}) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("known", 3).error_code == 0
        yield broker


@pytest.fixture
def client(broker: kafkalite.Broker) -> Iterator[Connection]:
    with Connection(broker.bootstrap_servers) as connection:
        yield connection


def metadata_request(names: list[str], *, creates: bool = False) -> Any:
    kind = messages.MetadataRequest
    topics = [kind.MetadataRequestTopic(name=name) for name in names]
    return kind(topics=topics, allow_auto_topic_creation=creates)


def many_names(size_bytes: int) -> bytes:
    """The body of a Metadata request of version 9 that names as many topics that there are not."""
    count = size_bytes // 8
    elements = b"".join(b"\x07%06x\0" % index for index in range(count))
    return uvarint(count + 1) + elements + bytes(4)


def uvarint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def many_partitions(size_bytes: int) -> bytes:
    """The body of a Produce request of version 9 for as many partitions that there are not."""
    count = size_bytes // 6
    elements = b"".join(struct.pack(">ixx", index) for index in range(count))
    return (
        b"\0"
        + struct.pack(">hi", 1, 1000)
        + b"\x02\x02x"
        + uvarint(count + 1)
        + elements
        + bytes(2)
    )


LARGE = {"Metadata": many_names, "Produce": many_partitions}


def test_metadata_names_each_topic_once_whether_it_is_there_or_not(client: Connection) -> None:
    names = ["known", "no topic", "known"] + [f"t{index % 9000}" for index in range(12_000)]
    answered = client.ask("Metadata", 12, metadata_request(names)).topics
    codes = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answered}
    assert len(answered) == len(codes) == 9_002
    assert codes.pop("known") == (0, 3)
    assert codes.pop("no topic") == (INVALID_TOPIC, 0)
    assert set(codes.values()) == {(UNKNOWN_TOPIC_OR_PARTITION, 0)}


def test_metadata_by_ids_and_a_refused_one(client: Connection) -> None:
    kind = messages.MetadataRequest
    known_id = client.ask("Metadata", 12, metadata_request(["known"])).topics[0].topic_id
    ids = [known_id, *(struct.pack(">qq", 1, index) for index in range(5_000))]
    topics = [kind.MetadataRequestTopic(topic_id=each, name=None) for each in ids + ids]
    answered = client.ask("Metadata", 12, kind(topics=topics)).topics
    assert [each.topic_id for each in answered] == ids
    assert {each.error_code for each in answered[1:]} == {100}
    refused = client.ask("Metadata", 10, kind(topics=topics))
    assert {each.error_code for each in refused.topics} == {INVALID_REQUEST}
    assert len(refused.topics) == len(topics)


def test_what_is_missing_among_many_is_created(client: Connection) -> None:
    names = ["known"] * 20_000 + ["made by a large one"] * 100 + ["made-by-a-large-one"]
    answered = client.ask("Metadata", 12, metadata_request(names, creates=True)).topics
    codes = {topic.name: topic.error_code for topic in answered}
    assert codes == {"known": 0, "made by a large one": INVALID_TOPIC, "made-by-a-large-one": 0}


def test_of_more_topics_than_are_created_at_once_none_is(client: Connection) -> None:
    names = [f"many-{index}" for index in range(10_001)]
    answered = client.ask("Metadata", 12, metadata_request(names, creates=True)).topics
    assert {topic.error_code for topic in answered} == {UNKNOWN_TOPIC_OR_PARTITION}
    everything = client.ask("Metadata", 12, messages.MetadataRequest(topics=None)).topics
    assert not [topic for topic in everything if topic.name.startswith("many-")]


@pytest.mark.parametrize("version", [5, 11])
def test_list_offsets_finds_what_there_is_among_many(client: Connection, version: int) -> None:
    kind = messages.ListOffsetsRequest
    ask = kind.ListOffsetsTopic.ListOffsetsPartition
    indexes = [0, *range(3, 9_000), 2, 8_999]
    partitions = [ask(partition_index=index, timestamp=-2) for index in indexes]
    topics = [kind.ListOffsetsTopic(name=name, partitions=partitions) for name in ("known", "x")]
    answer = client.ask("ListOffsets", version, kind(replica_id=-1, topics=topics))
    codes = {
        (topic.name, each.partition_index): (each.error_code, each.offset)
        for topic in answer.topics
        for each in topic.partitions
    }
    assert sum(len(topic.partitions) for topic in answer.topics) == len(codes) == 2 * 8_999
    assert codes.pop(("known", 0)) == codes.pop(("known", 2)) == (0, 0)
    assert codes.pop(("known", 8_999)) == codes.pop(("x", 8_999)) == (INVALID_REQUEST, -1)
    assert set(codes.values()) == {(UNKNOWN_TOPIC_OR_PARTITION, -1)}


@pytest.mark.parametrize("unknown", [500, 5_000])
def test_fetch_reads_what_there_is_among_many(client: Connection, unknown: int) -> None:
    """And has a session only where what there is not is little."""
    assert client.produce("known", batch([b"value"])).error_code == 0
    request = client.fetch_request("known", 0, session=(0, 0))
    topic = request.topics[0]
    kind = type(topic.partitions[0])
    there = [kind(partition=index, partition_max_bytes=1000) for index in range(3)]
    others = [kind(partition=3 + index) for index in range(unknown)]
    topic.partitions = there * 1_000 + others + others
    answer = client.ask("Fetch", 12, request)
    assert (answer.session_id != 0) == (unknown == 500)
    parts = [each for topic in answer.responses for each in topic.partitions]
    codes = {each.partition_index: each.error_code for each in parts}
    assert len(parts) == len(codes) == 3 + unknown
    assert [codes.pop(index) for index in range(3)] == [0, 0, 0]
    assert set(codes.values()) == {UNKNOWN_TOPIC_OR_PARTITION}
    assert any(each.records for each in parts if each.partition_index == 0)


@pytest.mark.parametrize("acks", [-1, 1])
def test_produce_appends_what_there_is_among_many(client: Connection, acks: int) -> None:
    before = client.list_offsets("known", -1).offset
    request = client.produce_request("known", batch([b"value"]), acks)
    topic = request.topic_data[0]
    kind = type(topic.partition_data[0])
    topic.partition_data += [kind(index=index, records=None) for index in range(3, 20_000)]
    topic.partition_data += [kind(index=0, records=batch([b"again"]))]
    answer = client.ask("Produce", 9, request)
    parts = [each for topic in answer.responses for each in topic.partition_responses]
    appended = [each.base_offset for each in parts if each.index == 0]
    assert appended == [before, before + 1]
    refused = [each for each in parts if each.index != 0]
    assert [each.index for each in refused] == [*range(3, 20_000)]
    assert {each.error_code for each in refused} == {UNKNOWN_TOPIC_OR_PARTITION}


def test_produce_of_more_batches_than_one_request_may_bring_is_refused(client: Connection) -> None:
    request = client.produce_request("known", batch([b""]))
    request.topic_data[0].partition_data *= 16_385
    client.send(KEYS["Produce"], 9, request.encode(9))
    assert client.is_closed()


def test_silent_records_for_what_there_is_not_end_the_connection(client: Connection) -> None:
    client.send(KEYS["Produce"], 9, many_partitions(MIB).replace(b"\0\x01", b"\0\0", 1))
    assert client.is_closed()


def test_answers_leave_in_the_order_of_the_requests(client: Connection) -> None:
    """Small ones before, between and behind large ones, on one connection."""
    small = messages.MetadataRequest(topics=[]).encode(9)
    bodies = [small, many_names(MIB), small, small, many_names(MIB), small]
    sent = [client.send(METADATA, 9, body) for body in bodies]
    for number, body in zip(sent, bodies, strict=True):
        topics = client.receive(METADATA, 9, number).topics
        assert len(topics) == (0 if body is small else MIB // 8)


def test_a_cold_key_in_a_large_frame_is_answered(client: Connection) -> None:
    kind = messages.DeleteTopicsRequest
    names = [f"topic-{index}" for index in range(9_000)]
    answer = client.ask("DeleteTopics", 4, kind(topic_names=names, timeout_ms=1000))
    assert [each.name for each in answer.responses] == names


def test_who_leaves_takes_its_requests_along(broker: kafkalite.Broker) -> None:
    body = many_names(4 * MIB)
    for _ in range(10):
        with Connection(broker.bootstrap_servers) as connection:
            connection.send(METADATA, 9, body)
    with Connection(broker.bootstrap_servers) as connection:
        begun = time.monotonic()
        assert connection.ask("Metadata", 9, metadata_request(["x"] * 40_000)).topics
        assert time.monotonic() - begun < 30


def test_a_stop_does_not_wait_for_a_large_request() -> None:
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        connection.send(METADATA, 9, many_names(30 * MIB))
        begun = time.monotonic()
        broker.stop()
        assert time.monotonic() - begun < 15


def status_bytes(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


@pytest.mark.parametrize("key", LARGE)
def test_others_do_not_wait_and_memory_is_bounded(broker: kafkalite.Broker, key: str) -> None:
    """A Metadata request of 20 MB held its network thread for 3.5 s, one of Produce for 0.35 s, and
    the latter took twenty times its frame."""
    frame = request_frame(KEYS[key], 9, LARGE[key](20 * MIB))
    longest_s = math.inf
    for _ in range(ATTEMPTS):
        before_bytes = status_bytes(broker.pid, "VmRSS")
        Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
        longest_s = min(longest_s, longest_wait_s(broker, frame))
        peak_bytes = status_bytes(broker.pid, "VmHWM") - before_bytes
        assert peak_bytes <= 3 * len(frame) + 64 * MIB
        if longest_s < WAIT_MAX_S:
            break
    assert longest_s < WAIT_MAX_S


def longest_wait_s(broker: kafkalite.Broker, frame: bytes) -> float:
    """The longest that another client waits for an answer while the broker has this request."""
    done = threading.Event()

    def send() -> None:
        with Connection(broker.bootstrap_servers) as connection:
            connection.socket.sendall(frame)
            assert connection.receive_frame() is not None
        done.set()

    sender = threading.Thread(target=send)
    longest_s = 0.0
    with Connection(broker.bootstrap_servers) as other:
        sender.start()
        while not done.wait(0.005):
            begun = time.monotonic()
            other.ask("ApiVersions", 0, messages.ApiVersionsRequest())
            longest_s = max(longest_s, time.monotonic() - begun)
    sender.join()
    return longest_s


def test_a_request_of_more_elements_than_python_takes_closes_its_connection(
    broker: kafkalite.Broker, client: Connection
) -> None:
    """40 MB of names to delete took 85 s of the only thread that answers groups, and 5 GiB."""
    kind = messages.DeleteTopicsRequest
    names = [f"x{index}" for index in range(100_000)]
    many = kind(topic_names=names, timeout_ms=60_000)
    answered = client.ask("DeleteTopics", 1, many).responses
    assert {each.error_code for each in answered} == {UNKNOWN_TOPIC_OR_PARTITION}
    many.topic_names.append("x")
    with Connection(broker.bootstrap_servers) as other:
        other.send(KEYS["DeleteTopics"], 1, many.encode(1))
        assert other.is_closed()
    assert "it has more than 100000 elements" in broker.log_tail()
    assert client.ask("ListGroups", 0, messages.ListGroupsRequest()).error_code == 0
