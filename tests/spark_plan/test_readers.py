"""The readers as Spark's Python processes use them, without Spark: batches, streams, refusals."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
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
from arrow.encoder import LogWriter, Record
from kafkalite.client import Admin, Producer
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.spark.plan.planner import DataLossError
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


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    with Admin(servers) as admin:
        admin.create_topic(name, partitions=2)
    append(servers, name, 0, 100)
    return name


def without_ids(offsets: Any) -> dict[str, Any]:
    """As Spark's connector has them."""
    return {topic: partitions for topic, partitions in offsets.items() if partitions}


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


def refused_stream(servers: str) -> Any:
    return source(servers, "none", endingOffsets="{").streamReader(SCHEMA)


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


def first_offsets(reader: StreamReader) -> object:
    try:
        return reader.initialOffset()
    finally:
        reader.stop()


@pytest.mark.parametrize(
    "ask",
    [
        lambda servers: source(servers, "none", value__format="json").schema(),
        lambda servers: source(servers, "none", startingOffsets="latest").reader(SCHEMA),
        lambda servers: source(servers, "none").reader(SCHEMA).partitions(),
        lambda _: source("127.0.0.1:1", "none").reader(SCHEMA).partitions(),
        lambda servers: first_offsets(stream(servers, "none")),
        lambda servers: refused_stream(servers).initialOffset(),
        lambda servers: refused_stream(servers).latestOffset({}, ReadAllAvailable()),
        lambda servers: refused_stream(servers).partitions({}, {}),
    ],
)
def test_a_refusal_is_told_without_the_way_that_it_took(
    servers: str, ask: Callable[[str], object]
) -> None:
    """PySpark shows the traceback of what is raised: a topic that is not there took 31 lines."""
    with pytest.raises(KafkaliteError) as caught:
        ask(servers)
    passed = [Path(each.filename) for each in extract_tb(caught.value.__traceback__)]
    assert {path.name for path in passed} == {Path(__file__).name, "sentence.py"}
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)


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
    sentence = (
        rf"^{topic}-0: offset 0 is no longer there, the log starts at 20 \(offsets gone: 20\)"
        r" \(failOnDataLoss=false goes on with what there is\)$"
    )
    with pytest.raises(KafkaliteError, match=sentence):
        rows(strict, plans[0])
    assert numbers(rows(lenient, plans[1])) == [*range(1, 40, 2), *range(40, 100)]


@pytest.fixture
def files(tmp_path: Path) -> LogWriter:
    """A partition's files, with five records a segment and the offsets for values."""
    log = LogWriter(tmp_path / "orders-0")
    for segment in range(4):
        if segment:
            log.roll()
        log.append([Record(value=b"%d" % (5 * segment + each)) for each in range(5)])
    return log


def of_files(log: LogWriter, **options: str) -> KafkaliteDataSource:
    return KafkaliteDataSource({"path": str(log.directory), **options})


@pytest.mark.parametrize("when", ["planned before", "planned after"])
def test_records_that_are_gone_from_files_fail_a_stream_or_are_skipped(
    files: LogWriter, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What retention had removed failed the tasks of a query that was to go on with what there
    is."""
    start, end = {"orders": {"0": 2}}, {"orders": {"0": 18}}
    strict, lenient = (
        of_files(files, failOnDataLoss=word, startingOffsets="earliest").streamReader(SCHEMA)
        for word in ("true", "false")
    )
    delete = files.path(base_offset=0).unlink
    if when == "planned after":
        delete()
        with pytest.raises(DataLossError, match=r"orders-0: offset 2 is no longer there, .* at 5 "):
            strict.partitions(start, end)
        assert numbers(rows(lenient, lenient.partitions(start, end))) == list(range(5, 18))
    else:
        plans = [list(reader.partitions(start, end)) for reader in (strict, lenient)]
        delete()
        with pytest.raises(KafkaliteError, match=r"^orders-0: offset 2 is no longer there"):
            rows(strict, plans[0])
        assert numbers(rows(lenient, plans[1])) == list(range(5, 18))
    assert "may have been lost: orders-0: offset 2 is no longer there" in caplog.text


def test_files_that_end_earlier_than_planned_fail_a_query_or_are_read_to_their_end(
    files: LogWriter,
) -> None:
    """Rows were missing without a word."""
    readers = [of_files(files, failOnDataLoss=word).reader(SCHEMA) for word in ("true", "false")]
    plans = [list(reader.partitions()) for reader in readers]
    files.path(base_offset=15).unlink()
    with pytest.raises(
        KafkaliteError,
        match=r"^orders-0: offset 20 is not there yet.*ends at 15 \(failOnDataLoss=false .*\)$",
    ):
        rows(readers[0], plans[0])
    assert numbers(rows(readers[1], plans[1])) == list(range(15))


@pytest.mark.parametrize("is_left", [False, True], ids=["no directory", "an empty directory"])
def test_a_partition_whose_files_go_after_the_plan_fails_a_query_or_is_left_out(
    files: LogWriter, is_left: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It failed either way."""
    readers = [of_files(files, failOnDataLoss=word).reader(SCHEMA) for word in ("true", "false")]
    plans = [list(reader.partitions()) for reader in readers]
    shutil.rmtree(files.directory)
    if is_left:
        files.directory.mkdir()
    with pytest.raises(KafkaliteError, match="orders-0"):
        rows(readers[0], plans[0])
    assert rows(readers[1], plans[1]) == []
    assert "may have been lost: the partition orders-0 is gone: " in caplog.text


def test_a_partition_whose_files_are_gone_fails_a_stream_or_is_left_out(files: LogWriter) -> None:
    """Its task asked brokers, of which there are none."""
    start, end = {"orders": {"0": 2}}, {"orders": {"0": 18}}
    root = {"path": str(files.directory.parent), "startingOffsets": "earliest"}
    shutil.rmtree(files.directory)
    LogWriter(files.directory.with_name("orders-1"))
    strict = KafkaliteDataSource(root).streamReader(SCHEMA)
    with pytest.raises(DataLossError, match="the partition orders-0 is gone"):
        strict.partitions(start, end)
    lenient = KafkaliteDataSource({**root, "failOnDataLoss": "false"}).streamReader(SCHEMA)
    assert list(lenient.partitions(start, end)) == []


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
    assert start == reader.initialOffset()
    assert without_ids(start) == {topic: {"0": 0, "1": 0}}
    found, ends = [], []
    while (end := reader.latestOffset(start, ReadMaxRows(30))) != start:
        found += rows(reader, reader.partitions(start, end))
        start = end
        ends.append(end[topic]["0"])
    assert ends == [15, 30, 45, 50]
    assert numbers(found) == list(range(100))
    assert without_ids(reader.reportLatestOffset()) == {topic: {"0": 50, "1": 50}}
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
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    end = reader.latestOffset(start, ReadAllAvailable())
    assert without_ids(end) == {topic: {"0": 52, "1": 52, "2": 2}}
    assert numbers(rows(reader, reader.partitions(start, end))) == list(range(100, 106))
    reader.stop()


def repeat_the_first_micro_batch(reader: StreamReader, end: Any) -> list[Any]:
    """As Spark does after a restart: the end is in the checkpoint, the start is asked for anew."""
    return rows(reader, reader.partitions(reader.initialOffset(), end))


@pytest.mark.parametrize(
    "where",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"TOPIC":{"0":-1,"1":-1}}'},
        {"startingTimestamp": "4102444800000", "startingOffsetsByTimestampStrategy": "latest"},
    ],
    ids=["latest", "offsets", "timestamp"],
)
def test_a_stream_from_the_end_that_fails_in_its_first_micro_batch_loses_nothing(
    servers: str, request: pytest.FixtureRequest, where: dict[str, str]
) -> None:
    """The first micro-batch had what came in between, and began where the log ended by then when
    it was repeated: it had no rows any more, or failed over an end that went back."""
    topic = f"failed-at-first-{request.node.callspec.id}"
    with Admin(servers) as admin:
        admin.create_topic(topic, partitions=2)
    append(servers, topic, 0, 100)
    where = {name: value.replace("TOPIC", topic) for name, value in where.items()}
    reader = stream(servers, topic, **where)
    start = reader.initialOffset()
    append(servers, topic, 100, 110)
    end = reader.latestOffset(start, ReadAllAvailable())
    rows(reader, reader.partitions(start, end))
    reader.stop()
    append(servers, topic, 110, 120)
    again = stream(servers, topic, **where)
    begin = again.initialOffset()
    assert again.partitions(begin, end) == again.partitions(begin, end), "Spark may ask twice"
    found = rows(again, again.partitions(begin, end))
    found += rows(again, again.partitions(end, again.latestOffset(end, ReadAllAvailable())))
    assert numbers(found) == list(range(100, 120))
    again.stop()


def test_a_repeated_first_micro_batch_is_not_surprised_by_a_partition_that_was_added(
    servers: str, topic: str
) -> None:
    """It was told as a partition that is gone, since the end in the checkpoint does not have it."""
    first = stream(servers, topic)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    first.stop()
    with Admin(servers) as admin:
        admin.create_partitions(topic, 3)
    append(servers, topic, 100, 130, partitions=3)
    again = stream(servers, topic)
    found = repeat_the_first_micro_batch(again, end)
    found += rows(again, again.partitions(end, again.latestOffset(end, ReadAllAvailable())))
    assert numbers(found) == list(range(130))
    again.stop()


@pytest.mark.parametrize("where", [{}, {"startingTimestamp": "1000"}], ids=["earliest", "time"])
def test_a_repeated_first_micro_batch_tells_that_its_beginning_may_have_been_deleted(
    servers: str, request: pytest.FixtureRequest, where: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """By a timestamp nothing was told: the first record that was as late by then was taken for the
    one with which the stream had begun."""
    topic = f"deleted-since-{request.node.callspec.id}"
    with Admin(servers) as admin:
        admin.create_topic(topic, partitions=2)
    append(servers, topic, 0, 100)
    first = stream(servers, topic, **where)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    first.stop()
    with Admin(servers) as admin:
        admin.delete_records({(topic, 0): 20})
    again = stream(servers, topic, **where)
    assert numbers(repeat_the_first_micro_batch(again, end)) == [*range(1, 40, 2), *range(40, 100)]
    assert f"of {topic}-0 from offset 20 on" in caplog.text
    assert f"{topic}-1" not in caplog.text
    again.stop()


def test_available_now_ends_where_it_began_to_look(servers: str, topic: str) -> None:
    reader = stream(servers, topic, minOffsetsPerTrigger="1000")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert without_ids(reader.latestOffset(start, ReadMaxRows(10))) == {topic: {"0": 5, "1": 5}}
    append(servers, topic, 100, 110)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert without_ids(end) == {topic: {"0": 50, "1": 50}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.stop()


def test_a_stream_waits_for_its_least_but_for_the_first_time(servers: str, topic: str) -> None:
    reader = stream(servers, topic, minOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMinRows(20)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMinRows(20))
    assert without_ids(end) == {topic: {"0": 50, "1": 50}}
    append(servers, topic, 100, 110)
    assert reader.latestOffset(end, ReadMinRows(20)) == end
    assert without_ids(reader.latestOffset(end, ReadAllAvailable())) == {topic: {"0": 55, "1": 55}}
    append(servers, topic, 110, 120)
    assert without_ids(reader.latestOffset(end, ReadMinRows(20))) == {topic: {"0": 60, "1": 60}}
    reader.stop()


def test_a_checkpoint_of_another_source_is_named(servers: str, topic: str) -> None:
    reader = stream(servers, topic)
    told = "the checkpoint's offsets are .* not offsets of topics .* a checkpoint of its own"
    others: list[Any] = [17, {"logOffset": 3}, {"orders": 5}]
    for offsets in others:
        with pytest.raises(InvalidArgumentError, match=told):
            reader.latestOffset(offsets, ReadAllAvailable())
        with pytest.raises(InvalidArgumentError, match=told):
            reader.partitions(offsets, offsets)
    reader.stop()


def test_a_checkpoint_of_another_topic_is_named(servers: str, topic: str) -> None:
    reader = stream(servers, topic)
    start = {"payments": {"0": 7, "1": 9}}
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLossError, match=r"the checkpoint is of payments, .* of its own"):
        reader.partitions(start, end)
    reader.stop()
    reader = stream(servers, topic, failOnDataLoss="false")
    assert numbers(rows(reader, list(reader.partitions(start, end)))) == list(range(100))
    reader.stop()
