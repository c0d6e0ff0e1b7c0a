"""The readers as Spark's Python processes use them, without Spark: batches, streams, refusals."""

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import kafkalite
from kafkalite.client import Admin, Producer
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.spark.source import KafkaliteDataSource
from kafkalite.spark.stream import StreamReader
from pyspark_kafkalite import DefaultSource

SCHEMA = StructType(
    [
        StructField("offset", LongType()),
        StructField("value", BinaryType()),
        StructField("value_size", IntegerType()),
    ]
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kafkalite.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    with Admin(servers) as admin:
        admin.create_topic(name, partitions=2)
    append(servers, name, 0, 100)
    return name


def append(servers: str, topic: str, start: int, stop: int, partitions: int = 2) -> None:
    with Producer(servers) as producer:
        for number in range(start, stop):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def source(servers: str, topic: str, **options: str) -> KafkaliteDataSource:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    return KafkaliteDataSource(given | {k.replace("__", "."): v for k, v in options.items()})


def rows(reader: Any, partitions: list[InputPartition]) -> list[Any]:
    """What tasks give: reader and partition go to them by pickle."""
    found = []
    for partition in partitions:
        there, its = pickle.loads(pickle.dumps((reader, partition)))  # noqa: S301 - our own
        for batch in there.read(its):
            assert isinstance(batch, pyarrow.RecordBatch)
            found += batch.to_pylist()
    return found


def numbers(found: list[Any]) -> list[int]:
    return sorted(int(row["value"]) for row in found)


def stream(servers: str, topic: str, **options: str) -> StreamReader:
    made = source(servers, topic, **({"startingOffsets": "earliest"} | options))
    reader = made.streamReader(SCHEMA)
    assert isinstance(reader, StreamReader)
    return reader


def test_spark_finds_the_format_by_its_package() -> None:
    assert DefaultSource is KafkaliteDataSource
    assert DefaultSource.name() == "kafkalite"


def test_tasks_read_what_the_driver_planned(servers: str, topic: str) -> None:
    reader = source(servers, topic, minPartitions="6").reader(SCHEMA)
    partitions = list(reader.partitions())
    assert len(partitions) == 6
    append(servers, topic, 100, 120)
    found = rows(reader, partitions)
    assert numbers(found) == list(range(100))
    assert found[0] == {"offset": 0, "value": b"0", "value_size": 1}


def test_text_is_text_before_spark_sees_it(servers: str, topic: str) -> None:
    schema = StructType([StructField("value", StringType())])
    reader = source(servers, topic, value__format="string").reader(schema)
    assert rows(reader, list(reader.partitions()))[0] == {"value": "0"}


def test_an_empty_batch_has_no_rows(servers: str, topic: str) -> None:
    ends = f'{{"{topic}":{{"0":0,"1":0}}}}'
    reader = source(servers, topic, endingOffsets=ends).reader(SCHEMA)
    assert reader.partitions() == []
    assert rows(reader, [InputPartition(None)]) == []


def test_a_schema_that_records_cannot_have_is_refused_before_any_task(
    servers: str, topic: str
) -> None:
    for field in (StructField("colour", StringType()), StructField("offset", StringType())):
        reader = source(servers, topic).reader(StructType([field]))
        with pytest.raises(InvalidArgumentError, match=field.name):
            reader.partitions()


def test_the_engine_of_the_jar_is_not_feigned(servers: str) -> None:
    with pytest.raises(InvalidArgumentError, match="engine is 'jvm'"):
        source(servers, "t", engine="jvm").reader(SCHEMA)


def test_records_that_are_gone_name_their_partition_or_are_skipped(
    servers: str, topic: str
) -> None:
    strict, lenient = (
        source(servers, topic, failOnDataLoss=word).reader(SCHEMA) for word in ("true", "false")
    )
    plans = [list(reader.partitions()) for reader in (strict, lenient)]
    with Admin(servers) as admin:
        admin.delete_records({(topic, 0): 20})
    sentence = rf"^offset 0 is outside the log of {topic}-0, which starts at 20$"
    with pytest.raises(KafkaliteError, match=sentence):
        rows(strict, plans[0])
    assert numbers(rows(lenient, plans[1])) == [*range(1, 40, 2), *range(40, 100)]


def test_a_broker_that_goes_away_is_named_with_the_partition() -> None:
    with kafkalite.Broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=1)
        append(broker.bootstrap_servers, "orders", 0, 10, partitions=1)
        options = {"kafkaConsumer__pollTimeoutMs": "100"}
        reader = source(broker.bootstrap_servers, "orders", **options).reader(SCHEMA)
        partitions = list(reader.partitions())
        broker.kill()
        with pytest.raises(KafkaliteError, match=r"^orders-0: .*\(at offset 0, before 10\)$"):
            rows(reader, partitions)


def test_a_stream_reads_each_record_once_whatever_the_limit(servers: str, topic: str) -> None:
    reader = stream(servers, topic, maxOffsetsPerTrigger="30")
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}} == reader.initialOffset()
    found, ends = [], []
    while (end := reader.latestOffset(start, ReadMaxRows(30))) != start:
        found += rows(reader, reader.partitions(start, end))
        start = end
        ends.append(end[topic]["0"])
    assert ends == [15, 30, 45, 50]
    assert numbers(found) == list(range(100))
    assert reader.reportLatestOffset() == {topic: {"0": 50, "1": 50}}
    assert reader.partitions(start, start) == []
    reader.stop()


def test_a_stream_that_is_restarted_reads_the_same_rows_again(servers: str, topic: str) -> None:
    start, end = {topic: {"0": 7, "1": 0}}, {topic: {"0": 9, "1": 1}}
    first, second = stream(servers, topic), stream(servers, topic, startingOffsets="latest")
    once = rows(first, first.partitions(start, end))
    append(servers, topic, 100, 110)
    assert rows(second, second.partitions(start, end)) == once
    assert numbers(once) == [1, 14, 16]
    first.stop()
    second.stop()


def test_a_partition_that_is_added_is_read_from_its_start(servers: str, topic: str) -> None:
    reader = stream(servers, topic, startingOffsets="latest")
    start = reader.initialOffset()
    with Admin(servers) as admin:
        admin.create_partitions(topic, 3)
    append(servers, topic, 100, 106, partitions=3)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {topic: {"0": 52, "1": 52, "2": 2}}
    assert numbers(rows(reader, reader.partitions(start, end))) == list(range(100, 106))
    reader.stop()


def test_available_now_ends_where_it_began_to_look(servers: str, topic: str) -> None:
    reader = stream(servers, topic, minOffsetsPerTrigger="1000")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(10)) == {topic: {"0": 5, "1": 5}}
    append(servers, topic, 100, 110)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {topic: {"0": 50, "1": 50}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.stop()


def test_a_stream_waits_for_its_least_but_for_the_first_time(servers: str, topic: str) -> None:
    reader = stream(servers, topic, minOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMinRows(20)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMinRows(20))
    assert end == {topic: {"0": 50, "1": 50}}
    append(servers, topic, 100, 110)
    assert reader.latestOffset(end, ReadMinRows(20)) == end
    assert reader.latestOffset(end, ReadAllAvailable()) == {topic: {"0": 55, "1": 55}}
    append(servers, topic, 110, 120)
    assert reader.latestOffset(end, ReadMinRows(20)) == {topic: {"0": 60, "1": 60}}
    reader.stop()
