"""A pipeline of `spark/` that kills itself in its second micro-batch, about its sink's commit.

Run by `test_sinks.py`:

    python -m spark.killed_sink FOLDER SERVERS OFFSETS_PER_TRIGGER (before|after) [DATABASE]

With the address of a PostgreSQL it writes there, else to the Delta table FOLDER/table.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import payments
import payments_to_delta
import payments_to_postgres
import psycopg
from pyspark.sql import DataFrame

from spark.session import build_session

COMMITS = "_delta_log/*.json"
POLL_S = 0.0005


def die() -> None:
    """Kills Python and its JVM together; workers end with their pipes."""
    os.killpg(0, signal.SIGKILL)


def to_postgres(arrived: DataFrame, folder: Path, moment: str, database: str) -> None:
    """Dies at the second commit, or after it."""
    commit = psycopg.Connection.commit
    committed = 0

    def commit_or_die(connection: "psycopg.Connection[object]") -> None:
        nonlocal committed
        if committed == 1 and moment == "before":
            die()
        commit(connection)
        if committed == 1:
            die()
        committed += 1

    psycopg.Connection.commit = commit_or_die
    payments_to_postgres.store(arrived, database, folder / "checkpoint").awaitTermination()


def to_delta(arrived: DataFrame, folder: Path, moment: str) -> None:
    """Dies when the second micro-batch's first file is there, or its commit."""
    table = folder / "table"

    def count(files: str) -> int:
        return len(list(table.glob(files)))

    def await_another(files: str) -> None:
        there = count(files)
        while count(files) == there:
            time.sleep(POLL_S)  # polls the folder

    def watch() -> None:
        await_another(COMMITS)
        await_another(COMMITS if moment == "after" else "*.parquet")
        die()

    threading.Thread(target=watch, daemon=True).start()
    payments_to_delta.append(arrived, table, folder / "checkpoint").awaitTermination()


def main(folder: Path, servers: str, per_trigger: str, moment: str, database: str = "") -> None:
    """Runs until it is dead."""
    settings = payments_to_delta.SETTINGS | {"spark.jars.packages": ""}
    arrived = payments.read(build_session(folder / moment, **settings), servers, int(per_trigger))
    if database:
        to_postgres(arrived, folder, moment, database)
    else:
        to_delta(arrived, folder, moment)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
