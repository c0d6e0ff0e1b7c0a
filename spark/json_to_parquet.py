#!/usr/bin/env python3
"""Writes a topic of JSON to Parquet, each record exactly once, over a restart in mid-stream.

    python spark/json_to_parquet.py [--orders 400000] [--out orders.parquet]

Orders come as JSON; Rust decodes them into typed columns, and those that do not parse are kept as
they came, in `_corrupt_record`. The query is stopped in the middle, the broker restarted, more
orders are sent, and the query goes on from its checkpoint. Its offsets and the list of files that
the sink keeps say together that no record is lost or written twice: both are counted at the end.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kafkalite import Broker

TOPIC = "orders"
PARTITIONS = 3
BATCHES = 10
CITIES = ("Bergen", "Cusco", "Davos", "Lagos", "Ghent", "Kyoto", "Quito", "Turku")
SCHEMA = "id BIGINT, city STRING, amount DOUBLE, items INT, _corrupt_record STRING"
BROKEN_ONE_IN = 500


class Found(NamedTuple):
    """What is in the Parquet files, beside what was sent."""

    sent: int
    sent_broken: int
    sent_cents: int
    rows: int
    places: int
    """Different pairs of partition and offset."""
    broken: int
    cents: int
    batches: tuple[int, int]
    """Micro-batches before and after the restart."""

    @property
    def is_exact(self) -> bool:
        """Each record is there, once, as it was sent."""
        return (self.rows, self.places, self.broken, self.cents) == (
            self.sent,
            self.sent,
            self.sent_broken,
            self.sent_cents,
        )


class Orders:
    """Orders out of a seed, and what they add up to."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.count = self.broken = self.cents = 0

    def records(self, count: int) -> Iterator[pipeline.Record]:
        """The next ones."""
        for _ in range(count):
            cents = self._draw.randrange(100, 100_000)
            order = {
                "id": self.count,
                "city": self._draw.choice(CITIES),
                "amount": cents / 100,
                "items": self._draw.randrange(1, 12),
            }
            value = json.dumps(order).encode()
            if self._draw.randrange(BROKEN_ONE_IN) == 0:
                value = value[:-5]
                self.broken += 1
            else:
                self.cents += cents
            self.count += 1
            yield pipeline.Record(value, key=b"%d" % self.count)


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> Found:
    """Two runs of one query with a restart between them. Returns what the files hold."""
    out = options.out or folder / "orders.parquet"
    if out.exists():
        raise pipeline.StopError(f"{out} is there already: name another with --out")
    orders = Orders(options.seed)
    pipeline.create_topic(broker, TOPIC, PARTITIONS)
    pipeline.send(broker, TOPIC, orders.records(options.orders // 2))
    pipeline.step(f"{orders.count:,} orders sent, {orders.broken:,} of them cut short")

    per_batch = -(-options.orders // BATCHES)
    query = start(spark, broker, folder / "checkpoint", out, per_batch, ends=False)
    before = pipeline.follow(query, until_batch=1)
    query.stop()
    pipeline.step("query stopped, broker restarted, the other half sent")
    broker.stop()
    broker.start()
    pipeline.send(broker, TOPIC, orders.records(options.orders - orders.count))

    query = start(spark, broker, folder / "checkpoint", out, per_batch, ends=True)
    after = pipeline.follow(query)
    found = look(spark, out, orders, (len(before), len(after)))
    pipeline.step(
        f"{found.rows:,} rows of {found.sent:,} orders at {found.places:,} different offsets, "
        f"{found.broken:,} corrupt of {found.sent_broken:,}, sum {found.cents / 100:,.2f} of "
        f"{found.sent_cents / 100:,.2f}: {'exactly once' if found.is_exact else 'NOT exactly once'}"
    )
    if not found.is_exact:
        raise pipeline.StopError("the files do not hold each record once")
    return found


def start(
    spark: "SparkSession", broker: "Broker", checkpoint: Path, out: Path, rows: int, *, ends: bool
) -> "StreamingQuery":
    """The query; with `ends` it stops at what is the end of the topic now."""
    orders = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(rows))
        .option("value.format", "json")
        .option("value.schema", SCHEMA)
        .load()
    )
    writer = (
        orders.select("partition", "offset", "timestamp", "value.*", "_corrupt_record")
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
    )
    return (writer.trigger(availableNow=True) if ends else writer).start()


def look(spark: "SparkSession", out: Path, orders: Orders, batches: tuple[int, int]) -> Found:
    """Reads the files back."""
    from pyspark.sql import functions

    corrupt = functions.col("_corrupt_record").isNotNull()
    (row,) = (
        spark.read.parquet(str(out))
        .agg(
            functions.count("*").alias("rows"),
            functions.countDistinct("partition", "offset").alias("places"),
            functions.count_if(corrupt).alias("broken"),
            functions.sum(functions.round(functions.col("amount") * 100).cast("long")).alias(
                "cents"
            ),
        )
        .collect()
    )
    return Found(
        orders.count,
        orders.broken,
        orders.cents,
        row["rows"],
        row["places"],
        row["broken"],
        row["cents"],
        batches,
    )


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="A topic of JSON to Parquet, exactly once.")
    parser.add_argument(
        "--orders", type=int, default=400_000, metavar="N", help="orders to send (400000)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIRECTORY", help="kept; a temporary one without it"
    )
    return parser


if __name__ == "__main__":
    pipeline.main("JSON to Parquet", command_line(), run)
