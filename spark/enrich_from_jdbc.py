#!/usr/bin/env python3
"""Joins payments of a topic with a JDBC table of customers and writes them to another topic.

    python spark/enrich_from_jdbc.py [--payments 200000] [--customers 2000]

Payments are JSON with the number of a customer, whose name, country and tier lie in a database
(SQLite; its driver comes from Maven). A streaming query reads the payments as typed columns, looks
the customers up in the table, and writes JSON keyed by country to the topic `payments-enriched`.
That topic is then read back and added up beside what SQL says of the same payments.
"""

import argparse
import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalite import Broker

TOPIC = "payments"
ENRICHED = "payments-enriched"
PARTITIONS = 2
BATCHES = 4
SQLITE = "org.xerial:sqlite-jdbc:3.49.1.0"
SCHEMA = "payment BIGINT, customer INT, cents BIGINT"
ENRICHED_SCHEMA = "payment BIGINT, cents BIGINT, name STRING, country STRING, tier STRING"
COUNTRIES = ("Bolivia", "Ghana", "Iceland", "Japan", "Malta", "Norway", "Peru", "Slovenia")
TIERS = ("basic", "plus", "pro")
UNKNOWN_ONE_IN = 100


class Total(NamedTuple):
    """Payments of one country; `None` is that of customers whom the table does not have."""

    country: str | None
    payments: int
    cents: int


def make_customers(path: Path, count: int, seed: int) -> None:
    """The table `customers`."""
    draw = random.Random(seed)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "create table customers (id integer primary key, name text, country text, tier text)"
        )
        database.executemany(
            "insert into customers values (?, ?, ?, ?)",
            [
                (number, f"customer {number}", draw.choice(COUNTRIES), draw.choice(TIERS))
                for number in range(count)
            ],
        )


def payments(count: int, customers: int, seed: int) -> list[tuple[int, int, int]]:
    """Number, customer and cents of each."""
    draw = random.Random(seed + 1)
    known = [draw.randrange(customers) for _ in range(count)]
    return [
        (
            number,
            -1 if draw.randrange(UNKNOWN_ONE_IN) == 0 else customer,
            draw.randrange(100, 99_999),
        )
        for number, customer in enumerate(known)
    ]


def records(sent: list[tuple[int, int, int]]) -> Iterator[pipeline.Record]:
    """As they go into the topic, keyed by customer."""
    for payment, customer, cents in sent:
        value = json.dumps({"payment": payment, "customer": customer, "cents": cents})
        yield pipeline.Record(value.encode(), key=b"%d" % customer)


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> list[Total]:
    """Sends, enriches, reads back, compares. Returns the totals by country."""
    database = folder / "customers.sqlite"
    make_customers(database, options.customers, options.seed)
    sent = payments(options.payments, options.customers, options.seed)
    pipeline.create_topic(broker, TOPIC, PARTITIONS)
    pipeline.create_topic(broker, ENRICHED, PARTITIONS)
    pipeline.send(broker, TOPIC, records(sent))
    pipeline.step(f"{len(sent):,} payments sent, {options.customers:,} customers in a table")

    enrich(spark, broker, database, folder / "checkpoint", len(sent))
    pipeline.step(f"topic {ENRICHED} written")

    found = totals(spark, broker)
    expected = totals_by_sql(database, sent)
    for total in found:
        print(f"   {total.country or 'unknown':<10}{total.payments:>9,}{total.cents / 100:>16,.2f}")
    if found != expected:
        raise pipeline.StopError(f"{ENRICHED} has {found}, SQL says {expected}")
    pipeline.step(f"{sum(total.payments for total in found):,} payments, as SQL has them")
    return found


def enrich(
    spark: "SparkSession", broker: "Broker", database: Path, checkpoint: Path, total: int
) -> None:
    """The streaming query, until the end of the topic."""
    from pyspark.sql import functions

    customers = (
        spark.read.format("jdbc")
        .option("url", f"jdbc:sqlite:{database}")
        .option("driver", "org.sqlite.JDBC")
        .option("dbtable", "customers")
        .load()
    )
    incoming = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(-(-total // BATCHES)))
        .option("columns", "value")
        .option("value.format", "json")
        .option("value.schema", SCHEMA)
        .load()
        .select("value.*")
    )
    joined = incoming.join(
        functions.broadcast(customers), incoming["customer"] == customers["id"], "left"
    )
    enriched = joined.select(
        functions.col("country").alias("key"),
        functions.to_json(functions.struct("payment", "cents", "name", "country", "tier")).alias(
            "value"
        ),
    )
    query = (
        enriched.writeStream.format("kafkalite")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", ENRICHED)
        .option("kafka.compression.type", "zstd")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    pipeline.follow(query)


def totals(spark: "SparkSession", broker: "Broker") -> list[Total]:
    """What the enriched topic adds up to, by country."""
    from pyspark.sql import functions

    rows = (
        spark.read.format("kafkalite")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", ENRICHED)
        .option("columns", "value")
        .option("value.format", "json")
        .option("value.schema", ENRICHED_SCHEMA)
        .option("mode", "FAILFAST")
        .load()
        .groupBy("value.country")
        .agg(functions.count("*"), functions.sum("value.cents"))
        .collect()
    )
    return _in_order([Total(*row) for row in rows])


def totals_by_sql(database: Path, sent: list[tuple[int, int, int]]) -> list[Total]:
    """The same by SQLite alone."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("create temporary table payments (payment, customer, cents)")
        connection.executemany("insert into payments values (?, ?, ?)", sent)
        rows = connection.execute(
            "select country, count(*), sum(cents) from payments "
            "left join customers on customer = id group by country"
        ).fetchall()
    return _in_order([Total(*row) for row in rows])


def _in_order(rows: list[Total]) -> list[Total]:
    return sorted(rows, key=lambda total: total.country or "~")


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="Payments joined with a JDBC table.")
    parser.add_argument(
        "--payments", type=int, default=200_000, metavar="N", help="payments to send (200000)"
    )
    parser.add_argument(
        "--customers", type=int, default=2_000, metavar="N", help="customers (2000)"
    )
    return parser


if __name__ == "__main__":
    pipeline.main("enrichment from JDBC", command_line(), run, {"spark.jars.packages": SQLITE})
