"""Spark reads and writes topics through Arrow: `format("kafkalite")`.

    frame = (
        spark.read.format("kafkalite")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders")
        .load()
    )

Spark finds the format by itself (`pyspark_kafkalite`); `register` is for sessions that do not. It
needs `pip install kafkalite[spark]`, on the workers too. Schema and options are those of Spark's
Kafka connector, and more: docs/SPARK.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["jar_path", "lag", "reason", "register", "session"]


def register(spark: "SparkSession") -> None:
    """Makes `format("kafkalite")` known to a session. Harmless where it is known already."""
    from kafkalite.spark import columnar
    from kafkalite.spark.source import KafkaliteDataSource

    columnar.warn_of_another_python(spark)
    spark.dataSource.register(KafkaliteDataSource)


def lag(progress: Mapping[str, Any]) -> int | None:
    """The offsets that a streaming query has left to read, by a report of its progress; None where
    that does not say it."""
    from kafkalite.spark import progress as reports

    return reports.lag(progress)


def reason(error: BaseException) -> str:
    """Why Spark has failed, in one line, out of an exception of PySpark's or py4j's."""
    from kafkalite.spark import sentence

    return sentence.reason(error)


def session(app_name: str = "kafkalite", **conf: str) -> "SparkSession":
    """A SparkSession with the columnar engine, if this installation brings its jar."""
    from kafkalite.spark import columnar

    return columnar.session(app_name, **conf)


def jar_path() -> Path | None:
    """Where the jar of the columnar engine is; `None` if it was not packed."""
    from kafkalite.spark import columnar

    return columnar.jar_path()
