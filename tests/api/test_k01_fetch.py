"""Fetch by frames."""

import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch, values_of
from api.raw import Connection
from api.test_k00_produce import topic_id_of
from kafkalite.protocol import messages

INT_MAX = (1 << 31) - 1


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_gives_what_was_produced(
    connection: Connection, topic: str, version: int
) -> None:
    connection.produce(topic, batch([b"a", b"b"]))
    topic_id = topic_id_of(connection, topic)
    answer = connection.fetch(topic, 0, version=version, topic_id=topic_id)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 2, 2)
    assert values_of(answer.records) == [(0, b"a"), (1, b"b")]
    assert answer.aborted_transactions is None


def test_an_offset_within_a_batch_gives_the_whole_batch(connection: Connection, topic: str) -> None:
    connection.produce(topic, batch([b"a", b"b", b"c"]))
    assert values_of(connection.fetch(topic, 1).records) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_the_first_batch_comes_even_if_it_is_larger_than_the_limit(
    connection: Connection, topic: str
) -> None:
    connection.produce(topic, batch([b"x" * 5000]))
    connection.produce(topic, batch([b"y" * 5000]))
    answer = connection.fetch(topic, 0, max_bytes=100)
    assert [offset for offset, _ in values_of(answer.records)] == [0]


def test_a_reader_of_committed_records_is_told_of_no_aborted_ones(
    connection: Connection, topic: str
) -> None:
    connection.produce(topic, batch([b"x"]))
    assert connection.fetch(topic, 0, isolation=1).aborted_transactions == []


def test_a_fetch_at_the_end_waits_and_comes_back_empty(connection: Connection, topic: str) -> None:
    answer = connection.fetch(topic, 0, max_wait_ms=50)
    assert (answer.error_code, answer.records) == (0, b"")


def test_a_waiting_fetch_is_woken_by_the_append(
    broker: kafkalite.Broker, connection: Connection, topic: str
) -> None:
    request = connection.fetch_request(topic, 0, max_wait_ms=15_000)
    correlation_id = connection.send(1, 12, request.encode(12))
    with Connection(broker.bootstrap_servers) as other:
        other.produce(topic, batch([b"news"]), acks=1)
        response = connection.receive(1, 12, correlation_id)
        records = response.responses[0].partitions[0].records
        assert values_of(records) == [(0, b"news")]


def test_min_bytes_is_waited_for(
    broker: kafkalite.Broker, connection: Connection, topic: str
) -> None:
    request = connection.fetch_request(topic, 0, max_wait_ms=15_000, min_bytes=1000)
    correlation_id = connection.send(1, 12, request.encode(12))
    with Connection(broker.bootstrap_servers) as other:
        for _ in range(10):
            other.produce(topic, batch([b"x" * 100]))
        response = connection.receive(1, 12, correlation_id)
        assert len(response.responses[0].partitions[0].records) >= 1000


def test_min_bytes_is_not_waited_for_on_a_segment_that_will_not_grow(
    connection: Connection,
) -> None:
    """As in Kafka's `DelayedFetch`: the records behind it come with the next Fetch. A reader waited
    for `max_wait_ms` at the end of each segment."""
    assert connection.create_topic("rolled", segment_bytes=str(1 << 20)).error_code == 0
    for number in range(3):
        assert connection.produce("rolled", batch([bytes(600_000)])).base_offset == number
    connection.socket.settimeout(20)
    wanted = {"max_wait_ms": 60_000, "min_bytes": 700_000}
    records = connection.fetch("rolled", 0, **wanted).records
    assert [offset for offset, _ in values_of(records)] == [0]


def test_a_request_behind_a_waiting_fetch_keeps_its_place(
    broker: kafkalite.Broker, connection: Connection, topic: str
) -> None:
    fetch = connection.fetch_request(topic, 0, max_wait_ms=15_000)
    first = connection.send(1, 12, fetch.encode(12))
    produce = connection.produce_request(topic, batch([b"mine"]))
    second = connection.send(0, 9, produce.encode(9))
    with Connection(broker.bootstrap_servers) as other:
        assert other.produce(topic, batch([b"theirs"])).base_offset == 0
    response = connection.receive(1, 12, first)
    assert values_of(response.responses[0].partitions[0].records) == [(0, b"theirs")]
    answer = connection.receive(0, 9, second).responses[0].partition_responses[0]
    assert answer.base_offset == 1


def test_offsets_outside_the_log_and_unknown_topics_have_their_errors(
    connection: Connection, topic: str
) -> None:
    connection.produce(topic, batch([b"x"]))
    assert connection.fetch(topic, 2, max_wait_ms=10_000).error_code == 1
    assert connection.fetch(topic, -5, max_wait_ms=10_000).error_code == 1
    assert connection.fetch("missing", 0, max_wait_ms=10_000).error_code == 3
    unknown = connection.fetch("", 0, version=13, topic_id=b"\5" * 16, max_wait_ms=10_000)
    assert unknown.error_code == 100


def test_a_leader_epoch_that_is_not_the_partitions_is_refused(
    connection: Connection, topic: str
) -> None:
    request = connection.fetch_request(topic, 0)
    request.topics[0].partitions[0].current_leader_epoch = 7
    response = connection.ask("Fetch", 12, request)
    assert response.responses[0].partitions[0].error_code == 75


def test_a_negative_leader_epoch_is_none(connection: Connection, topic: str) -> None:
    request = connection.fetch_request(topic, 0)
    request.topics[0].partitions[0].current_leader_epoch = -2
    response = connection.ask("Fetch", 12, request)
    assert response.responses[0].partitions[0].error_code == 0


def test_a_replicas_fetch_is_refused(connection: Connection, topic: str) -> None:
    request = connection.fetch_request(topic, 0)
    request.replica_id = 2
    assert connection.ask("Fetch", 12, request).responses[0].partitions[0].error_code == 6
    request.replica_state.replica_id = 2
    request.topics[0].topic_id = topic_id_of(connection, topic)
    assert connection.ask("Fetch", 15, request).responses[0].partitions[0].error_code == 6


def session_request(
    connection: Connection,
    session: tuple[int, int],
    wanted: dict[str, int],
    forgotten: list[str] | None = None,
) -> Any:
    """A Fetch of version 12 for partition 0 of the topics, each from its offset."""
    kind = messages.FetchRequest
    request = connection.fetch_request("", 0, session=session)
    request.topics = [
        kind.FetchTopic(
            topic=topic,
            partitions=[
                kind.FetchTopic.FetchPartition(
                    partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                )
            ],
        )
        for topic, offset in wanted.items()
    ]
    request.forgotten_topics_data = [
        kind.ForgottenTopic(topic=topic, partitions=[0]) for topic in forgotten or []
    ]
    return connection.ask("Fetch", 12, request)


@pytest.fixture
def topics(connection: Connection, topic: str) -> list[str]:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        connection.create_topic(name)
    return names


def told(response: Any) -> list[str]:
    return [each.topic for each in response.responses]


def test_a_session_answers_only_what_is_new(connection: Connection, topics: list[str]) -> None:
    a, b, c = topics
    opening = session_request(connection, (0, 0), {a: 0, b: 0, c: 0})
    assert opening.error_code == 0
    assert opening.session_id > 0
    assert told(opening) == [a, b, c]
    going_on = session_request(connection, (opening.session_id, 1), {})
    assert (going_on.session_id, told(going_on)) == (opening.session_id, [])
    connection.produce(b, batch([b"x"]))
    news = session_request(connection, (opening.session_id, 2), {})
    assert told(news) == [b]
    assert values_of(news.responses[0].partitions[0].records) == [(0, b"x")]


def test_a_partition_that_gave_records_is_read_last_next_time(
    connection: Connection, topics: list[str]
) -> None:
    for topic in topics:
        connection.produce(topic, batch([b"x"]))
    a, b, c = topics
    opening = session_request(connection, (0, 0), {a: 1, b: 1, c: 1})
    connection.produce(a, batch([b"y"]))
    session = opening.session_id
    assert told(session_request(connection, (session, 1), {})) == [a]
    for topic in (b, c):
        connection.produce(topic, batch([b"y"]))
    assert told(session_request(connection, (session, 2), {})) == [b, c, a]


def test_topics_join_and_leave_a_session(connection: Connection, topics: list[str]) -> None:
    a, b, c = topics
    session = session_request(connection, (0, 0), {a: 0}).session_id
    connection.produce(a, batch([b"x"]))
    joined = session_request(connection, (session, 1), {b: 0, c: 0}, forgotten=[a])
    assert told(joined) == [b, c]
    closing = session_request(connection, (session, 2), {}, forgotten=[b, c])
    assert (closing.error_code, closing.session_id) == (0, 0)
    gone = session_request(connection, (session, 3), {})
    assert (gone.error_code, gone.session_id, gone.responses) == (70, 0, [])


def test_wrong_epochs_and_unknown_sessions_are_refused(connection: Connection, topic: str) -> None:
    session = session_request(connection, (0, 0), {topic: 0}).session_id
    assert session_request(connection, (session, 2), {}).error_code == 71
    assert session_request(connection, (session, 1), {}).error_code == 0
    assert session_request(connection, (session, 1), {}).error_code == 71
    assert session_request(connection, (0, 1), {}).error_code == 70
    by_id = connection.fetch_request("", 0, session=(session, 2))
    by_id.topics = []
    assert connection.ask("Fetch", 13, by_id).error_code == 106


def test_a_full_request_ends_the_session_that_it_names(connection: Connection, topic: str) -> None:
    session = session_request(connection, (0, 0), {topic: 0}).session_id
    closing = session_request(connection, (session, -1), {topic: 0})
    assert (closing.session_id, told(closing)) == (0, [topic])
    assert session_request(connection, (session, 1), {}).error_code == 70


def test_an_unknown_topic_stands_last_and_does_not_end_the_wait(
    broker: kafkalite.Broker, connection: Connection, topic: str
) -> None:
    request = connection.fetch_request("missing", 0, max_wait_ms=15_000)
    request.topics += connection.fetch_request(topic, 0).topics
    correlation_id = connection.send(1, 12, request.encode(12))
    with Connection(broker.bootstrap_servers) as other:
        other.produce(topic, batch([b"news"]))
    response = connection.receive(1, 12, correlation_id)
    assert told(response) == [topic, "missing"]
    assert values_of(response.responses[0].partitions[0].records) == [(0, b"news")]
    assert response.responses[1].partitions[0].error_code == 3


def test_a_later_partition_gives_whole_batches_or_nothing(
    connection: Connection, topics: list[str]
) -> None:
    a, b, _ = topics
    for topic in (a, b):
        connection.produce(topic, batch([b"x" * 1000]))
    request = connection.fetch_request(a, 0)
    request.topics += connection.fetch_request(b, 0).topics
    request.max_bytes = 1500
    first, second = connection.ask("Fetch", 12, request).responses
    assert len(first.partitions[0].records) > 1000
    assert (second.partitions[0].error_code, second.partitions[0].records) == (0, b"")
    request.max_bytes = 2500
    _, second = connection.ask("Fetch", 12, request).responses
    assert len(second.partitions[0].records) > 1000


def test_a_diverging_epoch_says_where_the_logs_part(connection: Connection, topic: str) -> None:
    connection.produce(topic, batch([b"x"]))
    request = connection.fetch_request(topic, 1, max_wait_ms=10_000)
    partition = request.topics[0].partitions[0]
    partition.last_fetched_epoch = 0
    partition.fetch_offset = 5
    answer = connection.ask("Fetch", 12, request).responses[0].partitions[0]
    assert (answer.error_code, answer.diverging_epoch.epoch) == (0, 0)
    assert answer.diverging_epoch.end_offset == 1
    partition.last_fetched_epoch = 9
    assert connection.ask("Fetch", 12, request).responses[0].partitions[0].error_code == 1


def test_the_epoch_of_a_leader_without_records_is_known_after_a_start(tmp_path: Path) -> None:
    """It was refused with OFFSET_OUT_OF_RANGE, although Metadata and OffsetForLeaderEpoch name it:
    a follower would have begun anew, again and again."""
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("orders")
            connection.produce("orders", batch([b"x"]))
        broker.stop()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            metadata = connection.ask("Metadata", 9, messages.MetadataRequest(topics=None))
            request = connection.fetch_request("orders", 1, max_wait_ms=0)
            partition = request.topics[0].partitions[0]
            partition.last_fetched_epoch = metadata.topics[0].partitions[0].leader_epoch
            answer = connection.ask("Fetch", 12, request).responses[0].partitions[0]
            assert (answer.error_code, answer.high_watermark) == (0, 1)
            assert answer.diverging_epoch.end_offset == -1
            partition.last_fetched_epoch += 1
            assert connection.ask("Fetch", 12, request).responses[0].partitions[0].error_code == 1


def test_a_fenced_client_is_told_the_leader_and_where_it_is(
    broker: kafkalite.Broker, connection: Connection, topic: str
) -> None:
    request = connection.fetch_request(topic, 0, topic_id=topic_id_of(connection, topic))
    request.replica_state.replica_id = 2
    response = connection.ask("Fetch", 16, request)
    answer = response.responses[0].partitions[0]
    assert answer.error_code == 6
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 0)
    (endpoint,) = response.node_endpoints
    assert f"{endpoint.host}:{endpoint.port}" == broker.bootstrap_servers


def test_two_readers_of_large_answers_get_every_byte(
    broker: kafkalite.Broker, connection: Connection
) -> None:
    connection.create_topic("big", max_message_bytes=str(1 << 20), segment_bytes=str(1 << 20))
    for number in range(12):
        connection.produce("big", batch([b"%d-" % number + b"z" * 300_000]))
    seen: list[list[int]] = []

    def read() -> None:
        offsets: list[int] = []
        with Connection(broker.bootstrap_servers) as reader:
            while len(offsets) < 12:
                answer = reader.fetch("big", len(offsets), max_bytes=50 << 20)
                assert answer.error_code == 0
                offsets += [offset for offset, _ in values_of(answer.records)]
        seen.append(offsets)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [list(range(12))] * 2


def lay_out_large_batches(segment: Path, size: int, count: int) -> None:
    """Makes of a segment `count` batches of `size` bytes, which take no room: all behind their
    headers is a hole. The CRC is wrong, and nobody looks at it."""
    header = bytearray(batch([b"x"])[:61])
    with segment.open("wb") as file:
        for number in range(count):
            struct.pack_into(">qi", header, 0, number, size - 12)
            file.seek(number * size)
            file.write(header)
        file.truncate(count * size)


def test_an_answer_is_never_larger_than_a_frame_can_be(tmp_path: Path) -> None:
    """Records of 2 GiB less one byte, as was asked for, and the headers of their partitions behind
    that: a size that is no i32. The network thread died of it and the broker lived on, deaf."""
    config = {"fetch.max.bytes": str(INT_MAX)}
    kind = messages.FetchRequest
    partitions = [
        kind.FetchTopic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=INT_MAX)
        for index in range(2)
    ]
    topics = [kind.FetchTopic(topic="huge", partitions=partitions)]
    request = kind(max_wait_ms=0, min_bytes=1, max_bytes=INT_MAX, topics=topics).encode(11)
    with kafkalite.Broker(tmp_path / "data", config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("huge", 2).error_code == 0
        broker.stop()
        for index in range(2):
            segment = tmp_path / f"data/huge-{index}/00000000000000000000.log"
            lay_out_large_batches(segment, size=600 << 20, count=2)
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            connection.send(1, 11, request)
            # It is not waited for: what it says of its size is enough.
            head = connection.socket.recv(100, socket.MSG_WAITALL)
            (size,) = struct.unpack_from(">i", head)
            assert INT_MAX - (1 << 20) < size <= INT_MAX
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.fetch("huge", 2).high_watermark == 2
