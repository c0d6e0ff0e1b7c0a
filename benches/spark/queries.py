"""What is asked, by which engine, of which records, and the target that each ratio is held against.

Every query says how many records it has seen, where it can: `run.py` holds that against what the
topic has, so that no engine is fast because it reads less.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import floors
from pyspark.sql import DataFrame, SparkSession, functions
from records import ALL, JSONS, PARTITIONS, PLAIN_100, PLAIN_JSON, VALUES, Data

SCHEMA = "city STRING, amount DOUBLE"
"""Of the JSON objects: what the query needs, the same for every engine."""
ALL_COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "timestampType INT"
)
STREAM_BATCHES = 4
WRITTEN_SHARE = 1 / 3
"""Of the topic's records, in a write."""


@dataclass(frozen=True, eq=False)
class Engine:
    """A way from a topic into Spark and back. `side` names the broker."""

    name: str
    what: str
    side: str
    format: str
    options: dict[str, str] = field(default_factory=dict)
    write_options: dict[str, str] = field(default_factory=dict)
    share: float = 1.0
    """Of the topic's records, at its end, that it reads: slow engines read fewer; all figures are
    per record."""

    @property
    def prunes_by_option(self) -> bool:
        """Spark prunes no columns of a Python Data Source, so that the query names them."""
        return self.options.get("engine") == "python"


DEFAULT = Engine("default", "Spark's connector, its defaults", "kafka", "kafka", share=1 / 3)
TUNED = Engine(
    "tuned",
    "Spark's connector, tuned",
    "kafka",
    "kafka",
    {
        "kafka.max.poll.records": "20000",
        "kafka.max.partition.fetch.bytes": str(2 << 20),
        "kafka.receive.buffer.bytes": str(1 << 20),
    },
    {"kafka.batch.size": str(256 << 10), "kafka.linger.ms": "20"},
)
PYTHON = Engine(
    "python", "kafkalite, Python Data Source", "ours", "kafkalite", {"engine": "python"}
)
JVM = Engine("jvm", "kafkalite, columnar engine", "ours", "kafkalite", {"engine": "jvm"})
FLOOR = Engine("floor", "Spark alone, the same rows by its rate source or Parquet", "ours", "")
"""The least that a stream costs, wherever its rows come from: made up, or typed in files."""
PYTHON_FLOOR = Engine(
    "python-floor", "a Python Data Source that maps the same rows", "ours", floors.MAPPED
)
CONNECTORS = (DEFAULT, TUNED)
FLOORS = (FLOOR, PYTHON_FLOOR)
ENGINES = (DEFAULT, TUNED, PYTHON, JVM, *FLOORS)


class Reading(NamedTuple):
    """One run: an engine on a topic, from the offsets that `share` says."""

    spark: SparkSession
    engine: Engine
    data: Data
    bootstrap: str
    offsets: str
    """`startingOffsets`."""
    records: int
    """From there to the end."""
    write_topic: str = ""
    frame: DataFrame | None = None
    """What is written."""
    files: str = ""
    """Where the floors find the rows."""

    def options(self, columns: str | None) -> dict[str, str]:
        """Of the reader. `columns`: all that the query needs; None: all that there are."""
        told = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.data.name,
            "startingOffsets": self.offsets,
            **self.engine.options,
        }
        if columns is not None and self.engine.prunes_by_option:
            told["columns"] = columns
        return told

    def load(self, columns: str | None, **more: str) -> DataFrame:
        """The topic as a batch."""
        reader = self.spark.read.format(self.engine.format)
        return reader.options(**self.options(columns), **more).load()


def count(reading: Reading) -> int:
    return reading.load("partition").count()


def sum_length(reading: Reading) -> int:
    (row,) = reading.load("value").agg(functions.sum(functions.length("value"))).collect()
    return int(row[0]) // reading.data.value_bytes


def all_columns(reading: Reading) -> None:
    reading.load(None).write.format("noop").mode("overwrite").save()


def group_by(reading: Reading) -> int:
    grouped = reading.load("value,offset").groupBy(functions.substring("value", 1, 2))
    rows = grouped.agg(functions.count("*").alias("records"), functions.max("offset")).collect()
    return sum(row["records"] for row in rows)


def group_by_json(reading: Reading) -> int:
    if reading.engine in CONNECTORS:
        frame = reading.load(None)
        frame = frame.select(
            functions.from_json(functions.col("value").cast("string"), SCHEMA).alias("value")
        )
    else:
        frame = reading.load("value", **{"value.format": "json", "value.schema": SCHEMA})
    rows = (
        frame.groupBy("value.city")
        .agg(functions.count("*").alias("records"), functions.sum("value.amount"))
        .collect()
    )
    return sum(row["records"] for row in rows if row["city"] is not None)


def stream(reading: Reading) -> int:
    """AvailableNow in some micro-batches; the checkpoint is a temporary one."""
    per_trigger = -(-reading.records // STREAM_BATCHES)
    if reading.engine is FLOOR:  # AvailableNow would be one micro-batch of it
        value = bytes(reading.data.value_bytes)
        frame = floors.rated(reading.spark, PARTITIONS, per_trigger, value)
        writer = frame.writeStream.format("noop").trigger(processingTime="0 seconds")
        return floors.ended_after(writer.start(), STREAM_BATCHES)
    if reading.engine is PYTHON_FLOOR:
        frame = floors.mapped(reading.spark, reading.files, ALL_COLUMNS, STREAM_BATCHES)
    else:
        reader = reading.spark.readStream.format(reading.engine.format)
        limit = str(per_trigger)
        frame = reader.options(**reading.options(None), maxOffsetsPerTrigger=limit).load()
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def rows_of_json(reading: Reading) -> DataFrame:
    """Timestamps and typed values, in so many micro-batches."""
    per_trigger = str(-(-reading.records // STREAM_BATCHES))
    reader = reading.spark.readStream.format(reading.engine.format)
    reader = reader.options(**reading.options("timestamp,value"), maxOffsetsPerTrigger=per_trigger)
    if reading.engine in CONNECTORS:
        value = functions.from_json(functions.col("value").cast("string"), SCHEMA)
        return reader.load().select("timestamp", value.alias("value"))
    return reader.options(**{"value.format": "json", "value.schema": SCHEMA}).load()


def rows_of_files(reading: Reading) -> DataFrame:
    """Reads the rows of `rows_of_json` out of the files that `write_files` has left."""
    schema = f"timestamp TIMESTAMP, value STRUCT<{SCHEMA}>"
    if reading.engine is PYTHON_FLOOR:
        return floors.mapped(reading.spark, reading.files, schema, STREAM_BATCHES)
    reader = reading.spark.readStream.schema(schema)
    return reader.option("maxFilesPerTrigger", PARTITIONS).parquet(reading.files)


def write_files(query: "Query", reading: Reading, engine: Engine, path: Path) -> None:
    """The topic's rows, as a floor reads them."""
    is_typed = query.run is windows
    told = {"value.format": "json", "value.schema": SCHEMA} if is_typed else {}
    rows = reading.load(None, **told)
    if engine is PYTHON_FLOOR:
        floors.register(reading.spark)
        columns = ("timestamp", "value") if is_typed else tuple(rows.columns)
        floors.write_arrow(rows, PARTITIONS, columns, path)
    elif is_typed:  # as many files as a stream has partitions of micro-batches
        files = rows.select("timestamp", "value")
        files = files.repartitionByRange(STREAM_BATCHES * PARTITIONS, "timestamp")
        files.write.mode("overwrite").parquet(str(path))


def windows(reading: Reading) -> int:
    """A stream of sums of a field of JSON, in windows of ten seconds of event time."""
    frame = rows_of_files(reading) if reading.engine in FLOORS else rows_of_json(reading)
    window = functions.window("timestamp", "10 seconds")
    sums = (
        frame.withWatermark("timestamp", "1 minute")
        .groupBy(window, "value.city")
        .agg(functions.count("*"), functions.sum("value.amount"))
    )
    query = sums.writeStream.format("noop").outputMode("update").trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def write(reading: Reading) -> int:
    assert reading.frame is not None
    engine = reading.engine
    reading.frame.write.format(engine.format).mode("append").options(
        **{
            "kafka.bootstrap.servers": reading.bootstrap,
            "topic": reading.write_topic,
            "kafka.compression.type": reading.data.codec,
            **engine.write_options,
        }
    ).save()
    return reading.records


class Query(NamedTuple):
    """A row of the table for each of its topics. Targets: CPU per record of the connector over that
    of the engine, at least, by engine; they are held against plain records of 100 B only."""

    name: str
    what: str
    run: Callable[[Reading], int | None]
    topics: tuple[Data, ...] = VALUES
    against_tuned: dict[str, float] = {}  # noqa: RUF012 - rows are never changed
    against_default: dict[str, float] = {}  # noqa: RUF012
    engines: tuple[Engine, ...] = (*CONNECTORS, PYTHON, JVM)

    def target(self, data: Data, engine: Engine, peer: Engine) -> float | None:
        """What the ratio is to be."""
        if data not in (PLAIN_100, PLAIN_JSON):
            return None
        targets = self.against_tuned if peer is TUNED else self.against_default
        return targets.get(engine.name)


ON_VALUES = {"python": 4.0, "jvm": 9.0}
QUERIES = (
    Query("count", "`count()`", count, VALUES, {"python": 2, "jvm": 6}, ON_VALUES),
    Query("sum", "`sum(length(value))`", sum_length, VALUES, {"python": 2, "jvm": 4}, ON_VALUES),
    Query("all", "all columns, to noop", all_columns, VALUES, {"python": 1.8, "jvm": 2.2}),
    Query(
        "group",
        "count and `max(offset)` by `substring(value, 1, 2)`",
        group_by,
        VALUES,
        {"jvm": 2.5},
    ),
    Query(
        "json",
        "count and sum by a field of JSON",
        group_by_json,
        JSONS,
        {"python": 4, "jvm": 6},
    ),
    Query(
        "stream",
        f"AvailableNow, {STREAM_BATCHES} batches, all columns, to noop",
        stream,
        VALUES,
        {"python": 1.5, "jvm": 3},
        engines=(*CONNECTORS, PYTHON, JVM, *FLOORS),
    ),
    Query(
        "windows",
        f"AvailableNow, {STREAM_BATCHES} batches, JSON in windows of event time",
        windows,
        JSONS,
        {"python": 2, "jvm": 4},
        engines=(*CONNECTORS, PYTHON, JVM, *FLOORS),
    ),
    Query(
        "write",
        "a cached frame to a topic",
        write,
        VALUES,
        {"python": 1.6},
        {},
        (DEFAULT, TUNED, PYTHON),
    ),
)
TOPICS = ALL
