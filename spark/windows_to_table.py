#!/usr/bin/env python3
"""Keeps counts in windows of time as a table: a compacted topic, which is read as one.

    python spark/windows_to_table.py [--events 300000]

The readings are those of `windowed_counts.py`, of which some come minutes late. A stream counts
them in windows of ten seconds and writes each count that has changed, by its window as the key, to
a topic whose `cleanup.policy` is `compact`: what is last of a key is the table, and the broker may
drop what was before. `kafkalite.read_arrow` reads it without Spark. It is held against what was
sent.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pipeline
import windowed_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalite import Broker

TABLE = "readings-by-window"
BATCHES = 6
# None comes later: the table has every reading.
WATERMARK = "10 minutes"


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> dict[int, int]:
    """Sends, counts, reads the table. Returns it: from the start of a window (ms) to its count."""
    arriving = windowed_counts.events(options.events, options.seed)
    pipeline.create_topic(broker, windowed_counts.TOPIC, windowed_counts.PARTITIONS)
    pipeline.create_topic(broker, TABLE, 1, cleanup_policy="compact")
    pipeline.send(broker, windowed_counts.TOPIC, windowed_counts.records(arriving))
    pipeline.step(f"{len(arriving):,} readings sent")
    per_batch = -(-len(arriving) // BATCHES)
    keep(count(spark, broker.bootstrap_servers, per_batch), broker, folder / "checkpoint")
    found = dict(read_table(broker.bootstrap_servers))
    expected = Counter(event.window_ms for event in arriving)
    if found != expected:
        raise pipeline.StopError(f"{TABLE} has {found}, sent were {expected}")
    pipeline.step(f"{TABLE} has {len(found)} windows, and every reading in one of them")
    return found


def count(spark: "SparkSession", servers: str, per_batch: int) -> "DataFrame":
    """A window, as key, and its count."""
    from pyspark.sql import functions

    readings = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", windowed_counts.TOPIC)
        .option("startingOffsets", "earliest")
        .option("columns", "timestamp")
        .option("maxOffsetsPerTrigger", str(per_batch))
        .load()
    )
    window = functions.window("timestamp", f"{windowed_counts.WINDOW_MS} milliseconds")
    counts = readings.withWatermark("timestamp", WATERMARK).groupBy(window).count()
    return counts.selectExpr(
        "string(unix_millis(window.start)) AS key",
        "to_json(struct(count AS readings)) AS value",
    )


def keep(counts: "DataFrame", broker: "Broker", checkpoint: Path) -> None:
    """The streaming query, to the end of the topic: what has changed in a micro-batch, each
    task's rows in a transaction. One that is repeated writes the same rows again, after which the
    table is the same. Spark lets no Python sink have update mode by itself."""

    def write(changed: "DataFrame", number: int) -> None:  # noqa: ARG001
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": TABLE,
            "transactional": "true",
        }
        changed.write.format("kafkalite").mode("append").options(**options).save()

    query = (
        counts.writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    pipeline.follow(query)


def read_table(servers: str) -> list[tuple[int, int]]:
    """Keeps the last row of each key."""
    import pyarrow

    import kafkalite

    records = pyarrow.table(
        kafkalite.read_arrow(
            TABLE,
            servers,
            columns=["key", "readings"],
            isolation="read_committed",
            key_format="string",
            value_format="json",
            value_schema=pyarrow.schema({"readings": pyarrow.int64()}),
            format_options={"value.flatten": "true"},
        )
    )
    last = records.group_by("key", use_threads=False).aggregate([("readings", "last")])
    starts, readings = (last.column(name).to_pylist() for name in ("key", "readings_last"))
    return list(zip(map(int, starts), readings, strict=True))


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="Windowed counts as a compacted topic.")
    parser.add_argument(
        "--events", type=int, default=300_000, metavar="N", help="readings to send (300000)"
    )
    return parser


if __name__ == "__main__":
    pipeline.main("windows to a table", command_line(), run)
