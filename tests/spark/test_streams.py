"""What a stream of kafkalite's promises beyond the rows of its micro-batches: it notices partitions
that are added, its timestamps carry watermarks, it waits and catches up as the options say, and
after a failure it reads again exactly what its checkpoint says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from kafkalite import Broker
from kafkalite.client.admin import Admin
from oracle.tools import Record
from spark.reading import CONNECTOR, Row, ends_of, read_stream, rows, stream_what_is_there
from spark.records import START_MS, create, send

pytestmark = pytest.mark.oracle


@contextmanager
def running(writer: Any, checkpoint: Path) -> Iterator[StreamingQuery]:
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def texts(topic: str, partition: int, *values: str, at_s: int = 0) -> list[Record]:
    return [
        Record(topic, each.encode(), partition=partition, timestamp=START_MS + 1000 * at_s)
        for each in values
    ]


def test_partitions_added_while_a_stream_runs_are_read_from_their_first_record(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    topic = f"growing-{engine}"
    servers = broker.bootstrap_servers
    create(servers, topic, 1)
    send(servers, texts(topic, 0, "a", "b"))
    found: list[Row] = []

    def keep(batch: DataFrame, _: int) -> None:
        found.extend(rows(batch.selectExpr("topic", "partition", "offset", "string(value)")))

    options = {"subscribe": topic, "startingOffsets": "earliest"}
    writer = read_stream(spark, engine, servers, options).writeStream.foreachBatch(keep)
    with running(writer, tmp_path / "checkpoint") as query:
        query.processAllAvailable()
        with Admin(servers) as admin:
            admin.create_partitions(topic, 3)
        send(servers, [*texts(topic, 2, "c", "d"), *texts(topic, 0, "e")])
        # Told of new partitions at once or a little later; every trigger asks.
        query.processAllAvailable()
        send(servers, texts(topic, 1, "f"))
        query.processAllAvailable()
    by_place = [(partition, offset, value) for _, partition, offset, value in found]
    assert sorted(by_place) == [
        (0, 0, "a"),
        (0, 1, "b"),
        (0, 2, "e"),
        (1, 0, "f"),
        (2, 0, "c"),
        (2, 1, "d"),
    ]
    assert ends_of(tmp_path / "checkpoint")[-1] == {topic: {"0": 3, "1": 1, "2": 2}}


def test_records_behind_the_watermark_are_left_out_of_closed_windows(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    topic = f"late-{engine}"
    servers = broker.bootstrap_servers
    create(servers, topic, 2)
    send(servers, [*texts(topic, 0, "in time", at_s=1), *texts(topic, 1, "in time", at_s=4)])
    found: list[tuple[int, int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        table = batch.selectExpr("unix_seconds(window.start)", "count").toArrow()
        start, counts = (column.to_pylist() for column in table.columns)
        found.extend(zip([each - START_MS // 1000 for each in start], counts, strict=True))

    frame = read_stream(spark, engine, servers, {"subscribe": topic, "startingOffsets": "earliest"})
    counts = (
        frame.withWatermark("timestamp", "10 seconds")
        .selectExpr("window(timestamp, '20 seconds') AS window")
        .groupBy("window")
        .count()
    )
    writer = counts.writeStream.outputMode("append").foreachBatch(keep)
    with running(writer, tmp_path / "checkpoint") as query:
        query.processAllAvailable()
        # The watermark goes to second 90, once this batch is over; it closes the first window.
        send(servers, texts(topic, 0, "moves on", at_s=100))
        query.processAllAvailable()
        send(servers, texts(topic, 1, "late, left out", at_s=2))
        send(servers, texts(topic, 1, "late, but its window is open", at_s=95))
        query.processAllAvailable()
        send(servers, texts(topic, 0, "moves on", at_s=200))
        query.processAllAvailable()
        dropped = [
            operator.numRowsDroppedByWatermark
            for progress in query.recentProgress
            for operator in progress.stateOperators
        ]
    assert sorted(found) == [(0, 2), (80, 1), (100, 1)]
    assert sum(dropped) == 1


def test_a_failed_micro_batch_is_read_again_as_its_checkpoint_says(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    topic = f"failing-{engine}-{tmp_path.name}"
    servers = broker.bootstrap_servers
    create(servers, topic, 2)
    send(servers, [each for part in (0, 1) for each in texts(topic, part, *map(str, range(40)))])
    checkpoint = tmp_path / "checkpoint"
    seen: dict[int, list[list[Row]]] = {}
    broken = True

    def keep(batch: DataFrame, number: int) -> None:
        seen.setdefault(number, []).append(rows(batch))
        if broken and number == 1:
            raise RuntimeError("the sink is full")

    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 30}
    writer = (
        read_stream(spark, engine, servers, options)
        .writeStream.foreachBatch(keep)
        .trigger(availableNow=True)
    )
    told = pytest.raises(StreamingQueryException, match="the sink is full")
    with running(writer, checkpoint) as query, told:
        query.awaitTermination()
    planned = ends_of(checkpoint)
    assert sorted(seen) == [0, 1]
    assert planned[1] == {topic: {"0": 30, "1": 30}}
    # More records, and another limit: neither moves what was planned.
    send(servers, texts(topic, 1, "later"))
    broken = False
    options["maxOffsetsPerTrigger"] = 7
    writer = (
        read_stream(spark, engine, servers, options)
        .writeStream.foreachBatch(keep)
        .trigger(availableNow=True)
    )
    with running(writer, checkpoint) as query:
        query.awaitTermination()
    first, again = seen[1]
    assert again == first
    assert ends_of(checkpoint)[:2] == planned
    kept = [row for number in sorted(seen) for row in seen[number][-1]]
    places = [(row[3], row[4]) for row in kept]
    assert sorted(places) == [(part, at) for part, end in ((0, 40), (1, 41)) for at in range(end)]


def test_a_checkpoint_of_the_connector_is_taken_over(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    """A job moves by changing the format's name, with its checkpoint."""
    topic = f"moving-{engine}"
    servers = broker.bootstrap_servers
    create(servers, topic, 2)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 30}
    send(servers, [each for part in (0, 1) for each in texts(topic, part, *map(str, range(20)))])
    before = stream_what_is_there(spark, CONNECTOR, servers, options, tmp_path)
    send(servers, texts(topic, 1, *map(str, range(20, 35))))
    after = stream_what_is_there(spark, engine, servers, options, tmp_path)
    assert [len(batch) for batch in before.batches] == [30, 10]
    assert [[row[3:5] for row in batch] for batch in after.batches] == [
        [(1, offset) for offset in range(20, 35)]
    ]
    assert after.ends == [*before.ends, {topic: {"0": 20, "1": 35}}]


def test_a_checkpoint_goes_back_to_the_connector(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    """The ids of topics, which it does not know, are in keys that it reads past."""
    topic = f"back-{engine}"
    servers = broker.bootstrap_servers
    create(servers, topic, 2)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    send(servers, [each for part in (0, 1) for each in texts(topic, part, "a", "b")])
    before = stream_what_is_there(spark, engine, servers, options, tmp_path)
    send(servers, texts(topic, 1, "c"))
    after = stream_what_is_there(spark, CONNECTOR, servers, options, tmp_path)
    assert [len(batch) for batch in before.batches] == [4]
    assert [[row[3:5] for row in batch] for batch in after.batches] == [[(1, 2)]]
    assert after.ends == [*before.ends, {topic: {"0": 2, "1": 3}}]


@pytest.mark.parametrize("before", [CONNECTOR, "python"])
def test_a_checkpoint_that_is_taken_over_without_new_records_has_no_micro_batch(
    spark: SparkSession, broker: Broker, before: str, tmp_path: Path
) -> None:
    """Each engine has spaces and an order of topics of its own in the JSON of offsets, of which
    Spark compares the texts."""
    topics = [f"still-{before}-{number}" for number in range(5)]
    servers = broker.bootstrap_servers
    for topic in topics:
        create(servers, topic, 2)
        send(servers, texts(topic, 1, "a"))
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest"}
    assert len(stream_what_is_there(spark, before, servers, options, tmp_path).batches) == 1
    assert stream_what_is_there(spark, "jvm", servers, options, tmp_path).batches == []


def test_a_topic_that_was_made_anew_fails_a_query_or_is_read_from_its_beginning(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    """Its first records were left out without a word, as by Spark's connector."""
    topic = f"anew-{engine}"
    servers = broker.bootstrap_servers
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    create(servers, topic)
    send(servers, texts(topic, 0, "a", "b"))
    stream_what_is_there(spark, engine, servers, options, tmp_path)
    with Admin(servers) as admin:
        admin.delete_topics([topic])
    create(servers, topic)
    send(servers, texts(topic, 0, "c", "d", "e"))
    sentence = rf"the topic {topic} was deleted and recreated \(its id was \S+, it is \S+\)"
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=sentence):
            stream_what_is_there(spark, engine, servers, options, tmp_path)
    lenient = {**options, "failOnDataLoss": "false"}
    found = stream_what_is_there(spark, engine, servers, lenient, tmp_path)
    assert [[bytes(row[1]) for row in batch] for batch in found.batches] == [[b"c", b"d", b"e"]]
    send(servers, texts(topic, 0, "f"))
    found = stream_what_is_there(spark, engine, servers, options, tmp_path)
    assert [[bytes(row[1]) for row in batch] for batch in found.batches] == [[b"f"]]


@pytest.mark.parametrize("source", [CONNECTOR, "python", "jvm"])
def test_a_topic_of_a_pattern_that_is_deleted_fails_a_query_or_is_left_out(
    spark: SparkSession, broker: Broker, source: str, tmp_path: Path
) -> None:
    stays, goes = f"of-{source}-stays", f"of-{source}-goes"
    servers = broker.bootstrap_servers
    options = {"subscribePattern": f"^of-{source}-", "startingOffsets": "earliest"}
    for topic in (stays, goes):
        create(servers, topic)
        send(servers, texts(topic, 0, "a"))
    stream_what_is_there(spark, source, servers, options, tmp_path)
    with Admin(servers) as admin:
        admin.delete_topics([goes])
    send(servers, texts(stays, 0, "b"))
    with pytest.raises(StreamingQueryException, match=rf"{goes}-0\b.* (is gone|been deleted)"):
        stream_what_is_there(spark, source, servers, options, tmp_path)
    lenient = {**options, "failOnDataLoss": "false"}
    found = stream_what_is_there(spark, source, servers, lenient, tmp_path)
    assert [[bytes(row[1]) for row in batch] for batch in found.batches] == [[b"b"]]
    assert found.ends[-1] == {stays: {"0": 2}}


def test_a_schema_that_changes_in_mid_stream_loses_nothing(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    """A new field is read from the next start on that names it; a value whose field is of another
    type is no reason to stop, and its text is kept."""
    topic, servers = f"evolving-{engine}", broker.bootstrap_servers
    create(servers, topic)
    options = {"subscribe": topic, "startingOffsets": "earliest", "value.format": "json"}

    columns = "topic,partition,offset,value,_corrupt_record"

    def read_as(schema: str) -> list[tuple[Any, ...]]:
        told = {**options, "value.schema": schema, "columns": columns}
        streamed = stream_what_is_there(spark, engine, servers, told, tmp_path)
        return [(row[2], *row[3].values(), row[4]) for batch in streamed.batches for row in batch]

    send(servers, texts(topic, 0, '{"id": 1}', '{"id": 2, "city": "Oslo"}', '{"id": "three"}'))
    before = read_as("id BIGINT, _corrupt_record STRING")
    assert before == [(0, 1, None), (1, 2, None), (2, None, '{"id": "three"}')]
    send(servers, texts(topic, 0, '{"id": 4, "city": "Rome"}', '{"city": "Lima"}'))
    after = read_as("id BIGINT, city STRING, _corrupt_record STRING")
    assert after == [(3, 4, "Rome", None), (4, None, "Lima", None)]


def test_a_minimum_a_trigger_is_waited_for_until_the_delay_is_over(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    topic = f"waiting-{engine}"
    servers = broker.bootstrap_servers
    create(servers, topic)
    send(servers, texts(topic, 0, "a"))
    sizes: list[int] = []

    def keep(batch: DataFrame, _: int) -> None:
        sizes.append(batch.count())

    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 5}
    for delay in ("10m", "1ms"):
        frame = read_stream(spark, engine, servers, {**options, "maxTriggerDelay": delay})
        with running(frame.writeStream.foreachBatch(keep), tmp_path / "checkpoint") as query:
            query.processAllAvailable()
            send(servers, texts(topic, 0, "b", "c"))
            query.processAllAvailable()
            if delay == "10m":
                assert sizes == [1]  # the first is let through, the second waits for more
                send(servers, texts(topic, 0, "d", "e", "f"))
                query.processAllAvailable()
                assert sizes == [1, 5]
    assert sum(sizes) == 8
    assert sizes[2:] == [2]


@pytest.mark.parametrize("source", [CONNECTOR, "python", "jvm"])
def test_the_delay_begins_with_the_first_look_at_a_topic_without_anything_new(
    spark: SparkSession, broker: Broker, source: str, tmp_path: Path
) -> None:
    """The columnar engine restarted its clock only by what it read, so that the first record of a
    topic that had been empty became a micro-batch by itself."""
    topic = f"empty-{source}"
    servers = broker.bootstrap_servers
    create(servers, topic)
    sizes: list[int] = []

    def keep(batch: DataFrame, _: int) -> None:
        sizes.append(batch.count())

    options = {"subscribe": topic, "minOffsetsPerTrigger": 5, "maxTriggerDelay": "10m"}
    writer = read_stream(spark, source, servers, options).writeStream.foreachBatch(keep)
    with running(writer, tmp_path / "checkpoint") as query:
        query.processAllAvailable()
        send(servers, texts(topic, 0, "a", "b"))
        query.processAllAvailable()
        assert sum(sizes) == 0
        send(servers, texts(topic, 0, "c", "d", "e"))
        query.processAllAvailable()
    assert [size for size in sizes if size] == [5]
