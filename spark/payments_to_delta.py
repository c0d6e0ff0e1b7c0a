#!/usr/bin/env python3
"""Appends a topic to a Delta table, each payment once, whatever is killed.

    python spark/payments_to_delta.py [--payments 200000]

Delta's own streaming sink commits each micro-batch to the table's log, together with the ids of the
query and of the micro-batch, and skips one that the log has already. Readers never see files that a
driver wrote and did not commit. Values that are no payments go to a dead-letter topic, with the
headers of Kafka Connect. Table and dead letters are compared with what was sent.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import payments
import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kafkalite import Broker

SPARK = "4.2"  # the only one that Delta 4.4.0 runs on
SETTINGS = {
    "spark.jars.packages": f"io.delta:delta-spark_{SPARK}_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The tasks in which Delta reads a table's log: its 50 are for tables of millions of files.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def need_delta() -> None:
    """Raises `StopError` where PySpark is one that Delta fails on, in the middle of a query."""
    import pyspark

    if not pyspark.__version__.startswith(f"{SPARK}."):
        raise pipeline.StopError(
            f"Delta 4.4.0 needs Spark {SPARK}, and PySpark is {pyspark.__version__}: "
            f"pip install 'pyspark=={SPARK}.*'"
        )


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> list[payments.Payment]:
    """Sends, appends, compares. Returns what was sent."""
    made = payments.make(options.payments, options.seed)
    payments.send(broker, made)
    arrived = payments.read(spark, broker.bootstrap_servers, -(-len(made) // payments.BATCHES))
    pipeline.follow(append(arrived, folder / "table", folder / "checkpoint"))
    check_table(spark, folder / "table", made)
    pipeline.step("the table has each payment once")
    payments.write_letters(broker, arrived, folder / "letters")
    payments.check_letters(spark, broker, made)
    pipeline.step(f"{payments.DEAD_LETTERS} has the broken records as they were")
    return made


def append(arrived: "DataFrame", table: Path, checkpoint: Path) -> "StreamingQuery":
    """Starts the query, which ends at the end of the topic."""
    return (
        arrived.where(payments.IS_PAYMENT)
        .select("payment", "account", "cents")
        .writeStream.format("delta")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(table))
    )


def check_table(spark: "SparkSession", table: Path, made: list[payments.Payment]) -> None:
    """Raises `StopError` where the table differs from what was sent."""
    found = spark.read.format("delta").load(str(table)).collect()
    if sorted(map(tuple, found)) != [each[:3] for each in made if not each.broken]:
        raise pipeline.StopError(f"the table has {len(found):,} rows that are not the payments")


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="A topic to a Delta table, exactly once.")
    parser.add_argument(
        "--payments", type=int, default=200_000, metavar="N", help="payments to send (200000)"
    )
    return parser


if __name__ == "__main__":
    pipeline.main("payments to Delta", command_line(), run, SETTINGS, need_delta)
