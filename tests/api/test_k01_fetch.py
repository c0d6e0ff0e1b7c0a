"""Fetch by frames."""

import threading

import pytest

import kafkalite
from api.batches import batch, values_of
from api.raw import Connection
from api.test_k00_produce import topic_id_of


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


def test_a_replicas_fetch_is_refused(connection: Connection, topic: str) -> None:
    request = connection.fetch_request(topic, 0)
    request.replica_id = 2
    assert connection.ask("Fetch", 12, request).responses[0].partitions[0].error_code == 6
    request.replica_state.replica_id = 2
    request.topics[0].topic_id = topic_id_of(connection, topic)
    assert connection.ask("Fetch", 15, request).responses[0].partitions[0].error_code == 6


def test_no_session_is_ever_opened(connection: Connection, topic: str) -> None:
    opening = connection.ask("Fetch", 12, connection.fetch_request(topic, 0, session=(0, 0)))
    assert (opening.error_code, opening.session_id) == (0, 0)
    going_on = connection.ask("Fetch", 12, connection.fetch_request(topic, 0, session=(7, 1)))
    assert (going_on.error_code, going_on.responses) == (70, [])


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
