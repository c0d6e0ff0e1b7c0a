#!/usr/bin/env python3
"""Keeps a Delta table equal to a table of PostgreSQL, by Debezium's changes in a topic.

    python spark/changes_to_delta.py [--changes 20000]

PostgreSQL tells its changes by logical decoding; Debezium's connector, on Kafka Connect, writes
each to a topic, by the row's key; a stream merges them into the table: the last change of each key
in a micro-batch counts, a deletion takes the row away, and what the table has seen already changes
nothing, so that a micro-batch that is repeated leaves it as it was. Rows are inserted, updated and
deleted meanwhile. At the end both tables are compared.
"""

import argparse
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import connect
import payments_to_delta
import pipeline
import postgres

if TYPE_CHECKING:
    from psycopg import Cursor
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kafkalite import Broker

SETTINGS = payments_to_delta.SETTINGS
TABLE = "customers"
TOPIC = f"shop.public.{TABLE}"
COLUMNS = "id BIGINT, name STRING, cents BIGINT"
AT_FIRST = 1_000
CHANGES_OF_A_TRANSACTION = 20
CITIES = ("Bergen", "Cusco", "Davos", "Lagos", "Ghent", "Kyoto", "Quito", "Turku")
ARRIVED_S = 180

# What of Debezium's envelope is needed. `lsn` is where the change stands in PostgreSQL's log.
ENVELOPE = (
    f"before STRUCT<id: BIGINT>, after STRUCT<{COLUMNS}>, source STRUCT<lsn: BIGINT>, op STRING"
)
# Such as of TRUNCATE, which a merge by key cannot follow.
NO_ROW = "raise_error(concat('a change of no row: ', to_json(value)))"
# The rows of a snapshot have the place at which it was made, as has what is changed right after it:
# among equals the later record counts.
LAST_OF_EACH_KEY = """
SELECT last.* FROM (
    SELECT max_by(struct(*), struct(lsn, offset)) AS last FROM changes GROUP BY id
)
"""
MERGE = """
MERGE INTO delta.`{table}` AS known USING last_changes AS new ON known.id = new.id
WHEN MATCHED AND new.lsn >= known.lsn AND new.op = 'd' THEN DELETE
WHEN MATCHED AND new.lsn >= known.lsn THEN
    UPDATE SET name = new.name, cents = new.cents, lsn = new.lsn
WHEN NOT MATCHED AND new.op <> 'd' THEN
    INSERT (id, name, cents, lsn) VALUES (new.id, new.name, new.cents, new.lsn)
"""


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> list[tuple[int, str, int]]:
    """Changes one table and keeps the other current. Returns the rows that both have at the end."""
    classpath = connect.jars()
    table, port = folder / "table", connect.free_port()
    with (
        postgres.server("wal_level=logical", port=port) as database,
        connect.worker(broker.bootstrap_servers, folder / "connect", classpath) as worker,
    ):
        create(database)
        pipeline.create_topic(broker, TOPIC, 2)
        worker.run(TABLE, connector(port))
        pipeline.step("Debezium runs; the table is changed meanwhile")
        query = merge(changes(spark, broker.bootstrap_servers), table, folder / "checkpoint")
        try:
            made = change(database, options.changes, options.seed)
            await_in_topic(database)
            query.processAllAvailable()
        finally:
            query.stop()
        pipeline.follow(query)
        rows = compare(spark, table, database)
    pipeline.step(f"{made:,} changes: the Delta table has the {len(rows):,} rows of PostgreSQL's")
    return rows


def connector(port: int) -> dict[str, str]:
    """Debezium's configuration, beside which everything is as it is by default."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": "postgres",
        "database.password": "none is asked for",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": f"public.{TABLE}",
        "publication.autocreate.mode": "filtered",
        "poll.interval.ms": "100",
    }


def create(database: str) -> None:
    """The table in PostgreSQL, with its first rows, which Debezium's snapshot brings."""
    import psycopg

    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, name TEXT, cents BIGINT)")
        # Else an update leaves out long texts that it did not change, and Debezium writes in their
        # place `__debezium_unavailable_value`.
        connection.execute(f"ALTER TABLE {TABLE} REPLICA IDENTITY FULL")
        connection.execute(
            f"INSERT INTO {TABLE} SELECT id, 'customer ' || id, 100 * id "  # noqa: S608
            f"FROM generate_series(1, {AT_FIRST}) AS id"
        )


def change(database: str, count: int, seed: int) -> int:
    """Inserts, updates and deletes rows, some in a transaction. Returns how many."""
    import psycopg

    draw = random.Random(seed)
    there, made = list(range(1, AT_FIRST + 1)), 0
    with psycopg.connect(database) as connection:
        while made < count:
            with connection.transaction(), connection.cursor() as cursor:
                for _ in range(min(CHANGES_OF_A_TRANSACTION, count - made)):
                    made += 1
                    _change_a_row(cursor, draw, there, AT_FIRST + made)
    return made


def _change_a_row(cursor: "Cursor", draw: random.Random, there: list[int], new: int) -> None:
    """One of six changes is of a new row, one a deletion; `there` are the keys, in any order."""
    cents, kind = draw.randrange(100_000), draw.randrange(6)
    if kind == 0 or not there:
        cursor.execute(
            f"INSERT INTO {TABLE} VALUES (%s, %s, %s)",  # noqa: S608
            (new, draw.choice(CITIES), cents),
        )
        there.append(new)
        return
    place = draw.randrange(len(there))
    key = there[place]
    if kind == 1:
        cursor.execute(f"DELETE FROM {TABLE} WHERE id = %s", (key,))  # noqa: S608
        there[place] = there[-1]
        there.pop()
    else:
        cursor.execute(f"UPDATE {TABLE} SET cents = %s WHERE id = %s", (cents, key))  # noqa: S608


def await_in_topic(database: str) -> None:
    """Returns when Debezium has told PostgreSQL that what was changed by now is in the topic."""
    import psycopg

    deadline = time.monotonic() + ARRIVED_S
    with psycopg.connect(database, autocommit=True) as connection:
        (end,) = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone() or (None,)
        behind = "SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn < %s::pg_lsn"
        while (connection.execute(behind, (end,)).fetchone() or (1,))[0]:
            if time.monotonic() > deadline:
                raise pipeline.StopError("Debezium does not get to the end of PostgreSQL's log")
            # Debezium confirms with the next change that it sees, of whatever table.
            connection.execute("SELECT pg_logical_emit_message(false, 'kafkalite', '')")
            time.sleep(0.2)  # between two polls


def changes(spark: "SparkSession", servers: str) -> "DataFrame":
    """The topic as changes of rows: what a row is after each, or the key of one that is deleted.
    The record without a value that follows a deletion is for compaction. One that is not of this
    schema ends the query: as null it would be merged over what the table has."""
    records = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("columns", "value,offset")
        .option("value.format", "json")
        .option("value.schema", ENVELOPE)
        .option("mode", "FAILFAST")
        .load()
    )
    return records.where("value IS NOT NULL").selectExpr(
        f"coalesce(value.after.id, value.before.id, {NO_ROW}) AS id",
        "value.after.name AS name",
        "value.after.cents AS cents",
        "value.op AS op",
        "value.source.lsn AS lsn",
        "offset",
    )


def merge(changed: "DataFrame", table: Path, checkpoint: Path) -> "StreamingQuery":
    """Starts the query, which keeps the table current until it is stopped."""
    changed.sparkSession.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({COLUMNS}, lsn BIGINT) USING delta"
    )

    def write(batch: "DataFrame", number: int) -> None:  # noqa: ARG001
        session = batch.sparkSession
        batch.createOrReplaceTempView("changes")
        session.sql(LAST_OF_EACH_KEY).createOrReplaceTempView("last_changes")
        session.sql(MERGE.format(table=table))

    return (
        changed.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def compare(spark: "SparkSession", table: Path, database: str) -> list[tuple[int, str, int]]:
    """The rows of both tables. Raises `StopError` if they differ."""
    import psycopg

    found = spark.sql(f"SELECT id, name, cents FROM delta.`{table}` ORDER BY id").collect()  # noqa: S608
    with psycopg.connect(database) as connection:
        rows = connection.execute(f"SELECT id, name, cents FROM {TABLE} ORDER BY id").fetchall()  # noqa: S608
    if [tuple(row) for row in found] != rows:
        raise pipeline.StopError(
            f"the Delta table has {len(found):,} rows that are not the {len(rows):,} of PostgreSQL"
        )
    return rows


def need_all() -> None:
    """Raises `StopError` where Delta's Spark, PostgreSQL or Maven's client is missing."""
    payments_to_delta.need_delta()
    postgres.need_postgres()
    pipeline.need("jgo")


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="PostgreSQL's changes to a Delta table.")
    parser.add_argument(
        "--changes", type=int, default=20_000, metavar="N", help="changes to make (20000)"
    )
    return parser


if __name__ == "__main__":
    pipeline.main(
        "PostgreSQL's changes to Delta",
        command_line(),
        run,
        SETTINGS,
        need_all,
    )
