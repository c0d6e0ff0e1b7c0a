#!/usr/bin/env python3
"""Keeps a table of PostgreSQL current from two topics: orders, with what is known of who orders.

    python spark/orders_to_postgres.py [--orders 50000]

Orders and customers change all the time, each by its key; a record without a value takes its row
away. A micro-batch of both topics is one transaction: the last of each key goes into its table, and
each order that came, or whose customer came, gets name and city anew. So the table of orders is at
any time what a join of both topics would be, as far as they are read; a micro-batch that is
repeated changes nothing. It is held against that join, of what was sent.
"""

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pipeline
import postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kafkalite import Broker

ORDERS, CUSTOMERS = "orders", "customers"
PARTITIONS = 2
BATCHES = 5
CUSTOMERS_COUNT = 500
SCHEMA = "customer INT, cents BIGINT, name STRING, city STRING"
CITIES = ("Accra", "Bergen", "Kyoto", "La Paz", "Reykjavik", "Valletta")

# PostgreSQL would refuse these, too, and could not say which record it is.
PLACE = "concat(topic, '-', partition, ' at offset ', offset)"
NO_KEY = f"raise_error(concat('the key of ', {PLACE}, ' is no whole number'))"
NUL = f"raise_error(concat('a text in the value of ', {PLACE}, ' has a NUL'))"

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text, city text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, cents bigint, name text, city text);
CREATE INDEX ON orders (customer);
"""
ARRIVED = "topic text, id int, is_gone boolean, customer int, cents bigint, name text, city text"
STORE = """
DELETE FROM customers USING arrived
WHERE arrived.topic = 'customers' AND arrived.id = customers.id AND is_gone;
INSERT INTO customers SELECT id, name, city FROM arrived WHERE topic = 'customers' AND NOT is_gone
ON CONFLICT (id) DO UPDATE SET name = excluded.name, city = excluded.city;

DELETE FROM orders USING arrived
WHERE arrived.topic = 'orders' AND arrived.id = orders.id AND is_gone;
INSERT INTO orders SELECT id, customer, cents FROM arrived WHERE topic = 'orders' AND NOT is_gone
ON CONFLICT (id) DO UPDATE SET customer = excluded.customer, cents = excluded.cents;

UPDATE orders SET (name, city) =
    (SELECT customers.name, customers.city FROM customers WHERE customers.id = orders.customer)
WHERE id IN (SELECT id FROM arrived WHERE topic = 'orders')
    OR customer IN (SELECT id FROM arrived WHERE topic = 'customers');
"""


class Change(NamedTuple):
    """A row as it becomes; `None`: it goes."""

    topic: str
    key: int
    row: dict[str, Any] | None

    def record(self) -> pipeline.Record:
        """As it goes into its topic, keyed by the row."""
        value = None if self.row is None else json.dumps(self.row).encode()
        return pipeline.Record(value, key=b"%d" % self.key)


def make(count: int, seed: int) -> list[Change]:
    """Out of a seed: orders, of which some are changed or cancelled later, and customers, who move,
    go and come back."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        if draw.randrange(10) == 0:
            customer = draw.randrange(CUSTOMERS_COUNT)
            row = {"name": f"customer {customer}", "city": draw.choice(CITIES)}
            made.append(Change(CUSTOMERS, customer, None if draw.randrange(10) == 0 else row))
        order = number if draw.randrange(5) else draw.randrange(number + 1)
        bought = {"customer": draw.randrange(CUSTOMERS_COUNT), "cents": draw.randrange(100, 99_999)}
        made.append(Change(ORDERS, order, None if draw.randrange(20) == 0 else bought))
    return made


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> list[tuple[Any, ...]]:
    """Sends, keeps the table, compares. Returns its rows."""
    made = make(options.orders, options.seed)
    for topic in (CUSTOMERS, ORDERS):
        pipeline.create_topic(broker, topic, PARTITIONS, cleanup_policy="compact")
        pipeline.send(broker, topic, (each.record() for each in made if each.topic == topic))
    pipeline.step(f"{len(made):,} changes of orders and customers sent")
    with postgres.server() as database:
        postgres.create_tables(database, TABLES)
        changes = read(spark, broker.bootstrap_servers, -(-len(made) // BATCHES))
        pipeline.follow(keep(changes, database, folder / "checkpoint"))
        found = rows(database)
    if found != join(made):
        raise pipeline.StopError(f"the table has {len(found):,} orders that are not the topics'")
    named = sum(row[3] is not None for row in found)
    pipeline.step(f"the table has {len(found):,} orders, {named:,} of them of known customers")
    return found


def read(spark: "SparkSession", servers: str, per_batch: int) -> "DataFrame":
    """Both topics as one stream, typed. A record that cannot be a row ends the query."""
    records = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", f"{CUSTOMERS},{ORDERS}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(per_batch))
        .option("key.format", "string")
        .option("value.format", "json")
        .option("value.schema", SCHEMA)
        .option("mode", "FAILFAST")
        .option("columns", "topic,partition,offset,key,value")
        .load()
    )
    return records.selectExpr(
        "topic",
        f"coalesce(try_cast(key AS INT), {NO_KEY}) AS id",
        f"if(contains(concat_ws('', value.name, value.city), chr(0)), {NUL}, value) AS value",
        "offset",
    )


def keep(changes: "DataFrame", database: str, checkpoint: Path) -> "StreamingQuery":
    """Starts the query, which ends at the end of the topics."""
    return postgres.store(changes, database, checkpoint, ARRIVED, STORE, last_of_each_key)


def last_of_each_key(batch: "DataFrame") -> "DataFrame":
    """The last change of each row: all of a key are in one partition, in the order of their
    offsets."""
    from pyspark.sql import functions

    last = batch.groupBy("topic", "id").agg(functions.max_by("value", "offset").alias("value"))
    return last.selectExpr("topic", "id", "value IS NULL", "value.*")


def rows(database: str) -> list[tuple[Any, ...]]:
    """The table of orders."""
    import psycopg

    with psycopg.connect(database) as connection:
        return connection.execute("SELECT * FROM orders ORDER BY id").fetchall()


def join(made: Iterable[Change]) -> list[tuple[Any, ...]]:
    """The rows that the table should have, by plain Python."""
    last = {(each.topic, each.key): each.row for each in made}
    customers = {key: row for (topic, key), row in last.items() if topic == CUSTOMERS}
    orders = sorted((key, row) for (topic, key), row in last.items() if topic == ORDERS and row)
    found = []
    for key, order in orders:
        known = customers.get(order["customer"]) or {"name": None, "city": None}
        found.append((key, order["customer"], order["cents"], known["name"], known["city"]))
    return found


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="Two topics to one table of PostgreSQL.")
    parser.add_argument(
        "--orders", type=int, default=50_000, metavar="N", help="orders to send (50000)"
    )
    return parser


if __name__ == "__main__":
    pipeline.main("orders to PostgreSQL", command_line(), run, need_more=postgres.need_postgres)
