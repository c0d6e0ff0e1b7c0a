"""Produce by frames."""

import pytest

import kafkalite
from api.batches import batch, values_of
from api.raw import Connection
from kafkalite.protocol import messages


def topic_id_of(connection: Connection, topic: str) -> bytes:
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name=topic)])
    topic_id: bytes = connection.ask("Metadata", 12, request).topics[0].topic_id
    return topic_id


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends_and_answers_the_first_offset(
    connection: Connection, topic: str, version: int, acks: int
) -> None:
    topic_id = topic_id_of(connection, topic)
    for expected in (0, 2):
        answer = connection.produce(topic, batch([b"a", b"b"]), acks, version, topic_id)
        assert (answer.error_code, answer.base_offset) == (0, expected)
    assert answer.log_append_time_ms == -1
    if version >= 5:
        assert answer.log_start_offset == 0
    both = 2 * len(batch([b"a", b"b"]))
    records = connection.fetch(topic, 0, min_bytes=both, max_wait_ms=15_000).records
    assert values_of(records) == [(0, b"a"), (1, b"b"), (2, b"a"), (3, b"b")]


def test_versions_below_3_close_the_connection(connection: Connection) -> None:
    connection.send(0, 2, b"\0\1\0\0\0\1\0\0\0\0")
    assert connection.is_closed()


def test_acks_0_is_not_answered_and_appended_in_order(connection: Connection, topic: str) -> None:
    for number in range(50):
        request = connection.produce_request(topic, batch([b"%d" % number]), acks=0)
        connection.send(0, 9, request.encode(9))
    # The next answer on the connection is that of the next request.
    assert connection.produce(topic, batch([b"last"])).base_offset == 50


def test_an_error_with_acks_0_closes_the_connection(connection: Connection) -> None:
    request = connection.produce_request("no-such-topic", batch([b"x"]), acks=0)
    connection.send(0, 9, request.encode(9))
    assert connection.is_closed()


def test_many_requests_in_flight_are_answered_in_order(connection: Connection, topic: str) -> None:
    sent = []
    for number in range(300):
        request = connection.produce_request(topic, batch([b"%d" % number]))
        sent.append(connection.send(0, 9, request.encode(9)))
    for expected, correlation_id in enumerate(sent):
        response = connection.receive(0, 9, correlation_id)
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, expected)


def test_other_requests_keep_their_place_between_produce_requests(
    connection: Connection, topic: str
) -> None:
    produce = connection.produce_request(topic, batch([b"x"]))
    end = messages.ListOffsetsRequest
    partition = end.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    listing = end(replica_id=-1, topics=[end.ListOffsetsTopic(name=topic, partitions=[partition])])
    sent = []
    for _ in range(20):
        sent.append((0, 9, connection.send(0, 9, produce.encode(9))))
        sent.append((2, 7, connection.send(2, 7, listing.encode(7))))
    ends = []
    for key, version, correlation_id in sent:
        response = connection.receive(key, version, correlation_id)
        if key == 2:
            ends.append(response.topics[0].partitions[0].offset)
    assert ends == list(range(1, 21))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, 87),
        (b"", 87),
        (b"\0" * 30, 2),
        (batch([b"x"]) + batch([b"y"]), 87),
        (batch([b"x"], attributes=0x20), 87),
        (batch([b"x"])[:-1] + b"\xff", 2),
    ],
    # Batches have the time in them, and workers of pytest-xdist must find the same tests.
    ids=["null", "empty", "zeros", "two-batches", "control", "crc"],
)
def test_bad_records_are_refused_and_nothing_is_appended(
    connection: Connection, topic: str, records: bytes | None, code: int
) -> None:
    assert connection.produce(topic, records).error_code == code
    assert connection.produce(topic, batch([b"good"])).base_offset == 0


def test_unknown_topics_partitions_and_ids_have_their_errors(
    connection: Connection, topic: str
) -> None:
    assert connection.produce("missing", batch([b"x"])).error_code == 3
    assert connection.produce("", batch([b"x"]), version=13, topic_id=b"\7" * 16).error_code == 100
    request = connection.produce_request(topic, batch([b"x"]))
    request.topic_data[0].partition_data[0].index = 5
    response = connection.ask("Produce", 9, request)
    assert response.responses[0].partition_responses[0].error_code == 3


def test_acks_that_mean_nothing_are_refused(connection: Connection, topic: str) -> None:
    answer = connection.produce(topic, batch([b"x"]), acks=2)
    assert (answer.error_code, answer.base_offset) == (21, -1)


def test_a_transactional_id_without_a_transactional_batch_means_nothing(
    connection: Connection, topic: str
) -> None:
    request = connection.produce_request(topic, batch([b"x"]))
    request.transactional_id = "mine"
    response = connection.ask("Produce", 9, request)
    assert response.responses[0].partition_responses[0].error_code == 0


def test_zstd_needs_version_7(connection: Connection, topic: str) -> None:
    assert connection.produce(topic, batch([b"x"], attributes=4), version=6).error_code == 76


def test_a_request_of_many_megabytes_is_taken(connection: Connection) -> None:
    connection.create_topic("large", max_message_bytes=str(20 << 20))
    value = b"0123456789abcdef" * (1 << 15)
    for expected in range(3):
        assert connection.produce("large", batch([value])).base_offset == expected


def test_nobody_writes_to_the_topic_of_groups(connection: Connection) -> None:
    """Clients could once append to `__consumer_offsets`."""
    asked = messages.FindCoordinatorRequest(coordinator_keys=["any"])
    assert connection.ask("FindCoordinator", 4, asked).coordinators[0].error_code == 0
    assert connection.produce("__consumer_offsets", batch([b"x"])).error_code == 17


def test_who_gives_it_less_time_than_a_flush_takes_is_answered_all_the_same(
    broker: kafkalite.Broker, connection: Connection, topic: str
) -> None:
    """With acks=all and a short time-out each answer was REQUEST_TIMED_OUT, though the records were
    there and on disk a moment later: librdkafka sent them again, for ever."""
    request = connection.produce_request(topic, batch([b"x"]))
    request.timeout_ms = 0
    # With one connection alone a fast flush is the network thread's own, and over at once.
    with Connection(broker.bootstrap_servers) as other:
        rounds = 0
        while True:
            connections = [connection, other] * 10
            sent = [each.send(0, 9, request.encode(9)) for each in connections]
            answers = [
                each.receive(0, 9, correlation_id).responses[0].partition_responses[0]
                for each, correlation_id in zip(connections, sent, strict=True)
            ]
            if not any(answer.error_code for answer in answers):
                break
            # A disk may take a second now and then, but not each time.
            rounds += 1
            assert rounds < 5, answers
