#!/usr/bin/env python3
"""Keeps tables of PostgreSQL current from a topic, each payment counted once, whatever is killed.

    python spark/payments_to_postgres.py [--payments 200000]

Payments become rows, and add to the balances of their accounts (an upsert by key). A micro-batch is
one transaction, in which its number is noted beside the query's; one that is there already, since
the driver died before Spark had noted it too, is left out. Values that are no payments go to a
dead-letter topic, with the headers of Kafka Connect. All three are held against what was sent.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dead_letters
import pipeline
import postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kafkalite import Broker

TOPIC = "payments"
DEAD_LETTERS = "payments-dead-letters"
PARTITIONS = 2
BATCHES = 4
ACCOUNTS = 500
BROKEN_ONE_IN = 200
SCHEMA = "payment BIGINT, account INT, cents BIGINT"
IS_PAYMENT = "payment IS NOT NULL AND account IS NOT NULL AND cents IS NOT NULL"

TABLES = """
CREATE TABLE payments (payment bigint, account int, cents bigint);
CREATE TABLE accounts (account int PRIMARY KEY, payments bigint, cents bigint);
CREATE TABLE batches (query text PRIMARY KEY, batch bigint);
"""
# Waits for another driver of the same query, if there is one; no row: the batch is there already.
NOTE = """
INSERT INTO batches VALUES (%s, %s)
ON CONFLICT (query) DO UPDATE SET batch = excluded.batch WHERE batches.batch < excluded.batch
"""
STORE = """
INSERT INTO payments SELECT * FROM arrived;
INSERT INTO accounts SELECT account, count(*), sum(cents) FROM arrived GROUP BY account
ON CONFLICT (account) DO UPDATE SET
    payments = accounts.payments + excluded.payments, cents = accounts.cents + excluded.cents
"""


class Payment(NamedTuple):
    """One payment; `broken` ones lack what they need, or are no JSON."""

    payment: int
    account: int
    cents: int
    broken: bool

    def record(self) -> pipeline.Record:
        """As it goes into the topic, keyed by account."""
        fields = {"payment": self.payment, "account": self.account, "cents": self.cents}
        if self.broken and self.payment % 2:
            del fields["account"]
        value = json.dumps(fields).encode()
        return pipeline.Record(
            value[:-3] if self.broken else value,
            key=b"%d" % self.account,
            partition=self.account % PARTITIONS,
        )


def make_payments(count: int, seed: int) -> list[Payment]:
    """Out of a seed."""
    draw = random.Random(seed)
    return [
        Payment(
            number,
            draw.randrange(ACCOUNTS),
            draw.randrange(100, 99_999),
            draw.randrange(BROKEN_ONE_IN) == 0,
        )
        for number in range(count)
    ]


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> list[Payment]:
    """Sends, stores, compares. Returns what was sent."""
    pipeline.need("psycopg", "'psycopg[binary]'")
    made = make_payments(options.payments, options.seed)
    pipeline.create_topic(broker, TOPIC, PARTITIONS)
    pipeline.create_topic(broker, DEAD_LETTERS, 1)
    pipeline.send(broker, TOPIC, (each.record() for each in made))
    broken = sum(each.broken for each in made)
    pipeline.step(f"{len(made):,} payments sent, {broken:,} of them broken")
    with postgres.server() as database:
        create_tables(database)
        arrived = read(spark, broker.bootstrap_servers, -(-len(made) // BATCHES))
        pipeline.follow(store(arrived, database, folder / "payments"))
        check_tables(database, made)
    pipeline.step(f"{len(made) - broken:,} rows and the balances of {ACCOUNTS} accounts, as sent")
    message = f"the value does not fit {SCHEMA}"
    bad = arrived.where(f"NOT ({IS_PAYMENT})")
    letters = dead_letters.write(
        bad, message, broker.bootstrap_servers, DEAD_LETTERS, str(folder / "letters")
    )
    pipeline.follow(letters)
    check_letters(spark, broker, made)
    pipeline.step(f"{broken:,} records in {DEAD_LETTERS}, as they were")
    return made


def create_tables(database: str) -> None:
    """The tables, empty."""
    import psycopg

    with psycopg.connect(database) as connection:
        connection.execute(TABLES)


def read(spark: "SparkSession", servers: str, per_batch: int) -> "DataFrame":
    """The topic with the fields of payments beside the records themselves, which the dead letters
    need as they are."""
    from pyspark.sql import functions

    records = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(per_batch))
        .load()
    )
    parsed = functions.from_json(records["value"].cast("string"), SCHEMA)
    return records.withColumn("parsed", parsed).select("*", "parsed.*").drop("parsed")


def store(arrived: "DataFrame", database: str, checkpoint: Path) -> "StreamingQuery":
    """Starts the query, which ends at the end of the topic."""
    import psycopg

    def write(batch: "DataFrame", number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        with psycopg.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(NOTE, (query, number))
            if cursor.rowcount == 0:
                return
            cursor.execute("CREATE TEMPORARY TABLE arrived (LIKE payments)")
            with cursor.copy("COPY arrived FROM STDIN") as rows:
                for row in batch.toLocalIterator():
                    rows.write_row(row)
            cursor.execute(STORE)

    payments = arrived.where(IS_PAYMENT).select("payment", "account", "cents")
    return (
        payments.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def check_tables(database: str, made: Iterable[Payment]) -> None:
    """Raises `StopError` where a table differs from what was sent."""
    import psycopg

    whole = [each for each in made if not each.broken]
    count = Counter(each.account for each in whole)
    cents: Counter[int] = Counter()
    for each in whole:
        cents[each.account] += each.cents
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT * FROM payments ORDER BY payment").fetchall()
        accounts = connection.execute("SELECT * FROM accounts ORDER BY account").fetchall()
    if rows != [each[:3] for each in whole]:
        raise pipeline.StopError(f"the table payments has {len(rows):,} rows that are not those")
    if accounts != [(each, count[each], cents[each]) for each in sorted(count)]:
        raise pipeline.StopError("the balances are not the sums of the payments")


def check_letters(spark: "SparkSession", broker: "Broker", made: Iterable[Payment]) -> None:
    """Raises `StopError` unless the dead letters are the broken records, each once."""
    rows = (
        spark.read.format("kafkalite")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", DEAD_LETTERS)
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("key", "value")
        .collect()
    )
    found = sorted((bytes(row["key"]), bytes(row["value"])) for row in rows)
    sent = sorted((record.key, record.value) for record in (e.record() for e in made if e.broken))
    if found != sent:
        raise pipeline.StopError(f"{len(found):,} dead letters for {len(sent):,} broken records")


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="A topic to tables of PostgreSQL, exactly once.")
    parser.add_argument("--payments", type=int, default=200_000, metavar="N", help="(200000)")
    return parser


if __name__ == "__main__":
    pipeline.main("payments to PostgreSQL", command_line(), run)
