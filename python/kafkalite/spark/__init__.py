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

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Makes `format("kafkalite")` known to a session. Harmless where it is known already."""
    from kafkalite.spark.source import KafkaliteDataSource

    spark.dataSource.register(KafkaliteDataSource)
