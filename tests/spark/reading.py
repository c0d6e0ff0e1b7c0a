"""Reading topics through Spark, and rows in an order that does not depend on who has read them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

CONNECTOR = "kafka"
"""Spark's own source, as the format is called. kafkalite's are named by their engine."""

Row = tuple[Any, ...]


def read(spark: SparkSession, source: str, servers: str, options: Mapping[str, Any]) -> DataFrame:
    """A batch read by the connector or by one of the engines `python` and `jvm`."""
    return spark.read.format(_format(source)).options(**_options(source, servers, options)).load()


def read_stream(
    spark: SparkSession, source: str, servers: str, options: Mapping[str, Any]
) -> DataFrame:
    """The same as a stream."""
    return (
        spark.readStream.format(_format(source))
        .options(**_options(source, servers, options))
        .load()
    )


def rows(frame: DataFrame, by: Sequence[str] = ("topic", "partition", "offset")) -> list[Row]:
    """All rows, in the order of the log."""
    table = frame.toArrow().sort_by([(name, "ascending") for name in by])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def differences(found: Sequence[Row], expected: Sequence[Row]) -> str:
    """The first row that differs, shortened; empty if none does."""
    if len(found) != len(expected):
        return f"{len(found)} rows, not {len(expected)}"
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if mine != theirs:
            return f"row {number}: {_shortened(mine)}, not {_shortened(theirs)}"
    return ""


def _format(source: str) -> str:
    return "kafka" if source == CONNECTOR else "kafkalite"


def _options(source: str, servers: str, options: Mapping[str, Any]) -> dict[str, Any]:
    settings = {"kafka.bootstrap.servers": servers}
    if source == CONNECTOR:
        # Its consumers have asked for more when the last record of a task is there, and the next
        # task's first fetch waits behind that one: half a second, unless told otherwise.
        settings["kafka.fetch.max.wait.ms"] = "10"
    else:
        settings["engine"] = source
    return settings | dict(options)


def _shortened(row: Row) -> str:
    return ", ".join(repr(value)[:60] for value in row)


@dataclass(frozen=True)
class Streamed:
    """What a streaming query did, micro-batch by micro-batch."""

    batches: list[list[Row]]
    """The rows of each, in the order of the log."""
    ends: list[Any]
    """The offsets up to which each went, out of the checkpoint."""


def stream_what_is_there(
    spark: SparkSession,
    source: str,
    servers: str,
    options: Mapping[str, Any],
    checkpoint: Path,
) -> Streamed:
    """Runs a query with Trigger.AvailableNow to its end."""
    batches: dict[int, list[Row]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        batches[number] = rows(batch)

    query = (
        read_stream(spark, source, servers, options)
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return Streamed([batches[number] for number in sorted(batches)], ends_of(checkpoint))


def ends_of(checkpoint: Path) -> list[Any]:
    """Up to which offsets each micro-batch of a checkpoint went: `{"orders":{"0":17}}`."""
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    # The version, the settings of the query, then a line for each of its sources.
    return [without_ids(json.loads(path.read_text().splitlines()[2])) for path in files]


def without_ids(offsets: Any) -> dict[str, Any]:
    """Offsets as the connector has them, who reads past the ids of topics."""
    return {topic: partitions for topic, partitions in offsets.items() if partitions}
