#!/usr/bin/env python3
"""Keeps tables of PostgreSQL current from a topic, each payment counted once, whatever is killed.

    python spark/payments_to_postgres.py [--payments 200000]

Payments become rows, and add to the balances of their accounts (an upsert by key). A micro-batch is
one transaction, in which its number is noted beside the query's; one that is there already, since
the driver died before Spark had noted it too, is left out. Values that are no payments go to a
dead-letter topic, with the headers of Kafka Connect. All three are held against what was sent.
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import payments
import pipeline
import postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kafkalite import Broker

TABLES = """
CREATE TABLE payments (payment bigint, account int, cents bigint);
CREATE TABLE accounts (account int PRIMARY KEY, payments bigint, cents numeric);
"""
ARRIVED = "payment bigint, account int, cents bigint"
STORE = """
INSERT INTO payments SELECT * FROM arrived;
INSERT INTO accounts SELECT account, count(*), sum(cents) FROM arrived GROUP BY account
ON CONFLICT (account) DO UPDATE SET
    payments = accounts.payments + excluded.payments, cents = accounts.cents + excluded.cents
"""


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> list[payments.Payment]:
    """Sends, stores, compares. Returns what was sent."""
    made = payments.make(options.payments, options.seed)
    payments.send(broker, made)
    arrived = payments.read(spark, broker.bootstrap_servers, -(-len(made) // payments.BATCHES))
    with postgres.server() as database:
        postgres.create_tables(database, TABLES)
        pipeline.follow(store(arrived, database, folder / "payments"))
        check_tables(database, made)
    pipeline.step("rows and balances of accounts are as the payments were")
    payments.write_letters(broker, arrived, folder / "letters")
    payments.check_letters(spark, broker, made)
    pipeline.step(f"{payments.DEAD_LETTERS} has the broken records as they were")
    return made


def store(arrived: "DataFrame", database: str, checkpoint: Path) -> "StreamingQuery":
    """Starts the query, which ends at the end of the topic."""
    rows = arrived.where(payments.IS_PAYMENT).select("payment", "account", "cents")
    return postgres.store(rows, database, checkpoint, ARRIVED, STORE)


def check_tables(database: str, made: Iterable[payments.Payment]) -> None:
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


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="A topic to tables of PostgreSQL, exactly once.")
    parser.add_argument(
        "--payments", type=int, default=200_000, metavar="N", help="payments to send (200000)"
    )
    return parser


if __name__ == "__main__":
    pipeline.main("payments to PostgreSQL", command_line(), run, need_more=postgres.need_postgres)
