"""`kafkalite.write_arrow`: tables of other libraries into topics, and what brokers can do to it."""

import re
import time
from collections.abc import Iterator
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pytest

import kafkalite
from client.fake import Close, FakeBroker
from client.fake_partition import Log, produce_response
from client.silent import mute
from kafkalite.client import LATEST, Admin
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.client.producer.settings import ProducerSettings
from kafkalite.errors import (
    BrokerError,
    ConnectionFailedError,
    InvalidArgumentError,
    RequestTimedOutError,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    # The records are old: retention must not take them.
    with kafkalite.Broker(config={"log.retention.ms": "-1"}) as broker:
        yield broker.bootstrap_servers


def make_topic(servers: str, name: str, partitions: int) -> str:
    with Admin(servers) as admin:
        admin.create_topic(name, partitions=partitions)
    return name


def rows_of(servers: str, topic: str, *columns: str) -> list[Any]:
    rows = kafkalite.read_arrow(topic, servers, columns=columns).to_pyarrow().to_pylist()
    return [tuple(row.values()) for row in rows] if len(columns) > 1 else [
        row[columns[0]] for row in rows
    ]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_a_table_comes_back_as_it_was_written(servers: str, codec: str) -> None:
    topic = make_topic(servers, f"copy-{codec}", 3)
    element = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    count = 5_000
    table = pyarrow.table(
        {
            "key": pyarrow.array([b"k%d" % (at % 90) if at % 3 else None for at in range(count)]),
            "value": pyarrow.array([b"value %d" % at if at % 7 else None for at in range(count)]),
            "partition": pyarrow.array([at % 3 for at in range(count)], pyarrow.int32()),
            "timestamp": pyarrow.array(
                [1_700_000_000_000_000 + at * 1000 for at in range(count)],
                pyarrow.timestamp("us", tz="UTC"),
            ),
            "headers": pyarrow.array(
                [
                    [{"key": "n", "value": b"%d" % at}] if at % 5 == 0 else None
                    for at in range(count)
                ],
                pyarrow.list_(element),
            ),
        }
    )
    written = kafkalite.write_arrow(table, topic, servers, compression_type=codec, batch_size=9_000)
    assert written.records_count == count
    assert [(part.partition, part.records_count) for part in written.partitions] == [
        (0, 1667), (1, 1667), (2, 1666)
    ]  # fmt: skip
    assert [(part.first_offset, part.last_offset) for part in written.partitions] == [
        (0, 1666), (0, 1666), (0, 1665)
    ]  # fmt: skip
    found = kafkalite.read_arrow(topic, servers, columns=table.column_names).to_pyarrow()
    expected = table.sort_by([("partition", "ascending"), ("timestamp", "ascending")])
    assert found.to_pylist() == expected.to_pylist()


def test_pandas_polars_and_duckdb_are_taken_as_they_are(servers: str) -> None:
    topic = make_topic(servers, "frames", 1)
    frames: list[object] = [
        pandas.DataFrame({"value": ["pandas"], "key": ["k"]}),
        polars.DataFrame({"value": ["polars"], "key": ["k"]}),
        duckdb.sql("select 'duckdb' as value, 'k' as key"),
        pyarrow.record_batch({"value": ["pyarrow"], "key": ["k"]}),
        kafkalite.read_arrow(make_topic(servers, "nothing", 1), servers),
    ]
    for frame in frames:
        kafkalite.write_arrow(frame, topic, servers)
    expected = [(b"k", name) for name in (b"pandas", b"polars", b"duckdb", b"pyarrow")]
    assert rows_of(servers, topic, "key", "value") == expected


def test_each_row_says_its_topic_unless_the_call_does(servers: str) -> None:
    first, second = make_topic(servers, "one", 1), make_topic(servers, "two", 2)
    frame = polars.DataFrame({"topic": [first, second, first, second], "value": list("abcd")})
    written = kafkalite.write_arrow(
        frame.with_columns(polars.col("topic").cast(polars.Categorical)), None, servers
    )
    assert written.records_count == 4
    assert rows_of(servers, first, "value") == [b"a", b"c"]
    assert rows_of(servers, second, "value") == [b"b", b"d"]
    kafkalite.write_arrow(frame, first, servers)
    assert rows_of(servers, first, "value") == [b"a", b"c", b"a", b"b", b"c", b"d"]


def test_a_topic_that_is_not_there_is_made_if_the_broker_does_that(servers: str) -> None:
    kafkalite.write_arrow(pyarrow.table({"value": ["v"]}), "made", servers)
    assert rows_of(servers, "made", "value") == [b"v"]
    with (
        kafkalite.Broker(config={"auto.create.topics.enable": "false"}) as broker,
        pytest.raises(BrokerError, match=r"topic 'not-made'.*UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        kafkalite.write_arrow(pyarrow.table({"value": ["v"]}), "not-made", broker.bootstrap_servers)


def test_what_cannot_be_written_is_refused_in_a_sentence(servers: str) -> None:
    topic = make_topic(servers, "refusals", 2)
    good = pyarrow.table({"value": ["v"]})

    def told(rows: object, name: str | None = topic, **settings: Any) -> str:
        with pytest.raises((InvalidArgumentError, TypeError, BrokerError)) as caught:
            kafkalite.write_arrow(rows, name, servers, **settings)
        return str(caught.value)

    assert told(good.rename_columns(["key"])) == "Required attribute 'value' not found"
    assert "topic option required" in told(good, None)
    assert "value attribute unsupported type Int64" in told(pyarrow.table({"value": [1]}))
    assert "list is no Arrow data" in told([1, 2])
    assert "a struct without nulls, not Int64" in told(pyarrow.array([1, 2]))
    assert "no setting batch_sise" in told(good, batch_sise=1)
    assert told(good, acks="2") == "acks is '2', it must be all, -1, 0 or 1"
    assert "compression.type is 'lzo'" in told(good, compression_type="lzo")
    assert "'sasl.mechanism' is not supported" in told(good, sasl_mechanism="PLAIN")
    assert "INVALID_TOPIC_EXCEPTION" in told(good, "no/topic")
    wide = pyarrow.table({"value": ["v", "w" * 2_000_000]})
    assert told(wide).startswith("row 1, topic 'refusals': the record is 2000088 bytes")
    place = pyarrow.table({"value": ["v"], "partition": [2]})
    assert told(place) == "row 0, topic 'refusals': there is no partition 2, but 0 to 1"
    assert rows_of(servers, topic, "value") == []


def test_nobody_there_is_an_error_at_once() -> None:
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1"):
        kafkalite.write_arrow(pyarrow.table({"value": ["v"]}), "t", "127.0.0.1:1")


def table_of(count: int) -> pyarrow.Table:
    return pyarrow.table({"value": [b"%05d" % at for at in range(count)]})


def test_batches_that_a_broker_does_not_answer_are_sent_again_and_kept_once() -> None:
    log = Log()
    broken = []

    def handler(name: str, request: Any) -> Any:
        if name == "Produce" and log.came == 3 and not broken:
            # Taken, but the answer is lost.
            produce_response(request, log.take)
            broken.append(name)
            return Close()
        return log(name, request)

    with FakeBroker(handler) as broker:
        written = kafkalite.write_arrow(
            table_of(5_000), "orders", broker.servers, batch_size=2_000, max_request_size=4_000
        )
    assert broken
    assert log.values == [b"%05d" % at for at in range(5_000)]
    assert written.records_count == 5_000


def test_a_refused_batch_is_an_error_that_names_the_partition() -> None:
    log = Log(refuse={2: 87})
    with (
        FakeBroker(log) as broker,
        pytest.raises(BrokerError, match=r"partition orders-0: .*INVALID_RECORD"),
    ):
        kafkalite.write_arrow(table_of(5_000), "orders", broker.servers, batch_size=2_000)


def test_batches_larger_than_the_topic_allows_are_written_in_parts() -> None:
    log = Log(batch_bytes_max=20_000)
    with FakeBroker(log) as broker:
        written = kafkalite.write_arrow(table_of(5_000), "orders", broker.servers)
    assert log.came > len(log.sizes)
    (part,) = written.partitions
    assert (written.records_count, part.first_offset, part.last_offset) == (5_000, 0, 4_999)
    assert log.values == table_of(5_000)["value"].to_pylist()


def test_a_broker_that_stays_silent_is_given_up_in_time_and_the_partition_named() -> None:
    with (
        FakeBroker(lambda name, _: None if name == "Produce" else ...) as broker,
        pytest.raises(Exception, match=r"partition orders-0 were not acknowledged within 4 s"),
    ):
        kafkalite.write_arrow(
            table_of(10),
            "orders",
            broker.servers,
            request_timeout_ms=4_000,
            delivery_timeout_ms=4_000,
        )


def test_settings_are_kafkas() -> None:
    settings = ProducerSettings.of(
        {"acks": "-1", "compression.type": "GZIP", "compression.gzip.level": 7, "linger.ms": "5"}
    )
    assert (settings.acks, settings.codec, settings.level) == ("all", "gzip", 7)
    assert ProducerSettings.of({"some.thing": "1"}, "kafka.").unknown == ("kafka.some.thing",)
    for wrong, told in {
        "kafka.batch.size": "it must be a whole number",
        "kafka.enable.idempotence": "it must be true or false",
        "kafka.key.serializer": "keys are serialized with ByteArraySerializer",
        "kafka.partitioner.class": "is not supported",
    }.items():
        with pytest.raises(InvalidArgumentError, match=re.escape(wrong)) as caught:
            ProducerSettings.of({wrong.removeprefix("kafka."): "x"}, "kafka.")
        assert told in str(caught.value)
    for pair in (
        {"acks": "1", "enable.idempotence": "true"},
        {"enable.idempotence": "true", "max.in.flight.requests.per.connection": 6},
        {"transactional.id": "t", "acks": "1"},
    ):
        with pytest.raises(InvalidArgumentError, match="idempotence"):
            ProducerSettings.of(pair)


def test_a_setting_that_merely_begins_like_one_without_effect_is_unknown() -> None:
    """`metrics.ricording.level` and `retry.backof.ms` were swallowed, and nobody was told."""
    without_effect = {
        "linger.ms": "5",
        "retries": "3",
        "retry.backoff.ms": "100",
        "metrics.recording.level": "INFO",
        "send.buffer.bytes": "-1",
        "metrics.context.mine": "x",
        "config.providers.file.class": "x",
        "security.protocol": "PLAINTEXT",
    }
    assert ProducerSettings.of(without_effect).unknown == ()
    misspelt = (
        "linger.msx",
        "retry.backof.ms",
        "metrics.ricording.level",
        "metricx",
        "send.buffer",
        "partitioner.a",
        "security.providersx",
    )
    assert ProducerSettings.of(dict.fromkeys(misspelt, "1")).unknown == misspelt


def test_rows_are_sent_while_the_next_ones_are_awaited(servers: str) -> None:
    """Where the first of them had to wait for a connection they went with the next."""
    topic = make_topic(servers, "slow-rows", 1)
    place = (topic, 0)

    def rows() -> Iterator[pyarrow.RecordBatch]:
        with Admin(servers) as admin:
            for number in range(3):
                yield pyarrow.record_batch({"value": [str(number)]})
                deadline = time.monotonic() + 30
                while admin.list_offsets({place: LATEST})[place].offset <= number:
                    assert time.monotonic() < deadline

    schema = pyarrow.schema({"value": pyarrow.string()})
    reader = pyarrow.RecordBatchReader.from_batches(schema, rows())
    written = kafkalite.write_arrow(reader, topic, servers, batch_size=0)
    assert written.records_count == 3


def test_rows_wait_no_longer_for_a_broker_that_is_silent_than_it_takes_to_see_that() -> None:
    with mute() as (host, port), FakeBroker(partitions=1) as broker:
        broker._handler = lambda name, _: (
            broker.metadata({2: (host, port)}, leader=2) if name == "Metadata" else ...
        )
        with DrivenProducer(broker.servers, request_timeout_ms=3_600_000) as producer:
            producer.send("orders", b"value", partition=0)
            producer._close_batches(producer._accumulator.opened())
            producer.poll()
            producer.start()
            assert producer.pending_count == 1
            started = producer._sender.starting_since
            assert started is not None
            assert time.monotonic() - started >= 2
            with pytest.raises(RequestTimedOutError):
                producer.close(0)
