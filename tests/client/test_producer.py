"""The producer against a broker that refuses, forgets and breaks off."""

import random
import select
from collections.abc import Callable
from typing import Any

import pytest

import kafkalite
from client.fake import Close, FakeBroker
from client.fake_partition import Log, send_each, values
from kafkalite import Broker
from kafkalite._native import partition_for_key, read_batches
from kafkalite.client import Admin, Cluster, Producer
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.errors import (
    BrokerError,
    InvalidArgumentError,
    KafkaliteError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkalite.protocol import messages


def test_records_arrive_in_order_with_their_offsets() -> None:
    log = Log()
    with (
        FakeBroker(log) as broker,
        DrivenProducer(broker.servers, linger_ms=0, batch_bytes=1) as producer,
    ):
        told = send_each(producer, 20)
        producer.flush()
    assert log.values == values(20)
    assert told == [(None, offset) for offset in range(20)]
    assert [stamp[2] for stamp in log.stamps] == list(range(20))


def test_a_client_draws_nothing_from_the_random_numbers_of_the_program() -> None:
    """It did, also on threads of its own, for a partition or a pause: a program that had seeded
    `random` got other numbers, and hypothesis blamed the strategies of whatever test ran then."""
    before = random.getstate()
    is_refused = iter([True])
    with (
        FakeBroker(Log()) as broker,
        DrivenProducer(broker.servers, linger_ms=0) as producer,
        Cluster(broker.servers) as cluster,
    ):
        producer.send("orders", b"to any partition")
        producer.flush()

        def refuse_once() -> None:
            cluster.refresh(["orders"])
            if next(is_refused, False):
                raise BrokerError("", code=5, name="LEADER_NOT_AVAILABLE", retriable=True)

        cluster.retry(refuse_once)
    assert random.getstate() == before


@pytest.mark.parametrize("refused", [{1: 6}, {2: 7}, {1: 5, 2: 5, 9: 6}, {3: 19, 4: 3}])
def test_batches_refused_for_a_while_are_sent_again_in_their_order(refused: dict[int, int]) -> None:
    log = Log(refused)
    with (
        FakeBroker(log) as broker,
        DrivenProducer(broker.servers, linger_ms=0, batch_bytes=1) as producer,
    ):
        told = send_each(producer, 12)
        producer.flush()
    assert log.values == values(12)
    assert [error for error, _ in told] == [None] * 12
    assert {stamp[:2] for stamp in log.stamps} == {(7, 0)}


def test_an_answer_that_is_lost_leads_to_no_duplicate() -> None:
    log = Log()
    lost: list[int] = []

    def lose(name: str, request: Any) -> Any:
        answer = log(name, request)
        if name == "Produce" and len(log.values) >= 4 and not lost:
            lost.append(1)
            return Close()
        return answer

    with (
        FakeBroker(lose) as broker,
        DrivenProducer(broker.servers, linger_ms=0, batch_bytes=1) as producer,
    ):
        told = send_each(producer, 10)
        producer.flush()
    assert lost
    assert log.values == values(10)
    assert len(told) == 10


def test_what_is_never_acknowledged_is_given_up_after_the_delivery_time_out() -> None:
    with (
        FakeBroker(lambda name, *_: None if name == "Produce" else ...) as broker,
        DrivenProducer(broker.servers, linger_ms=0, delivery_timeout_ms=3_000) as producer,
    ):
        # Of Produce alone: a busy machine has longer to connect.
        producer._sender._options = producer._sender._options._replace(request_timeout_ms=300)
        producer.send("orders", b"value")
        with pytest.raises(RequestTimedOutError, match=r"1 record .* was not .* 3 s: no answer"):
            producer.flush()
        assert producer.pending_bytes == 0
        sent = [request for request in broker.seen if request.name == "Produce"]
        assert len(sent) > 1


def test_flush_says_what_is_still_under_way() -> None:
    with (
        FakeBroker(lambda name, *_: None if name == "Produce" else ...) as broker,
        DrivenProducer(broker.servers) as producer,
    ):
        producer.send("orders", b"value")
        with pytest.raises(RequestTimedOutError, match="1 batch was"):
            producer.flush(timeout_ms=100)
        with pytest.raises(RequestTimedOutError):
            producer.close(0)


def test_acks_0_waits_for_no_answer() -> None:
    log = Log()

    def silent(name: str, request: Any) -> Any:
        answer = log(name, request)
        return None if name == "Produce" else answer

    with FakeBroker(silent) as broker:
        with DrivenProducer(broker.servers, acks=0, linger_ms=0) as producer:
            told = send_each(producer, 3)
            producer.flush()
            assert told == [(None, -1)] * 3
            # The connection is served in order, so that what comes after it has seen it.
            producer._sender._links[1].connection.request(messages.MetadataRequest(topics=None))
        assert log.values == values(3)
        assert broker.of("Produce")[0].acks == 0


def test_acks_0_is_not_sent_where_the_broker_has_hung_up() -> None:
    """It does after `connections.max.idle.ms`, and what was sent next was gone without a word."""
    log = Log()
    hung_up: list[Close] = []

    def handle(name: str, request: Any) -> Any:
        answer = log(name, request)
        if name != "Produce":
            return answer
        if not hung_up:
            hung_up.append(Close())
            return hung_up[0]
        return None

    with (
        FakeBroker(handle) as broker,
        DrivenProducer(broker.servers, acks=0, linger_ms=0) as producer,
    ):
        send_each(producer, 1)
        producer.flush()
        connection = producer._sender._links[1].connection
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        assert poller.poll(30_000)
        for each in (b"1", b"2"):
            producer.send("orders", each, partition=0)
            producer.flush()
        producer._sender._links[1].connection.request(messages.MetadataRequest(topics=None))
    assert log.values == values(3)


def test_records_gather_in_a_batch_until_it_is_full() -> None:
    log = Log()
    with FakeBroker(log) as broker, DrivenProducer(broker.servers, linger_ms=60_000) as producer:
        for _ in range(100):
            producer.send("orders", bytes(1000), partition=0)
        producer.flush()
    sizes = [request.topic_data[0].partition_data[0].records for request in broker.of("Produce")]
    assert all(len(records) <= 16_384 for records in sizes)
    assert len(sizes) == 7


def test_headers_count_as_the_rest_of_a_record_does() -> None:
    """They were left out: a batch grew beyond batch.size by the headers of its last record, and
    what was under way beyond buffer.memory."""
    log = Log()
    with (
        FakeBroker(log) as broker,
        DrivenProducer(broker.servers, linger_ms=60_000, batch_bytes=5000) as producer,
    ):
        for number in range(10):
            headers = [("name", bytes(1000)), ("none", None)]
            producer.send("orders", str(number).encode(), headers=headers, partition=0)
            if number == 3:
                assert producer.pending_bytes > 4000
        producer.flush()
    assert log.values == values(10)
    assert max(log.sizes) <= 5000
    assert len(log.sizes) == 3


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("idempotent", [None, False])
def test_a_batch_larger_than_the_topic_allows_goes_in_parts(
    codec: str, idempotent: bool | None
) -> None:
    """All its records were given up, as though each of them were too large. Kafka's producer splits
    it."""
    log = Log(refuse={4: 6}, batch_bytes_max=500)
    told: list[tuple[KafkaliteError | None, int]] = []
    size = 0 if codec == "none" else 70
    with (
        FakeBroker(log) as broker,
        DrivenProducer(
            broker.servers,
            linger_ms=60_000,
            batch_bytes=3000,
            codec=codec,
            idempotent=idempotent,
            max_in_flight=5 if idempotent is None else 1,
        ) as producer,
    ):
        for number in range(200):
            producer.send(
                "orders",
                str(number).encode(),
                headers=[("random", random.randbytes(size))],
                partition=0,
                on_delivery=lambda error, _topic, _partition, offset: told.append((error, offset)),
            )
        producer.flush()
        assert producer.pending_bytes == 0
    assert log.values == values(200)
    assert told == [(None, offset) for offset in range(200)]
    assert len(log.sizes) >= 10
    assert max(log.sizes) <= 500
    if idempotent is None:
        assert {stamp[:2] for stamp in log.stamps} == {(7, 0)}


def test_a_record_larger_than_the_topic_allows_is_given_up_alone() -> None:
    log = Log(batch_bytes_max=500)
    with FakeBroker(log) as broker:
        producer = DrivenProducer(broker.servers, linger_ms=60_000)
        for number in range(8):
            producer.send("orders", bytes(600 if number == 5 else 1), partition=0)
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.flush()
        assert (producer.sent_count, producer.failed_count) == (7, 1)
        producer.close()
    assert log.values == [bytes(1)] * 7


def test_linger_ends_a_batch_that_is_not_full() -> None:
    log = Log()
    with FakeBroker(log) as broker, DrivenProducer(broker.servers, linger_ms=20) as producer:
        producer.send("orders", b"alone")
        for _ in range(100):
            producer.poll(50)
            if producer.sent_count:
                break
        assert producer.sent_count == 1
        assert producer.pending_count == 0


def test_records_without_a_key_change_partitions_by_the_batch() -> None:
    log = Log()
    with (
        FakeBroker(log, partitions=4) as broker,
        DrivenProducer(
            broker.servers, batch_bytes=2000, linger_ms=60_000, idempotent=False
        ) as producer,
    ):
        for _ in range(400):
            producer.send("orders", bytes(100))
        producer.flush()
        rows = [
            row for request in broker.of("Produce") for row in request.topic_data[0].partition_data
        ]
    # Each is drawn: that all are the same one happens in none of 10**12 runs.
    assert len({row.index for row in rows}) > 1
    assert sorted(len(read_batches(row.records)[0].records) for row in rows)[1] > 10


def test_the_same_key_goes_to_the_same_partition() -> None:
    # Without sequence numbers, which `Log` counts for one partition only.
    with (
        FakeBroker(Log(), partitions=5) as broker,
        DrivenProducer(broker.servers, acks="1") as producer,
    ):
        for number in range(50):
            producer.send("orders", b"value", b"key-%d" % (number % 10))
        producer.flush()
        for request in broker.of("Produce"):
            for row in request.topic_data[0].partition_data:
                for record in read_batches(row.records)[0].records:
                    assert partition_for_key(record[2], 5) == row.index


def test_a_broker_without_producer_ids_is_written_to_without_one_unless_it_must() -> None:
    log = Log()
    with FakeBroker(log) as broker:
        del broker.versions["InitProducerId"]
        with DrivenProducer(broker.servers) as producer:
            producer.send("orders", b"value")
            producer.flush()
        assert log.stamps == [(-1, -1, -1)]
        with DrivenProducer(broker.servers, idempotent=True) as producer:
            producer.send("orders", b"value")
            with pytest.raises(UnsupportedVersionError, match="InitProducerId"):
                producer.flush()


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="acks"):
        DrivenProducer("localhost:1", acks=3)
    with pytest.raises(InvalidArgumentError, match="acks=all"):
        DrivenProducer("localhost:1", acks=1, idempotent=True)
    with pytest.raises(InvalidArgumentError, match="codec"):
        DrivenProducer("localhost:1", codec="rar")


def test_a_partition_that_there_is_not_is_refused_with_those_there_are() -> None:
    with (
        FakeBroker(partitions=2) as broker,
        DrivenProducer(broker.servers) as producer,
        pytest.raises(InvalidArgumentError, match="no partition 2, but 0 to 1"),
    ):
        producer.send("orders", b"value", partition=2)


def test_a_record_with_a_key_waits_for_a_broker_that_is_away() -> None:
    """Once a batch had come back, who leads was to be looked up anew, and `send` raised a
    ConnectionFailedError for every record with a key until the broker was there again."""
    log = Log()
    closed: list[str] = []

    def handle(name: str, request: Any) -> Any:
        if name in ("Produce", "Metadata") and closed and len(closed) < 4:
            closed.append(name)
            return Close()
        return log(name, request)

    with FakeBroker(handle) as broker, DrivenProducer(broker.servers, linger_ms=0) as producer:
        producer.send("orders", b"0", key=b"key")
        producer.flush()
        closed.append("from now on")
        for number in range(1, 4):
            producer.cluster.forget("orders")  # as after a batch that has come back
            producer.send("orders", str(number).encode(), key=b"key")
        producer.flush()
    assert log.values == values(4)
    assert len(closed) == 4


def test_open_batches_make_room_before_they_are_old() -> None:
    """`send` waited for the end of linger_ms where all of buffer_bytes were batches that nothing
    had closed."""
    with (
        FakeBroker(Log(), partitions=4) as broker,
        DrivenProducer(
            broker.servers, linger_ms=3_600_000, buffer_bytes=1_500, idempotent=False
        ) as producer,
    ):
        for partition in range(4):
            producer.send("orders", bytes(1_000), partition=partition)
        assert producer.pending_bytes <= 1_500 + 1_100  # another is taken when there is room
        producer.flush()
        assert producer.sent_count == 4


def test_partitions_that_are_added_later_get_records_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic was never looked at again while nothing failed."""
    monkeypatch.setattr("kafkalite.client.producer.loop.TOPICS_AGE_S", 0.0)
    with kafkalite.Broker() as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin, DrivenProducer(servers) as producer:
            admin.create_topic("grows", partitions=1)
            producer.send("grows", b"a record")
            producer.flush()
            admin.create_partitions("grows", 3)
            producer.poll(0)
            assert len(producer.topic("grows").partitions) == 3


def test_a_partition_that_was_added_takes_records_before_the_topic_is_looked_at_again() -> None:
    """It was refused for five minutes."""
    with kafkalite.Broker() as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin, DrivenProducer(servers) as producer:
            admin.create_topic("grows", partitions=1)
            producer.send("grows", b"a record", partition=0)
            admin.create_partitions("grows", 3)
            producer.send("grows", b"another", partition=2)
            producer.flush()
            assert producer.sent_count == 2
            with pytest.raises(InvalidArgumentError, match="no partition 3, but 0 to 2"):
                producer.send("grows", b"nowhere", partition=3)


def test_a_broker_that_hangs_up_on_each_request_is_said_to_take_smaller_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As Kafka does where a request is larger than socket.request.max.bytes: it was sent again for
    two minutes, and nobody was told why."""
    told: list[KafkaliteError | None] = []
    handler = lambda name, _: Close() if name == "Produce" else ...  # noqa: E731
    with FakeBroker(handler) as broker, Producer(broker.servers, delivery_timeout_ms=3_000) as each:
        each.send("orders", b"v" * 5_000, on_delivery=lambda error, *_: told.append(error))
        with pytest.raises(RequestTimedOutError, match=r"socket\.request\.max\.bytes"):
            each.flush()
    assert "socket.request.max.bytes" in str(told[0])
    (line,) = [line for line in caplog.messages if "3 times after each other" in line]
    assert "the request has 50" in line
    assert "request_bytes_max" in line


def test_a_topic_that_is_made_since_it_is_sent_to_is_told(
    kafka_broker: Broker, kafka_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt name became a topic without a word."""
    with Producer(kafka_broker.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"there")
        producer.flush()
        assert caplog.messages == []
        producer.send(f"{kafka_topic}-misspelt", b"not there")
        producer.flush()
        producer.send(f"{kafka_topic}-misspelt", b"there by now")
        producer.flush()
    sentence = f"topic '{kafka_topic}-misspelt' does not exist; the broker is asked to create it"
    assert caplog.messages == [sentence]


@pytest.mark.parametrize("call", [Producer.flush, Producer.poll])
def test_what_waits_for_records_is_refused_by_a_producer_that_has_been_closed(
    kafka_broker: Broker, kafka_topic: str, call: Callable[[Producer], None]
) -> None:
    """It did nothing, in silence; a callback that `close` calls may."""
    told: list[int] = []
    producer = Producer(kafka_broker.bootstrap_servers, linger_ms=60_000)
    producer.send(kafka_topic, b"v", on_delivery=lambda *_: (call(producer), told.append(1))[1])
    producer.close()
    assert told == [1]
    producer.close()
    with pytest.raises(InvalidArgumentError, match="the producer has been closed"):
        call(producer)
