"""Reading topics through Spark, and rows in an order that does not depend on who has read them."""

from collections.abc import Mapping, Sequence
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
    settings = {"kafka.bootstrap.servers": servers, **options}
    if source != CONNECTOR:
        settings["engine"] = source
    return settings


def _shortened(row: Row) -> str:
    return ", ".join(repr(value)[:60] for value in row)
